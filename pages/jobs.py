"""Jobs page: state and progress of the server's jobs."""

import streamlit as st

from jarvis.dashboard.pages.jobs import page

st.title(":material/checklist: Jobs")
page.render()
