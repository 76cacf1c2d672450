"""Server-side sorting and pagination of large tables.

Users sort by the headers. Column, direction and page number are in the URL, prefixed with the
page's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

import polars as pl
import streamlit as st

from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.schemas import Column
from jarvis.text.markdown import escape

PAGE_ROWS = 100
"""Rows per page; the browser renders badges and bars quickly for this many."""

DESCENDING, ASCENDING = "descending", "ascending"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Sort order of a table: name of a column, and DESCENDING or ASCENDING."""

    column: str
    direction: str

    def label(self, column: Column) -> Column:
        """Return a column whose label begins with an arrow if the table is sorted by it."""
        if column.name != self.column:
            return column
        arrow = "↓" if self.direction == DESCENDING else "↑"
        return replace(column, label=f"{arrow} {column.label}")

    def sorted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows in this order (stable sort); rows without a value are last."""
        return rows.sort(
            self.column,
            descending=self.direction == DESCENDING,
            nulls_last=True,
            maintain_order=True,
        )


def order_of(page: str, labels: Mapping[str, str], default: str) -> RowOrder:
    """Return the order from the URL or the last click on a header, and draw it in words.

    ``labels`` are the columns to sort by and their labels.
    """
    labels = {str(name): text for name, text in labels.items()}
    column = _parameter(f"{page}_sort", labels, str(default))
    directions = {DESCENDING: "largest first", ASCENDING: "smallest first"}
    direction = _parameter(f"{page}_order", directions, DESCENDING)
    label, _, _ = labels[column].partition(" (")  # the unit, which tables choose themselves
    st.caption(f"Sorted by {escape(label)}, {directions[direction]}", width="content")
    return RowOrder(column, direction)


def sort_by(page: str, column: str, *, is_number: bool) -> None:
    """Sort by a column whose header was clicked; reverse the order on the second click.

    Numbers are first sorted descending, texts ascending. For callbacks.
    """
    first, second = (DESCENDING, ASCENDING) if is_number else (ASCENDING, DESCENDING)
    is_current = st.session_state.get(f"{page}_sort") == column
    is_reversed = is_current and st.session_state.get(f"{page}_order") == first
    for key, value in (
        (f"{page}_sort", column),
        (f"{page}_order", second if is_reversed else first),
    ):
        st.session_state[key] = st.query_params[key] = str(value)


def _parameter(key: str, labels: Mapping[str, str], default: str) -> str:
    """Return the value of a URL parameter, else the one in use, else ``default``."""
    check_parameter(key, lambda text: text in labels, labels[default])
    given, earlier = st.query_params.get(key), f"_{key}_default"
    wanted = st.session_state.get(key) if given is None else given
    if given is None and wanted == st.session_state.get(earlier):
        wanted = default  # the default of the last run was no choice
    value = str(wanted) if wanted in labels else default
    st.session_state[key], st.session_state[earlier] = value, default
    if value == default:
        st.query_params.pop(key, None)
    elif given != value:
        st.query_params[key] = value
    note_control(key, value)
    return value


def page_number(page: str, row_count: int, shown_by: str, wanted_row: int | None) -> int:
    """Draw the pagination if there are several pages, and return the page number, from 1.

    Args:
        page: Prefix of the URL parameter.
        row_count: Number of rows.
        shown_by: Key of the filters and order; if it changes, the first page is shown.
        wanted_row: Index of a row whose page is shown.
    """
    key, last = f"{page}_page", f"_{page}_shown_by"
    pages = max(1, ceil(row_count / PAGE_ROWS))
    check_parameter(key, lambda text: text.isdecimal() and 1 <= int(text) <= pages, 1)
    if pages == 1:
        st.session_state[last] = shown_by
        return 1
    if wanted_row is not None:
        st.session_state[key] = wanted_row // PAGE_ROWS + 1
    elif st.session_state.get(last, shown_by) != shown_by:
        st.session_state[key] = 1
    st.session_state[last] = shown_by
    number = st.pagination(pages, key=key, bind="query-params")
    note_control(key, number)
    return number


def page_of(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    """Return the rows of a page."""
    return rows.slice((number - 1) * PAGE_ROWS, PAGE_ROWS)
