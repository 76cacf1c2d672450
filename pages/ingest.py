"""Ingest: bring a trace in, say what it ran on, and analyze it."""

import streamlit as st

from jarvis.dashboard.pages.ingest import archive_form, page

st.title(":material/upload_file: Ingest")
page.form()
page.recent_analyses()
archive_form.load_form()
