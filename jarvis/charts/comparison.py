"""Comparison of a target with a reference: time differences by category, and time per call."""

from collections.abc import Mapping
from functools import lru_cache
from math import log10

import altair as alt
import polars as pl

from jarvis.charts.marks import (
    LINEAR,
    MAX_CACHED_SPECS,
    MAX_POINTS,
    Columns,
    Drawing,
    Specification,
    Tip,
    in_readable_unit,
    largest,
    name_axis,
    plain_axis,
    specification,
    tips,
    tooltip,
)
from jarvis.charts.palette import Palette
from jarvis.charts.rooflines import PICKED, Axis, Plane
from jarvis.comparison import Outcome
from jarvis.schemas.names import C

LONGER, SHORTER = "more time", "less time"
"""Legend labels of bars to the right (target slower) and left (target faster) of zero."""

EQUAL_TIME = "equal time"
"""Label of the line where target and reference take the same time."""

_SHAPES: Mapping[str, str] = {
    Outcome.MUCH_SLOWER: "triangle-up",
    Outcome.SLOWER: "diamond",
    Outcome.EXPECTED: "circle",
    Outcome.FASTER: "triangle-right",
    Outcome.MUCH_FASTER: "triangle-down",
    Outcome.SHORT: "square",
    Outcome.UNKNOWN: "cross",
}
_BAR_STEP_PX, _BAR_AXIS_PX = 30, 92
"""Height in pixels of a bar, and of legend and axis together."""

_LABEL_SHARE = 0.25
"""Free space beside the longest bar for its value, as a share of the range of all bars."""

_DASHES = [[1, 0], [7, 4], [2, 3], [10, 3, 2, 3], [2, 6], [14, 4]]
"""Dash patterns of the lines in order; colors are reserved for the points."""

MAX_RATIOS = len(_DASHES) - 1
"""Maximum number of expected-ratio lines that have distinct dash patterns."""

_HEIGHT = 460
_ROOM = 1.6
"""Factor of free space around the points of a logarithmic axis."""

_POINT_TIPS = (
    C.name,
    "arguments",
    "outcome",
    C.target_us_per_call,
    C.reference_us_per_call,
    C.time_ratio,
    C.expected_ratio,
    C.target_ms,
    C.difference_ms,
    C.unexplained_ms,
    C.matched_by,
)


def outcome_colors(palette: Palette) -> Mapping[str, str]:
    """Return the color of each outcome, slowest first."""
    fast, faster = palette.categorical[2], palette.categorical[3]
    return dict(
        zip(
            _SHAPES,
            (
                palette.below_threshold,
                palette.below_target,
                palette.primary,
                fast,
                faster,
                palette.muted,
                palette.muted,
            ),
            strict=True,
        )
    )


def category_differences(
    rows: pl.DataFrame, columns: Columns, palette: Palette, quantity: str
) -> Drawing:
    """Draw the time difference (target minus reference) of each category as bars around zero.

    ``rows``: the table ``comparison_categories``; ``quantity`` is one of its columns. A category
    without a value, such as a percentage of 0, has a text instead of a bar.
    """
    names = ("title", C.target_ms, C.reference_ms, C.difference_ms, C.difference_pct)
    column, value = columns[quantity], pl.col("value")
    if column.unit == "ms":
        column, divisor = in_readable_unit(column, largest(rows[quantity].abs()))
        value /= divisor
    frame = (
        rows.rename({quantity: "value"})
        .sort("value", "title", descending=[True, False], nulls_last=True)
        .select(
            "title",
            *(pl.col("value" if name == quantity else name).alias(name) for name in names[1:]),
            value=value.fill_null(0.0),
            side=pl.when(value < 0).then(pl.lit(SHORTER)).otherwise(pl.lit(LONGER)),
            is_known=value.is_not_null(),
        )
        .with_row_index("rank")
    )
    low, high = min([0.0, *frame["value"]]), max([0.0, *frame["value"]])
    room = _LABEL_SHARE * (high - low) or 1.0
    domain = (low - room * (low < 0), high + room)
    lines = tips(columns, names, frame)
    spec = _differences_spec(column.label, column.unit, domain, frame.height, lines, palette)
    return Drawing(spec, {"bars": frame})


