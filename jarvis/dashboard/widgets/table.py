"""Tables whose columns have label, unit, format and meaning from the schema."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.charts import Columns, decimals_of, in_readable_unit, largest
from jarvis.dashboard.session import navigation
from jarvis.dashboard.widgets.window import room_px
from jarvis.schemas import Column
from jarvis.text.format import BYTE_UNITS, MISSING
from jarvis.text.markdown import shortened

_ROWS = 10
_ROW_PX, _FRAME_PX = 31, 2
"""Heights of a row at the font size of the theme, and of the frame of a table."""

_CHARACTER_PX, _PADDING_PX = 6.0, 16
"""Mean width of a character of a name, and the padding of a cell."""


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
    cut: Sequence[str] = (),
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
        cut: Columns of ``widths`` whose long names are cut in their middle.
    """
    shown = valued(frame, [name for name in names or columns if name in frame.columns])
    frame, columns = in_readable_units(frame.select(shown), columns, alike=alike)
    if widths is not None:
        frame = frame.with_columns(
            cut_to_width(frame[name], room_px(widths[name])) for name in cut if name in shown
        )
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
    if key is not None and addresses is not None:
        on_select = partial(follow_cell, key, addresses)
    st.dataframe(
        without_pale_texts(frame).to_arrow(),  # Streamlit would convert a frame to pandas before
        hide_index=True,
        column_config=config,
        placeholder=MISSING,
        alt=alt,
        key=key,
        on_select=on_select or "ignore",
        selection_mode="single-row" if addresses is None else "single-cell",
        height=height_of(frame.height, max_rows),
    )


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
    length = int((width_px - _PADDING_PX) / _CHARACTER_PX)
    cut = [None if text is None else shortened(text, length) for text in texts]
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
    if column.unit == "%" and values.abs().is_between(0, _MIN_PCT, closed="none").any():
        return SMALL_PERCENTAGES
    if not is_rounded(column):
        return f"%{column.format or ',.1f'}"
    decimals, sizes = decimals_of(values), values.abs()
    if column.unit == "ms" and sizes.is_between(_MIN_MS, 10.0**-decimals / 2).any():
        decimals = max(decimals, _US_DECIMALS)
    return f"%,.{decimals}f"


def is_rounded(column: Column) -> bool:
    """Return whether a column of numbers has the decimals that its values need: not percentages,
    and not numbers with all their digits."""
    return column.unit != "%" and column.format not in _ALL_DIGITS


_ALL_DIGITS = (",g", ",.4f")
SMALL_PERCENTAGES = "%.3g"
"""Number format of percentages of which one would be shown as 0 with one decimal."""

_MIN_PCT = 0.05
_US_DECIMALS, _MIN_MS = 3, 0.0005
"""Decimals of a column of ms that has a time which would be shown as 0, and the shortest such."""
