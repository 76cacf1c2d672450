"""Draw the panels that analyses declare."""

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.base import Panel
from jarvis.dashboard.isolation import isolated
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.panel_kinds import KINDS, PanelData
from jarvis.schemas.names import C

_FILTERED = "The filters hide every row that this chart could show."

PanelDrawing = tuple[charts.Drawing | None, str]
"""A chart and its title as Markdown, or why there is none."""

EncodedPanel = tuple[charts.EncodedDrawing | None, str]
"""The same as caches keep it."""


def draw_panel(data: PanelData, selected: int | None = None) -> PanelDrawing:
    """Draw a panel, with an outline of the mark of the operation whose ``uid`` is ``selected``."""
    kind = KINDS[data.panel.kind]
    drawing = kind.draw(data)
    if drawing is None or drawing.is_empty:
        return None, _FILTERED if _is_filtered(data) else kind.when_empty(data)
    if kind.has_operations:
        drawing = charts.selectable(drawing, selected, data.colors)
    elif data.panel.y is not None and C.uid in data.rows.columns:
        drawing = charts.outlined_bar(drawing, data.rows, selected, data.panel.y, data.colors)
    return drawing, kind.title(data)


def panel_chart(
    panel: Panel,
    rows: pl.DataFrame,
    columns: charts.Columns,
    target_pct: float,
    key: str,
    whole: pl.DataFrame | None = None,
    draw: Callable[[PanelData], PanelDrawing | EncodedPanel] = draw_panel,
) -> None:
    """Render a panel's chart inside a card.

    ``whole`` are the rows without filters, if ``rows`` are fewer; they fix the colors.
    ``selection.follow_chart`` selects the operation whose mark a user clicks. A panel that fails,
    for example one of an extension, shows an error. ``draw`` is ``draw_panel``, or a cache of it.
    """
    with isolated(panel.title):
        data = PanelData(panel, rows, columns, target_pct, palette(), whole)
        drawing, text = draw(data)
        _chart(data, drawing, text, key)


def _is_filtered(data: PanelData) -> bool:
    """Return whether filters hide all that an empty chart could show."""
    if data.whole is None or data.rows.height == data.whole.height:
        return False
    drawing = KINDS[data.panel.kind].draw(replace(data, rows=data.whole))
    return drawing is not None and not drawing.is_empty


def _chart(
    data: PanelData, drawing: charts.Drawing | charts.EncodedDrawing | None, text: str, key: str
) -> None:
    panel, kind = data.panel, KINDS[data.panel.kind]
    if drawing is None:
        st.markdown(f"**{panel.title}**")
        st.caption(text)
        return
    st.markdown(f"**{panel.title}** · {text}")
    if kind.has_points and (hidden := data.rows.height - charts.MAX_POINTS) > 0:
        st.caption(f"The {charts.MAX_POINTS:,} operations with most time; {hidden:,} hidden.")
    if drawing.note:
        st.caption(drawing.note)
    alt = panel.title if kind.alt is None else f"{panel.title}: {kind.alt}"
    picked = charts.PICKED if kind.has_operations else None
    render_chart(drawing, alt, key=key, selection=picked)
