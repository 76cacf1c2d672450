"""Tables of the Compare page: one view at a time, sorted and paged on the server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal
from zlib import crc32

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.analyses import load_analyses
from jarvis.comparison import Comparison, Outcome
from jarvis.dashboard.pages.compare.charts import (
    MATCHED,
    ONLY_REFERENCE,
    ONLY_TARGET,
    VIEWS,
    ComparisonTable,
)
from jarvis.dashboard.pages.compare.controls import PAGE, Filters
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.session import navigation, selection
from jarvis.dashboard.widgets import row_order
from jarvis.dashboard.widgets.controls import keyed_choice
from jarvis.dashboard.widgets.table import (
    BOX_PX,
    PAGE_PX,
    configured,
    fitted,
    follow_cell,
    height_of,
    in_readable_units,
    valued,
    with_short_texts,
    without_pale_texts,
)
from jarvis.dashboard.widgets.window import extra_px
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, count, counted
from jarvis.text.shapes import compact_dims, compact_shapes
from jarvis.text.short_names import short_kernel_name, short_operation_name

_VIEW = f"{PAGE}_view"
_OUTCOME_COLORS: Mapping[str, str] = {
    Outcome.MUCH_SLOWER: "orange",
    Outcome.SLOWER: "yellow",
    Outcome.EXPECTED: "blue",
    Outcome.FASTER: "green",
    Outcome.MUCH_FASTER: "violet",
    Outcome.SHORT: "gray",
    Outcome.UNKNOWN: "gray",
}
"""Streamlit color names, similar to the outcomes' colors in the chart."""

_ROWS = 13
_WIDTHS = {
    C.outcome: 106,
    C.target_ms: 76,
    C.reference_ms: 98,
    C.difference_ms: 100,
    C.difference_pct: 94,
    C.unexplained_ms: 116,
    C.found_in: 80,
    C.time_ms: 90,
    C.calls: 52,
    C.percent_of_compute: 96,
    C.side: 70,
    C.launches_per_call: 106,
    C.us_per_call: 110,
    C.percent: 72,
    C.target_launches: 112,
    C.reference_launches: 126,
    C.collective: 100,
    C.dtype: 70,
    C.group_size: 78,
    C.message_mb: 100,
    C.target_count: 96,
    C.reference_count: 116,
}
"""Widths in pixels; texts have the room that these leave in a window of 1280 pixels."""


def shown_views(comparison: Comparison) -> dict[str, str]:
    """Return the labels of the tables that have rows, with their number; also of an empty one that
    the URL names."""
    heights = {key: view.rows(comparison).height for key, view in VIEWS.items()}
    if not any(heights.values()):
        return {}
    named = st.query_params.get(_VIEW)
    return {
        key: f"{VIEWS[key].label} ({count(height)})"
        for key, height in heights.items()
        if height or key == named
    }


def choose_view(comparison: Comparison) -> str:
    """Draw the choice of the table."""
    labels = shown_views(comparison)
    default = MATCHED if MATCHED in labels else next(iter(labels))
    return keyed_choice(_VIEW, "Table", labels, default, "Which differences to list.")


def show_operation(comparison: Comparison, uid: int) -> None:
    """Select an operation of the target in the view that has it, on the next rerun."""
    is_alone = uid in comparison.only_in_target[C.uid]
    view, row = (ONLY_TARGET, uid) if is_alone else (MATCHED, pair_of(comparison, uid))
    if row is not None:
        st.session_state[_VIEW] = view
        selection.request(table_page(view), row)


def pair_of(comparison: Comparison, uid: int) -> int | None:
    """Return the matched row with an operation of the target, preferably as its first operation."""
    rows = comparison.operations.filter(pl.col(C.uids).list.contains(uid))
    leading = rows.sort(pl.col(C.uid) != uid, maintain_order=True)
    return None if leading.is_empty() else int(leading[C.pair][0])


def table_page(view: str) -> str:
    """Return the prefix of the URL parameters of a view's table."""
    return f"{PAGE}_{view}"


def view_table(key: str, rows: pl.DataFrame, filters: Filters, sides: Sides) -> int | None:
    """Draw a page of a view's rows; return the key of the selected row, if any."""
    view, page = VIEWS[key], table_page(key)
    if rows.is_empty():
        st.info("These two analyses have no such rows.", icon=":material/inbox:")
        return None
    names = valued(rows, view.names)
    is_explained = C.unexplained_ms in names and not rows[C.unexplained_ms].sum()
    if C.unexplained_ms in names:  # both do not fit
        names.remove(C.unexplained_ms if is_explained else C.difference_pct)
    by = C.difference_ms if is_explained else view.order
    shown = filters.chosen(rows)
    st.caption(f"{view.about} {count(shown.height)} of {counted(rows.height, 'row')}.")
    if view.key is not None:
        shown = shown.with_columns(
            pl.col(view.key).alias(C.uid), pl.col(C.uid).alias(C.operation_uid)
        )
    uid, is_new = selection.selected(page, shown) if view.key else (None, False)
    labels = {name: view.columns[name].label for name in dict.fromkeys([view.order, *names])}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        order = row_order.order_of(page, labels, by)
        view = replace(view, columns={n: order.label(own) for n, own in view.columns.items()})
        ordered = order.sorted(shown)
        shown_by = f"{filters.filter_id}-{order.column}-{order.direction}"
        wanted = ordered[C.uid].index_of(uid) if is_new and uid is not None else None
        number = row_order.page_number(page, ordered.height, shown_by, wanted)
    if shown.is_empty():
        st.info(
            "No row passes the filters: choose all categories and outcomes, or clear the search."
        )
        return None
    part = row_order.page_of(ordered, number)
    if view.key is None:
        _dataframe(view, page, part, names, f"{page}_table_{shown_by}-{number}", [])
        return None
    addresses = row_addresses(key, part, sides.target.id, sides.reference.id)
    if any(addresses):
        st.caption("Click a row to open it on the page of its category.")
    uid = _selected_on(view, page, part, names, shown_by, (uid, is_new), addresses)
    selection.keep(page, uid)
    return uid


