"""Timeline chart: bars of how busy each time bin is, and single events where wide enough."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from jarvis import impact
from jarvis.charts.marks import shortened
from jarvis.charts.palette import STATES, Palette, ink
from jarvis.schemas import NUMBER, TEXT, Column
from jarvis.schemas.names import C

PROJECTED = (
    Column("state", "State", TEXT, meaning="efficiency against the highlight and the target"),
    Column(
        C.saved_us,
        "Kernel saving (µs)",
        NUMBER,
        "µs",
        ",.1f",
        "kernel time minus that at the target",
    ),
    Column("saved_ms", "Saving (ms)", NUMBER, "ms", ",.3f", "GPU time minus that at the target"),
    Column("gpu_time_ms", "GPU time (ms)", NUMBER, "ms", ",.3f", "kernel time of the category"),
    Column(C.title, "Category", TEXT, meaning="category of operations"),
)
"""Columns that rows have at a target efficiency, and those of the category charts."""


def state(target_pct: float, below_pct: float) -> pl.Expr:
    """Return the state (one of STATES) of each row, from its ``pct_roofline``."""
    efficiency = pl.col(C.pct_roofline)
    below_threshold, below_target, on_target, above_peak, not_available = (
        pl.lit(number, pl.UInt8) for number in range(len(STATES))
    )
    number = (
        pl.when(~impact.has_efficiency())
        .then(not_available)
        .when(efficiency > impact.FULL_PCT)
        .then(above_peak)
        .when(efficiency < below_pct)
        .then(below_threshold)
        .when(efficiency < target_pct)
        .then(below_target)
        .otherwise(on_target)
    )
    return pl.lit(pl.Series(STATES)).gather(number)  # texts in each branch would take twice as long


_BIN_PX, _LANE_PX, _ROW_GAP = 26, 18, 0.3
_ROOM_PX = 116
"""Height in pixels of the axis, a legend of one row, and the margins of the theme."""

_LEGEND_COLUMNS, _LEGEND_ROW_PX = 5, 17
_LABEL_PX = 150
_CHARACTERS = 115
"""Approximate number of label characters that fit across the narrowest chart."""

_MIN_LABEL_CHARACTERS = 4
_MIN_STROKE_PX = 0.6
"""Stroke width that keeps the shortest events visible."""

_WIDE = 0.004
"""Minimum share of the window for an event with an outline."""

_SEAM_PX = 0.5
"""Stroke width that hides the light seam between adjacent bars."""

_MAX_NAME_LENGTH = 120

_BIN_TOOLTIP = [
    alt.Tooltip("word:N", title="Mostly"),
    alt.Tooltip("busy_pct:Q", title="Share of this time (%)", format=",.1f"),
    alt.Tooltip("start_ms:Q", title="From (ms)", format=",.4f"),
    alt.Tooltip("end_ms:Q", title="To (ms)", format=",.4f"),
]
_EVENT_TOOLTIP = [
    alt.Tooltip("name:N", title="Name"),
    alt.Tooltip("dur_us:Q", title="Duration (µs)", format=",.3f"),
    alt.Tooltip("start_ms:Q", title="Start (ms)", format=",.4f"),
    alt.Tooltip("color:N", title="Kind"),
    alt.Tooltip("called_by:N", title="Operation"),
    alt.Tooltip("shapes:N", title="Shapes"),
]


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A row: the key used by bins and events, its label, and its number of lanes (0 for bins)."""

    key: str
    label: str
    lanes: int = 0


def timeline_chart(
    rows: Sequence[TimelineRow],
    bins: pl.DataFrame,
    events: pl.DataFrame,
    colors: Mapping[str, str],
    window_ms: tuple[float, float],
    palette: Palette,
    title: str,
) -> alt.LayerChart:
    """Draw rows of bins and of single events on one time axis; drag and scroll to move and zoom.

    Args:
        rows: Rows from top to bottom.
        bins: ``row, color, word, start_ms, end_ms, low_pct, high_pct, busy_pct``: bars from
            ``low_pct`` to ``high_pct`` of the row's height.
        events: ``row, lane, color, name, start_ms, end_ms, dur_us, called_by, shapes``.
        colors: Color by kind, in the order of the legend.
        window_ms: Start and end of the time axis.
        palette: Colors of the theme.
        title: Title of the time axis.
    """
    tops, bottom = _tops(rows)
    per_lane = _LANE_PX / _BIN_PX
    placed_bins = (
        _merged(bins)
        .join(tops, on=C.row)
        .with_columns(
            y=pl.col("top") + 1 - pl.col("low_pct") / 100,
            y2=pl.col("top") + 1 - pl.col("high_pct") / 100,
        )
    )
    placed = events.join(tops, on=C.row).with_columns(
        *_label(window_ms),
        y=pl.col("top") + pl.col("lane") * per_lane,
        y2=pl.col("top") + (pl.col("lane") + 0.9) * per_lane,
        name=shortened(pl.col("name"), _MAX_NAME_LENGTH),
        edge=_edge(window_ms, colors, palette),
    )
    scale = alt.Scale(domain=[0, bottom], reverse=True, nice=False)
    x_scale = alt.Scale(domain=list(window_ms), nice=False)
    x_axis = alt.Axis(title=title, grid=True, tickCount=8, labelFlush=True, labelOverlap=True)
    y_axis = _row_axis(rows, tops)
    x = alt.X("start_ms:Q", scale=x_scale, axis=x_axis)
    y = alt.Y("y:Q", scale=scale, axis=y_axis)
    used = {*bins["color"].unique(), *events["color"].unique()}
    shown = [name for name in colors if name in used]
    hues = alt.Scale(domain=shown, range=[colors[name] for name in shown])
    legend = alt.Legend(
        orient="top", title=None, labelFontSize=12, columns=_LEGEND_COLUMNS, symbolStrokeWidth=0
    )
    color = alt.Color("color:N", scale=hues, legend=legend)
    bars = (
        alt.Chart(placed_bins.drop("top"))
        .mark_rect(clip=True, opacity=1, strokeWidth=_SEAM_PX)
        .encode(
            x=x,
            x2="end_ms:Q",
            y=y,
            y2="y2:Q",
            color=color,
            stroke=alt.Stroke("color:N", scale=hues, legend=None),
            tooltip=_BIN_TOOLTIP,
        )
        .add_params(alt.selection_interval(encodings=["x"], bind="scales"))
    )
    boxes = (
        alt.Chart(placed.drop("top", "label", "label_ms"))
        .mark_rect(clip=True, opacity=1, strokeWidth=_MIN_STROKE_PX)
        .encode(
            x=x,
            x2="end_ms:Q",
            y=y,
            y2="y2:Q",
            color=color,
            stroke=alt.Stroke("edge:N", scale=None),
            tooltip=_EVENT_TOOLTIP,
        )
    )
    inks = {name: ink(colors[name]) for name in colors}
    named = placed.drop_nulls("label").select(
        "label",
        "label_ms",
        middle=(pl.col("y") + pl.col("y2")) / 2,
        ink=pl.col("color").replace_strict(inks, return_dtype=pl.String),
    )
    names = (
        alt.Chart(named)
        .mark_text(clip=True, align="left", dx=3, fontSize=10)
        .encode(
            x=alt.X("label_ms:Q", scale=x_scale, axis=x_axis),
            y=alt.Y("middle:Q", scale=scale, axis=y_axis),
            text="label:N",
            color=alt.Color("ink:N", scale=None),
        )
    )
    more_legend_rows = max(len(shown) - 1, 0) // _LEGEND_COLUMNS
    height = round(bottom * _BIN_PX) + _ROOM_PX + more_legend_rows * _LEGEND_ROW_PX
    chart: alt.LayerChart = alt.LayerChart(layer=[bars, boxes, names], height=height)
    resolved: alt.LayerChart = chart.resolve_scale(stroke="independent")
    return resolved


