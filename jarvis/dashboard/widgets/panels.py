"""Draw the panels that analyses declare."""

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.base import Panel
from jarvis.dashboard.isolation import isolated
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.panel_titles import panel_title


def panel_chart(
    panel: Panel, rows: pl.DataFrame, columns: charts.Columns, target_pct: float, key: str
) -> int | None:
    """Draw a panel in a card and return the ``uid`` of the operation clicked on it.

    A panel that fails, for example one of an extension, shows an error message.
    """
    with isolated(panel.title):
        return _chart(panel, rows, columns, target_pct, key)
    return None


def _chart(
    panel: Panel, rows: pl.DataFrame, columns: charts.Columns, target_pct: float, key: str
) -> int | None:
    drawing = draw(panel, rows, columns, target_pct)
    if drawing is None:
        st.markdown(f"**{panel.title}**")
        st.caption(_WHY_EMPTY[panel.kind])
        return None
    st.markdown(panel_title(panel, rows, columns))
    if panel.kind in _OF_POINTS and (hidden := rows.height - charts.MAX_POINTS) > 0:
        st.caption(f"The {charts.MAX_POINTS:,} longest operations; {hidden:,} hidden.")
    if panel.kind != "roofline":
        render_chart(drawing, panel.title, key=key)
        return None
    picked = render_chart(
        drawing,
        f"{panel.title}: achieved rate of each operation under the peaks",
        key=key,
        selection=charts.PICKED,
    )
    return int(picked[0]["uid"]) if picked else None


_OF_POINTS = ("roofline", "scatter")
_WHY_EMPTY = {
    "roofline": "No operation here has a perf model with a rate, so there is nothing to plot.",
    "savings": "No saving at this target, or no efficiency is known.",
    "bars": "The trace has no such operations.",
    "scatter": "No operation has both values.",
}


def draw(
    panel: Panel, rows: pl.DataFrame, columns: charts.Columns, target_pct: float
) -> charts.Drawing | None:
    """Return the chart of a panel, or None if it would be empty."""
    colors = palette()
    if panel.kind == "roofline":
        of_bandwidth = panel.y == "tb_per_s"
        return charts.roofline(rows, columns, target_pct, colors, is_of_bandwidth=of_bandwidth)
    if panel.kind == "savings":
        has_any = (rows["saved_us"] > 0).any()
        return charts.savings(rows, columns, colors) if has_any else None
    if panel.x is None or panel.y is None:
        raise ValueError(f"the panel {panel.title!r} names no x and y")
    draw_kind = charts.bars if panel.kind == "bars" else charts.scatter
    drawing = draw_kind(rows, columns, colors, x=panel.x, y=panel.y, color=panel.color)
    return None if drawing.is_empty else drawing
