"""Rooflines: what operations achieve, under what the GPU can do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt
from typing import Any, Literal

import altair as alt
import polars as pl

from jarvis.charts.marks import MAX_POINTS, Columns, tooltip
from jarvis.charts.palette import STATE_SHAPES, STATES, Palette

PICKED = "picked"
"""Name of the selection that a click on a point makes; it holds the operation's ``uid``."""

_ROOM = 1.8
"""Factor of free space around the points of a logarithmic axis."""

_HEIGHT = 370
_LABEL_STEP = 150
_SHORT_DECADES = 4
_POINT_COLUMNS = (
    "name",
    "arguments",
    "state",
    "operation_count",
    "kernel_time_us",
    "flops_per_byte",
    "tflops_per_s",
    "tb_per_s",
    "pct_roofline",
    "bound",
    "compute",
)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What bounds the operations of one precision; ``peak`` None where only memory does."""

    name: str
    slope: float | None
    peak: float | None

    def height(self, x: float) -> float:
        """The ceiling at ``x``."""
        sloped = float("inf") if self.slope is None else self.slope * x
        return min(sloped, float("inf") if self.peak is None else self.peak)

    def corners(self, x_range: tuple[float, float]) -> list[tuple[float, float]]:
        """Start, ridge if there is one, and end of the line."""
        xs = list(x_range)
        if self.slope and self.peak and x_range[0] < self.peak / self.slope < x_range[1]:
            xs.insert(1, self.peak / self.slope)
        return [(x, self.height(x)) for x in xs]


def peak_words(compute: str | None) -> str:
    """``matrix_bf16`` as it is said: ``bf16 matrix``."""
    unit, _, precision = (compute or "").partition("_")
    return f"{precision} {unit}".strip()


def compute_roofline(
    rows: pl.DataFrame, columns: Columns, target_pct: float, palette: Palette
) -> alt.LayerChart:
    """TFLOPS/s over FLOP/byte, both logarithmic, under the ceilings of the precisions in use.

    ``rows`` have the columns of ``operations``, ``arguments`` and ``state``; those without FLOPs
    have no place here. A dashed line stands at ``target_pct`` of each ceiling.
    """
    placed = over_intensity(rows)
    layers = _ceiling_layers(placed, target_pct, palette)
    if placed.slope:
        layers.append(_slope_label(placed.slope, placed.plane, palette))
    return _assembled(placed, columns, layers, palette)


def bandwidth_roofline(
    rows: pl.DataFrame, columns: Columns, target_pct: float, palette: Palette
) -> alt.LayerChart:
    """TB/s over the bytes of a call, both logarithmic, under the bandwidth peak.

    ``rows`` as for ``compute_roofline``; those without bytes have no place here.
    """
    placed = over_size(rows)
    return _assembled(placed, columns, _ceiling_layers(placed, target_pct, palette), palette)


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis; all layers name their column after its field, so that they share it."""

    field: str
    title: str
    domain: tuple[float, float]
    form: str = "~g"

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
                ticks=False,
                domain=False,
                labelOverlap=True,
            ),
        }

    def as_x(self) -> alt.X:
        """Encoded as horizontal."""
        return alt.X(**self._options)

    def as_y(self) -> alt.Y:
        """Encoded as vertical."""
        return alt.Y(**self._options)


@dataclass(frozen=True, slots=True)
class Plane:
    """Two logarithmic axes."""

    x: Axis
    y: Axis

    def chart(self, points: Sequence[tuple[float, float]], **more: Sequence[Any]) -> alt.Chart:
        """A chart of bare points with further columns."""
        xs, ys = zip(*points, strict=True)
        frame = pl.DataFrame({self.x.field: xs, self.y.field: ys, **more})
        return alt.Chart(frame).encode(x=self.x.as_x(), y=self.y.as_y())


@dataclass(frozen=True, slots=True)
class Placed:
    """Operations in their plane under their ceilings; ``slope`` is the memory's in TB/s."""

    points: pl.DataFrame
    plane: Plane
    ceilings: list[Ceiling]
    slope: float | None = None


def over_intensity(rows: pl.DataFrame) -> Placed:
    """TFLOPS/s over FLOP/byte; rows without FLOPs have no place."""
    points = _heaviest(rows, "flops_per_byte", "tflops_per_s")
    peaks = points.drop_nulls("peak_tb_per_s").select("compute", "peak_tflops", "peak_tb_per_s")
    ceilings = [
        Ceiling(f"{peak_words(compute)} peak {peak:,.4g} TFLOPS/s" if peak else "", slope, peak)
        for compute, peak, slope in peaks.unique(maintain_order=True).rows()
    ]
    ridges = [c.peak / c.slope for c in ceilings if c.peak and c.slope]
    plane = Plane(
        Axis(
            "flops_per_byte",
            "Arithmetic intensity (FLOP/byte)",
            _log_range([*points["flops_per_byte"], *ridges]),
        ),
        Axis(
            "tflops_per_s",
            "Achieved (TFLOPS/s)",
            _log_range([*points["tflops_per_s"], *(c.peak for c in ceilings if c.peak)]),
        ),
    )
    slope = next((c.slope for c in ceilings if c.slope), None)
    return Placed(points, plane, ceilings, slope)


