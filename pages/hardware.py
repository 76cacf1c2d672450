"""Hardware: what each GPU can do at most, where the figures come from, and GPUs of your own."""

import streamlit as st

from jarvis.dashboard.pages.hardware import custom_gpus, page, reproject

st.title(":material/memory: Hardware")
catalog = page.catalog()
page.presets(catalog)
spec, other = page.chosen(catalog)
page.figures(spec, other)
reproject.render(spec, catalog)
custom_gpus.render(catalog)
