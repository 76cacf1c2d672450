"""Plain tables: columns with label, unit, format and meaning from the schema."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.charts import Columns
from jarvis.schemas import Column
from jarvis.text.format import MISSING

LINK = "open"
"""The column with the addresses that rows lead to."""

_LINK_PX = 50


def small_table(
    frame: pl.DataFrame,
    columns: Columns,
    alt: str,
    names: Sequence[str] | None = None,
    widths: Mapping[str, int] | None = None,
    *,
    key: str | None = None,
    on_select: Callable[[], None] | None = None,
    height: int | Literal["auto"] = "auto",
    link: str | None = None,
) -> None:
    """Draw the named columns (default: all that ``columns`` describes); widths in pixels.

    With ``on_select`` one row can be selected; the session state has it under ``key``. With
    ``link`` each row has one in front, to its address in the column LINK; the text says where to.
    """
    shown = [name for name in names or columns if name in frame.columns]
    config = {
        name: configured(columns[name], frame.schema[name], (widths or {}).get(name))
        for name in shown
    }
    if link is not None:
        shown, config = [LINK, *shown], {LINK: link_column(link), **config}
    st.dataframe(
        frame.select(shown),
        hide_index=True,
        column_config=config,
        placeholder=MISSING,
        alt=alt,
        key=key,
        on_select=on_select or "ignore",
        selection_mode="single-row",
        height=height,
    )


def moment_column(label: str, meaning: str, *, has_seconds: bool = False) -> ColumnConfig:
    """A column that says when something happened, the same for everyone who follows a link."""
    return st.column_config.DatetimeColumn(
        label,
        format="YYYY-MM-DD HH:mm:ss" if has_seconds else "YYYY-MM-DD HH:mm",
        timezone="UTC",
        help=f"{meaning}, in UTC",
    )


def link_column(meaning: str) -> ColumnConfig:
    """A column of addresses, each an icon that opens a new tab."""
    return st.column_config.LinkColumn(
        "Open",
        width=_LINK_PX,
        display_text=":material/open_in_new:",
        help=f"{meaning}, in a new tab",
    )


def configured(column: Column, dtype: pl.DataType, width: int | None = None) -> ColumnConfig:
    """A column with its label, its meaning on hover and its number format; width in pixels."""
    meaning = column.meaning or None
    if dtype.is_numeric():
        form = number_format(column, dtype)
        return st.column_config.NumberColumn(column.label, format=form, width=width, help=meaning)
    return st.column_config.TextColumn(column.label, width=width, help=meaning)


def number_format(column: Column, dtype: pl.DataType) -> str | None:
    """The column's Python format as the browser's table wants it; plain for ids and indices."""
    if dtype.is_integer():
        return "localized" if column.format else "%d"
    return f"%{column.format or ',.3f'}"
