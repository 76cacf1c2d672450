"""Roofline charts: achieved rates of operations under the peaks of the GPU."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log10, sqrt
from typing import Any, Literal

import altair as alt
import polars as pl

from jarvis.charts.marks import (
    MANY_MARKS,
    MAX_CACHED_SPECS,
    Columns,
    Drawing,
    Specification,
    Tip,
    ends_of,
    heaviest,
    near_most,
    note_of_outside,
    specification,
    tips,
    tooltip,
)
from jarvis.charts.palette import STATE_SHAPES, STATES, Palette
from jarvis.core.expressions import rows_where
from jarvis.hardware import peak_label
from jarvis.schemas.names import C

PICKED = "picked"
"""Name of the selection of a clicked point; it holds the operation's ``uid``."""

_ROOM = 1.8
"""Factor of free space around the points of a logarithmic axis."""

_BANDWIDTH = "replace(format(datum.value * 1e12, '~s'), regexp('(\\\\D)$'), ' $1') + 'B/s'"
"""Text of a number of TB/s: ``100 GB/s`` for 0.1."""

_PEAK, _TARGET = "peak", "target"
_DASHES = [[1, 0], [5, 4]]
_HEIGHT = 370
_LABEL_STEP = 150
_SHORT_DECADES = 4
_POINT_COLUMNS = (
    C.name,
    "arguments",
    "state",
    C.operation_count,
    C.kernel_time_us,
    C.flops_per_byte,
    C.tflops_per_s,
    C.tb_per_s,
    C.pct_roofline,
    C.bound,
    "compute",
)
_NEEDED = (*_POINT_COLUMNS, C.uid, C.bytes, C.peak_tflops, C.peak_tb_per_s)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The roofline of one precision: memory ``slope`` (TB/s) and compute ``peak`` (TFLOP/s)."""

    name: str
    slope: float | None
    peak: float | None

    def height(self, x: float) -> float:
        """Return the ceiling at ``x``."""
        sloped = float("inf") if self.slope is None else self.slope * x
        return min(sloped, float("inf") if self.peak is None else self.peak)

    def corners(self, x_range: tuple[float, float]) -> list[tuple[float, float]]:
        """Return the start, the ridge point if it is in range, and the end of the line."""
        xs = list(x_range)
        if self.slope and self.peak and x_range[0] < self.peak / self.slope < x_range[1]:
            xs.insert(1, self.peak / self.slope)
        return [(x, self.height(x)) for x in xs]


def roofline(
    rows: pl.DataFrame,
    columns: Columns,
    target_pct: float,
    palette: Palette,
    *,
    is_of_bandwidth: bool = False,
) -> Drawing | None:
    """Return ``compute_roofline`` or ``bandwidth_roofline``, whichever fits the rows better.

    Return None if no row has a rate.
    """
    rated = rows[[C.tb_per_s, C.bound, C.compute, C.kernel_time_us]]
    rated = rows_where(rated, rated[C.tb_per_s] > 0)
    if rated.is_empty():
        return None
    is_of_compute = not is_of_bandwidth and suits_intensity(rated)
    shape = compute_roofline if is_of_compute else bandwidth_roofline
    return shape(rows, columns, target_pct, palette)


def compute_roofline(
    rows: pl.DataFrame, columns: Columns, target_pct: float, palette: Palette
) -> Drawing:
    """Plot TFLOP/s over FLOP/byte, both logarithmic, under the ceilings of the precisions in use.

    ``rows`` have the columns of ``operations``, ``arguments`` and ``state``; those without FLOPs
    are left out. A dashed line marks ``target_pct`` of each ceiling.
    """
    return _drawing(over_intensity(rows_for_roofline(rows)), columns, target_pct, palette)


def bandwidth_roofline(
    rows: pl.DataFrame, columns: Columns, target_pct: float, palette: Palette
) -> Drawing:
    """Plot TB/s over the bytes of a call, both logarithmic, under the bandwidth peak.

    ``rows`` as for ``compute_roofline``; those without bytes are left out.
    """
    return _drawing(over_size(rows_for_roofline(rows)), columns, target_pct, palette)


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis, shared by all layers with a column named ``field``.

    Its numbers have the D3 format ``form``, or ``label`` is the Vega expression of their text.
    """

    field: str
    title: str
    domain: tuple[float, float]
    form: str = "~g"
    label: str | None = None

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "field": self.field,
            "type": "quantitative",
            "scale": alt.Scale(type="log", domain=self.domain, nice=False),
            "axis": alt.Axis(
                title=self.title,
                format=self.form,
                values=log_ticks(self.domain),
                labelExpr=self.label or alt.Undefined,
                ticks=False,
                domain=False,
                labelOverlap=True,
            ),
        }

    def as_x(self) -> alt.X:
        """Return the x encoding."""
        return alt.X(**self._options)

    def as_y(self) -> alt.Y:
        """Return the y encoding."""
        return alt.Y(**self._options)