@lru_cache(maxsize=MAX_CACHED_SPECS)
def _differences_spec(
    title: str,
    unit: str,
    domain: tuple[float, float],
    count: int,
    lines: tuple[Tip, ...],
    palette: Palette,
) -> Specification:
    by_rank = alt.EncodingSortField(field="rank", op="min", order="ascending")
    base = alt.Chart(alt.NamedData("bars")).encode(
        y=alt.Y("title:N", sort=by_rank, axis=name_axis()), tooltip=tooltip(lines)
    )
    sides = alt.Scale(domain=[LONGER, SHORTER], range=[palette.categorical[1], palette.primary])
    legend = alt.Legend(orient="top", title=None, labelFontSize=12)
    x = alt.X(
        "value:Q",
        axis=plain_axis(title, format=LINEAR),
        scale=alt.Scale(domain=list(domain), nice=False),
    )
    bars = base.mark_bar(height={"band": 0.68}).encode(
        x=x, x2=alt.datum(0), color=alt.Color("side:N", scale=sides, legend=legend)
    )
    form = "+,.1f" if unit == "%" else "+,.3r"
    text = base.mark_text(
        align=alt.expr("datum.value < 0 ? 'right' : 'left'"),
        dx=alt.expr("datum.value < 0 ? -5 : 5"),
        color=palette.text,
        fontSize=11,
    ).encode(x=x, text="text:N")
    text = text.transform_calculate(
        text=f"datum.is_known ? format(datum.value, '{form}') : 'only on the target'"
    )
    zero = (
        alt.Chart(alt.NamedData("bars"))
        .mark_rule(color=palette.muted)
        .encode(x=alt.X(datum=0, type="quantitative"))
    )
    return specification(
        alt.LayerChart(layer=[bars, zero, text], height=max(count, 1) * _BAR_STEP_PX + _BAR_AXIS_PX)
    )


def calls_on_both_sides(
    rows: pl.DataFrame, ratios: Mapping[str, float], columns: Columns, palette: Palette
) -> Drawing:
    """Plot time per call on the target over time per call on the reference, both logarithmic.

    Args:
        rows: The table ``comparison_operations`` with ``arguments``; the MAX_POINTS longest are
            drawn.
        ratios: Expected time ratios by name, one line each beside the line of equal times.
        columns: Labels, units and formats of the columns.
        palette: Colors of the theme.
    """
    points = _heaviest(rows, C.reference_us_per_call)
    lines = {EQUAL_TIME: 1.0} | dict(ratios)
    plane = _plane(points, C.reference_us_per_call, columns[C.reference_us_per_call].label, columns)
    low, high = plane.x.domain
    datasets = {
        "points": points,
        "lines": pl.DataFrame(
            [
                plane.place((x, x * ratio)) | {"line": name}
                for name, ratio in lines.items()
                for x in (low, high)
            ]
        ),
    }
    tip_lines = _point_tips(points, columns)
    spec = _calls_spec(plane, tuple(lines), tip_lines, _outcomes(points), palette)
    return Drawing(spec, datasets)


