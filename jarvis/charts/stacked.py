"""Stacked columns: a time in parts, for each step or layer."""

from collections.abc import Mapping

import altair as alt
import polars as pl

from jarvis.charts.marks import LINEAR, Tip, plain_axis, tooltip
from jarvis.charts.palette import Palette

MAX_COLUMNS = 400
"""Columns that are wide enough to be seen on a screen."""

_HEIGHT_PX = 260


def stacked_columns(
    parts: pl.DataFrame,
    colors: Mapping[str, str],
    palette: Palette,
    *,
    x: Tip,
    y: Tip,
    part: Tip,
) -> alt.LayerChart:
    """Draw a column for each value of ``x``, with ``y`` stacked by ``part``.

    Args:
        parts: The fields of ``x``, ``y`` and ``part``, one row for each part of a column.
        colors: Color by part, from the bottom of a column to its top; others are not drawn.
        palette: Colors of the theme.
        x: Field of the columns, of whole numbers.
        y: Field of lengths.
        part: Field of the parts.
    """
    used = [name for name in colors if name in set(parts[part.field])]
    order = {name: rank for rank, name in enumerate(used)}
    drawn = parts.filter(pl.col(part.field).is_in(used)).with_columns(
        order=pl.col(part.field).replace_strict(order, return_dtype=pl.Int64)
    )
    columns = parts[x.field].n_unique()
    base = (
        alt.Chart(drawn)
        .mark_bar(stroke=palette.background, strokeWidth=0.5 if columns < MAX_COLUMNS / 2 else 0)
        .encode(
            x=alt.X(
                f"{x.field}:O",
                title=x.title,
                axis=alt.Axis(labelOverlap=True, ticks=False, labelAngle=0, domain=False),
                scale=alt.Scale(paddingInner=0.15, paddingOuter=0.05),
            ),
            y=alt.Y(f"{y.field}:Q", stack="zero", axis=plain_axis(y.title, format=LINEAR)),
            color=alt.Color(
                f"{part.field}:N",
                scale=alt.Scale(domain=used, range=[colors[name] for name in used]),
                legend=alt.Legend(title=None, orient="top", labelLimit=0),
            ),
            order=alt.Order("order:Q"),
            tooltip=tooltip([x, part, y]),
        )
    )
    return alt.LayerChart(layer=[base], height=_HEIGHT_PX)