@dataclass(frozen=True, slots=True)
class Plane:
    """Two logarithmic axes."""

    x: Axis
    y: Axis

    def chart(self, dataset: str) -> alt.Chart:
        """Return a chart of a dataset with the x and y encodings."""
        return alt.Chart(alt.NamedData(dataset)).encode(x=self.x.as_x(), y=self.y.as_y())

    def place(self, point: tuple[float, float]) -> dict[str, float]:
        """Return the point's coordinates by the fields of the axes."""
        return dict(zip((self.x.field, self.y.field), point, strict=True))


@dataclass(frozen=True, slots=True)
class Placed:
    """Points of a roofline with axes and ceilings; ``slope`` is the memory bandwidth in TB/s.

    Points outside the axes are not visible.
    """

    points: pl.DataFrame
    plane: Plane
    ceilings: list[Ceiling]
    slope: float | None = None


def over_intensity(rows: pl.DataFrame) -> Placed:
    """Place rows by TFLOP/s over FLOP/byte; rows without FLOPs are left out."""
    points = _placed(rows, C.flops_per_byte, C.tflops_per_s)
    near = near_most(points, C.flops_per_byte, C.tflops_per_s)
    peaks = near.drop_nulls(C.peak_tb_per_s).select("compute", C.peak_tflops, C.peak_tb_per_s)
    ceilings = [
        Ceiling(f"{peak_label(compute)} peak {peak:,.4g} TFLOP/s" if peak else "", slope, peak)
        for compute, peak, slope in peaks.unique(maintain_order=True).rows()
    ]
    ridges = [c.peak / c.slope for c in ceilings if c.peak and c.slope]
    plane = Plane(
        Axis(
            C.flops_per_byte,
            "Arithmetic intensity (FLOP/byte)",
            _log_range([*ends_of(near[C.flops_per_byte]), *ridges]),
        ),
        Axis(
            C.tflops_per_s,
            "Achieved (TFLOP/s)",
            _log_range([*ends_of(near[C.tflops_per_s]), *(c.peak for c in ceilings if c.peak)]),
        ),
    )
    slope = next((c.slope for c in ceilings if c.slope), None)
    return Placed(points, plane, ceilings, slope)


def over_size(rows: pl.DataFrame) -> Placed:
    """Place rows by TB/s over the bytes of a call; rows without bytes are left out."""
    points = _placed(rows, C.bytes, C.tb_per_s)
    near = near_most(points, C.bytes, C.tb_per_s)
    peaks = near[C.peak_tb_per_s].drop_nulls().unique(maintain_order=True)
    ceilings = [Ceiling(f"memory peak {peak:,.3g} TB/s", None, peak) for peak in peaks]
    plane = Plane(
        Axis(
            C.bytes, "Bytes moved by one call (modeled)", _log_range(ends_of(near[C.bytes])), "~s"
        ),
        Axis(
            C.tb_per_s,
            "Achieved bandwidth",
            _log_range([*ends_of(near[C.tb_per_s]), *peaks]),
            label=_BANDWIDTH,
        ),
    )
    return Placed(points, plane, ceilings)


def suits_intensity(rows: pl.DataFrame) -> bool:
    """Return whether the compute roofline fits better than the bandwidth roofline.

    It does if matrix units are used or most kernel time is compute bound.
    """
    if any(unit.startswith("matrix") for unit in rows[C.compute].unique() if unit is not None):
        return True
    times_us = rows[C.kernel_time_us]
    return float(times_us.filter(rows[C.bound] == "compute").sum()) > float(times_us.sum()) / 2


def _placed(rows: pl.DataFrame, x: str, y: str) -> pl.DataFrame:
    return heaviest(rows, rows.columns, (pl.col(x) > 0) & (pl.col(y) > 0))


def _log_range(values: Collection[float]) -> tuple[float, float]:
    return min(values) / _ROOM, max(values) * _ROOM


def log_ticks(domain: tuple[float, float]) -> list[float]:
    """Return powers of ten, with 2 and 5 between them if the domain is short, and with all digits
    if it would have a single tick, from which no scale can be read."""
    low, high = floor(log10(domain[0])), ceil(log10(domain[1]))
    ticks: list[float] = []
    for steps in ((1, 2, 5) if high - low <= _SHORT_DECADES else (1,), range(1, 10)):
        every = (step * 10.0**power for power in range(low, high + 1) for step in steps)
        ticks = [tick for tick in every if domain[0] <= tick <= domain[1]]
        if len(ticks) > 1:
            break
    return ticks


