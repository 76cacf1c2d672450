"""Charts of several ranks: arrivals at collectives, delays, what they send, and bandwidth."""

from collections.abc import Sequence
from functools import lru_cache

import altair as alt
import polars as pl

from jarvis.charts.marks import (
    MAX_CACHED_SPECS,
    Drawing,
    Specification,
    Tip,
    largest,
    plain_axis,
    specification,
    tooltip,
)
from jarvis.charts.palette import Palette
from jarvis.charts.rooflines import PICKED
from jarvis.ranks.rows import ROW
from jarvis.schemas.names import C

MAX_INSTANCES = 400
"""Columns of the heat map that are wide enough to be seen on a screen."""

AT_MOST, MEASURED = "at most", "measured"
"""Field that says whether a transfer is an upper bound, because ranks are missing; and its value
where it is not."""

MIN_SCALE_PCT = 2.0
"""End of the colors of steps, so that a smaller difference of ranks does not look like a delay."""

_POINT_ROOM_PX = 30
"""Space around the points of a chart."""

_MARK_PX2 = [45, 350]
"""Areas of the smallest and the largest mark."""

_ROW_PX, _FRAME_PX, _MAX_HEIGHT_PX = 20, 130, 700

PARTS = ("waits for other ranks", "transfers", "waiting is not known")
"""Parts of a collective on a rank."""

_CELLS, _MISSING, _RANKS, _PEAK = "cells", "missing", "ranks", "peak"
"""Names of datasets."""

_NO_TRACE = "missing"
_STROKE = "M-0.5,0.5L0.5,-0.5"
"""Shape of a mark as a stroke, which hatches a cell."""


def arrival_map(
    arrivals: pl.DataFrame, missing: pl.DataFrame, rows: Sequence[str], palette: Palette
) -> Drawing:
    """Draw when each rank arrives at each collective, against the median of the ranks; a cell can
    be clicked.

    Args:
        arrivals: ``instance_id, row, late_ms, kind, step, is_edge``, and ``shown_ms``: time after
            the median, in ms, which is 0 within the error of the clocks.
        missing: ``instance_id, row, kind, step`` of ranks of the group without a trace.
        rows: The labels of ranks, from top to bottom.
        palette: Colors of the theme.
    """
    limit = largest(arrivals["shown_ms"].abs())
    absent = missing.with_columns(state=pl.lit(_NO_TRACE))
    spec = _arrival_spec(limit, tuple(rows), palette)
    return Drawing(spec, {_CELLS: arrivals, _MISSING: absent})


@lru_cache(MAX_CACHED_SPECS)
def _arrival_spec(limit: float, rows: tuple[str, ...], palette: Palette) -> Specification:
    collective = Tip(C.instance_id, "Collective", ",d")
    lines = (Tip(C.kind, "Kind", None), Tip(C.step, "Step", ",d"))
    late = Tip("late_ms", "After the median (ms)", "+,.3f")
    cells = _cells(
        limit,
        collective,
        Tip("shown_ms", late.title, late.form),
        (*lines, late),
        rows,
        palette,
        opacity=alt.condition("datum.is_edge", alt.value(0.35), alt.value(1.0)),
    ).add_params(alt.selection_point(name=PICKED, fields=[str(C.instance_id)]))
    hatched = _hatched(collective, lines, rows, palette)
    return _rank_map([cells, hatched], rows)


def step_map(steps: pl.DataFrame, measure: Tip, rows: Sequence[str], palette: Palette) -> Drawing:
    """Draw a measure of each step of each rank, against the median of the ranks.

    Args:
        steps: ``row, step``, the field of the measure, and ``beyond_pct``: its difference from
            the median of the ranks, in percent of the step.
        measure: The measure.
        rows: The labels of ranks, from top to bottom.
        palette: Colors of the theme.
    """
    limit = max(largest(steps["beyond_pct"].abs()), MIN_SCALE_PCT)
    each = pl.DataFrame({ROW: rows}).join(steps.select(C.step).unique(), how="cross")
    absent = each.join(steps, on=[ROW, C.step], how="anti").with_columns(state=pl.lit(_NO_TRACE))
    spec = _step_spec(limit, measure, tuple(rows), palette)
    return Drawing(spec, {_CELLS: steps, _MISSING: absent.sort(ROW, C.step)})


@lru_cache(MAX_CACHED_SPECS)
def _step_spec(
    limit: float, measure: Tip, rows: tuple[str, ...], palette: Palette
) -> Specification:
    beyond = Tip("beyond_pct", "Beyond the median (% of step)", "+,.2f")
    step = Tip(C.step, "Step", ",d")
    cells = _cells(limit, step, beyond, (measure, beyond), rows, palette)
    return _rank_map([cells, _hatched(step, (), rows, palette)], rows)


