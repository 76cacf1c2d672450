"""Runs page: stored analyses with filters, labels, comparison of several, and trend."""

import streamlit as st

from jarvis.dashboard.pages.runs import page

st.title(":material/list_alt: Runs")
page.render()
