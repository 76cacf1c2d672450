"""Time breakdown as one stacked bar, for printed reports."""

import altair as alt
import polars as pl

from jarvis.charts.marks import LINEAR, plain_axis
from jarvis.charts.palette import Palette
from jarvis.schemas.names import C

WIDTH, HEIGHT = 760, 44
"""Size of the chart in pixels."""


def time_breakdown(parts: pl.DataFrame, rest: str, palette: Palette) -> alt.Chart:
    """Draw one stacked bar of ``parts`` (``part``, ``time_ms``) in order; ``rest`` is gray."""
    order = parts["part"].to_list()
    colors = [
        palette.border if part == rest else palette.categorical[n % (len(palette.categorical) - 1)]
        for n, part in enumerate(order)
    ]
    whole = float(parts[C.time_ms].sum())
    chart: alt.Chart = (
        alt.Chart(parts.with_columns(order=pl.int_range(pl.len())))
        .mark_bar()
        .encode(
            x=alt.X(
                "time_ms:Q",
                stack="zero",
                axis=plain_axis("GPU time (ms)", format=LINEAR),
                scale=alt.Scale(domain=[0, whole], nice=False),
            ),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=order, range=colors),
                legend=alt.Legend(orient="bottom", title=None, columns=5, labelFontSize=12),
            ),
            order=alt.Order("order:Q"),
        )
        .properties(width=WIDTH, height=HEIGHT, background=palette.background)
    )
    return chart