def pair_map(pairs: pl.DataFrame, rows: Sequence[str], palette: Palette) -> Drawing:
    """Draw what each rank sends to each other one.

    Args:
        pairs: ``src, dst`` as labels of ranks, ``mb`` in MB, and ``count``, the calls.
        rows: The labels of ranks.
        palette: Colors of the theme.
    """
    spec = _pair_spec(largest(pairs["mb"]), tuple(rows), palette)
    return Drawing(spec, {_CELLS: pairs})


@lru_cache(MAX_CACHED_SPECS)
def _pair_spec(most: float, rows: tuple[str, ...], palette: Palette) -> Specification:
    cells = (
        alt.Chart(alt.NamedData(_CELLS))
        .mark_rect(stroke=palette.background, strokeWidth=0.3)
        .encode(
            x=alt.X(f"{C.dst}:N", title="To rank", sort=list(rows), axis=_LABELS),
            y=alt.Y(f"{C.src}:N", title="From rank", sort=list(rows), axis=_LABELS),
            color=alt.Color(
                "mb:Q",
                title="MB",
                scale=alt.Scale(domain=[0, most or 1], range=[palette.panel, palette.primary]),
                legend=alt.Legend(orient="top", gradientLength=220),
            ),
            tooltip=tooltip(
                [
                    Tip(C.src, "From", None),
                    Tip(C.dst, "To", None),
                    Tip("mb", "MB", ",.3r"),
                    Tip(C.count, "Calls", ",.1f"),
                ]
            ),
        )
    )
    return _rank_map([cells], rows)


def lanes(
    parts: pl.DataFrame, rows: Sequence[str], palette: Palette, *, has_lines: bool
) -> Drawing:
    """Draw the collectives of ranks on one clock: pale while the rank waits for others, strong
    during the transfer.

    Args:
        parts: ``instance_id, row, order, kind, part`` (one of PARTS), ``start_ms, end_ms, ms``, and
            ``arrival_ms``, by row.
        rows: The labels of ranks, from top to bottom.
        palette: Colors of the theme.
        has_lines: Join the arrivals at each collective by a line.
    """
    shown = tuple(part for part in PARTS if (parts["part"] == part).any())
    return Drawing(_lane_spec(shown, tuple(rows), palette, has_lines), {_CELLS: parts})


@lru_cache(MAX_CACHED_SPECS)
def _lane_spec(
    shown: tuple[str, ...], rows: tuple[str, ...], palette: Palette, has_lines: bool
) -> Specification:
    y = alt.Y(f"{ROW}:N", title="Rank", sort=list(rows), axis=_LABELS)
    axis = plain_axis("Time (ms)", format=",~r")
    scale = alt.Scale(nice=False, zero=False)
    of_parts = dict(zip(PARTS, (palette.pale, palette.primary, palette.faint), strict=True))
    colors = alt.Scale(domain=list(shown), range=[of_parts[part] for part in shown])
    base = alt.Chart(alt.NamedData(_CELLS))
    bars = (
        base.mark_bar(clip=True, height={"band": 0.7})
        .encode(
            x=alt.X("start_ms:Q", scale=scale, axis=axis),
            x2="end_ms:Q",
            y=y,
            color=alt.Color("part:N", scale=colors, legend=alt.Legend(orient="top", title=None)),
            tooltip=tooltip(
                [
                    _ROW,
                    Tip(C.instance_id, "Collective", ",d"),
                    Tip(C.kind, "Kind", None),
                    Tip("part", "Part", None),
                    Tip("start_ms", "From (ms)", ",.4f"),
                    Tip("ms", "Duration (ms)", ",.4f"),
                ]
            ),
        )
        .add_params(alt.selection_interval(encodings=["x"], bind="scales"))
    )
    joined = base.mark_line(strokeWidth=0.8, color=palette.muted, clip=True).encode(
        x=alt.X("arrival_ms:Q", scale=scale), y=y, detail=f"{C.instance_id}:N", order="order:Q"
    )
    return _rank_map([bars, joined] if has_lines else [bars], rows)


