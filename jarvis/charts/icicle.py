"""Icicle chart of GPU time: each call is as wide as the GPU time it launched, below its caller."""

from collections.abc import Mapping

import altair as alt
import polars as pl

from jarvis.charts.marks import largest, shortened
from jarvis.charts.palette import Palette, ink
from jarvis.charts.rooflines import PICKED

_LEVEL_PX = 22
_ROOM_PX = 116
"""Height in pixels of the axis and the legend."""

_MIN_LABEL_SHARE = 0.025
"""Minimum share of the chart's width for a box with a label."""

_LABEL_ROOM = "max(scale('x', datum.end_ms) - scale('x', datum.start_ms) - 7, 1)"
"""Maximum width of a label in pixels, as a Vega expression; the browser cuts longer ones."""

_LETTER_PX = 6.5
_MIN_LETTERS = 8
"""Average width of a letter of a label, and the least number of letters of a name that is cut."""

_ROOM_LETTERS = f"floor({_LABEL_ROOM} / {_LETTER_PX})"
_BEGIN = f"slice(datum.short, 0, ceil({_ROOM_LETTERS} / 2) - 1)"
_END = f"slice(datum.short, -floor({_ROOM_LETTERS} / 2))"
_CUT_LABEL = (
    f"replace({_BEGIN}, regexp('[0-9.]+$'), '') + '…' + replace({_END}, regexp('^[0-9.]+'), '')"
)
"""The name without its middle, as names with equal beginnings often differ at the end; no part of a
number stays."""

_LABEL = (
    f"length(datum.label) <= {_ROOM_LETTERS} ? datum.label : "
    f"length(datum.short) <= {_ROOM_LETTERS} ? datum.short : "
    f"{_ROOM_LETTERS} < {_MIN_LETTERS} ? '' : {_CUT_LABEL}"
)
"""The text in a box, as a Vega expression: the longest form of its name that fits."""

_MAX_NAME_LENGTH = 140
_TOOLTIP = [
    alt.Tooltip("name:N", title="Name"),
    alt.Tooltip("kind:N", title="Kind"),
    alt.Tooltip("gpu_ms:Q", title="GPU time (ms)", format=",.4f"),
    alt.Tooltip("share_pct:Q", title="Share of all GPU time (%)", format=",.2f"),
    alt.Tooltip("calls:Q", title="Calls", format=",d"),
    alt.Tooltip("launches:Q", title="Launches", format=",d"),
    alt.Tooltip("modelled_pct:Q", title="With a perf model (%)", format=",.1f"),
    alt.Tooltip("efficiency_pct:Q", title="Efficiency (%)", format=",.1f"),
]


def icicle(
    nodes: pl.DataFrame, colors: Mapping[str, str], palette: Palette, search: str = ""
) -> alt.LayerChart:
    """Draw nodes by ``level``; a click selects one (selection PICKED, field ``node``).

    Args:
        nodes: ``node, level, label, short, name, kind, color, start_ms, end_ms`` and the columns of
            the tooltip; at least one row, the first one (level 0) as wide as the chart. ``short``
            replaces a label that does not fit.
        colors: Color by kind, in the order of the legend.
        palette: Colors of the theme.
        search: Nodes whose ``name`` contains it are framed.
    """
    whole_ms = max(float(nodes["end_ms"][0]), 1e-9)
    levels = int(largest(nodes["level"])) + 1
    inks = {name: ink(color) for name, color in colors.items()}
    placed = nodes.with_columns(
        middle=pl.col("level") + 0.5,
        below=pl.col("level") + 1,
        ink=pl.col("color").replace_strict(inks, return_dtype=pl.String),
        name=shortened(pl.col("name"), _MAX_NAME_LENGTH),
        is_found=pl.lit(value=False)
        if not search
        else pl.col("name").str.to_lowercase().str.contains(search.lower(), literal=True),
    )
    used = set(nodes["color"])
    shown = [name for name in colors if name in used]
    x = alt.X(
        "start_ms:Q",
        scale=alt.Scale(domain=[0, whole_ms], nice=False),
        axis=alt.Axis(title="GPU time (ms)", grid=False, tickCount=8, labelFlush=True),
    )
    scale = alt.Scale(domain=[0, levels], reverse=True, nice=False)
    y = alt.Y("level:Q", scale=scale, axis=None)
    legend = alt.Legend(orient="top", title=None, labelFontSize=12, symbolStrokeWidth=0)
    boxes = (
        alt.Chart(placed.drop("middle", "ink", "label", "short"))
        .mark_rect(clip=True, opacity=1, cursor="pointer")
        .encode(
            x=x,
            x2="end_ms:Q",
            y=y,
            y2="below:Q",
            color=alt.Color(
                "color:N",
                scale=alt.Scale(domain=shown, range=[colors[name] for name in shown]),
                legend=legend,
            ),
            stroke=alt.when("datum.is_found")
            .then(alt.value(palette.text))
            .otherwise(alt.value(palette.background)),
            strokeWidth=alt.when("datum.is_found").then(alt.value(2.5)).otherwise(alt.value(0.8)),
            tooltip=_TOOLTIP,
        )
        .add_params(alt.selection_point(name=PICKED, fields=["node"]))
    )
    is_labeled = pl.col("end_ms") - pl.col("start_ms") >= _MIN_LABEL_SHARE * whole_ms
    labeled = placed.filter(is_labeled).select(
        "label", "short", "start_ms", "end_ms", "middle", "ink"
    )
    names = (
        alt.Chart(labeled)
        .mark_text(
            clip=True,
            align="left",
            dx=4,
            fontSize=11,
            limit=alt.ExprRef(_LABEL_ROOM),
            text=alt.ExprRef(_LABEL),
        )
        .encode(
            x=x,
            y=alt.Y("middle:Q", scale=scale, axis=None),
            color=alt.Color("ink:N", scale=None),
        )
    )
    chart: alt.LayerChart = alt.LayerChart(
        layer=[boxes, names], height=levels * _LEVEL_PX + _ROOM_PX
    )
    return chart
