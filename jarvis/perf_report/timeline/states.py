"""The window of the GPU timeline as a partition: what the GPU does at each instant."""

from enum import StrEnum

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
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
    busy = _winners(events[C.ts_ns].to_numpy(), events.select(END).to_series().to_numpy())
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


def _winners(starts: Int64s, ends: Int64s) -> pl.DataFrame:
    """Return ``start_ns, end_ns, row`` of the times in which an interval is the first that runs.

    Intervals are given by precedence; times in which none runs are omitted.
    """
    instants = np.sort(np.concatenate([starts, ends]))
    instants = instants[np.append(True, instants[1:] > instants[:-1])[: instants.size]]
    first, last = np.searchsorted(instants, starts), np.searchsorted(instants, ends)
    rows = np.flatnonzero(first < last)
    first, last = first[rows], last[rows]
    # Two blocks of 2**level times cover an interval. The first interval of a block is that of both
    # halves, so from the longest blocks to single times all intervals are taken into account.
    level = np.frexp(last - first)[1] - 1
    winner = np.full(max(instants.size - 1, 0), starts.size)
    for exponent in range(level.max(initial=-1), -1, -1):
        half, own = 1 << exponent, level == exponent
        winner[half:] = np.minimum(winner[half:], winner[:-half])
        np.minimum.at(winner, first[own], rows[own])
        np.minimum.at(winner, last[own] - half, rows[own])
    busy = np.flatnonzero(winner < starts.size)
    return pl.DataFrame(
        {C.start_ns: instants[busy], C.end_ns: instants[busy + 1], C.row: winner[busy]}
    )
