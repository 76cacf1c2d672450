"""Tables whose columns have label, unit, format and meaning from the schema."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl
import streamlit as st
from streamlit.elements.arrow import SelectionMode
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.charts import (
    MS_DECIMALS,
    Columns,
    decimals_of,
    decimals_showing,
    in_readable_unit,
    largest,
)
from jarvis.dashboard.session import navigation
from jarvis.dashboard.widgets.window import extra_px
from jarvis.schemas import Column
from jarvis.text.format import BYTE_UNITS, MISSING
from jarvis.text.markdown import shortened

_ROWS = 10
_ROW_PX, _FRAME_PX = 31, 2
"""Heights of a row at the font size of the theme, and of the frame of a table."""

_CARD_PX, PAGE_PX, BOX_PX = 810, 838, 32
"""Room for a table in a card and on a page in a window of 1280 pixels, and for boxes of rows."""

_CELL_PX = 17
_LETTER_PX, _NARROW_PX, _WIDE_PX = 6.5, 4.0, 8.5
_NARROW, _WIDE = re.compile("[fijlrt.,:()\\[\\]| ]"), re.compile("[A-Zmw]")
"""Widths of letters, and of the space beside a text in its cell."""

_SLACK = 1.05
"""Estimated width of a text that is not shortened, as a multiple of its room."""

_CUT_NUMBER = re.compile(r"[\d.]*…[\d.]*")


@dataclass(frozen=True, slots=True)
class ReadyTable:
    """A table as it is drawn: rows, configuration of the columns, and height in pixels."""

    rows: pl.DataFrame
    config: Mapping[str, ColumnConfig]
    height_px: int


def small_table(
    frame: pl.DataFrame,
    columns: Columns,
    alt: str,
    names: Sequence[str] | None = None,
    widths: Mapping[str, int] | None = None,
    *,
    key: str | None = None,
    on_select: Callable[[], None] | None = None,
    max_rows: int = _ROWS,
    addresses: Sequence[str] | None = None,
    alike: Sequence[str] = (),
    fits_texts: bool = False,
) -> None:
    """Draw a table without the columns that have no value.

    Args:
        frame: The rows.
        columns: Labels, units and formats of the columns.
        alt: Accessible description.
        names: Columns to show; all of ``columns`` by default.
        widths: Widths in pixels by column.
        key: Widget key.
        on_select: Callback; makes rows selectable, one at a time, in the session state of ``key``.
        max_rows: Maximum rows in view; the others are scrolled.
        addresses: URLs of the pages that a click on a row opens, with ``key``.
        alike: Columns that have the unit of the first of them, and equal decimals.
        fits_texts: Whether the columns without a width have the widths that their texts need,
            within a card; texts longer than their room are shortened in the middle.
    """
    room_px = card_px() - BOX_PX * (key is not None and addresses is None)
    table = ready_table(
        frame,
        columns,
        names,
        widths,
        max_rows=max_rows,
        alike=alike,
        room_px=room_px if fits_texts else None,
    )
    if key is not None and addresses is not None:
        draw_cells(table, alt, key, addresses)
    else:
        draw_table(table, alt, key=key, on_select=on_select)


def card_px() -> int:
    """Return the room for a table in a card."""
    return _CARD_PX + extra_px()


def ready_table(
    frame: pl.DataFrame,
    columns: Columns,
    names: Sequence[str] | None = None,
    widths: Mapping[str, int] | None = None,
    *,
    max_rows: int = _ROWS,
    alike: Sequence[str] = (),
    room_px: int | None = None,
) -> ReadyTable:
    """Return a table as ``small_table`` draws it, whose texts fit into ``room_px``, if given."""
    shown = valued(frame, [name for name in names or columns if name in frame.columns])
    frame, columns = in_readable_units(frame.select(shown), columns, alike=alike)
    if room_px is not None:
        frame, widths = fitted(frame, columns, widths or {}, room_px)
    of_alike = [frame[name] for name in shown if name in alike]
    finest = max(of_alike, key=lambda s: number_format(columns[s.name], s), default=None)
    config = {
        name: configured(
            columns[name],
            frame[name] if finest is None or name not in alike else finest,
            (widths or {}).get(name),
        )
        for name in shown
    }
    return ReadyTable(without_pale_texts(frame), config, height_of(frame.height, max_rows))


def draw_table(
    table: ReadyTable,
    alt: str,
    *,
    key: str | None = None,
    on_select: Callable[[], None] | None = None,
    selection_mode: SelectionMode = "single-row",
) -> None:
    """Draw a table; with ``on_select``, a row can be selected."""
    st.dataframe(
        table.rows.to_arrow(),  # Streamlit would convert a frame to pandas before
        hide_index=True,
        column_config=table.config,
        placeholder=MISSING,
        alt=alt,
        key=key,
        on_select=on_select or "ignore",
        selection_mode=selection_mode,
        height=table.height_px,
    )


def draw_cells(table: ReadyTable, alt: str, key: str, addresses: Sequence[str]) -> None:
    """Draw a table in which a click on a row opens its page."""
    follow = partial(follow_cell, key, addresses)
    draw_table(table, alt, key=key, on_select=follow, selection_mode="single-cell")


def fitted(
    frame: pl.DataFrame, columns: Columns, widths: Mapping[str, int], room_px: float
) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """Return a table whose longest texts are shortened to fit, and the widths of all columns."""
    room_px -= sum(widths.get(name, 0) for name in frame.columns)
    texts = frame.select(pl.selectors.string() - pl.selectors.by_name(*widths, require_all=False))
    needed = {t.name: needed_px(t, columns[t.name].label) for t in texts}
    for place, px in enumerate(sorted(needed.values())):
        limit = int(room_px / (len(needed) - place))
        if px > limit:
            shorten = partial(_fitting, room_px=limit - _CELL_PX)
            frame = with_short_texts(frame, dict.fromkeys(needed, shorten))
            return frame, {**widths, **{name: min(px, limit) for name, px in needed.items()}}
        room_px -= px
    return frame, {**widths, **needed}


def needed_px(texts: pl.Series, label: str) -> int:
    """Return the estimated width in pixels of a column with a label and texts."""
    return _CELL_PX + max(map(_text_px, (label, *texts.drop_nulls().unique())))


def _text_px(text: str) -> int:
    narrow, wide = len(_NARROW.findall(text)), len(_WIDE.findall(text))
    letters = len(text) - narrow - wide
    return int(letters * _LETTER_PX + narrow * _NARROW_PX + wide * _WIDE_PX)


def _fitting(text: str, room_px: int) -> str:
    """Return a text without its middle if it is too long: names often differ at their ends."""
    text_px = _text_px(text)
    if text_px <= _SLACK * room_px:
        return text
    return _CUT_NUMBER.sub("…", shortened(text, int(len(text) * room_px / text_px)))


def valued(rows: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """Return the columns that have a value; all of them if there are no rows."""
    return [n for n in names if rows.is_empty() or rows[n].null_count() < rows.height]


def follow_cell(key: str, addresses: Sequence[str | None]) -> None:
    """Open the page of the row that was clicked in the table ``key``, if any, in the same tab."""
    cells = st.session_state[key]["selection"]["cells"]
    if cells and (address := addresses[cells[0][0]]):
        navigation.follow(address)


def in_readable_units(
    frame: pl.DataFrame,
    columns: Columns,
    whole: pl.DataFrame | None = None,
    *,
    alike: Sequence[str] = (),
) -> tuple[pl.DataFrame, Columns]:
    """Return a table with its times in ms, or in µs where a column has none of MIN_MS, its sizes in
    the unit of the largest, and its flags as yes and no; and its columns.

    ``whole``: all rows, if ``frame`` is a page of them; ``alike``: columns that have the unit
    of the first of them. The names of columns stay the same.
    """
    known = {
        name: column
        for name, dtype in frame.schema.items()
        if (column := columns.get(name)) is not None
        and (column.unit == "bytes" or (dtype.is_float() and is_rounded(column)))
    }
    booleans = [name for name, dtype in frame.schema.items() if dtype == pl.Boolean]
    rows = frame if whole is None else whole
    longest = rows.select(
        pl.col(alike[0] if name in alike else name).abs().max().alias(name) for name in known
    )
    shown = dict(columns)
    scaled = [pl.col(name).replace_strict(_WORDS, return_dtype=pl.String) for name in booleans]
    for name, column in known.items():
        in_unit = _in_byte_unit if column.unit == "bytes" else in_readable_unit
        shown[name], divisor = in_unit(column, largest(longest[name]))
        if divisor != 1:
            scaled.append(pl.col(name) / divisor)
    return frame.with_columns(scaled), shown


_WORDS = {True: "yes", False: "no"}


def _in_byte_unit(column: Column, longest: float) -> tuple[Column, float]:
    unit, scale = next((each for each in BYTE_UNITS if longest >= each[1]), ("B", 1.0))
    label = re.sub("(?i)bytes", "size", column.label)
    label = f"{label[:1].upper()}{label[1:]} ({unit})"
    return replace(column, label=label, unit=unit, format=""), scale


def with_short_texts(
    frame: pl.DataFrame, functions: Mapping[str, Callable[[str], str | None]]
) -> pl.DataFrame:
    """Return a table with the texts of columns shortened by a function for each column."""
    return frame.with_columns(
        pl.Series(name, [None if t is None else short(t) for t in frame[name]], pl.String)
        for name, short in functions.items()
        if name in frame.columns
    )


def cut_to_width(texts: pl.Series, width_px: int) -> pl.Series:
    """Return texts cut in their middle where they do not fit in a column of that width: a table
    cuts them at their end, which can be what differs."""
    room_px = width_px - _CELL_PX
    cut = [None if text is None else _fitting(text, room_px) for text in texts]
    return pl.Series(texts.name, cut, pl.String)


def without_pale_texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with MISSING for missing texts.

    Streamlit's own placeholder has too little contrast (2:1).
    """
    return frame.with_columns(pl.col(pl.String).fill_null(MISSING))


