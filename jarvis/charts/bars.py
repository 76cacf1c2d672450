"""Bars, histograms and scatter plots."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import altair as alt
import polars as pl

from jarvis.charts.marks import (
    LABEL_LENGTH,
    LINEAR,
    MANY_MARKS,
    MAX_CACHED_SPECS,
    NO_NAME,
    TOP_BARS,
    Columns,
    Drawing,
    Specification,
    Tip,
    bar_totals,
    bars_height,
    decimals_of,
    ends_of,
    heaviest,
    in_readable_units,
    is_length,
    is_point,
    largest,
    length_scale,
    name_axis,
    named,
    near_most,
    note_of_outside,
    plain_axis,
    rank_axis,
    short_label,
    specification,
    tips,
    tooltip,
    unique_labels,
)
from jarvis.charts.palette import STATES, Palette
from jarvis.schemas.names import C
from jarvis.text.format import MIN_MS, MIN_PCT

_LEGEND_PX = 66
"""Height of a legend above the bars, with the theme's margins."""

_BESIDE_NAMES = 2
"""Columns of a legend that has only the width of the bars, right of their names."""

_VALUE_ROOM = 1.1
"""Axis length relative to the longest bar, so that its value fits behind it."""

_BINS_PER_DECADE = 4

_PARTS_PX = 112
_PARTS_OF_WINDOW = 4
"""Parts of a time whose idle part is one."""

"""Height of a single bar with its legend and axis."""

_EXPOSURE_PX = 60
"""Height of the legend and axis without the bars."""

_NEAR_AXIS = {"labelPadding": 6, "titlePadding": 6}
_NEAR_LEGEND = {"padding": 0, "offset": 4}
_NARROW_EDGE = {"left": 2, "right": 2, "top": 2, "bottom": 2}
"""Smaller margins than the theme's, for charts of a few bars."""

_NO_GROUP = "other"

_SCATTER_ROOM, _MARK_PX = 1.05, 16
"""Axis length relative to the highest mark, and the room beside the outermost marks in pixels, so
that no mark is cut."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The values of a field and the color of each."""

    field: str
    values: tuple[str, ...]
    colors: tuple[str, ...]

    def color(self, **legend: int) -> alt.Color:
        """Return the color encoding, with a legend and its further options."""
        scale = alt.Scale(domain=list(self.values), range=list(self.colors))
        return alt.Color(f"{self.field}:N", scale=scale, legend=_legend(**legend))


def bars(
    frame: pl.DataFrame,
    columns: Columns,
    palette: Palette,
    *,
    x: str,
    y: str,
    color: str | None = None,
    whole: pl.DataFrame | None = None,
    limit: int = TOP_BARS,
) -> Drawing:
    """Draw the sum of column ``x`` for each value of ``y``, longest first, split by ``color``.

    ``whole``: the rows without filters, whose values of ``color`` fix the colors.
    """
    color = _color_field(color, frame)
    groups = [color] if color and color != y else []
    keys = [y, *groups]
    filled = (named(group, _NO_GROUP) for group in groups)
    known = frame.filter(is_length(x)).with_columns(named(y, NO_NAME), *filled)
    longest = bar_totals(frame, x=x, y=y)
    known, columns = in_readable_units(known, columns, (x,), largest(longest[x]))
    top = longest.head(limit).select(y, short=pl.col(y).map_elements(short_label, pl.String))
    top = unique_labels(top, pl.col("short"), LABEL_LENGTH).drop("short").with_row_index("rank")
    parts = (
        known.join(top, on=y)
        .group_by([*keys, "label", "rank"], maintain_order=True)
        .agg(pl.col(x).sum())
    )
    totals = bar_totals(parts, x=x, y=y)[x]
    spec = _bars_spec(
        x,
        columns[x].label,
        largest(totals),
        decimals_of(totals),
        top.height,
        tips(columns, [*keys, x], parts),
        _groups(color, frame if whole is None else whole, palette),
        palette,
    )
    return Drawing(spec, {"bars": parts})