def _drawing(placed: Placed, columns: Columns, target_pct: float, palette: Palette) -> Drawing:
    points, plane = placed.points, placed.plane
    tip_names = [name for name in _POINT_COLUMNS if name in points.columns]
    others = (name for name in tip_names if name != "state")
    names = dict.fromkeys([C.uid, *others, plane.x.field, plane.y.field, "state"])
    used = set(points["state"].unique())
    present = tuple(number for number, state in enumerate(STATES) if state in used)
    datasets = {"points": points.select(*names)}
    if placed.ceilings:
        datasets["lines"] = _lines(placed, target_pct)
    if labels := _labels(placed):
        datasets["labels"] = pl.DataFrame(labels)
    spec = _specification(
        plane,
        tips(columns, tip_names, points),
        present,
        frozenset(datasets),
        palette,
        has_many_marks=points.height >= MANY_MARKS,
    )
    domains = {axis.field: axis.domain for axis in (plane.x, plane.y)}
    return Drawing(spec, datasets, note_of_outside(points, domains))


def rows_for_roofline(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns that the charts use, as filters and sorts copy all."""
    return rows[[name for name in _NEEDED if name in rows.columns]]


def _lines(placed: Placed, target_pct: float) -> pl.DataFrame:
    """Return the corners of each ceiling and of its target line."""
    plane = placed.plane
    return pl.DataFrame(
        [
            plane.place((x, y * part)) | {"order": order, "ceiling": number, "of": of}
            for number, ceiling in enumerate(placed.ceilings)
            for of, part in ((_PEAK, 1.0), (_TARGET, target_pct / 100))
            for order, (x, y) in enumerate(ceiling.corners(plane.x.domain))
        ]
    )


def _labels(placed: Placed) -> list[dict[str, Any]]:
    """Return the labels of the ceilings and of the slope, each with an offset in pixels.

    A ceiling's label is above the end of its line, or above the start of a horizontal line, where
    points are small and far below. Labels of several ceilings are side by side. The bandwidth label
    is above the middle of the visible slope.
    """
    plane = placed.plane
    labels = []
    for number, ceiling in enumerate(placed.ceilings):
        shift = 4 + number * _LABEL_STEP
        start, *_, end = ceiling.corners(plane.x.domain)
        if ceiling.name and ceiling.slope is None:
            labels.append(_label(plane, start, ceiling.name, "left", shift, -7))
        elif ceiling.name:
            labels.append(_label(plane, end, ceiling.name, "right", -shift, -7))
    if slope := placed.slope:
        low = max(plane.x.domain[0], plane.y.domain[0] / slope)
        high = min(plane.x.domain[1], plane.y.domain[1] / slope)
        x = sqrt(low * high)
        labels.append(_label(plane, (x, x * slope), f"{slope:,.3g} TB/s memory", "right", -8, -8))
    return labels


def _label(
    plane: Plane,
    point: tuple[float, float],
    text: str,
    align: Literal["left", "right"],
    dx: int,
    dy: int,
) -> dict[str, Any]:
    return plane.place(point) | {"text": text, "align": align, "dx": dx, "dy": dy}


@lru_cache(maxsize=MAX_CACHED_SPECS)
def _specification(
    plane: Plane,
    lines: tuple[Tip, ...],
    present: tuple[int, ...],
    datasets: frozenset[str],
    palette: Palette,
    *,
    has_many_marks: bool,
) -> Specification:
    """Build the chart: points with a legend of the states ``present``, and the layers with data."""
    layers = [_points(plane, lines, present, palette)]
    if "lines" in datasets:
        layers.append(
            plane.chart("lines")
            .mark_line(color=palette.muted, strokeWidth=1.5, clip=True)
            .encode(
                order="order:Q",
                detail="ceiling:N",
                strokeDash=alt.StrokeDash(
                    "of:N", scale=alt.Scale(domain=[_PEAK, _TARGET], range=_DASHES), legend=None
                ),
            )
        )
    if "labels" in datasets:
        layers.append(
            plane.chart("labels")
            .mark_text(
                color=palette.text,
                fontSize=11,
                align=alt.expr("datum.align"),
                dx=alt.expr("datum.dx"),
                dy=alt.expr("datum.dy"),
            )
            .encode(text="text:N")
        )
    chart = alt.LayerChart(layer=layers, height=_HEIGHT)
    return specification(chart, has_many_marks=has_many_marks)


def _points(
    plane: Plane, lines: tuple[Tip, ...], present: tuple[int, ...], palette: Palette
) -> alt.Chart:
    domain = [STATES[number] for number in present]
    legend = alt.Legend(orient="top", title=None, labelFontSize=12, symbolSize=90)
    colors = alt.Scale(domain=domain, range=[palette.states[number] for number in present])
    shapes = alt.Scale(domain=domain, range=[STATE_SHAPES[number] for number in present])
    chart: alt.Chart = (
        plane.chart("points")
        .mark_point(filled=True, opacity=0.8, clip=True)
        .encode(
            size=alt.Size("kernel_time_us:Q", scale=alt.Scale(range=[40, 500]), legend=None),
            color=alt.Color("state:N", scale=colors, legend=legend),
            shape=alt.Shape("state:N", scale=shapes, legend=legend),
            tooltip=tooltip(lines),
        )
        .add_params(alt.selection_point(name=PICKED, fields=["uid"]))
    )
    return chart
