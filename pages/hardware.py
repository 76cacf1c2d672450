"""Hardware page: peaks of GPUs with sources, re-projection, and custom GPUs."""

import streamlit as st

from jarvis.dashboard.pages.hardware import custom_gpus, page

st.title(":material/memory: Hardware")
catalog = page.catalog()
page.presets(catalog)
spec, other = page.chosen(catalog)
page.figures(spec, other)
page.render(spec, catalog)
custom_gpus.render(catalog)
