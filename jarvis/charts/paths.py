"""The critical path of the recorded steps beside that of the replay."""

import altair as alt
import polars as pl

from jarvis.charts.marks import LINEAR, largest, length_scale, name_axis, plain_axis
from jarvis.charts.palette import Palette

NOW, SIMULATED = "now", "simulated"
_STEP_PX, _AXIS_PX = 40, 96
_TEXT_PX = 105
_PALE = 0.45
"""Opacity of the bars of the recording beside those of the replay."""


def critical_paths(parts: pl.DataFrame, axis: str, palette: Palette) -> alt.LayerChart:
    """Draw two bars for each part of the critical path: in the recording and in the replay.

    Args:
        parts: ``part, when`` (NOW or SIMULATED), ``time_ms, pct, text`` (behind the bar),
            ``color``, in the order of the bars.
        axis: Title of the time axis, with its unit.
        palette: Colors of the theme.
    """
    order = parts["part"].unique(maintain_order=True).to_list()
    whens = parts["when"].unique(maintain_order=True).to_list()
    base = alt.Chart(parts).encode(
        y=alt.Y("part:N", sort=order, axis=name_axis()),
        yOffset=alt.YOffset("when:N", sort=whens),
        x=alt.X(
            "time_ms:Q",
            axis=plain_axis(axis, format=LINEAR),
            scale=length_scale(largest(parts["time_ms"]), _TEXT_PX),
        ),
        tooltip=[
            alt.Tooltip("part:N", title="Part"),
            alt.Tooltip("when:N", title="Step"),
            alt.Tooltip("time_ms:Q", title=axis, format=",.4r"),
            alt.Tooltip("pct:Q", title="Share of the path (%)", format=",.2f"),
        ],
    )
    bars = base.mark_bar().encode(
        color=alt.Color("color:N", scale=None),
        opacity=alt.Opacity(
            "when:O",
            scale=alt.Scale(domain=whens, range=[_PALE, 1.0][-len(whens) :]),
            legend=alt.Legend(orient="top", title=None, labelFontSize=12)
            if len(whens) > 1
            else None,
        ),
    )
    texts = base.mark_text(align="left", dx=5, color=palette.text, fontSize=11).encode(
        text="text:N"
    )
    height = _STEP_PX * max(len(order), 1) + _AXIS_PX
    chart: alt.LayerChart = alt.LayerChart(layer=[bars, texts], height=height)
    return chart
