"""The steps of a recording, with the parts that their time consists of.

Times are integer nanoseconds, so the parts of a step add up to its time exactly.
"""

from enum import StrEnum

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_models import step_annotation
from jarvis.perf_report.intervals import END, added_parts, covered_during, greatest_ns, least_ns
from jarvis.perf_report.timeline.host_spans import outermost, with_threads
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.work import COMMUNICATION, COMPUTE, GpuWork
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.metadata import STEP_PREFIX
from jarvis.trace.tables import THREAD_KEY

IDLE_PARTS = (C.idle_before_ns, C.idle_between_ns, C.idle_after_ns)
PARTS = (C.compute_ns, C.exposed_comm_ns, C.exposed_copy_ns, *IDLE_PARTS)
"""The parts of a step, which add up to its time."""


class StepSource(StrEnum):
    """What marks the steps."""

    ENGINE = "engine"
    PROFILER = "profiler"
    GRAPH = "graph"
    CALLS = "calls"
    RECORDING = "recording"


class TimedBy(StrEnum):
    """What measures the time of the steps."""

    MARKS = "marks"
    GPU = "gpu"


def timed_by(steps: pl.DataFrame) -> TimedBy:
    """Return what measures the time of steps; tables of earlier versions do not have it."""
    if C.timed_by in steps.columns:
        return TimedBy(steps[C.timed_by][0])
    is_engine = steps[C.source][0] == StepSource.ENGINE
    return TimedBy.GPU if is_engine else TimedBy.MARKS


def steps(
    trace: Trace, work: GpuWork, idle_gaps: pl.DataFrame, marks: pl.DataFrame
) -> pl.DataFrame:
    """Return the steps by time (schema: ``steps``, without the columns on slow steps).

    Args:
        trace: The trace.
        work: All its GPU work, with that of unrecorded launches.
        idle_gaps: The gaps between it, with those of carried-in work.
        marks: The marks of the steps (``step_marks``).
    """
    rows = marks.join(_gpu_work(marks, trace, work), on=C.step, how="left", maintain_order="left")
    rows = _timed(rows, idle_gaps)
    parts = _parts(rows.drop_nulls(C.end_ns), work.window)
    return rows.join(parts, on=C.step, how="left", maintain_order="left").with_columns(
        (pl.col(C.end_ns) - pl.col(C.start_ns)).alias(C.dur_ns),
        (pl.col("host_end_ns") - pl.col(C.host_start_ns)).alias(C.host_dur_ns),
        (pl.col("gpu_end_ns") - pl.col(C.gpu_start_ns)).alias(C.gpu_dur_ns),
        pl.col(C.gpu_event_count).fill_null(0),
        pl.col(C.name)
        .str.extract(rf"^{STEP_PREFIX}(\d+)")
        .cast(pl.Int64, strict=False)
        .alias(C.number),
    )


def step_marks(trace: Trace) -> pl.DataFrame:
    """Return ``step, source, name, tokens, pid, tid, host_start_ns, host_end_ns`` of the steps by
    time.

    The steps of an inference engine if it annotates them, else those of the profiler, else one
    step: the recording. Of nested annotations the outermost is the step; an annotation of the same
    name within it on another thread is part of it.
    """
    annotations = trace.host_annotations
    tokens = _tokens(annotations[C.name].unique())
    for source, rows in (
        (StepSource.ENGINE, annotations.join(tokens, on=C.name, maintain_order="left")),
        (
            StepSource.PROFILER,
            annotations.filter(pl.col(C.name).str.starts_with(STEP_PREFIX)),
        ),
    ):
        timed = rows.drop_nulls([C.ts_ns, C.dur_ns])
        if timed.height:
            return _merged(timed).with_columns(pl.lit(source.value).alias(C.source))
    return _recording(trace)


