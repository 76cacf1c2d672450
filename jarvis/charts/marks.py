"""What all charts share: axes, tooltips and labels from the schema's columns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from jarvis.schemas import Column

Columns = Mapping[str, Column]
"""The columns of a frame by name, for labels, units and formats."""

MAX_POINTS = 1000
"""Operations drawn as points, those with most time; a browser slows down with more."""

LINEAR = ",.6~r"
"""Axis labels: plain numbers, thousands separated, no trailing zeros."""

NO_NAME = "not recorded"
"""The bar of rows without a name, such as calls without shapes."""

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


@dataclass(frozen=True, slots=True)
class Tip:
    """A line of a tooltip: a field, what it is called, and the format of its numbers."""

    field: str
    title: str
    form: str | None

    def encoded(self) -> alt.Tooltip:
        """As Altair takes it."""
        if self.form is None:
            return alt.Tooltip(field=self.field, type="nominal", title=self.title)
        return alt.Tooltip(
            field=self.field, type="quantitative", title=self.title, format=self.form
        )


def tips(columns: Columns, names: Iterable[str], frame: pl.DataFrame) -> tuple[Tip, ...]:
    """A line for each named column that the frame has."""
    schema = frame.schema
    return tuple(
        Tip(name, column.label, (column.format or LINEAR) if schema[name].is_numeric() else None)
        for name in names
        if name in schema
        for column in [columns[name]]
    )


def tooltip(lines: Iterable[Tip]) -> list[alt.Tooltip]:
    """The lines of a tooltip as Altair takes them."""
    return [line.encoded() for line in lines]


def heaviest(rows: pl.DataFrame, names: Iterable[str], drawable: pl.Expr) -> pl.DataFrame:
    """The columns ``names`` of the MAX_POINTS ``drawable`` rows with most time.

    Costs little where the rows are known to come in that order.
    """
    ordered = rows.sort("kernel_time_us", descending=True, maintain_order=True)
    places = ordered.select(drawable.arg_true().head(MAX_POINTS)).to_series()
    return ordered.select(names)[places]


def is_length(x: str) -> pl.Expr:
    """Whether a row has a positive number in ``x``, which a bar or a logarithmic axis can show."""
    return pl.col(x).is_finite() & (pl.col(x) > 0)


def is_point(x: str, y: str) -> pl.Expr:
    """Whether a scatter plot, whose ``x`` is logarithmic, has a place for a row."""
    return is_length(x) & pl.col(y).is_finite()


def named(column: str, instead: str) -> pl.Expr:
    """A column of any type as text for a label; ``instead`` where there is no value."""
    return pl.col(column).cast(pl.String).fill_null(instead)


def bar_totals(frame: pl.DataFrame, *, x: str, y: str) -> pl.DataFrame:
    """Column ``x`` added up for each value of ``y``, as a label, longest first.

    The bars and the words about them both come from here.
    """
    lengths = frame.filter(is_length(x)).group_by(named(y, NO_NAME)).agg(pl.col(x).sum())
    return lengths.sort(x, y, descending=[True, False])


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
