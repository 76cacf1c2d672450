"""Hardware: what each GPU can do at most, where the figures come from, and GPUs of your own."""

import streamlit as st

from jarvis.dashboard import custom_hardware, hardware, judged_anew

st.title(":material/memory: Hardware")
catalogue = hardware.catalogue()
hardware.presets(catalogue)
spec, other = hardware.chosen(catalogue)
hardware.figures(spec, other)
judged_anew.render(spec, catalogue)
custom_hardware.render(catalogue)