def _tokens(names: pl.Series) -> pl.DataFrame:
    """Return ``name, tokens, is_detailed`` of the names that annotate steps of an engine."""
    parsed = ((name, step_annotation.parse(name)) for name in names)
    rows = [
        (name, step.tokens, step.context is not None) for name, step in parsed if step is not None
    ]
    schema = {C.name: pl.String, C.tokens: pl.Int64, "is_detailed": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _merged(annotations: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of annotations, each with the tokens of the innermost detailed annotation
    in it, else of any."""
    threads = annotations.select(THREAD_KEY).unique(maintain_order=True)
    numbered = with_threads(
        annotations.with_columns(END.alias(C.end_ns)),
        threads.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(C.thread)),
    )
    reached = pl.col(C.end_ns).cum_max().shift(1).over(C.name)
    marks = (
        outermost(numbered)
        .sort(C.ts_ns, C.end_ns, C.uid, descending=[False, True, False])
        .filter((pl.col(C.end_ns) > reached).fill_null(True))
        .select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias(C.step),
            C.name,
            *THREAD_KEY,
            pl.col(C.ts_ns).alias(C.host_start_ns),
            host_end_ns=C.end_ns,
        )
    )
    if "is_detailed" not in annotations.columns:
        return marks.with_columns(pl.lit(None, pl.Int64).alias(C.tokens))
    inner = (
        during(numbered.drop_nulls(C.tokens).select(C.ts_ns, C.tokens, "is_detailed"), marks)
        .sort(C.step, "is_detailed", C.ts_ns, descending=[False, True, True])
        .unique(C.step, keep="first", maintain_order=True)
    )
    return marks.join(inner.select(C.step, C.tokens), on=C.step, how="left", maintain_order="left")


def during(events: pl.DataFrame, marks: pl.DataFrame, at: str = C.ts_ns) -> pl.DataFrame:
    """Return the events whose time ``at`` is within a mark, with the last such ``step``."""
    return (
        events.sort(at)
        .join_asof(
            marks.sort(C.host_start_ns).select(C.step, C.host_start_ns, "host_end_ns"),
            left_on=at,
            right_on=C.host_start_ns,
        )
        .filter(pl.col(at) <= pl.col("host_end_ns"))
    )


def _recording(trace: Trace) -> pl.DataFrame:
    """Return the recording as one step, from its first to its last event; none without events."""
    frames = (
        trace.cpu_ops,
        trace.runtime,
        trace.gpu_events,
        trace.annotations,
        trace.python_functions,
    )
    times = pl.concat(f.select(C.ts_ns, END.alias(C.end_ns)) for f in frames).drop_nulls()
    first, last = least_ns(times[C.ts_ns]), greatest_ns(times[C.end_ns])
    schema = {
        C.step: pl.Int64,
        C.name: pl.String,
        **dict.fromkeys(THREAD_KEY, pl.Categorical),
        C.tokens: pl.Int64,
        C.host_start_ns: pl.Int64,
        "host_end_ns": pl.Int64,
    }
    rows = (
        []
        if first is None or last is None
        else [(0, None, None, None, None, first, max(first, last))]
    )
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.lit(StepSource.RECORDING.value).alias(C.source)
    )


def _gpu_work(marks: pl.DataFrame, trace: Trace, work: GpuWork) -> pl.DataFrame:
    """Return ``step, gpu_start_ns, gpu_end_ns, gpu_event_count, launch_lead_us`` of the GPU work of
    each step."""
    lead_ns = pl.col(C.ts_ns) - pl.col("launch_ns")
    return (
        launched(marks, trace, work)
        .group_by(C.step)
        .agg(
            pl.col(C.ts_ns).min().alias(C.gpu_start_ns),
            END.max().alias("gpu_end_ns"),
            pl.len().cast(pl.Int64).alias(C.gpu_event_count),
            (lead_ns.filter(pl.col(C.kind) == COMPUTE).median() / 1e3).alias(C.launch_lead_us),
        )
    )


def launched(marks: pl.DataFrame, trace: Trace, work: GpuWork) -> pl.DataFrame:
    """Return the GPU work that each step launches, with ``step, launch_ns``; that of the whole
    window if the recording is the step."""
    calls = trace.runtime.select(pl.col(C.uid).alias(C.launch_uid), launch_ns=C.ts_ns)
    events = work.window.join(calls, on=C.launch_uid, how="left", maintain_order="left")
    if (marks[C.source] == StepSource.RECORDING).any():
        return events.with_columns(pl.lit(0, pl.Int64).alias(C.step))
    return during(events.drop_nulls("launch_ns"), marks, "launch_ns")


def _timed(rows: pl.DataFrame, idle_gaps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with ``start_ns, end_ns, timed_by, carried_in_ns``.

    By their marks a step lasts from the start to the end of its mark; by the GPU from the end of
    the GPU work of the step before, or the start of its own, to the end of its own; without GPU
    work its time is not known. The slower one of host and GPU sets the pace, so that one measures
    by which all steps together take longer: the GPU if the host runs further and further ahead.
    Steps of engines, which always run ahead, and of graph launches are timed by the GPU.
    """
    before = pl.col("gpu_end_ns").cum_max().forward_fill().shift(1)
    start = pl.when(pl.col("gpu_end_ns").is_not_null()).then(pl.coalesce(before, C.gpu_start_ns))
    spans = {
        TimedBy.MARKS: (pl.col(C.host_start_ns), pl.col("host_end_ns")),
        TimedBy.GPU: (start, pl.max_horizontal(start, "gpu_end_ns")),
    }
    timed = {
        by: _without_carried_in(
            rows.with_columns(
                first.alias(C.start_ns),
                pl.when(first.is_not_null()).then(last).alias(C.end_ns),
                pl.lit(by.value).alias(C.timed_by),
            ),
            idle_gaps,
        )
        for by, (first, last) in spans.items()
    }
    if rows[C.source].is_in([StepSource.ENGINE, StepSource.GRAPH]).any():
        return timed[TimedBy.GPU]
    return max(timed.values(), key=lambda by: by.select(pl.col(C.end_ns) - C.start_ns).sum().item())


def _without_carried_in(rows: pl.DataFrame, idle_gaps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps from the end of the carried-in work in them, with ``carried_in_ns``."""
    carried = idle_gaps.filter(pl.col(C.cause) == IdleCause.CARRIED_IN).select(
        from_ns=C.start_ns, to_ns=pl.col(C.start_ns) + pl.col(C.dur_ns)
    )
    inside = (
        rows.select(C.step, C.start_ns, C.end_ns)
        .join(carried, how="cross")
        .filter(pl.col("from_ns") < pl.col(C.end_ns), pl.col("to_ns") > pl.col(C.start_ns))
        .with_columns(
            pl.max_horizontal("from_ns", C.start_ns).alias("from_ns"),
            pl.min_horizontal("to_ns", C.end_ns).alias("to_ns"),
        )
        .group_by(C.step)
        .agg(
            (pl.col("to_ns") - pl.col("from_ns")).sum().alias(C.carried_in_ns),
            pl.col("to_ns").max(),
        )
    )
    return (
        rows.join(inside, on=C.step, how="left", maintain_order="left")
        .with_columns(
            pl.max_horizontal(C.start_ns, "to_ns").alias(C.start_ns),
            pl.col(C.carried_in_ns).fill_null(0),
        )
        .drop("to_ns")
    )


def _parts(rows: pl.DataFrame, window: pl.DataFrame) -> pl.DataFrame:
    """Return ``step`` and PARTS of timed steps: what the GPU does during each."""
    starts, ends = rows[C.start_ns].to_numpy(), rows[C.end_ns].to_numpy()
    compute, compute_or_comm, busy = (
        covered_during(events, starts, ends)
        for events in (
            window.filter(pl.col(C.kind) == COMPUTE),
            window.filter(pl.col(C.kind).is_in([COMPUTE, COMMUNICATION])),
            window,
        )
    )
    first, last = _busy_spans(window, starts, ends)
    before, after = first - starts, ends - last
    return pl.DataFrame(
        {
            C.step: rows[C.step],
            C.compute_ns: compute,
            C.exposed_comm_ns: compute_or_comm - compute,
            C.exposed_copy_ns: busy - compute_or_comm,
            C.idle_before_ns: before,
            C.idle_between_ns: ends - starts - busy - before - after,
            C.idle_after_ns: after,
        }
    )


def _busy_spans(window: pl.DataFrame, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first and the last instant of GPU work within each span; the end of the span,
    twice, if there is none."""
    begins, stops = added_parts(window)
    if not begins.size:
        return ends, ends
    following = np.searchsorted(stops, starts, side="right")
    previous = np.searchsorted(begins, ends, side="left") - 1
    last_row = begins.size - 1
    first = np.maximum(begins[np.minimum(following, last_row)], starts)
    last = np.minimum(stops[np.maximum(previous, 0)], ends)
    has_work = following <= previous
    return np.where(has_work, first, ends), np.where(has_work, last, ends)
