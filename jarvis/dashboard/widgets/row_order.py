"""Order and pages of a table of thousands of rows: the server sorts all, the browser gets a page.

Column, direction and page number stand in the URL, each with the page's name in front.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import polars as pl
import streamlit as st

from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.widgets.controls import choice, keyed_choice

PAGE_ROWS = 100
"""Rows that the browser gets at once; badges and bars cost little for so many."""

DESCENDING, ASCENDING = "descending", "ascending"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """By what a table is sorted; ``column`` is the name of one of its columns."""

    column: str
    direction: str

    def sorted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """All rows in this order; rows without a value last, equal ones as they came."""
        return rows.sort(
            self.column,
            descending=self.direction == DESCENDING,
            nulls_last=True,
            maintain_order=True,
        )


def order_controls(page: str, labels: Mapping[str, str], default: str) -> RowOrder:
    """The controls; ``labels`` are those of the columns to choose from."""
    column = keyed_choice(
        f"{page}_sort", "Sort by", labels, default, "All rows are sorted, not only this page."
    )
    direction = choice(
        f"{page}_order", "Order", (DESCENDING, ASCENDING), "Rows without a value are last."
    )
    return RowOrder(column, direction)


def sort_by(page: str, column: str, *, is_number: bool) -> None:
    """Sort by a column whose head was clicked: largest or first first, then the other way round.

    For a callback: it sets the controls that ``order_controls`` draws.
    """
    first, second = (DESCENDING, ASCENDING) if is_number else (ASCENDING, DESCENDING)
    is_again = st.session_state.get(f"{page}_sort") == column
    turned = is_again and st.session_state.get(f"{page}_order") == first
    st.session_state[f"{page}_sort"] = column
    st.session_state[f"{page}_order"] = second if turned else first


def page_number(page: str, row_count: int, shown_by: str, wanted_row: int | None) -> int:
    """The page to show, from 1 on; draws the buttons where there is more than one.

    Another filter or order (``shown_by``) begins at the first page; ``wanted_row`` is the position
    of a row that has to be seen.
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
    """The rows of a page."""
    return rows.slice((number - 1) * PAGE_ROWS, PAGE_ROWS)
