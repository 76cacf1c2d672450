"""Jobs page: state and progress of the server's jobs."""

import streamlit as st

from jarvis.dashboard.pages import jobs

st.title(":material/checklist: Jobs")
jobs.render()
