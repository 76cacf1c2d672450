"""Graphs of steps: replayed work without shapes, and steps that a graph could replay whole."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.system.inference.events import step_events, time_ms
from jarvis.analyses.system.inference.events import time_ms as events_ms
from jarvis.analyses.system.inference.messages import MESSAGES
from jarvis.capture.alignment import MERGED_COVERAGE
from jarvis.capture.engines import engine_of
from jarvis.capture.tables import NO_CAPTURES, REPLAYED_PCT
from jarvis.findings import IDLE_POOL, Finding, Priority, texts_of
from jarvis.perf_report.intervals import END
from jarvis.perf_report.kernel_blocks import title_of
from jarvis.perf_report.timeline.step_gaps import Place
from jarvis.preconditions import COMPILED_KERNEL
from jarvis.schemas.names import C
from jarvis.text.messages import Message

LEADING_PCT = 50.0
"""Above this share of GPU time without shapes, most of it has no efficiency: nothing else leads."""


def shapes_missing(data: CategoryData) -> Iterator[Finding]:
    """Replayed work without shapes.

    Symptom: GPU graphs replay kernels that have no operator, and no capture was given.
    Rule: the time of these replays as a share of all GPU time. The engine is that of most Python
    frames of the recording.
    Threshold: {REPLAYED_PCT}% of GPU time; from {LEADING_PCT}% on it leads, with priority HIGH.
    """
    launches = data.tables["graph_launches"].filter(pl.col(C.reason) == NO_CAPTURES)
    time_ms = float(launches[C.time_ms].sum())
    share_pct = impact.share_pct(time_ms, _gpu_time_ms(data))
    if share_pct <= REPLAYED_PCT:
        return
    leads = share_pct >= LEADING_PCT
    priority = Priority.HIGH if leads else Priority.LOW
    frames = data.tables.get("host_slices")
    engine = engine_of(pl.Series(dtype=pl.String) if frames is None else frames[C.name])
    values = {
        "time_ms": time_ms,
        "share_pct": share_pct,
        "launches": launches.height,
        "engine": engine.name,
        "capture": engine.capture,
        "recording": engine.step,
    }
    yield Finding(
        check="shapes_missing",
        category=data.key,
        **texts_of(MESSAGES, values, suffix="shapes"),
        evidence={
            "gpu_time_ms": time_ms,
            "gpu_time_pct": share_pct,
            "graph_launches": launches.height,
        },
        algorithmic=(),
        priority_local=priority,
        priority=priority,
        leads=leads,
    )


def coverage_gap(data: CategoryData) -> Iterator[Finding]:
    """Replayed work that the captures do not cover.

    Symptom: captures were given, but replayed kernels have no captured call.
    Rule: graph launches that no capture fits, and those of which the matched kernels take less
    than {MERGED_COVERAGE:.0%} of the time.
    Threshold: one such launch.
    """
    launches = data.tables["graph_launches"].filter(pl.col(C.reason).ne_missing(NO_CAPTURES))
    gaps = launches.filter(pl.col(C.coverage_pct) < 100 * MERGED_COVERAGE)
    if gaps.is_empty():
        return
    unmatched = pl.col(C.time_ms) * (1 - pl.col(C.coverage_pct) / 100)
    missing_ms = float(gaps.select(unmatched.sum()).item())
    values = {"time_ms": missing_ms, "of": launches.height, "states": [*_states(gaps)]}
    yield Finding(
        check="coverage_gap",
        category=data.key,
        **texts_of(MESSAGES, values, suffix="coverage"),
        evidence={
            "gpu_time_ms": missing_ms,
            "gpu_time_pct": impact.share_pct(missing_ms, _gpu_time_ms(data)),
            "graph_launches": gaps.height,
        },
        algorithmic=(),
        verify=MESSAGES("verify.shapes"),
        priority_local=Priority.LOW,
        priority=Priority.LOW,
    )


def _states(gaps: pl.DataFrame) -> Iterator[Message]:
    """Yield how many launches are merged with gaps, and for which reasons others are not merged."""
    merged = gaps.drop_nulls(C.capture_file)
    if merged.height:
        least_pct = merged[C.coverage_pct].min()
        yield MESSAGES("coverage.gaps", launches=merged.height, coverage_pct=least_pct)
    rest = gaps.filter(pl.col(C.capture_file).is_null()).group_by(C.reason, maintain_order=True)
    for reason, count in rest.len().iter_rows():
        yield MESSAGES("coverage.none", launches=count, reason=reason)


def _gpu_time_ms(data: CategoryData) -> float:
    return events_ms(data.tables["gpu_work"])


GAPS_PCT = 5.0
"""Share of the time of steps from which gaps at launches are a finding."""


def piecewise_breaks(data: CategoryData) -> Iterator[Finding]:
    """Gaps between the graphs of a step.

    Symptom: a step replays several graphs, and the GPU idles between them.
    Rule: idle time between the last event of a graph launch and the first one of the next in the
    same step, as a share of the time of steps with several graphs.
    Threshold: {GAPS_PCT}%.
    """
    events = step_events(data)
    start, end = pl.col(C.ts_ns).min(), END.max()
    graphs = (
        events.drop_nulls(C.graph_launch_uid)
        .group_by(C.step, C.graph_launch_uid)
        .agg(start.alias(C.start_ns), end.alias(C.end_ns))
        .sort(C.step, C.start_ns)
    )
    breaks = graphs.select(
        C.step,
        from_ns=pl.col(C.end_ns),
        to_ns=pl.col(C.start_ns).shift(-1).over(C.step),
    ).drop_nulls()
    gaps = _gaps(data, breaks)
    steps = _whole_steps(data).filter(pl.col(C.step).is_in(breaks[C.step].unique().implode()))
    idle_ms, steps_ms = time_ms(gaps), float(steps[C.step_time_ms].sum())
    share_pct = impact.share_pct(idle_ms, steps_ms)
    if share_pct < GAPS_PCT:
        return
    between = events.filter(pl.col(C.graph_launch_uid).is_null()).join_where(
        breaks.rename({C.step: "of_step"}),
        pl.col(C.step) == pl.col("of_step"),
        pl.col(C.ts_ns) >= pl.col("from_ns"),
        pl.col(C.ts_ns) < pl.col("to_ns"),
    )
    by_block = between.group_by(C.block).agg(pl.col(C.dur_ns).sum())
    blocks = by_block.sort(C.dur_ns, C.block, descending=[True, False])[C.block]
    yield _finding(
        data,
        piecewise_breaks.__name__,
        "piecewise",
        idle_ms,
        share_pct,
        gaps.height,
        steps=steps.height,
        graphs=graphs.filter(pl.col(C.step).is_in(steps[C.step].implode())).height,
        between=MESSAGES("between", blocks=[*map(title_of, blocks)]) if blocks.len() else None,
    )


def steps_without_graph(data: CategoryData) -> Iterator[Finding]:
    """Compiled steps that are launched kernel by kernel.

    Symptom: a step runs compiled kernels, replays no graph, and the GPU idles between them.
    Rule: idle time between the GPU events of steps without a graph launch that generate tokens and
    run kernels of PyTorch's compiler, as a share of the time of these steps.
    Threshold: {GAPS_PCT}%.
    """
    compiled = step_events(data).filter(pl.col(C.name).str.contains(COMPILED_KERNEL))
    steps = _whole_steps(data).filter(
        (pl.col(C.graph_launches) == 0)
        & (pl.col(C.gen_requests) > 0)
        & pl.col(C.step).is_in(compiled[C.step].unique().implode())
    )
    spans = steps.select(C.step).join(
        data.tables["inference_events"].join(
            data.tables["gpu_work"].select(C.uid, C.ts_ns, C.dur_ns), on=C.uid
        ),
        on=C.step,
    )
    within = spans.group_by(C.step).agg(from_ns=pl.col(C.ts_ns).min(), to_ns=END.max())
    gaps = _gaps(data, within)
    idle_ms = time_ms(gaps)
    share_pct = impact.share_pct(idle_ms, float(steps[C.step_time_ms].sum()))
    if share_pct >= GAPS_PCT:
        yield _finding(
            data,
            steps_without_graph.__name__,
            "eager",
            idle_ms,
            share_pct,
            gaps.height,
            steps=steps.height,
        )


def _whole_steps(data: CategoryData) -> pl.DataFrame:
    return data.tables["inference_steps"].filter(pl.col(C.part).is_null())


def _gaps(data: CategoryData, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the idle gaps between GPU events that lie within spans (``from_ns, to_ns``)."""
    start, end = pl.col(C.start_ns), pl.col(C.start_ns) + pl.col(C.dur_ns)
    inner = data.tables["step_gaps"].filter(pl.col(C.place) == Place.BETWEEN.value)
    return inner.drop(C.step).join_where(spans, start >= pl.col("from_ns"), end <= pl.col("to_ns"))


def _finding(
    data: CategoryData,
    check: str,
    key: str,
    idle_ms: float,
    share_pct: float,
    gaps: int,
    **values: object,
) -> Finding:
    found = {"idle_ms": idle_ms, "share_pct": share_pct, "gaps": gaps}
    return Finding(
        check=check,
        category=data.key,
        **texts_of(MESSAGES, {**found, **values}, suffix=key),
        evidence={"idle_ms": idle_ms, "step_pct": share_pct, "gaps": gaps},
        caveat=MESSAGES("caveat.idle"),
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        time_pool=IDLE_POOL,
    )
