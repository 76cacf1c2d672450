"""The table of a category's operations: badges, shares, shading below the threshold, selection."""

from collections.abc import Sequence

import pandas as pd
import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.analyses.base import Analysis
from jarvis.charts import STATES, Palette, largest
from jarvis.dashboard import selection
from jarvis.dashboard.projection import operation_columns
from jarvis.dashboard.small_table import configured
from jarvis.dashboard.state import palette
from jarvis.reports.quantities import MISSING
from jarvis.schemas import Column

SHADED_ROWS = 1000
"""Cells are shaded up to this many rows: beyond, the styling costs more than the table itself."""

_ROW_PX, _TABLE_PX = 35, 420
_FIRST = ("state", "name", "arguments", "operation_count", "kernel_time_us", "percent_of_category")
_RATES = ("pct_roofline", "saved_us", "bound", "tflops_per_s", "tb_per_s")
_LAST = ("flops_per_byte", "compute", "library", "called_from", "main_kernel", "percent_of_compute")
_WIDTHS = {
    "arguments": 160,
    "operation_count": 60,
    "kernel_time_us": 100,
    "pct_roofline": 85,
    "saved_us": 90,
    "bound": 75,
}
"""In pixels, for columns that would else push the efficiency out of sight."""

_BADGE_COLOURS = ("orange", "yellow", "blue", "violet", "gray")
"""Streamlit's names for the colours of STATES."""


def shown_columns(analysis: Analysis, rows: pl.DataFrame) -> list[str]:
    """The columns of the table in their order; those without any value are left out."""
    own = [column.name for column in analysis.details]
    names = dict.fromkeys([*_FIRST, *_RATES, *own, *_LAST])
    return [n for n in names if n in rows.columns and rows[n].null_count() < rows.height]


def metrics_table(analysis: Analysis, rows: pl.DataFrame, filter_id: str) -> int | None:
    """Draw the table; the ``uid`` of the selected row, which also stands in the URL.

    ``rows``: operations of the category as ``projection.judged`` gives them.
    """
    columns = operation_columns(analysis)
    names = shown_columns(analysis, rows)
    key = f"{analysis.key}_table_{filter_id}"
    if (wanted := selection.requested_row(analysis.key, rows)) is not None:
        st.session_state[key] = {"selection": {"rows": [wanted], "columns": [], "cells": []}}
    event = st.dataframe(
        _styled(rows, names, palette()),
        key=key,
        hide_index=True,
        height=min(_TABLE_PX, (rows.height + 1) * _ROW_PX + 3),
        column_order=names,
        column_config={name: _configuration(columns[name], rows) for name in names},
        on_select="rerun",
        selection_mode="single-row",
        placeholder=MISSING,
        alt=f"Operations of {analysis.title} with times, rates, efficiency and saving",
    )
    picked = event["selection"]["rows"]
    uid = int(rows["uid"][picked[0]]) if picked else None
    selection.keep(analysis.key, uid)
    return uid


def _styled(rows: pl.DataFrame, names: Sequence[str], colours: Palette) -> object:
    """The rows as the browser gets them; ``state`` as a list, which is drawn as a badge."""
    frame = rows.select(names).with_columns(pl.concat_list("state"))
    if rows.height > SHADED_ROWS or "pct_roofline" not in names:
        return frame
    bad, warning = (
        f"background-color: {cell.background}; color: {cell.text}"
        for cell in (colours.bad_cell, colours.warning_cell)
    )
    css = dict(zip(STATES, (bad, warning, "", warning, ""), strict=True))
    shades = [css[state] for state in rows["state"]]

    def shade(efficiencies: "pd.Series[float]") -> list[str]:
        return shades

    return frame.to_pandas().style.apply(shade, subset=["pct_roofline"])


def _configuration(column: Column, rows: pl.DataFrame) -> ColumnConfig:
    config = st.column_config
    if column.name == "state":
        return config.MultiselectColumn(
            column.label,
            options=list(STATES),
            color=list(_BADGE_COLOURS),
            width=115,
            help=column.meaning,
        )
    if column.name == "percent_of_category":
        top = largest(rows[column.name]) or 1.0
        return config.ProgressColumn(
            column.label,
            format="%.1f%%",
            min_value=0.0,
            max_value=top,
            width=110,
            help=column.meaning,
        )
    if column.name == "name":
        return config.TextColumn(column.label, pinned=True, width=150, help=column.meaning)
    width = _WIDTHS.get(column.name)
    return configured(column, rows.schema[column.name], width)
