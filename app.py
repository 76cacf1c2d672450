"""The dashboard as a web application: ``streamlit run app.py``."""

import streamlit as st

from jarvis.dashboard import MAIN

app = st.App(MAIN)
