"""Ranks page: who is late in a distributed job, and why."""

import streamlit as st

from jarvis.dashboard.pages.ranks import page

st.title(":material/lan: Ranks")
page.render()