def _selected_on(
    view: ComparisonTable,
    page: str,
    part: pl.DataFrame,
    names: Sequence[str],
    shown_by: str,
    requested: tuple[int | None, bool],
    addresses: Sequence[str | None],
) -> int | None:
    """Draw a page with selectable rows; return the row selected on this or another page.

    ``requested`` is the selection of the URL, and whether it is new.
    """
    uid, is_new = requested
    place = None if uid is None else part[C.uid].index_of(uid)
    # The browser selects rows by index, so the key differs by the rows shown.
    key = f"{page}_table_{shown_by}-{crc32(part[C.uid].to_numpy().tobytes()):08x}"
    if is_new or key not in st.session_state:
        chosen = [] if place is None else [place]
        st.session_state[key] = {"selection": {"rows": chosen, "columns": [], "cells": []}}
    modes: list[Literal["single-row", "single-cell"]] = ["single-row"]
    if any(addresses):
        modes.append("single-cell")
    picked = _dataframe(view, page, part, names, key, modes, addresses)
    if picked:
        return int(part[C.uid][picked[0]])
    return uid if place is None else None


def row_addresses(
    view: str, rows: pl.DataFrame, target_id: str, reference_id: str
) -> list[str | None]:
    """Return the URLs of the rows of one side on its category pages; None where there is none."""
    analysis_id = {ONLY_TARGET: target_id, ONLY_REFERENCE: reference_id}.get(view)
    if analysis_id is None:
        return [None] * rows.height
    return [
        navigation.address(category, analysis_id, **{f"{category}_op": str(uid)})
        if category in load_analyses()
        else None
        for category, uid in rows.select(C.category, C.uid).iter_rows()
    ]


def _dataframe(
    view: ComparisonTable,
    page: str,
    part: pl.DataFrame,
    names: Sequence[str],
    key: str,
    modes: Sequence[Literal["single-row", "single-cell"]],
    addresses: Sequence[str | None] = (),
) -> list[int]:
    """Draw a page of rows; return the indices of the selected ones."""
    readable, columns = in_readable_units(_readable(part, names), view.columns)
    view = replace(view, columns=columns)
    readable, widths = fitted(
        readable, columns, _WIDTHS, PAGE_PX + extra_px() - BOX_PX * bool(modes)
    )
    event = st.dataframe(
        readable,
        key=key,
        hide_index=True,
        height=height_of(part.height, _ROWS),
        column_config={
            name: _configuration(view, readable, name, widths.get(name)) for name in names
        },
        on_select=partial(_follow_click, page, key, part.schema, addresses),
        selection_mode=[*modes, "single-column"],
        placeholder=MISSING,
        alt=f"{view.label} of both sides with times and differences",
    )
    rows: list[int] = event["selection"]["rows"]
    return rows


def _readable(part: pl.DataFrame, shown: Sequence[str]) -> pl.DataFrame:
    """Return columns of a page of rows with short texts; outcomes are badges, which are lists."""
    short = _SHORT if C.name in shown else {}  # full names distinguish kernels
    rows = without_pale_texts(with_short_texts(part.select(shown), short))
    return rows.with_columns(pl.concat_list(name) for name in (C.outcome,) if name in shown)


def _category_title(key: str) -> str:
    analysis = load_analyses().get(key)
    return key if analysis is None else analysis.title


_SHORT = {
    C.name: short_operation_name,
    C.reference_name: short_operation_name,
    C.input_dims: compact_dims,
    "arguments": compact_shapes,
    C.kernel: short_kernel_name,
    C.reference_kernel: short_kernel_name,
    C.category: _category_title,
}
"""Functions that shorten the texts of a column of operations; their details have the full ones."""


def _follow_click(page: str, key: str, schema: pl.Schema, addresses: Sequence[str | None]) -> None:
    """Open the row that was clicked, or sort all rows by the column whose header was clicked: the
    browser has only one page of them."""
    follow_cell(key, addresses)
    heads = st.session_state[key]["selection"]["columns"]
    if heads:
        row_order.sort_by(page, heads[0], is_number=schema[heads[0]].is_numeric())


def _configuration(
    view: ComparisonTable, part: pl.DataFrame, name: str, width: int | None
) -> ColumnConfig:
    config = st.column_config
    column = view.columns[name]
    if name == "outcome":
        return config.MultiselectColumn(
            column.label,
            options=[str(outcome) for outcome in _OUTCOME_COLORS],
            color=list(_OUTCOME_COLORS.values()),
            width=width,
            help=column.meaning,
        )
    return configured(column, part[name], width)
