"""Plain tables: columns with label, unit, format and meaning from the schema."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.charts import Columns
from jarvis.reports.quantities import MISSING
from jarvis.schemas import Column


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
) -> None:
    """Draw the named columns (default: all that ``columns`` describes); widths in pixels.

    With ``on_select`` one row can be selected; the session state has it under ``key``.
    """
    shown = [name for name in names or columns if name in frame.columns]
    st.dataframe(
        frame.select(shown),
        hide_index=True,
        column_config={
            name: configured(columns[name], frame.schema[name], (widths or {}).get(name))
            for name in shown
        },
        placeholder=MISSING,
        alt=alt,
        key=key,
        on_select=on_select or "ignore",
        selection_mode="single-row",
        height=height,
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
