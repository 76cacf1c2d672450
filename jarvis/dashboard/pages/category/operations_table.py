"""Table of a category's operations, with badges, bars and row selection."""

from collections.abc import Sequence
from functools import partial
from zlib import crc32

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.analyses.base import Analysis
from jarvis.charts import LIGHT, STATES, largest
from jarvis.dashboard.session import selection
from jarvis.dashboard.widgets import row_order
from jarvis.dashboard.widgets.projection import operation_columns
from jarvis.dashboard.widgets.table import configured
from jarvis.schemas import Column
from jarvis.text.format import MISSING

DEFAULT_ORDER = "kernel_time_us"
"""Default sort column."""

_ROW_PX, _TABLE_PX = 35, 420
_FIRST = ("state", "name", "arguments", "operation_count", "kernel_time_us", "percent_of_category")
_RATES = ("pct_roofline", "saved_us", "bound", "tflops_per_s", "tb_per_s")
_LAST = ("flops_per_byte", "compute", "library", "called_from", "main_kernel", "percent_of_compute")
_WIDTHS = {
    "arguments": 160,
    "operation_count": 60,
    "kernel_time_us": 100,
    "saved_us": 90,
    "bound": 75,
}
"""Widths in pixels, to keep the efficiency column visible."""

_BADGE_COLORS = (LIGHT.below_threshold, "yellow", "blue", "violet", "gray")
"""Colors of STATES: one strong color, dark enough for white text in both themes, and pale Streamlit
colors."""


def shown_columns(analysis: Analysis, rows: pl.DataFrame) -> list[str]:
    """Return the columns of the table in order, without columns that have no values."""
    own = [column.name for column in analysis.details]
    names = dict.fromkeys([*_FIRST, *_RATES, *own, *_LAST])
    return [n for n in names if n in rows.columns and rows[n].null_count() < rows.height]


def metrics_table(analysis: Analysis, rows: pl.DataFrame, filter_id: str) -> int | None:
    """Draw a page of the table and return the ``uid`` of the selected row, also set in the URL.

    ``rows``: operations from ``projection.with_projection``, longest first. A row stays selected
    on other pages of the table and with all filters that it passes.
    """
    page = analysis.key
    columns = operation_columns(analysis)
    names = shown_columns(analysis, rows)
    uid, is_new = selection.selected(page, rows)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        labels = {name: columns[name].label for name in names if name != "state"}
        order = row_order.order_controls(page, labels, DEFAULT_ORDER)
        # Sort only two columns and an index, as sorting copies and a page needs few of the rows.
        indexed = rows.select("uid", order.column).with_row_index("place")
        ordered = order.sorted(indexed)
        shown_by = f"{filter_id}-{order.column}-{order.direction}"
        wanted = _position(ordered, uid) if is_new else None
        number = row_order.page_number(page, ordered.height, shown_by, wanted)
    part = rows[row_order.page_of(ordered, number)["place"]]
    place = _position(part, uid)
    key = _table_key(page, shown_by, part)
    if is_new or key not in st.session_state:
        chosen = [] if place is None else [place]
        st.session_state[key] = {"selection": {"rows": chosen, "columns": [], "cells": []}}
    picked = _page_table(analysis, part, rows, names, key)
    if picked is not None or place is not None:
        uid = picked
    selection.keep(page, uid)
    return uid


def _page_table(
    analysis: Analysis, part: pl.DataFrame, rows: pl.DataFrame, names: Sequence[str], key: str
) -> int | None:
    """Draw ``part``, a page of ``rows``; return the ``uid`` of its selected row."""
    columns = operation_columns(analysis)
    event = st.dataframe(
        # Streamlit draws lists as badges.
        part.select(names).with_columns(pl.concat_list("state")),
        key=key,
        hide_index=True,
        height=min(_TABLE_PX, (part.height + 1) * _ROW_PX + 3),
        column_order=names,
        column_config={name: _configuration(columns[name], rows) for name in names},
        on_select=partial(_sort_by_header, analysis.key, key, part.schema),
        selection_mode=["single-row", "single-column"],
        placeholder=MISSING,
        alt=f"Operations of {analysis.title} with times, rates, efficiency and saving",
    )
    picked = event["selection"]["rows"]
    return int(part["uid"][picked[0]]) if picked else None


def _sort_by_header(page: str, key: str, schema: pl.Schema) -> None:
    """Sort all rows by the column whose header was clicked; the browser has only one page."""
    heads = st.session_state[key]["selection"]["columns"]
    if heads and heads[0] != "state":
        row_order.sort_by(page, heads[0], is_number=schema[heads[0]].is_numeric())


def _position(rows: pl.DataFrame, uid: int | None) -> int | None:
    """Return the index of an operation in the rows."""
    return None if uid is None else rows["uid"].index_of(uid)


def _table_key(page: str, shown_by: str, part: pl.DataFrame) -> str:
    """Return a widget key that differs by the rows shown, as the browser selects by index."""
    rows = crc32(part["uid"].to_numpy().tobytes())
    return f"{page}_table_{shown_by}-{rows:08x}"


def _configuration(column: Column, rows: pl.DataFrame) -> ColumnConfig:
    config = st.column_config
    if column.name == "state":
        return config.MultiselectColumn(
            column.label,
            options=list(STATES),
            color=list(_BADGE_COLORS),
            width=115,
            help=column.meaning,
        )
    if column.name == "percent_of_category":
        return _bar(column, largest(rows[column.name]) or 1.0)
    if column.name == "pct_roofline":
        return _bar(column, 100.0)
    if column.name == "name":
        return config.TextColumn(column.label, pinned=True, width=150, help=column.meaning)
    width = _WIDTHS.get(column.name)
    return configured(column, rows.schema[column.name], width)


def _bar(column: Column, longest: float) -> ColumnConfig:
    return st.column_config.ProgressColumn(
        column.label,
        format="%.1f%%",
        min_value=0.0,
        max_value=longest,
        width=110,
        help=column.meaning,
    )
