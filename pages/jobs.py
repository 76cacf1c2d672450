"""Jobs: what this server works on, how far that is, and how it ended."""

import streamlit as st

from jarvis.dashboard import jobs

st.title(":material/checklist: Jobs")
jobs.render()