def moment_column(
    label: str, meaning: str, *, has_seconds: bool = False, width: int | None = None
) -> ColumnConfig:
    """Return the configuration of a column of times, shown in UTC for all users."""
    return st.column_config.DatetimeColumn(
        label,
        format="YYYY-MM-DD HH:mm:ss" if has_seconds else "YYYY-MM-DD HH:mm",
        timezone="UTC",
        width=width,
        help=f"{meaning}, in UTC",
    )


def height_of(row_count: int, most: int, row_px: int = _ROW_PX) -> int:
    """Return the height of a table in pixels: that of the header and at most ``most`` rows."""
    return min(row_count, most) * row_px + _ROW_PX + _FRAME_PX


def configured(column: Column, values: pl.Series, width: int | None = None) -> ColumnConfig:
    """Return the configuration of a column: label, help text, number format, width in pixels."""
    meaning = column.meaning or None
    if values.dtype.is_numeric():
        form = number_format(column, values)
        return st.column_config.NumberColumn(column.label, format=form, width=width, help=meaning)
    return st.column_config.TextColumn(column.label, width=width, help=meaning)


def number_format(column: Column, values: pl.Series) -> str:
    """Return the column's number format for Streamlit; plain for ids and indices."""
    if values.dtype.is_integer():
        return "localized" if column.format else "%d"
    if column.unit == "%":
        return f"%,.{_percent_decimals(column, values)}f"
    if not is_rounded(column):
        return f"%{column.format}"
    decimals = decimals_of(values)
    if column.unit == "ms":
        decimals = decimals_showing(values, decimals, MS_DECIMALS)
    return f"%,.{decimals}f"


def _percent_decimals(column: Column, values: pl.Series) -> int:
    """Return the decimals of a column of percentages; more if one would be shown as 0."""
    own = re.search(r"\d", column.format)
    return decimals_showing(values, int(own[0]) if own else 1, _PCT_DECIMALS)


def is_rounded(column: Column) -> bool:
    """Return whether a column of numbers has the decimals that its values need: not percentages,
    and not numbers with all their digits."""
    return column.unit != "%" and column.format not in _ALL_DIGITS


_ALL_DIGITS = (",g", ",.4f")
_PCT_DECIMALS = 2
"""Decimals of a column of percentages of which one would be shown as 0 with fewer."""
