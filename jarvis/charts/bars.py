"""Bars, histograms and scatter plots."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from jarvis.charts.marks import (
    LINEAR,
    MAX_POINTS,
    Columns,
    largest,
    length_scale,
    name_axis,
    plain_axis,
    shortened,
    tooltip,
    unique_labels,
)
from jarvis.charts.palette import STATES, Palette

TOP_BARS = 10
_BAR_STEP = 27
_TOP_ROOM = 62
"""Pixels of a bar chart that are not bars: the axis and its title."""

_BINS_PER_DECADE = 4

_NARROW_LABEL = 32

_NO_GROUP = "none of these"


def savings(
    rows: pl.DataFrame, columns: Columns, palette: Palette, limit: int = TOP_BARS
) -> alt.LayerChart:
    """The operations that would save most at the target: kernel time pale, saving strong.

    ``rows``: ``name``, ``arguments``, ``kernel_time_us``, ``saved_us`` and what a tooltip names.
    """
    top = rows.filter(pl.col("saved_us") > 0).sort("saved_us", descending=True).head(limit)
    short_name = pl.col("name").str.replace(r"^aten::", "")
    text = pl.concat_str(short_name, "arguments", separator=" ", ignore_nulls=True)
    names = ("name", "arguments", "operation_count", "kernel_time_us", "saved_us", "pct_roofline")
    return _over(
        unique_labels(top, text, _NARROW_LABEL),
        "kernel_time_us",
        "saved_us",
        names,
        columns,
        palette,
    )


def categories(rows: pl.DataFrame, columns: Columns, palette: Palette) -> alt.LayerChart:
    """Time of each category pale, what the target would save of it strong.

    ``rows``: ``title``, ``gpu_time_ms``, ``saved_ms``, most time first.
    """
    frame = rows.with_columns(label=pl.col("title"))
    return _over(
        frame, "gpu_time_ms", "saved_ms", ("title", "gpu_time_ms", "saved_ms"), columns, palette
    )


def _over(
    frame: pl.DataFrame,
    whole: str,
    part: str,
    names: Sequence[str],
    columns: Columns,
    palette: Palette,
) -> alt.LayerChart:
    y = alt.Y("label:N", sort=frame["label"].to_list(), axis=name_axis())
    unit = columns[whole].unit
    base = alt.Chart(frame).encode(y=y, tooltip=tooltip(columns, names, frame))
    longest = largest(frame[whole])
    x = alt.X(f"{whole}:Q", axis=plain_axis(unit, format=LINEAR), scale=length_scale(longest))
    pale = base.mark_bar(color=palette.pale, height={"band": 0.72}).encode(x=x)
    strong = base.mark_bar(color=palette.saving, height={"band": 0.72}).encode(x=alt.X(f"{part}:Q"))
    value = base.mark_text(align="left", dx=5, color=palette.text, fontSize=11).encode(
        x=alt.X(f"{whole}:Q"), text=alt.Text(f"{whole}:Q", format=",.3~r")
    )
    return alt.LayerChart(layer=[pale, strong, value], height=_height(frame.height))


def bars(
    frame: pl.DataFrame,
    columns: Columns,
    palette: Palette,
    *,
    x: str,
    y: str,
    color: str | None = None,
    limit: int = TOP_BARS,
) -> alt.Chart:
    """Column ``x`` added up for each value of ``y``, longest first, parted by ``color``."""
    color = _telling(color, frame)
    keys = [y, *([color] if color else [])]
    known = frame.filter(pl.col(x) > 0).with_columns(pl.col(keys).fill_null(_NO_GROUP))
    longest = known.group_by(y).agg(pl.col(x).sum()).sort(x, y, descending=[True, False])
    top = longest.head(limit).select(y).with_columns(label=shortened(pl.col(y)))
    parts = (
        known.join(top, on=y).group_by([*keys, "label"], maintain_order=True).agg(pl.col(x).sum())
    )
    chart: alt.Chart = (
        alt.Chart(parts)
        .mark_bar(height={"band": 0.72})
        .encode(
            y=alt.Y("label:N", sort=top["label"].to_list(), axis=name_axis()),
            x=alt.X(
                f"{x}:Q",
                axis=plain_axis(columns[x].label, format=LINEAR),
                scale=length_scale(largest(longest[x])),
            ),
            tooltip=tooltip(columns, [*keys, x], parts),
        )
    )
    if color is None:
        chart = chart.encode(color=alt.value(palette.primary))
    else:
        chart = chart.encode(color=_categorical(color, parts, columns, palette))
    chart.height = _height(top.height) + (30 if color else 0)
    return chart


def scatter(
    frame: pl.DataFrame,
    columns: Columns,
    palette: Palette,
    *,
    x: str,
    y: str,
    color: str | None = None,
) -> alt.Chart:
    """The MAX_POINTS rows with most time by two columns, ``x`` logarithmic, size by kernel time."""
    points = frame.filter((pl.col(x) > 0) & pl.col(y).is_not_null())
    points = points.sort("kernel_time_us", descending=True, maintain_order=True).head(MAX_POINTS)
    color = _telling(color, points)
    if color:
        points = points.with_columns(pl.col(color).fill_null(_NO_GROUP))
    names = dict.fromkeys(["name", "arguments", x, y, *([color] if color else []), "state"])
    shown = [name for name in names if name in points.columns]
    chart: alt.Chart = (
        alt.Chart(points.select(list(dict.fromkeys([*shown, "kernel_time_us"]))))
        .mark_point(filled=True, opacity=0.8)
        .encode(
            x=alt.X(
                f"{x}:Q",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(title=columns[x].label, format="~s", tickCount=6, labelOverlap=True),
            ),
            y=alt.Y(f"{y}:Q", axis=plain_axis(columns[y].label, format=LINEAR)),
            size=alt.Size("kernel_time_us:Q", scale=alt.Scale(range=[40, 400]), legend=None),
            tooltip=tooltip(columns, shown, points),
        )
    )
    if color is None:
        chart = chart.encode(color=alt.value(palette.primary))
    else:
        chart = chart.encode(
            color=_categorical(color, points, columns, palette),
            shape=alt.Shape(f"{color}:N", legend=_legend()),
        )
    chart.height = 300
    return chart


def parts_of_time(parts: pl.DataFrame, palette: Palette) -> alt.Chart:
    """One bar of GPU time. ``parts``: ``part``, ``time_ms``, ``percent``, in the order to stand."""
    order = parts["part"].to_list()
    frame = parts.with_columns(order=pl.int_range(pl.len()))
    colours = [
        palette.categorical[0],
        palette.categorical[1],
        palette.categorical[3],
        palette.muted,
    ]
    chart: alt.Chart = (
        alt.Chart(frame)
        .mark_bar(height=34)
        .encode(
            x=alt.X(
                "time_ms:Q",
                stack="zero",
                axis=plain_axis("ms", format=LINEAR),
                scale=alt.Scale(domain=[0, float(parts["time_ms"].sum())], nice=False),
            ),
            color=alt.Color(
                "part:N", scale=alt.Scale(domain=order, range=colours), legend=_legend()
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("time_ms:Q", title="Time (ms)", format=",.3f"),
                alt.Tooltip("percent:Q", title="% of GPU time", format=",.2f"),
            ],
        )
        .properties(height=145)
    )
    return chart


def exposure(parts: pl.DataFrame, palette: Palette) -> alt.Chart:
    """Bars of time that is hidden behind compute and time that is not.

    ``parts``: ``kind``, ``part`` (``hidden`` or ``exposed``), ``time_ms``.
    """
    longest = largest(parts.group_by("kind").agg(pl.col("time_ms").sum())["time_ms"])
    scale = alt.Scale(domain=["hidden", "exposed"], range=[palette.pale, palette.below_threshold])
    chart: alt.Chart = (
        alt.Chart(parts)
        .mark_bar(height={"band": 0.6})
        .encode(
            y=alt.Y("kind:N", axis=name_axis()),
            x=alt.X(
                "time_ms:Q",
                stack="zero",
                axis=plain_axis("ms", format=LINEAR),
                scale=length_scale(longest),
            ),
            color=alt.Color("part:N", scale=scale, legend=_legend()),
            order=alt.Order("part:N", sort="descending"),
            tooltip=[
                alt.Tooltip("kind:N", title="Kind"),
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("time_ms:Q", title="Time (ms)", format=",.3f"),
            ],
        )
        .properties(height=120 + 40 * parts["kind"].n_unique())
    )
    return chart


def log_histogram(values_us: pl.Series, palette: Palette, value: str, total: str) -> alt.Chart:
    """Logarithmic bins of positive times; the bars say what the times of a bin add up to.

    ``value`` and ``total`` name a single time and the sum, without unit.
    """
    power = pl.col("us").log10() * _BINS_PER_DECADE
    bins = (
        values_us.rename("us")
        .to_frame()
        .filter(pl.col("us") > 0)
        .group_by(bin=power.floor())
        .agg(total_ms=pl.col("us").sum() / 1000, count=pl.len())
        .sort("bin")
        .with_columns(
            low=10.0 ** (pl.col("bin") / _BINS_PER_DECADE),
            high=10.0 ** ((pl.col("bin") + 1) / _BINS_PER_DECADE),
        )
    )
    axis = alt.Axis(title=f"{value} (µs)", format="~g", tickCount=6, labelOverlap=True, grid=False)
    chart: alt.Chart = (
        alt.Chart(bins)
        .mark_rect(color=palette.primary, stroke=palette.background)
        .encode(
            x=alt.X("low:Q", scale=alt.Scale(type="log", nice=False), axis=axis),
            x2="high:Q",
            y=alt.Y("total_ms:Q", axis=plain_axis(f"{total} (ms)", format=LINEAR)),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("low:Q", title="From (µs)", format=",.3~r"),
                alt.Tooltip("high:Q", title="To (µs)", format=",.3~r"),
                alt.Tooltip("count:Q", title="Count", format=",d"),
                alt.Tooltip("total_ms:Q", title=f"{total} (ms)", format=",.3~r"),
            ],
        )
        .properties(height=260)
    )
    return chart


def _telling(field: str | None, frame: pl.DataFrame) -> str | None:
    """The field to colour by; None where no row has a value, so that no legend says nothing."""
    return field if field and frame[field].null_count() < frame.height else None


def _categorical(field: str, frame: pl.DataFrame, columns: Columns, palette: Palette) -> alt.Color:
    if field == "state":
        scale = alt.Scale(domain=list(STATES), range=list(palette.states))
        return alt.Color("state:N", scale=scale, legend=_legend())
    values = sorted(str(v) for v in frame[field].unique().drop_nulls())
    colours = [palette.categorical[n % len(palette.categorical)] for n in range(len(values))]
    scale = alt.Scale(domain=values, range=colours)
    return alt.Color(f"{field}:N", scale=scale, legend=_legend())


def _legend() -> alt.Legend:
    return alt.Legend(orient="top", title=None, labelFontSize=12, columns=4, labelLimit=260)


def _height(count: int) -> int:
    return max(count, 1) * _BAR_STEP + _TOP_ROOM
