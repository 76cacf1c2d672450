"""The table of operations of a category."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.analyses.base import Analysis
from jarvis.charts import LIGHT, STATES, columns_of, largest
from jarvis.charts.palette import NOT_AVAILABLE
from jarvis.dashboard.session import selection
from jarvis.dashboard.session.state import Opened, cached, of_opened
from jarvis.dashboard.widgets import row_order
from jarvis.dashboard.widgets.projection import operation_columns
from jarvis.dashboard.widgets.table import (
    configured,
    cut_to_width,
    height_of,
    in_readable_units,
    number_format,
    with_short_texts,
)
from jarvis.dashboard.widgets.window import extra_px
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.schemas.names import C
from jarvis.simulation.of_rows import NEGLIGIBLE_PCT
from jarvis.text.format import MIN_PCT, MISSING, percent
from jarvis.text.shapes import call_shapes
from jarvis.text.short_names import short_frame_name, short_kernel_name

DEFAULT_ORDER = C.kernel_time_us
"""Default sort column."""

_ROWS = 11
"""Rows in view; the others of a page are scrolled."""

_FIRST = (
    C.name,
    "arguments",
    C.kernel_time_us,
    C.percent_of_category,
    C.pct_roofline,
    C.saved_step_us,
    "state",
)
_RATES = (
    C.saved_us,
    C.operation_count,
    C.bound,
    C.tflops_per_s,
    C.tb_per_s,
    "call_times",
)
_LAST = (
    "call_times",
    C.flops_per_byte,
    C.compute,
    "library",
    C.called_from,
    C.main_kernel,
    C.percent_of_compute,
)
_WIDTHS = {
    C.kernel_time_us: 112,
    C.percent_of_category: 85,
    C.pct_roofline: 85,
    C.saved_step_us: 105,
    "state": 108,
    C.saved_us: 125,
    C.operation_count: 62,
    C.bound: 75,
}
"""Widths in pixels, to keep the first columns visible in a window of 1280 pixels."""

_PLACES = {"looks_like": 105}
_PAGE_PX = 800
"""Where no row has an efficiency, what operations look like and where they are called from are in
view: width of the first, and of all columns up to the second."""

_NAME_PX, _NAME_AND_SHAPES_PX, _CHARACTER_PX = 175, 310, 6.6
"""Width of names beside shapes that need the rest, of both, and of a character. Shapes that
need more also have the width of the state, which is then scrolled."""

_TEXTS = columns_of(
    (
        Column(
            C.name,
            "Operation",
            TEXT,
            meaning="operator or kernel, and what differs between rows of equal name and shapes: "
            "template arguments, layout, thread or values; #2 differs in more, see the details",
        ),
        Column(
            "arguments",
            "Shapes",
            TEXT,
            meaning="sides M, N and K of a matrix product, else the shape of each tensor argument",
        ),
    )
)

_STEP_SAVING = columns_of(
    (
        Column(
            C.saved_step_us,
            "Step saving (µs)",
            NUMBER,
            "µs",
            ",.1f",
            "what a step gains (mean of the steps) if only this operation reaches the target "
            "efficiency; missing if its kernels get shorter by less than "
            f"{NEGLIGIBLE_PCT:g}% of the steps, or without a reliable efficiency",
        ),
    )
)
"""Per step; the table ``operations`` has the saving of all steps."""

_MAX_CACHED = 256

_BADGE_COLORS = (LIGHT.below_threshold, "yellow", "blue", "violet", "gray")
"""Colors of STATES: one strong color, dark enough for white text in both themes, and pale Streamlit
colors."""


def shown_columns(analysis: Analysis, rows: pl.DataFrame) -> list[str]:
    """Return the columns of the table in order, without columns that have no values."""
    own = [column.name for column in analysis.details]
    has_states = "state" in rows.columns and (rows["state"] != NOT_AVAILABLE).any()
    first = _RATES if has_states else (C.operation_count, *_PLACES, C.called_from)
    names = dict.fromkeys([*_FIRST, *first, *own, *_RATES, *_LAST])
    return [
        name
        for name in names
        if name in rows.columns
        and rows[name].null_count() < rows.height
        and (name != "state" or has_states)
    ]


def metrics_table(
    analysis: Analysis,
    now: Opened,
    rows: pl.DataFrame,
    filter_id: str,
    uid: int | None,
    *,
    is_new: bool,
    about: str,
) -> None:
    """Draw a page of the table, with the row of an operation selected.

    Args:
        analysis: The category.
        now: The open analysis.
        rows: Operations from ``projection.with_projection``, longest first.
        filter_id: Key of the filters; if they change, the first page is shown.
        uid: The selected operation; ``selection.follow_table`` selects that which a user picks. It
            stays selected on other pages of the table and with all filters that it passes.
        is_new: Whether the page of the operation is shown.
        about: Caption above the table, before its order.
    """
    page = analysis.key
    shown_rows = (now, page, filter_id, now.below_pct)
    names = _names(*shown_rows, rows)
    columns = {**operation_columns(analysis), **_TEXTS, **_STEP_SAVING}
    with st.container(horizontal=True, vertical_alignment="center"):
        scrolled = f" · the first {_ROWS} in view" if rows.height > _ROWS else ""
        st.caption(f"{about}{scrolled}", width="content")
        labels = {name: columns[name].label for name in names if name != "state"}
        order = row_order.order_of(page, labels, DEFAULT_ORDER)
        shown_by = f"{filter_id}-{order.column}-{order.direction}"
        wanted = _ordered(rows, order)[C.uid].index_of(uid) if is_new and uid is not None else None
        number = row_order.page_number(page, rows.height, shown_by, wanted)
    part = _part(*shown_rows, order.column, order.direction, number, extra_px(), rows)
    key = f"{page}_table_{shown_by}-{part.rows_id}"
    if is_new or key not in st.session_state:
        place = part.uids.index(uid) if uid in part.uids else None
        st.session_state[key] = selection.table_state(place)
    st.dataframe(
        part.data,
        key=key,
        hide_index=True,
        height=height_of(len(part.uids), _ROWS),
        column_order=names,
        column_config=part.config,
        on_select=partial(_sort_by_header, page, key, part.schema),
        selection_mode=["single-row", "single-column"],
        placeholder=MISSING,
        alt=f"Operations of {analysis.title} with times, rates, efficiency and saving",
    )
    selection.note_table(page, key, part.uids)
    selection.keep(page, uid)


@dataclass(frozen=True, slots=True)
class _Part:
    """A page of the table as Streamlit draws it; ``data`` is an Arrow table.

    ``rows_id`` differs by the rows, as the browser selects by index.
    """

    data: Any
    config: Mapping[str, ColumnConfig]
    schema: pl.Schema
    uids: list[int]
    rows_id: str


# The rows of the cached functions depend on the parameters before them.
@cached(_MAX_CACHED, of_opened)
def _names(
    now: Opened, key: str, filter_id: str, below_pct: float, _rows: pl.DataFrame
) -> list[str]:
    return shown_columns(now.stored.analyses[key], _rows)


@cached(_MAX_CACHED, of_opened)
def _part(
    now: Opened,
    key: str,
    filter_id: str,
    below_pct: float,
    column: str,
    direction: str,
    number: int,
    more_px: int,
    _rows: pl.DataFrame,
) -> _Part:
    """Return a page of the rows in an order."""
    analysis, order = now.stored.analyses[key], row_order.RowOrder(column, direction)
    names = _names(now, key, filter_id, below_pct, _rows)
    needed = dict.fromkeys([*names, "arguments", C.uid, C.params, "short_name"])
    part = _rows[[*needed]][row_order.page_of(_ordered(_rows, order), number)[C.place]]
    known = {**operation_columns(analysis), **_TEXTS, **_STEP_SAVING}
    shown, columns = in_readable_units(_readable(part), known, _rows)
    shown = with_small_shares(shown)
    widths = _WIDTHS | _text_widths(shown, names)
    if C.called_from in names and "state" not in names:
        before = sum(_PLACES.get(n, widths.get(n, 0)) for n in names[: names.index(C.called_from)])
        room_px = _PAGE_PX + more_px - before
        widths |= {**_PLACES, C.called_from: min(_needed_px(shown[C.called_from]), room_px)}
    if "library" in names:
        widths["library"] = _needed_px(shown["library"])
    shown = shown.with_columns(
        cut_to_width(shown[name], widths[name])
        for name in (C.name, "arguments", C.called_from)
        if name in names and name in widths
    )
    uids = part[C.uid]
    return _Part(
        # Streamlit draws lists as badges, and would convert a frame to pandas.
        shown.select(
            pl.concat_list(name) if name == "state" else pl.col(name) for name in names
        ).to_arrow(),
        {
            name: _configuration(order.label(columns[name]), shown[name], widths.get(name))
            for name in names
        },
        part.schema,
        uids.to_list(),
        f"{crc32(uids.to_numpy().tobytes()):08x}",
    )


def _ordered(rows: pl.DataFrame, order: row_order.RowOrder) -> pl.DataFrame:
    """Return uid and index of the rows in an order."""
    # Sort only two columns and an index, as sorting copies and a page needs few of the rows.
    return order.sorted(rows.select(C.uid, order.column).with_row_index(C.place))


def _text_widths(shown: pl.DataFrame, names: Sequence[str]) -> dict[str, int]:
    """Return the widths of names and shapes in pixels; with states, both fill their room, so that
    no column is cut at the edge of the page."""
    name_px, shapes_px = (_needed_px(shown[name]) for name in (C.name, "arguments"))
    has_states = "state" in names
    if "arguments" not in names:
        return {C.name: 270 if has_states else min(name_px, 270)}
    if not has_states and name_px + shapes_px < _NAME_AND_SHAPES_PX:
        return {C.name: name_px, "arguments": shapes_px}
    room_px = _NAME_AND_SHAPES_PX
    if shapes_px > room_px - min(name_px, _NAME_PX):
        room_px += _WIDTHS["state"]
    name_px = min(name_px, max(_NAME_PX, room_px - shapes_px))
    return {C.name: name_px, "arguments": room_px - name_px}


def _needed_px(texts: pl.Series) -> int:
    return max(int(_CHARACTER_PX * largest(texts.str.len_chars())) + 20, 90)


def _readable(part: pl.DataFrame) -> pl.DataFrame:
    """Return a page of the rows with short names and shapes; the details have the full ones."""
    given = part.select("arguments", C.params).rows()
    shapes = pl.Series([call_shapes(*pair) for pair in given], dtype=pl.String)
    short = part.with_columns(pl.col("short_name").alias(C.name), arguments=shapes)
    return with_short_texts(
        short, {C.main_kernel: short_kernel_name, C.called_from: short_frame_name}
    )


def _sort_by_header(page: str, key: str, schema: pl.Schema) -> None:
    """Sort all rows by the column whose header was clicked; the browser has only one page."""
    heads = st.session_state[key]["selection"]["columns"]
    if heads and heads[0] != "state":
        row_order.sort_by(page, heads[0], is_number=schema[heads[0]].is_numeric())


def _configuration(column: Column, values: pl.Series, width: int | None) -> ColumnConfig:
    config = st.column_config
    if column.name == "state":
        return config.MultiselectColumn(
            column.label,
            options=list(STATES),
            color=list(_BADGE_COLORS),
            width=width,
            help=column.meaning,
        )
    if column.name in _BARS and values.dtype.is_numeric():
        return _bar(column, values, width)
    if column.name in _BARS:
        return config.TextColumn(column.label, width=width, help=column.meaning, alignment="right")
    return configured(column, values, width)


def with_small_shares(shown: pl.DataFrame) -> pl.DataFrame:
    """Return a page of the table with texts instead of bars where a share is below MIN_PCT.

    Bars have one number format for all rows, which would show such a share as 0.
    """
    small = [
        name
        for name in _BARS
        if name in shown.columns and shown[name].is_between(0, MIN_PCT, closed="none").any()
    ]
    return shown.with_columns(
        pl.Series(name, [percent(value) for value in shown[name]], pl.String) for name in small
    )


_BARS = (C.percent_of_category, C.pct_roofline)


def _bar(column: Column, values: pl.Series, width: int | None) -> ColumnConfig:
    """Return the configuration of a column of bars, all on one scale of 100%."""
    return st.column_config.ProgressColumn(
        column.label,
        format=f"{number_format(column, values)}%%",
        min_value=0.0,
        max_value=100.0,
        width=width,
        help=column.meaning,
    )
