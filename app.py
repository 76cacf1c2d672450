"""The dashboard as a web application: ``streamlit run app.py``."""

import streamlit as st

from jarvis.dashboard import MAIN
from jarvis.server.web import middleware, routes
from jarvis.server.worker_watch import lifespan

app = st.App(MAIN, lifespan=lifespan, routes=routes(), middleware=middleware())
