"""Ingest page: choose a trace, GPU and options, and analyze."""

import streamlit as st

from jarvis.dashboard.pages.ingest import archive_form, page

st.title(":material/upload_file: Ingest")
page.form()
page.stored_analyses()
archive_form.load_form()