def over_size(rows: pl.DataFrame) -> Placed:
    """TB/s over the bytes of a call; rows without bytes have no place."""
    points = _heaviest(rows, "bytes", "tb_per_s")
    peaks = points["peak_tb_per_s"].drop_nulls().unique(maintain_order=True)
    ceilings = [Ceiling(f"memory peak {peak:,.3g} TB/s", None, peak) for peak in peaks]
    plane = Plane(
        Axis("bytes", "Bytes moved by one call (modelled)", _log_range(points["bytes"]), "~s"),
        Axis("tb_per_s", "Achieved (TB/s)", _log_range([*points["tb_per_s"], *peaks])),
    )
    return Placed(points, plane, ceilings)


def suits_intensity(rows: pl.DataFrame) -> bool:
    """Whether compute over intensity says most: matrix units are used, or compute bounds most of
    the time; else bandwidth over size does."""
    bound_us, all_us = rows.select(
        compute=pl.col("kernel_time_us").filter(pl.col("bound") == "compute").sum(),
        all=pl.col("kernel_time_us").sum(),
    ).row(0)
    return bool(rows["compute"].str.starts_with("matrix").any()) or bound_us > all_us / 2


def _heaviest(rows: pl.DataFrame, x: str, y: str) -> pl.DataFrame:
    drawable = rows.filter((pl.col(x) > 0) & (pl.col(y) > 0))
    return drawable.sort("kernel_time_us", descending=True).head(MAX_POINTS)


def _log_range(values: Iterable[float]) -> tuple[float, float]:
    known = list(values) or [1.0]
    return min(known) / _ROOM, max(known) * _ROOM


def log_ticks(domain: tuple[float, float]) -> list[float]:
    """Powers of ten; between them 2 and 5 too where the domain is short."""
    low, high = floor(log10(domain[0])), ceil(log10(domain[1]))
    steps = (1, 2, 5) if high - low <= _SHORT_DECADES else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return [tick for tick in ticks if domain[0] <= tick <= domain[1]]


def _ceiling_layers(placed: Placed, target_pct: float, palette: Palette) -> list[alt.Chart]:
    layers: list[alt.Chart] = []
    plane = placed.plane
    for number, ceiling in enumerate(placed.ceilings):
        corners = ceiling.corners(plane.x.domain)
        target = [(x, y * target_pct / 100) for x, y in corners]
        for line, dash in ((corners, [1, 0]), (target, [5, 4])):
            layers.append(
                plane.chart(line, order=range(len(line)))
                .mark_line(color=palette.muted, strokeWidth=1.5, strokeDash=dash, clip=True)
                .encode(order="order:O")
            )
        if ceiling.name:
            layers.append(_ceiling_label(ceiling, plane, number, palette))
    return layers


def _ceiling_label(ceiling: Ceiling, plane: Plane, number: int, palette: Palette) -> alt.Chart:
    """The name above the line: at its end, or for a level line at its start, where calls are
    small and far below; those of several ceilings stand side by side."""
    shift = 4 + number * _LABEL_STEP
    start, *_, end = ceiling.corners(plane.x.domain)
    if ceiling.slope is None:
        return _label(plane, start, ceiling.name, palette, "left", shift, -7)
    return _label(plane, end, ceiling.name, palette, "right", -shift, -7)


def _slope_label(slope: float, plane: Plane, palette: Palette) -> alt.Chart:
    """The bandwidth above the slope, half-way up what is seen of it."""
    low = max(plane.x.domain[0], plane.y.domain[0] / slope)
    high = min(plane.x.domain[1], plane.y.domain[1] / slope)
    x = sqrt(low * high)
    text = f"{slope:,.3g} TB/s memory"
    return _label(plane, (x, x * slope), text, palette, "right", -8, -8)


def _label(
    plane: Plane,
    place: tuple[float, float],
    text: str,
    palette: Palette,
    align: Literal["left", "right"],
    dx: int,
    dy: int,
) -> alt.Chart:
    mark: alt.Chart = plane.chart([place]).mark_text(
        text=text, align=align, dx=dx, dy=dy, color=palette.text, fontSize=11
    )
    return mark


def _assembled(
    placed: Placed, columns: Columns, ceilings: list[alt.Chart], palette: Palette
) -> alt.LayerChart:
    points, plane = placed.points, placed.plane
    present = [number for number, state in enumerate(STATES) if (points["state"] == state).any()]
    domain = [STATES[number] for number in present]
    legend = alt.Legend(orient="top", title=None, labelFontSize=12, symbolSize=90)
    colours = alt.Scale(domain=domain, range=[palette.states[number] for number in present])
    shapes = alt.Scale(domain=domain, range=[STATE_SHAPES[number] for number in present])
    named = [name for name in _POINT_COLUMNS if name in points.columns]
    wanted = list(dict.fromkeys(["uid", *named, plane.x.field, plane.y.field]))
    layer = (
        alt.Chart(points.select(wanted))
        .mark_point(filled=True, opacity=0.8, clip=True)
        .encode(
            x=plane.x.as_x(),
            y=plane.y.as_y(),
            size=alt.Size("kernel_time_us:Q", scale=alt.Scale(range=[40, 500]), legend=None),
            color=alt.Color("state:N", scale=colours, legend=legend),
            shape=alt.Shape("state:N", scale=shapes, legend=legend),
            tooltip=tooltip(columns, named, points),
        )
        .add_params(alt.selection_point(name=PICKED, fields=["uid"]))
    )
    chart: alt.LayerChart = alt.LayerChart(layer=[layer, *ceilings], height=_HEIGHT)
    return chart
