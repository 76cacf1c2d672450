"""Hardware: what each GPU can do at most, where the figures come from, and GPUs of your own."""

import streamlit as st

from jarvis.dashboard.pages.hardware import custom_gpus, page, reproject

st.title(":material/memory: Hardware")
catalogue = page.catalogue()
page.presets(catalogue)
spec, other = page.chosen(catalogue)
page.figures(spec, other)
reproject.render(spec, catalogue)
custom_gpus.render(catalogue)
