"""The dashboard as a web application: ``streamlit run app.py``."""

import streamlit as st
from streamlit import config

from jarvis.dashboard import MAIN
from jarvis.server.access.login import login_secrets
from jarvis.server.http.app import middleware, routes
from jarvis.server.http.web.lifespan import lifespan
from jarvis.server.logs import configure_logs
from jarvis.server.settings import settings

if (public_url := settings().public_url) is not None:  # a proxy may change the host
    config.set_option("server.corsAllowedOrigins", [public_url])
app = st.App(
    MAIN,
    secrets=login_secrets(settings()),
    lifespan=lifespan,
    routes=routes(),
    middleware=middleware(),
)
configure_logs("web")  # last: Streamlit configures its own logging
