"""Charts of several ranks: arrivals at collectives, and their bandwidth by message size."""

import altair as alt
import polars as pl

from jarvis.charts.marks import Tip, largest, plain_axis, tooltip
from jarvis.charts.palette import Palette
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


def arrival_map(arrivals: pl.DataFrame, palette: Palette) -> alt.LayerChart:
    """Draw when each rank arrives at each collective, against the median of the ranks.

    Args:
        arrivals: ``instance_id, rank, late_ms, kind, step, is_edge``: time after the median, in ms.
        palette: Colors of the theme.
    """
    lines = (Tip(C.kind, "Kind", None), Tip(C.step, "Step", ",d"))
    return _rank_map(
        arrivals,
        Tip(C.instance_id, "Collective", ",d"),
        Tip("late_ms", "After the median (ms)", ",.3f"),
        palette,
        lines,
        alt.condition("datum.is_edge", alt.value(0.35), alt.value(1.0)),
    )


def step_map(steps: pl.DataFrame, measure: Tip, palette: Palette) -> alt.LayerChart:
    """Draw a measure of each step of each rank, against the median of the ranks.

    Args:
        steps: ``rank, step``, the field of the measure, and ``beyond_pct``: its difference from
            the median of the ranks, in percent of the step.
        measure: The measure.
        palette: Colors of the theme.
    """
    beyond = Tip("beyond_pct", "Beyond the median (% of step)", "+,.2f")
    step = Tip(C.step, "Step", ",d")
    return _rank_map(steps, step, beyond, palette, (measure,), least=MIN_SCALE_PCT)


def _rank_map(
    frame: pl.DataFrame,
    x: Tip,
    value: Tip,
    palette: Palette,
    lines: tuple[Tip, ...],
    opacity: object = alt.Undefined,
    least: float = 1e-6,
) -> alt.LayerChart:
    """Draw a cell for each rank and value of ``x``, colored by how far it is from 0, on a scale to
    at least ``least``."""
    limit = max(largest(frame[value.field].abs()), least)
    base = (
        alt.Chart(frame)
        .mark_rect(stroke=palette.background, strokeWidth=0.3)
        .encode(
            x=alt.X(
                f"{x.field}:O",
                title=x.title,
                axis=alt.Axis(labelOverlap=True, ticks=False, labelAngle=0, domain=False),
            ),
            y=alt.Y(f"{C.rank}:O", title="Rank", axis=alt.Axis(ticks=False, domain=False)),
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
            tooltip=tooltip([Tip(C.rank, "Rank", ",d"), x, *lines, value]),
        )
    )
    height = min(_ROW_PX * frame[C.rank].n_unique() + _FRAME_PX, _MAX_HEIGHT_PX)
    return alt.LayerChart(layer=[base], height=height)


def bandwidths(instances: pl.DataFrame, link_gbs: float | None, palette: Palette) -> alt.LayerChart:
    """Draw the bus bandwidth of collectives by message size, with the peak of the link.

    Collectives of about the same size and bandwidth are one mark, whose area is their number.

    Args:
        instances: ``bytes, bus_gbs, kind, comm_id, transfer_us``, and ``at most`` as text.
        link_gbs: Peak of the link in GB/s, if it is known.
        palette: Colors of the theme.
    """
    log = alt.Scale(type="log", nice=False, padding=_POINT_ROOM_PX)
    places = [pl.col(name).round_sig_figs(2).alias(f"{name}_2") for name in (C.bytes, C.bus_gbs)]
    marks = instances.group_by(C.kind, C.comm_id, AT_MOST, *places, maintain_order=True).agg(
        pl.col(C.bytes).median() / 1e6,
        pl.col(C.bus_gbs, C.transfer_us).median(),
        pl.len().alias(C.count),
    )
    sizes = alt.Scale(domain=[1, max(largest(marks[C.count]), 2)], range=_MARK_PX2)
    colors = alt.Scale(range=list(palette.categorical))
    points = (
        alt.Chart(marks.drop(f"{C.bytes}_2", f"{C.bus_gbs}_2"))
        .mark_point(filled=False, strokeWidth=1.5)
        .encode(
            x=alt.X(f"{C.bytes}:Q", scale=log, axis=plain_axis("Message (MB)", format="~g")),
            y=alt.Y(f"{C.bus_gbs}:Q", scale=log, axis=plain_axis("Bus bandwidth (GB/s)")),
            color=alt.Color(
                f"{C.kind}:N",
                scale=colors,
                legend=alt.Legend(title=None, orient="top"),
            ),
            size=alt.Size(
                f"{C.count}:Q",
                scale=sizes,
                legend=alt.Legend(title="Collectives", orient="top", tickCount=3, format="d"),
            ),
            fill=alt.Fill(f"{C.kind}:N", scale=colors, legend=None),
            fillOpacity=alt.condition(
                f"datum['{AT_MOST}'] != '{MEASURED}'", alt.value(0), alt.value(0.8)
            ),
            strokeOpacity=alt.value(0.9),
            tooltip=tooltip(
                [
                    Tip(C.kind, "Kind", None),
                    Tip(C.comm_id, "Communicator", None),
                    Tip(C.count, "Collectives", ",d"),
                    Tip(C.bytes, "Message (MB)", ",.3r"),
                    Tip(C.transfer_us, "Transfer (µs)", ",.1f"),
                    Tip(C.bus_gbs, "Bus bandwidth (GB/s)", ",.1f"),
                    Tip(AT_MOST, "Transfer is", None),
                ]
            ),
        )
    )
    layers: list[alt.Chart] = [points]
    if link_gbs is not None:
        peak = alt.Chart(pl.DataFrame({"peak": [link_gbs]}))
        layers.append(
            peak.mark_rule(color=palette.muted, strokeDash=[5, 4]).encode(
                y=alt.Y("peak:Q", scale=log), tooltip=tooltip([Tip("peak", "Link (GB/s)", ",.0f")])
            )
        )
    return alt.LayerChart(layer=layers, height=300)
