"""What all charts share: axes, tooltips and labels from the schema's columns."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import altair as alt
import polars as pl

from jarvis.schemas import Column

Columns = Mapping[str, Column]
"""The columns of a frame by name, for labels, units and formats."""

MAX_POINTS = 1500
"""Operations drawn as points, those with most time; a browser slows down with more."""

LABEL_LENGTH = 44
_LABEL_PX = 250
_ROOM = 1.08


def columns_of(*groups: Iterable[Column]) -> Columns:
    """Columns by name; of two with one name the later stands."""
    return {column.name: column for group in groups for column in group}


def largest(numbers: pl.Series) -> float:
    """The largest of some numbers; 0 where there is none."""
    found = numbers.max()
    return float(found) if isinstance(found, int | float) else 0.0


def tooltip(columns: Columns, names: Iterable[str], frame: pl.DataFrame) -> list[alt.Tooltip]:
    """A tooltip line for each named column that the frame has."""
    return [
        alt.Tooltip(field=name, type=_kind(frame.schema[name]), title=columns[name].label, **form)
        for name in names
        if name in frame.columns
        for form in [_format(columns[name], frame.schema[name])]
    ]


def _kind(dtype: pl.DataType) -> Literal["quantitative", "nominal"]:
    return "quantitative" if dtype.is_numeric() else "nominal"


def _format(column: Column, dtype: pl.DataType) -> dict[str, Any]:
    return {"format": column.format or ",.3~f"} if dtype.is_numeric() else {}


def shortened(text: pl.Expr, length: int = LABEL_LENGTH) -> pl.Expr:
    """Text cut in its middle to ``length`` characters, so that both ends can be read."""
    head, tail = length - length // 3 - 1, length // 3
    return (
        pl.when(text.str.len_chars() > length)
        .then(pl.concat_str(text.str.head(head), pl.lit("…"), text.str.tail(tail)))
        .otherwise(text)
    )


def unique_labels(frame: pl.DataFrame, text: pl.Expr, length: int) -> pl.DataFrame:
    """The frame with a ``label`` for each row; like ones are numbered so that none share a bar."""
    rank = pl.col("label").cum_count().over("label")
    return frame.with_columns(label=shortened(text, length)).with_columns(
        label=pl.when(rank > 1)
        .then(pl.concat_str(pl.col("label"), pl.lit(" #"), rank))
        .otherwise("label")
    )


LINEAR = ",.3~f"
"""Axis labels: plain numbers, thousands separated, no trailing zeros."""


def plain_axis(title: str | None, **options: Any) -> alt.Axis:
    """A quantitative axis with a light grid and no ticks."""
    return alt.Axis(
        title=title, grid=True, ticks=False, domain=False, tickCount=6, labelFlush=True, **options
    )


def length_scale(longest: float) -> alt.Scale:
    """A scale from 0 to a little more than the longest bar, so that no label meets the edge."""
    return alt.Scale(domain=[0, longest * _ROOM or 1], nice=False)


def name_axis() -> alt.Axis:
    """An axis of names: every one shown, none cut again."""
    return alt.Axis(
        title=None,
        ticks=False,
        domain=False,
        labelLimit=_LABEL_PX,
        labelOverlap=False,
        labelFontSize=12,
    )