def blame_bars(
    causes: pl.DataFrame, ranks: pl.DataFrame, rows: Sequence[str], palette: Palette
) -> Drawing:
    """Draw what each rank did longer than the others, the step time that it costs, and how long the
    others wait for it.

    Args:
        causes: ``row, cause, ms``.
        ranks: ``row, gain_low_ms, gain_high_ms, caused_ms``.
        rows: The labels of ranks, from top to bottom.
        palette: Colors of the theme.
    """
    spec = _blame_spec(tuple(causes["cause"].unique().sort()), tuple(rows), palette)
    return Drawing(spec, {_CELLS: causes, _RANKS: ranks})


@lru_cache(MAX_CACHED_SPECS)
def _blame_spec(names: tuple[str, ...], rows: tuple[str, ...], palette: Palette) -> Specification:
    y = alt.Y(f"{ROW}:N", title="Rank", sort=list(rows), axis=_LABELS)
    axis = plain_axis("ms per step", format=",~r")
    hues = [*palette.categorical[:-1], *palette.further]  # the last one is gray
    stacked = (
        alt.Chart(alt.NamedData(_CELLS))
        .mark_bar(size=11, yOffset=-4)
        .encode(
            x=alt.X("ms:Q", stack="zero", axis=axis),
            y=y,
            color=alt.Color(
                "cause:N",
                scale=alt.Scale(domain=list(names), range=hues[: max(len(names), 1)]),
                legend=alt.Legend(orient="top", title=None, columns=3, labelLimit=260),
            ),
            tooltip=tooltip(
                [_ROW, Tip("cause", "Longer than usual", None), Tip("ms", "ms per step", ",.3f")]
            ),
        )
    )
    base = alt.Chart(alt.NamedData(_RANKS))
    lines = [
        _ROW,
        Tip(C.gain_low_ms, "Step saved, at least (ms)", ",.3f"),
        Tip(C.gain_high_ms, "Step saved, at most (ms)", ",.3f"),
        Tip("caused_ms", "Others wait (ms)", ",.3f"),
    ]
    waited = base.mark_bar(size=4, yOffset=6, color=palette.faint).encode(
        x="caused_ms:Q", y=y, tooltip=tooltip(lines)
    )
    gain = base.mark_rule(yOffset=-4, strokeWidth=2.5, color=palette.text).encode(
        x=f"{C.gain_low_ms}:Q", x2=f"{C.gain_high_ms}:Q", y=y, tooltip=tooltip(lines)
    )
    ends = [
        base.mark_tick(yOffset=-4, size=15, thickness=2.5, color=palette.text).encode(
            x=f"{end}:Q", y=y, tooltip=tooltip(lines)
        )
        for end in (C.gain_low_ms, C.gain_high_ms)
    ]
    return _rank_map([stacked, waited, gain, *ends], rows, row_px=26)


_ROW = Tip(ROW, "Rank", None)
_LABELS = alt.Axis(ticks=False, domain=False, labelOverlap=True, labelAngle=0)


def _cells(
    limit: float,
    x: Tip,
    value: Tip,
    lines: tuple[Tip, ...],
    rows: Sequence[str],
    palette: Palette,
    opacity: object = alt.Undefined,
) -> alt.Chart:
    """Return a cell for each row and value of ``x``, colored by how far it is from 0, on a scale to
    ``limit``."""
    limit = limit or 1e-6
    cells: alt.Chart = (
        alt.Chart(alt.NamedData(_CELLS))
        .mark_rect(stroke=palette.background, strokeWidth=0.3)
        .encode(
            x=alt.X(f"{x.field}:O", title=x.title, axis=_LABELS),
            y=alt.Y(f"{ROW}:N", title="Rank", sort=list(rows), axis=_LABELS),
            color=alt.Color(
                f"{value.field}:Q",
                title=value.title,
                scale=alt.Scale(
                    domain=[-limit, 0, limit],
                    range=[palette.primary, palette.panel, palette.below_threshold],
                    interpolate="rgb",
                ),
                legend=alt.Legend(orient="top", gradientLength=220),
            ),
            opacity=opacity,
            tooltip=tooltip([_ROW, x, *lines]),
        )
    )
    return cells


def _hatched(x: Tip, lines: Sequence[Tip], rows: Sequence[str], palette: Palette) -> alt.Chart:
    """Return strokes where a rank has no trace."""
    strokes = alt.Chart(alt.NamedData(_MISSING)).mark_point(
        shape=_STROKE, size=60, strokeWidth=1, color=palette.muted, filled=False
    )
    hatched: alt.Chart = strokes.encode(
        x=alt.X(f"{x.field}:O"),
        y=alt.Y(f"{ROW}:N", sort=list(rows)),
        tooltip=tooltip([_ROW, x, *lines, Tip("state", "Trace", None)]),
    )
    return hatched


