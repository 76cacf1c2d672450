"""Puts drawings on the page."""

from typing import Any

import streamlit as st

from jarvis.charts import Drawing


def drawn(
    drawing: Drawing, alt: str, *, key: str | None = None, selection: str | None = None
) -> list[dict[str, Any]]:
    """Draw a chart; what its ``selection`` holds, if it has one: the fields of each mark."""
    spec = {**drawing.spec, "datasets": dict(drawing.datasets)}
    if selection is None:
        st.vega_lite_chart(spec, key=key, alt=alt)
        return []
    event = st.vega_lite_chart(spec, key=key, alt=alt, on_select="rerun", selection_mode=selection)
    found: list[dict[str, Any]] = event["selection"].get(selection) or []
    return found
