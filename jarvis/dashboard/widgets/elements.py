"""Streamlit elements with this project's defaults: chart, metric card, lazy expander."""

from collections.abc import Iterable
from typing import Any

import altair as alt
import streamlit as st
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

from jarvis.charts import Drawing
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.run import Run


def is_unavailable(run: Run, tables: Iterable[str]) -> bool:
    """Return whether the run lacks a page's tables; if so, show why."""
    reason = unavailable_reason(run.manifest.absent_tables, tables)
    if reason is None:
        return False
    st.info(reason, icon=":material/visibility_off:")
    navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
    return True


def render_chart(
    drawing: Drawing, alt: str, *, key: str | None = None, selection: str | None = None
) -> list[dict[str, Any]]:
    """Draw a chart and return the fields of each selected mark.

    Args:
        drawing: The chart.
        alt: Accessible description.
        key: Widget key.
        selection: Name of the chart's selection; None for a chart without one.
    """
    spec = {**drawing.spec, "datasets": dict(drawing.datasets)}
    if selection is None:
        st.vega_lite_chart(spec, key=key, alt=alt)
        return []
    event = st.vega_lite_chart(spec, key=key, alt=alt, on_select="rerun", selection_mode=selection)
    marks: list[dict[str, Any]] = event["selection"].get(selection) or []
    return marks


def render_altair(chart: alt.LayerChart, alt_text: str) -> None:
    """Draw a chart without validating it, which takes most of its time; the tests validate it."""
    spec = chart.to_dict(validate=False)
    spec.pop("config", None)  # sizes of Altair's theme
    st.vega_lite_chart(spec, alt=alt_text)


def metric_card(label: str, value: str, below: str | None = None, *, help_text: str) -> None:
    """Draw a metric card: label, value, a line below, and a help text on hover."""
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
    """Draw an expander, closed by default; its state is in the URL as ``key``.

    Check its ``open`` before drawing in it: Streamlit also renders the body of collapsed expanders.
    """
    check_parameter(key, lambda text: text in (_OPEN, _CLOSED), "closed")
    expander = st.expander(label, key=key, icon=icon, on_change="rerun", bind="query-params")
    if expander.open:
        note_control(key, _OPEN)
    return expander
