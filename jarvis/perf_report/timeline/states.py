"""The window of the GPU timeline as a partition: what the GPU does at each instant."""

from collections.abc import Iterator
from enum import StrEnum
from heapq import heappop, heappush
from itertools import pairwise

import polars as pl

from jarvis.perf_report.intervals import END
from jarvis.perf_report.work import COMMUNICATION, COMPUTE, COPY, GpuWork
from jarvis.schemas.names import C


class State(StrEnum):
    """What the GPU does, by precedence."""

    COMPUTE = COMPUTE
    COMMUNICATION = COMMUNICATION
    COPY = COPY
    IDLE = "idle"


def timeline_states(
    work: GpuWork, gpu_work: pl.DataFrame, operations: pl.DataFrame, idle_gaps: pl.DataFrame
) -> pl.DataFrame:
    """Return the rows (schema: ``timeline_states``) by time; they add up to the window.

    Of GPU events that run at once, compute comes before communication, and that before copies; of
    one kind the longest, then the one with the lowest uid.

    Args:
        work: The GPU work of the trace.
        gpu_work: The table of this name.
        operations: The table of this name.
        idle_gaps: The table of this name.
    """
    # The enumeration of kinds is in the order of precedence.
    events = _with_details(work, gpu_work, operations).sort(
        C.kind, C.dur_ns, C.uid, descending=[False, True, False]
    )
    spans = list(_winners(events[C.ts_ns].to_list(), events.select(END).to_series().to_list()))
    busy = pl.DataFrame(
        spans, schema={C.start_ns: pl.Int64, C.end_ns: pl.Int64, C.row: pl.Int64}, orient="row"
    )
    states = events.select(pl.col(C.kind).cast(pl.String).alias(C.state), C.detail)
    idle = idle_gaps.select(
        C.start_ns,
        (pl.col(C.start_ns) + pl.col(C.dur_ns)).alias(C.end_ns),
        pl.lit(State.IDLE.value).alias(C.state),
        pl.col(C.cause).alias(C.detail),
    )
    rows = pl.concat([busy.drop(C.row).hstack(states[busy[C.row]]), idle]).sort(C.start_ns)
    return (
        rows.group_by(pl.struct(C.state, C.detail).rle_id().alias("run"), maintain_order=True)
        .agg(
            pl.col(C.start_ns).first(),
            (pl.col(C.end_ns).last() - pl.col(C.start_ns).first()).alias(C.dur_ns),
            pl.col(C.state).first(),
            pl.col(C.detail).first(),
        )
        .drop("run")
    )


def _with_details(work: GpuWork, gpu_work: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, ts_ns, dur_ns, kind, detail`` of the events of the window."""
    categories = operations.select(pl.col(C.uid).alias(C.operation_uid), C.op_category)
    facts = gpu_work.select(C.uid, C.operation_uid, C.direction).join(
        categories, on=C.operation_uid, how="left", maintain_order="left"
    )
    groups = work.events.select(C.uid, pl.col(C.process_group_name).cast(pl.String))
    detail = (
        pl.when(pl.col(C.kind) == COMPUTE)
        .then(C.op_category)
        .when(pl.col(C.kind) == COMMUNICATION)
        .then(C.process_group_name)
        .otherwise(C.direction)
    )
    return (
        work.window.select(C.uid, C.ts_ns, C.dur_ns, C.kind)
        .join(facts, on=C.uid, how="left", maintain_order="left")
        .join(groups, on=C.uid, how="left", maintain_order="left")
        .select(C.uid, C.ts_ns, C.dur_ns, C.kind, detail.alias(C.detail))
    )


def _winners(starts: list[int], ends: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield ``start, end, row`` of the times in which an interval is the first that runs.

    Intervals are given by precedence; times in which none runs are omitted.
    """
    rows = sorted(range(len(starts)), key=starts.__getitem__)
    instants = sorted({*starts, *ends})
    running: list[int] = []
    waiting = 0
    for instant, following in pairwise(instants):
        while waiting < len(rows) and starts[rows[waiting]] <= instant:
            heappush(running, rows[waiting])
            waiting += 1
        while running and ends[running[0]] <= instant:
            heappop(running)
        if running:
            yield instant, following, running[0]
