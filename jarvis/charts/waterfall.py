"""Waterfall chart from the current time through each saving to the projected time."""

import altair as alt
import polars as pl

from jarvis.charts.marks import LINEAR, largest, length_scale, name_axis, plain_axis
from jarvis.charts.palette import Palette

NOW, SAVING, BOUND, PROJECTED = "now", "saving", "upper bound", "projected"
"""Kinds of bars."""

_RANK_OF_LABEL = "test(/^[A-Z]\\d+ /, datum.label) ? split(datum.label, ' ')[0] : datum.label"
_BAR_STEP_PX = 27
_AXIS_PX = 62
"""Height of the axis and its title."""


def waterfall(
    bars: pl.DataFrame, palette: Palette, room: float = 1.1, *, is_short: bool = False
) -> alt.LayerChart:
    """Draw ``bars`` from top to bottom: ``label, finding, kind, low_ms, high_ms, text``.

    A bar spans ``low_ms`` to ``high_ms``; a saving ends where the one above it starts. The axis is
    ``room`` times as long as the longest bar. With ``is_short``, labels are only ranks (``P1``).
    """
    axis = name_axis(_RANK_OF_LABEL) if is_short else name_axis()
    base = alt.Chart(bars).encode(
        y=alt.Y("label:N", sort=bars["label"].to_list(), axis=axis),
        tooltip=[
            alt.Tooltip("finding:N", title="Step"),
            alt.Tooltip("length_ms:Q", title="Time (ms)", format=",.3r"),
        ],
    )
    base = base.transform_calculate(length_ms="datum.high_ms - datum.low_ms")
    scale = alt.Scale(
        domain=[NOW, SAVING, BOUND, PROJECTED],
        range=[palette.muted, palette.saving, palette.pale, palette.primary],
    )
    bar_marks = base.mark_bar(height={"band": 0.72}).encode(
        x=alt.X(
            "low_ms:Q",
            axis=plain_axis("Time (ms)", format=LINEAR),
            scale=length_scale(largest(bars["high_ms"]) * room),
        ),
        x2="high_ms:Q",
        color=alt.Color("kind:N", scale=scale, legend=None),
    )
    text = base.mark_text(align="left", dx=5, color=palette.text, fontSize=11).encode(
        x=alt.X("high_ms:Q"), text="text:N"
    )
    return alt.LayerChart(layer=[bar_marks, text], height=bars.height * _BAR_STEP_PX + _AXIS_PX)
