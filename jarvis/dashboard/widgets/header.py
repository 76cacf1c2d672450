"""The head of a page: its title, what it is about, and the warnings that concern it."""

import streamlit as st

from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.trace_health import warning_strip
from jarvis.findings import Tier
from jarvis.text.markdown import escape


def page_header(
    title: str, icon: str, analysis: Opened, tier: Tier | None = None, *, has_health: bool = False
) -> None:
    """Title on the left; model if it has a name, GPU, trace and id on the right; warnings below.

    ``tier`` is that of the page's analysis, if it has one; a page that ``has_health`` draws the
    warnings itself.
    """
    manifest = analysis.run.manifest
    hardware = manifest.hardware
    about = [
        *([manifest.model_name] if manifest.model_name else []),
        f"{hardware.name} ({hardware.preset})" if hardware else "GPU not known",
        manifest.trace.file_name,
        analysis.id,
    ]
    with st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"
    ):
        st.title(f"{icon} {title}", width="content")
        st.caption(" · ".join(map(escape, about)), width="content")
    if not has_health:
        warning_strip(analysis, tier)
