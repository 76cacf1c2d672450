"""Draw the panels that analyses declare."""

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.base import Panel
from jarvis.dashboard.isolation import isolated
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.panel_kinds import KINDS, PanelData


def panel_chart(
    panel: Panel, rows: pl.DataFrame, columns: charts.Columns, target_pct: float, key: str
) -> int | None:
    """Render a panel's chart inside a card; return the ``uid`` of the operation clicked on it.

    A panel that fails, for example one of an extension, shows an error message.
    """
    with isolated(panel.title):
        return _chart(PanelData(panel, rows, columns, target_pct, palette()), key)
    return None


def _chart(data: PanelData, key: str) -> int | None:
    panel, kind = data.panel, KINDS[data.panel.kind]
    drawing = kind.draw(data)
    if drawing is None or drawing.is_empty:
        st.markdown(f"**{panel.title}**")
        st.caption(kind.when_empty)
        return None
    st.markdown(f"**{panel.title}** · {kind.title(data)}")
    if kind.has_points and (hidden := data.rows.height - charts.MAX_POINTS) > 0:
        st.caption(f"The {charts.MAX_POINTS:,} operations with most time; {hidden:,} hidden.")
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