def _rank_map(layers: list[alt.Chart], rows: Sequence[str], row_px: int = _ROW_PX) -> Specification:
    height = min(row_px * len(rows) + _FRAME_PX, _MAX_HEIGHT_PX)
    return specification(alt.LayerChart(layer=layers, height=height), has_many_marks=True)


def bandwidths(messages: pl.DataFrame, links_gbs: Sequence[float], palette: Palette) -> Drawing:
    """Draw the bus bandwidth of collectives by message size, with the peaks of the links, and that
    of messages that take no longer than the latency.

    The area of a mark is the number of its collectives.

    Args:
        messages: Of each communicator, kind and size: ``bytes, kind, comm_id, count``, the median
            ``bus_gbs`` and its quartiles ``low_gbs, high_gbs``, the median ``transfer_us``,
            ``floor_gbs`` (null without a latency), and ``at most`` as text.
        links_gbs: Known peaks of links in GB/s.
        palette: Colors of the theme.
    """
    has_floor = messages["floor_gbs"].count() > 0
    spec = _bandwidth_spec(palette, has_link=bool(links_gbs), has_floor=has_floor)
    datasets = {_CELLS: messages.with_columns(pl.col(C.bytes) / 1e6)}
    if links_gbs:
        datasets[_PEAK] = pl.DataFrame({"peak": links_gbs})
    return Drawing(spec, datasets)


@lru_cache(MAX_CACHED_SPECS)
def _bandwidth_spec(palette: Palette, *, has_link: bool, has_floor: bool) -> Specification:
    log = alt.Scale(type="log", nice=False, padding=_POINT_ROOM_PX)
    base = alt.Chart(alt.NamedData(_CELLS))
    colors = alt.Scale(range=list(palette.categorical))
    x = alt.X(f"{C.bytes}:Q", scale=log, axis=plain_axis("Message (MB)", format="~g"))
    gbs = plain_axis("Bus bandwidth (GB/s)")
    kinds = alt.Legend(title=None, orient="top")
    color = alt.Color(f"{C.kind}:N", scale=colors, legend=kinds)
    points = base.mark_point(filled=False, strokeWidth=1.5).encode(
        x=x,
        y=alt.Y(f"{C.bus_gbs}:Q", scale=log, axis=gbs),
        color=color,
        size=alt.Size(
            f"{C.count}:Q",
            scale=alt.Scale(domainMin=1, range=_MARK_PX2),
            legend=alt.Legend(
                title="Collectives",
                orient="top",
                tickCount=3,
                format="d",
                symbolFillColor=palette.muted,
                symbolStrokeColor=palette.muted,
            ),
        ),
        fill=alt.Fill(f"{C.kind}:N", scale=colors, legend=kinds),
        fillOpacity=alt.condition(
            f"datum['{AT_MOST}'] != '{MEASURED}'", alt.value(0), alt.value(0.8)
        ),
        strokeOpacity=alt.value(0.9),
        tooltip=tooltip(
            [
                Tip(C.kind, "Kind", None),
                Tip(C.comm_id, "Communicator", None),
                Tip(C.bytes, "Message (MB)", ",.3r"),
                Tip(C.count, "Collectives", ",d"),
                Tip(C.transfer_us, "Transfer (µs)", ",.1f"),
                Tip(C.bus_gbs, "Bus bandwidth (GB/s)", ",.1f"),
                Tip("low_gbs", "of a quarter, at most", ",.1f"),
                Tip("high_gbs", "of a quarter, at least", ",.1f"),
                Tip(AT_MOST, "Transfer is", None),
            ]
        ),
    )
    spread = base.mark_rule(strokeWidth=1.5).encode(
        x=x, y=alt.Y("low_gbs:Q", scale=log), y2="high_gbs:Q", color=color
    )
    layers: list[alt.Chart] = [points, spread]
    if has_floor:
        floor = base.transform_filter("isValid(datum.floor_gbs)")
        layers.append(
            floor.mark_line(strokeDash=[2, 3], strokeWidth=1).encode(
                x=x, y=alt.Y("floor_gbs:Q", scale=log), color=color, detail=f"{C.comm_id}:N"
            )
        )
    if has_link:
        peak = alt.Chart(alt.NamedData(_PEAK))
        layers.append(
            peak.mark_rule(color=palette.muted, strokeDash=[5, 4]).encode(
                y=alt.Y("peak:Q", scale=log), tooltip=tooltip([Tip("peak", "Link (GB/s)", ",.0f")])
            )
        )
    return specification(alt.LayerChart(layer=layers, height=300))