@lru_cache(maxsize=MAX_CACHED_SPECS)
def _bars_spec(
    x: str,
    title: str,
    longest: float,
    decimals: int,
    count: int,
    lines: tuple[Tip, ...],
    groups: Groups | None,
    palette: Palette,
) -> Specification:
    base = alt.Chart(alt.NamedData("bars")).encode(y=rank_axis())
    scale = length_scale(_VALUE_ROOM * longest)
    parts = base.mark_bar(height={"band": 0.72}).encode(
        x=alt.X(f"{x}:Q", axis=plain_axis(title, format=LINEAR), scale=scale),
        color=groups.color(columns=_BESIDE_NAMES) if groups else alt.value(palette.primary),
        tooltip=tooltip(lines),
    )
    totals = base.mark_text(align="left", dx=5, color=palette.text, fontSize=11).encode(
        x=alt.X(f"sum({x}):Q", title=title), text=alt.Text(f"sum({x}):Q", format=f",.{decimals}f")
    )
    height = bars_height(count) + (_LEGEND_PX if groups else 0)
    return specification(alt.LayerChart(layer=[parts, totals], height=height))


def scatter(
    frame: pl.DataFrame,
    columns: Columns,
    palette: Palette,
    *,
    x: str,
    y: str,
    color: str | None = None,
    whole: pl.DataFrame | None = None,
) -> Drawing:
    """Plot two columns of the MAX_POINTS longest rows: logarithmic ``x``, size by kernel time.

    ``whole`` as for ``bars``; it also fixes the shapes.
    """
    groups = [color] if color else []
    tip_names = dict.fromkeys([C.name, "arguments", x, y, *groups, "state"])
    names = dict.fromkeys([C.uid, *tip_names, C.kernel_time_us])
    points = heaviest(frame, [name for name in names if name in frame.columns], is_point(x, y))
    color = _color_field(color, points)
    if color:
        points = points.with_columns(named(color, _NO_GROUP))
    points, columns = in_readable_units(points, columns, (y,), largest(points[y]))
    ends = ends_of(near_most(points, x)[x])
    spec = _scatter_spec(
        (x, columns[x].label),
        ends,
        (y, columns[y].label),
        _SCATTER_ROOM * largest(points[y]),
        tips(columns, tip_names, points),
        _groups(color, frame if whole is None else whole, palette),
        palette,
        has_many_marks=points.height >= MANY_MARKS,
    )
    return Drawing(spec, {"points": points}, note_of_outside(points, {x: ends}))


@lru_cache(maxsize=MAX_CACHED_SPECS)
def _scatter_spec(
    x: tuple[str, str],
    ends: tuple[float, float],
    y: tuple[str, str],
    highest: float,
    lines: tuple[Tip, ...],
    groups: Groups | None,
    palette: Palette,
    *,
    has_many_marks: bool,
) -> Specification:
    """Build the scatter plot; ``x`` and ``y`` are pairs of field and title, ``ends`` those of x."""
    (x_field, x_title), (y_field, y_title) = x, y
    chart = (
        alt.Chart(alt.NamedData("points"))
        .mark_point(filled=True, opacity=0.8, clip=True)
        .encode(
            x=alt.X(
                f"{x_field}:Q",
                scale=alt.Scale(type="log", domain=ends, nice=False, padding=_MARK_PX),
                axis=alt.Axis(title=x_title, format="~s", tickCount=6, labelOverlap=True),
            ),
            y=alt.Y(
                f"{y_field}:Q",
                axis=plain_axis(y_title, format=LINEAR),
                scale=length_scale(highest),
            ),
            size=alt.Size("kernel_time_us:Q", scale=alt.Scale(range=[40, 400]), legend=None),
            color=groups.color() if groups else alt.value(palette.primary),
            tooltip=tooltip(lines),
        )
    )
    if groups:
        shapes = alt.Scale(domain=list(groups.values))
        chart = chart.encode(shape=alt.Shape(f"{groups.field}:N", scale=shapes, legend=_legend()))
    return specification(chart.properties(height=300), has_many_marks=has_many_marks)


