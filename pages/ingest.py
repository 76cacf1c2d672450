"""Ingest: bring a trace in, say what it ran on, and analyse it."""

import streamlit as st

from jarvis.dashboard import archive_form, ingest

st.title(":material/upload_file: Ingest")
ingest.form()
ingest.recent_analyses()
archive_form.load_form()
