"""Page header: title, analysis and warnings."""

import streamlit as st

from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.trace_health import warning_strip
from jarvis.findings import Tier
from jarvis.text.markdown import escape


def page_header(
    title: str, icon: str, analysis: Opened, tier: Tier | None = None, *, has_health: bool = False
) -> None:
    """Draw the title; model name, GPU, trace and id of the analysis; and warnings.

    Args:
        title: Title of the page.
        icon: Streamlit icon of the page.
        analysis: The open analysis.
        tier: Tier of the page's analysis, if it has one; selects the warnings.
        has_health: The page draws the warnings itself.
    """
    manifest = analysis.run.manifest
    hardware = manifest.hardware
    about = [
        *([manifest.model_name] if manifest.model_name else []),
        f"{hardware.name} ({hardware.preset})" if hardware else "GPU unknown",
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
