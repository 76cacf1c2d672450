"""Operations under their ceilings, both axes logarithmic."""

from collections.abc import Iterator
from math import log10, sqrt
from typing import Any

from jarvis.charts.palette import STATE_SHAPES, STATES
from jarvis.charts.rooflines import Axis, Ceiling, Placed, Plane, log_ticks
from jarvis.charts.svg.marks import WIDTH, drawing, element, fill, label, titled

MAX_POINTS = 400
"""Operations drawn, those with most time first: a document should stay small."""

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 82, 20, 30, 48, 380
_LEGEND_STEP = 170
_LEAST_SIZE, _MOST_SIZE = 3.5, 11.0
"""Radius of the shortest and of the longest operation; the area grows with the time."""

_CEILING_STEP = 210
_STATE_COLOURS = ("below_threshold", "below_target", "primary", "categorical_3", "muted")
_SHAPES = {
    "triangle-down": "M-1,-.8L1,-.8L0,1Z",
    "diamond": "M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    "circle": "M-1,0A1,1 0 1 0 1,0A1,1 0 1 0 -1,0Z",
    "cross": "M-1,-.35H-.35V-1H.35V-.35H1V.35H.35V1H-.35V.35H-1Z",
    "square": "M-.85,-.85H.85V.85H-.85Z",
}


def roofline(placed: Placed, target_pct: float, title: str) -> str:
    """The points of ``placed`` (with ``name, arguments, state, text``) and its ceilings.

    A dashed line stands at ``target_pct`` of each ceiling; size is time, shape and colour the
    state; ``text`` is what a point says on hover after its name.
    """
    plane = placed.plane
    parts = [
        *_axes(plane),
        *(
            part
            for n, ceiling in enumerate(placed.ceilings)
            for part in _ceiling(ceiling, plane, n, target_pct)
        ),
        *_slope(placed),
        *_points(placed),
        *_legend([state for state in STATES if (placed.points["state"] == state).any()]),
    ]
    return drawing(_HEIGHT, title, parts)


def _across(axis: Axis, value: float) -> float:
    return _LEFT + _share(axis, value) * (WIDTH - _LEFT - _RIGHT)


def _down(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - _share(axis, value) * (_HEIGHT - _TOP - _BOTTOM)


def _share(axis: Axis, value: float) -> float:
    low, high = map(log10, axis.domain)
    return (log10(value) - low) / (high - low)


def _axes(plane: Plane) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for tick in log_ticks(plane.x.domain):
        x = _across(plane.x, tick)
        yield _line([(x, _TOP), (x, bottom)], "border")
        yield label(x, bottom + 17, _tick(tick), "middle", "muted")
    for tick in log_ticks(plane.y.domain):
        y = _down(plane.y, tick)
        yield _line([(_LEFT, y), (right, y)], "border")
        yield label(_LEFT - 8, y + 4, _tick(tick), "end", "muted")
    yield label((_LEFT + right) / 2, _HEIGHT - 8, plane.x.title, "middle")
    middle = (_TOP + bottom) / 2
    turned = label(0, 0, plane.y.title, "middle")
    yield element("g", turned, transform=f"translate(14 {middle:.0f}) rotate(-90)")


def _tick(value: float) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:g}".replace("e-0", "e-")


def _ceiling(ceiling: Ceiling, plane: Plane, number: int, target_pct: float) -> Iterator[str]:
    corners = ceiling.corners(plane.x.domain)
    for share, dash in ((1.0, None), (target_pct / 100, "5 4")):
        line = [(x, y * share) for x, y in corners]
        yield _line(_inside(line, plane), "muted", dash, 1.5)
    if ceiling.name:
        start, *_, end = corners
        is_level = ceiling.slope is None
        x, y = start if is_level else end
        shift = (6 if is_level else -6) + (1 if is_level else -1) * number * _CEILING_STEP
        yield label(
            _across(plane.x, x) + shift,
            _down(plane.y, y) - 6,
            ceiling.name,
            "start" if is_level else "end",
        )


def _inside(line: list[tuple[float, float]], plane: Plane) -> list[tuple[float, float]]:
    """The corners on the page; a line that begins below the plane is cut at its lower edge."""
    low = plane.y.domain[0]
    cut = []
    for (x, y), following in zip(line, [*line[1:], line[-1]], strict=True):
        if y < low < following[1]:
            # On logarithmic axes a bandwidth line is straight with slope 1.
            cut.append((x * low / y, low))
        elif y >= low:
            cut.append((x, y))
    return [(_across(plane.x, x), _down(plane.y, y)) for x, y in cut]


def _slope(placed: Placed) -> Iterator[str]:
    """The memory's bandwidth, half-way up what is seen of its line."""
    if placed.slope is None:
        return
    plane, slope = placed.plane, placed.slope
    low = max(plane.x.domain[0], plane.y.domain[0] / slope)
    high = min(plane.x.domain[1], plane.y.domain[1] / slope)
    if low < high:
        x = sqrt(low * high)
        words = f"{slope:,.3g} TB/s memory"
        yield label(_across(plane.x, x) - 10, _down(plane.y, x * slope) - 8, words, "end")


def _points(placed: Placed) -> Iterator[str]:
    rows = placed.points.head(MAX_POINTS)
    longest = max(rows["kernel_time_us"], default=1.0) or 1.0
    for row in reversed(rows.to_dicts()):
        yield _point(row, placed.plane, sqrt(row["kernel_time_us"] / longest))


def _point(row: dict[str, Any], plane: Plane, share: float) -> str:
    x, y = _across(plane.x, row[plane.x.field]), _down(plane.y, row[plane.y.field])
    size = _LEAST_SIZE + (_MOST_SIZE - _LEAST_SIZE) * share
    title = " ".join(filter(None, (row["name"], row["arguments"], row["text"])))
    return _shape(row["state"], x, y, size, titled(f"{title} · {row['state']}"))


def _shape(state: str, x: float, y: float, size: float, title: str = "") -> str:
    number = STATES.index(state)
    return element(
        "path",
        title,
        d=_SHAPES[STATE_SHAPES[number]],
        transform=f"translate({x:.1f} {y:.1f}) scale({size:.1f})",
        style=fill(_STATE_COLOURS[number]),
        fill_opacity="0.8",
    )


def _legend(states: list[str]) -> Iterator[str]:
    for number, state in enumerate(states):
        x = _LEFT + number * _LEGEND_STEP
        yield _shape(state, x + 8, 11, 6.0)
        yield label(x + 22, 15, state)


def _line(
    corners: list[tuple[float, float]], colour: str, dash: str | None = None, width: float = 1.0
) -> str:
    return element(
        "polyline",
        points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners),
        style=f"fill:none;stroke:var(--{colour})",
        stroke_width=width,
        stroke_dasharray=dash,
    )
