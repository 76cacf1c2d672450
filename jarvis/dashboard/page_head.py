"""The head of a page: its title, what it is about, and the warnings that concern it."""

import streamlit as st

from jarvis.dashboard.state import Opened
from jarvis.reports.gaps import warnings_of
from jarvis.reports.markup import escape, prose


def page_head(title: str, icon: str, analysis: Opened) -> None:
    """Title on the left; model, GPU, preset, trace and id on the right; warnings below."""
    manifest = analysis.run.manifest
    hardware = manifest.hardware
    about = [
        manifest.model_name or "model not named",
        f"{hardware.name} ({hardware.preset})" if hardware else "GPU not known",
        manifest.trace.file_name,
        analysis.id,
    ]
    with st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"
    ):
        st.title(f"{icon} {title}", width="content")
        st.caption(" · ".join(map(escape, about)), width="content")
    for warning in warnings_of(analysis.run):
        st.warning(prose(warning), icon=":material/warning:")