def _merged(bins: pl.DataFrame) -> pl.DataFrame:
    """Merge adjacent bins that look the same, so that fewer marks are drawn."""
    look = (C.row, "color", "word", "low_pct", "high_pct")
    ordered = bins.sort(C.row, "color", "start_ms").with_columns(
        pl.col("low_pct", "high_pct").round(1), length=pl.col("end_ms") - pl.col("start_ms")
    )
    is_other = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in look)
    is_apart = (pl.col("start_ms") != pl.col("end_ms").shift(1)).fill_null(True)
    return (
        ordered.group_by((is_other | is_apart).cum_sum().alias("run"), maintain_order=True)
        .agg(
            pl.col(*look, "start_ms").first(),
            pl.col("end_ms").last(),
            busy_pct=(pl.col("busy_pct") * pl.col("length")).sum() / pl.col("length").sum(),
        )
        .drop("run")
    )


def _tops(rows: Sequence[TimelineRow]) -> tuple[pl.DataFrame, float]:
    """Return ``row, top, middle`` of each row, and the end of the last one, in bin-row heights."""
    positions, top = [], 0.0
    for row in rows:
        height = row.lanes * _LANE_PX / _BIN_PX if row.lanes else 1.0
        positions.append((row.key, top, top + height / 2))
        top += height + _ROW_GAP
    schema = {C.row: pl.String, "top": pl.Float64, "middle": pl.Float64}
    return pl.DataFrame(positions, schema=schema, orient="row"), max(top, 1.0)


def _row_axis(rows: Sequence[TimelineRow], tops: pl.DataFrame) -> alt.Axis:
    """Return an axis with each row's label at its middle."""
    middles = tops["middle"].to_list()
    labels = json.dumps([row.label for row in rows])
    return alt.Axis(
        title=None,
        values=middles,
        labelExpr=f"{labels}[indexof({json.dumps(middles)}, datum.value)]",
        labelOverlap=False,
        labelLimit=_LABEL_PX,
        minExtent=_LABEL_PX,
        maxExtent=_LABEL_PX,
        grid=False,
        ticks=False,
        domain=False,
    )


def _label(window_ms: tuple[float, float]) -> list[pl.Expr]:
    """Return ``label``, the part of the name that fits into the visible part of an event (null if
    it is too narrow), and ``label_ms``, the position where it starts."""
    start = pl.max_horizontal("start_ms", pl.lit(window_ms[0]))
    visible = pl.min_horizontal("end_ms", pl.lit(window_ms[1])) - start
    length_ms = max(window_ms[1] - window_ms[0], 1e-9)
    room = (visible / length_ms * _CHARACTERS).floor().cast(pl.Int64)
    name = pl.col("name")
    cut = pl.concat_str(name.str.head(pl.max_horizontal(room - 1, 0)), pl.lit("…"))
    label = pl.when(name.str.len_chars() <= room).then(name).otherwise(cut)
    return [
        pl.when(room >= _MIN_LABEL_CHARACTERS).then(label).alias("label"),
        start.alias("label_ms"),
    ]


def _edge(
    window_ms: tuple[float, float],
    colors: Mapping[str, str],
    palette: Palette,
) -> pl.Expr:
    """Return the stroke color of an event: the background for wide ones, to separate neighbors;
    their own color for narrow ones, to keep them visible."""
    is_wide = pl.col("end_ms") - pl.col("start_ms") > _WIDE * (window_ms[1] - window_ms[0])
    return (
        pl.when(is_wide)
        .then(pl.lit(palette.background))
        .otherwise(pl.col("color").replace_strict(colors, return_dtype=pl.String))
    )