def parts_of_time(parts: pl.DataFrame, palette: Palette, **legend: int) -> alt.Chart:
    """Draw a time as one stacked bar of ``parts``: ``part``, ``time_ms``, ``percent``, and
    optionally ``is_unlinked``, true for a second part of compute after the first.

    The first three parts are compute, communication and copies, the others idle time. Of three idle
    parts, the first comes before all others, in the bar too. Parts below MIN_PCT have no mark: the
    mean of steps can be a fraction of a nanosecond.
    ``legend`` has further options of the legend.
    """
    if "is_unlinked" not in parts.columns:
        parts = parts.with_columns(is_unlinked=pl.lit(value=False))
    has_places = parts.height > _PARTS_OF_WINDOW
    idle = (
        (palette.categorical[5], palette.muted, palette.categorical[6])
        if has_places
        else (palette.muted,)
    )
    colors = [*(palette.categorical[place] for place in (0, 1, 3)), *idle]
    before = _PARTS_OF_WINDOW - 1 if has_places else 0
    frame = (
        parts.with_columns(place=pl.int_range(pl.len()) - pl.col("is_unlinked").cum_sum())
        .sort(pl.col("place") != before, "place", maintain_order=True)
        .with_columns(order=pl.int_range(pl.len()))
        .filter(pl.col(C.percent) >= MIN_PCT)
    )
    order = frame["part"].to_list()
    colors = [
        palette.faint if is_unlinked else colors[place]
        for place, is_unlinked in frame.select("place", "is_unlinked").iter_rows()
    ]
    chart: alt.Chart = (
        alt.Chart(frame)
        .mark_bar()
        .encode(
            x=alt.X(
                "time_ms:Q",
                stack="zero",
                axis=plain_axis("ms", format=LINEAR, **_NEAR_AXIS),
                scale=alt.Scale(domain=[0, float(parts[C.time_ms].sum())], nice=False),
            ),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=order, range=colors),
                legend=_legend(**_NEAR_LEGEND, **legend),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("time_ms:Q", title="Time (ms)", format=",.3f"),
                alt.Tooltip("percent:Q", title="%", format=",.2f"),
            ],
        )
        .properties(height=_PARTS_PX, padding=_NARROW_EDGE)
    )
    return chart


def exposure(parts: pl.DataFrame, palette: Palette) -> alt.Chart:
    """Draw bars of time that overlaps compute (hidden) and time that does not (exposed).

    ``parts``: ``kind``, ``part`` (``hidden`` or ``exposed``), ``time_ms``, in the order of bars.
    """
    longest = largest(parts.group_by("kind").agg(pl.col(C.time_ms).sum())[C.time_ms])
    unit, factor = ("µs", 1000.0) if longest < MIN_MS else ("ms", 1.0)
    parts, longest = parts.with_columns(pl.col(C.time_ms) * factor), longest * factor
    scale = alt.Scale(domain=["hidden", "exposed"], range=[palette.pale, palette.below_threshold])
    chart: alt.Chart = (
        alt.Chart(parts)
        .mark_bar(height={"band": 0.6})
        .encode(
            y=alt.Y("kind:N", sort=None, axis=name_axis()),
            x=alt.X(
                "time_ms:Q",
                stack="zero",
                axis=plain_axis(unit, format=LINEAR, **_NEAR_AXIS),
                scale=length_scale(longest),
            ),
            color=alt.Color("part:N", scale=scale, legend=_legend(**_NEAR_LEGEND)),
            order=alt.Order("part:N", sort="descending"),
            tooltip=[
                alt.Tooltip("kind:N", title="Kind"),
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("time_ms:Q", title=f"Time ({unit})", format=",.3r"),
            ],
        )
        .properties(height=_EXPOSURE_PX + 40 * parts["kind"].n_unique(), padding=_NARROW_EDGE)
    )
    return chart


def log_histogram(values_us: pl.Series, palette: Palette, value: str, total: str) -> alt.Chart:
    """Draw a histogram of the positive times with logarithmic bins; bars are each bin's sum.

    ``value`` and ``total`` are the names of a single time and of the sum, without unit.
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
                alt.Tooltip("low:Q", title="From (µs)", format=",.3r"),
                alt.Tooltip("high:Q", title="To (µs)", format=",.3r"),
                alt.Tooltip("count:Q", title="Count", format=",d"),
                alt.Tooltip("total_ms:Q", title=f"{total} (ms)", format=",.3r"),
            ],
        )
        .properties(height=260)
    )
    return chart


def _color_field(field: str | None, frame: pl.DataFrame) -> str | None:
    """Return ``field``, or None if no row has a value in it, so that no legend is empty."""
    return field if field and frame[field].null_count() < frame.height else None


def _groups(field: str | None, frame: pl.DataFrame, palette: Palette) -> Groups | None:
    if field is None:
        return None
    if field == "state":
        return Groups(field, STATES, palette.states)
    values = tuple(sorted(str(v) for v in frame[field].unique().drop_nulls()))
    if frame[field].null_count():
        values += (_NO_GROUP,)
    hues = palette.categorical
    passes = {"forward": hues[4], "backward": hues[3]}  # as operators in the call tree
    colors = (passes.get(value, hues[n % len(hues)]) for n, value in enumerate(values))
    return Groups(field, values, tuple(colors))


def _legend(**options: Any) -> alt.Legend:
    shown = {"columns": 4, "labelLimit": 260, **options}
    return alt.Legend(orient="top", title=None, labelFontSize=12, **shown)