def calls_against_expected(
    rows: pl.DataFrame, tolerance: float, columns: Columns, palette: Palette
) -> Drawing:
    """Plot time per call on the target over the time expected from the hardware.

    ``rows`` as for ``calls_on_both_sides``; those without an expected ratio are left out. If the
    expected ratio is a range, its value nearest to the measured one is used. The outer lines mark
    the ``tolerance`` (a factor).
    """
    ratio = pl.col(C.time_ratio).clip(C.expected_ratio_least, C.expected_ratio_most)
    expected = rows.filter(pl.col(C.expected_ratio_most).is_not_null()).with_columns(
        expected_us_per_call=pl.col(C.reference_us_per_call) * ratio
    )
    points = _heaviest(expected, "expected_us_per_call")
    title = "Expected on the target (µs per call)"
    plane = _plane(points, "expected_us_per_call", title, columns)
    low, high = plane.x.domain
    names = ("expected", f"{tolerance:.2f} times off")
    factors = {names[0]: (1.0,), names[1]: (tolerance, 1 / tolerance)}
    corners = [
        plane.place((x, x * factor)) | {"line": name, "detail": factor}
        for name, of in factors.items()
        for factor in of
        for x in (low, high)
    ]
    spec = _calls_spec(plane, names, _point_tips(points, columns), _outcomes(points), palette)
    return Drawing(spec, {"points": points, "lines": pl.DataFrame(corners)})


def _heaviest(rows: pl.DataFrame, x: str) -> pl.DataFrame:
    names = dict.fromkeys([C.pair, *_POINT_TIPS, x])
    return (
        rows.lazy()
        .filter((pl.col(x) > 0) & (pl.col(C.target_us_per_call) > 0))
        .sort(C.target_ms, descending=True, maintain_order=True)
        .select(*names)
        .head(MAX_POINTS)
        .collect()
    )


def _plane(points: pl.DataFrame, x: str, title: str, columns: Columns) -> Plane:
    """Return two axes of equal range, so that equal times lie on the diagonal."""
    times = [*points[x], *points[C.target_us_per_call]] or [1.0]
    domain = (min(times) / _ROOM, max(times) * _ROOM)
    form = "~g" if log10(domain[1]) < 5 else "~s"
    target = columns[C.target_us_per_call].label
    return Plane(Axis(x, title, domain, form), Axis(C.target_us_per_call, target, domain, form))


def _point_tips(points: pl.DataFrame, columns: Columns) -> tuple[Tip, ...]:
    return tips(columns, _POINT_TIPS, points)


def _outcomes(points: pl.DataFrame) -> tuple[str, ...]:
    """Return the outcomes of the points in the order of the legend."""
    used = set(points["outcome"].unique())
    return tuple(str(outcome) for outcome in _SHAPES if outcome in used)


@lru_cache(maxsize=MAX_CACHED_SPECS)
def _calls_spec(
    plane: Plane,
    lines: tuple[str, ...],
    hover: tuple[Tip, ...],
    present: tuple[str, ...],
    palette: Palette,
) -> Specification:
    below = alt.Legend(
        orient="bottom", title=None, labelFontSize=12, columns=2, symbolSize=400, labelLimit=320
    )
    line = (
        plane.chart("lines")
        .mark_line(color=palette.muted, strokeWidth=1.6, clip=True)
        .encode(
            detail="detail:N",
            strokeDash=alt.StrokeDash(
                "line:N",
                scale=alt.Scale(domain=list(lines), range=_DASHES[: len(lines)]),
                legend=below,
            ),
        )
    )
    colors = outcome_colors(palette)
    above = alt.Legend(orient="top", title=None, labelFontSize=12, symbolSize=90, columns=4)
    points = (
        plane.chart("points")
        .mark_point(filled=True, opacity=0.85, clip=True)
        .encode(
            size=alt.Size("target_ms:Q", scale=alt.Scale(range=[45, 500]), legend=None),
            color=alt.Color(
                "outcome:N",
                scale=alt.Scale(domain=list(present), range=[colors[o] for o in present]),
                legend=above,
            ),
            shape=alt.Shape(
                "outcome:N",
                scale=alt.Scale(domain=list(present), range=[_SHAPES[o] for o in present]),
                legend=above,
            ),
            tooltip=tooltip(hover),
        )
        .add_params(alt.selection_point(name=PICKED, fields=["pair"]))
    )
    return specification(alt.LayerChart(layer=[line, points], height=_HEIGHT))
