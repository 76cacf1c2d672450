"""Streamlit elements with this project's defaults: chart, metric card, lazy expander."""

from typing import Any

import streamlit as st
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

from jarvis.charts import Drawing
from jarvis.dashboard.session.links import check_parameter, note_control


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


def figure(label: str, value: str, below: str | None = None, *, help_text: str) -> None:
    """A bordered card: the label, the value, a plain line below, and on hover what it means."""
    st.metric(
        label,
        value,
        below,
        delta_color="off",
        delta_arrow="off",
        border=True,
        height="stretch",
        help=help_text,
    )


_OPEN, _CLOSED = "true", "false"


def lazy_expander(label: str, key: str, *, icon: str | None = None) -> ExpanderContainer:
    """A closed expander; ask its ``open`` before drawing in it.

    What is in a closed one costs a page as much as if it were seen. Whether it is open stands in
    the URL as ``key``.
    """
    check_parameter(key, lambda text: text in (_OPEN, _CLOSED), "closed")
    fold = st.expander(label, key=key, icon=icon, on_change="rerun", bind="query-params")
    if fold.open:
        note_control(key, _OPEN)
    return fold
