"""Jobs: what this server works on, how far that is, and how it ended."""

import streamlit as st

from jarvis.dashboard.pages.jobs import page

st.title(":material/checklist: Jobs")
page.render()
