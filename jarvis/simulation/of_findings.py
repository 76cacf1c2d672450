"""The change of the recording that a finding stands for."""

import polars as pl

from jarvis.changes import (
    Change,
    Collective,
    CollectiveMode,
    RemoveGpu,
    RemoveWait,
    ScaleGpu,
    ScaleHost,
    Span,
    Work,
)
from jarvis.findings import COMMUNICATION_POOL, COPIES_POOL, IDLE_POOL, Finding
from jarvis.perf_report.timeline import host_spans
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.work import COPY
from jarvis.schemas.names import C
from jarvis.simulation.merging import between_launches, merged_launches
from jarvis.simulation.simulation import Simulation

FASTER = ("low_efficiency", "opportunity", "slow_kernel", "estimated_bandwidth")
"""Checks of which the work remains, only faster."""

_SPANS_OF = {
    IdleCause.DATA_LOADING: host_spans.DATA_LOADING,
    IdleCause.ALLOCATOR: host_spans.ALLOCATOR,
    IdleCause.KERNEL_LOADING: host_spans.KERNEL_LOADING,
}
"""Causes of idle time whose host calls are known; other causes are the host's time in the gaps."""


def finding_changes(finding: Finding, simulation: Simulation) -> tuple[Change, ...]:
    """Return the changes that a finding proposes, by its middle estimate; none if it has no saving.

    Kernels get shorter by what the finding saves on them, or go with their launches if that is all
    of their time. Launches of a step that the host holds up are merged, other host time in the gaps
    is removed, waits are not waited for, and communication is hidden.
    """
    if finding.impact is None:
        return ()
    pool = finding.time_pool or ""
    if pool.startswith(IDLE_POOL):
        return _idle(pool.removeprefix(IDLE_POOL).strip(), simulation)
    if pool.startswith(COMMUNICATION_POOL):
        uids = simulation.tables["collectives"][C.uid].to_list()
        return (Collective(uids=tuple(uids), mode=CollectiveMode.HIDDEN),)
    own = _own_work(finding, simulation)
    return _shorter(_named(finding, own), own, finding.impact.saved_ms.mid)


def without_work(finding: Finding, simulation: Simulation) -> tuple[Change, ...]:
    """Return changes that save at least what the finding can; none if it is about idle time.

    Faster kernels take no time at all. Work that goes takes along the host time of the operators
    that launch it, and from launch to launch of it.
    """
    pool = finding.time_pool or ""
    if pool.startswith(IDLE_POOL):
        return ()
    if pool.startswith(COMMUNICATION_POOL):
        return finding_changes(finding, simulation)
    own = _own_work(finding, simulation)
    if own.is_empty():
        return ()
    work = _named(finding, own)
    if finding.check in FASTER:
        return (ScaleGpu(work=work, factor=0),)
    launchers = own.select(pl.col(C.launcher_uid).alias(C.uid)).unique()
    operators = simulation.tables["sim_spans"].join(launchers, on=C.uid, how="semi")
    between = between_launches(simulation, own[C.launch_uid].drop_nulls().to_numpy())
    spans = pl.concat([operators.select(between.columns), between], how="vertical_relaxed")
    return (RemoveGpu(work=work), _without_host(spans))


def _named(finding: Finding, own: pl.DataFrame) -> Work:
    """Return the work of a finding, by its operations if it concerns all of their work: there can
    be a million events."""
    if finding.time_pool or finding.kernels:
        return Work(uids=tuple(own[C.uid].to_list()))
    return Work(operations=tuple(sorted(finding.row_uids)))


def _without_host(spans: pl.DataFrame) -> ScaleHost:
    return ScaleHost(spans=united_spans(spans), factor=0)


def united_spans(spans: pl.DataFrame) -> tuple[Span, ...]:
    """Return the union of spans of each thread, which can be nested."""
    return tuple(
        Span(thread=thread, start_ns=start, end_ns=end)
        for thread, start, end in _union(spans).iter_rows()
    )


def _union(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the time that spans cover (``thread, start_ns, end_ns``); those inside others go."""
    ordered = spans.select(C.thread, C.start_ns, C.end_ns).sort(C.thread, C.start_ns)
    reached = pl.col(C.end_ns).cum_max().shift(1).over(C.thread)
    group = (pl.col(C.start_ns) > reached).fill_null(True).cum_sum()
    return (
        ordered.group_by(group.alias("group"), maintain_order=True)
        .agg(pl.col(C.thread, C.start_ns).first(), pl.col(C.end_ns).max())
        .drop("group")
    )


def _own_work(finding: Finding, simulation: Simulation) -> pl.DataFrame:
    """Return the GPU work that a finding concerns."""
    work, pool = simulation.tables["gpu_work"], finding.time_pool or ""
    if pool.startswith(COPIES_POOL):
        direction = pool.removeprefix(COPIES_POOL).strip()
        copies = work.filter(pl.col(C.kind) == COPY)
        return copies.filter(pl.col(C.direction) == direction) if direction else copies
    return work_of_rows(finding, work)


def work_of_rows(finding: Finding, gpu_work: pl.DataFrame) -> pl.DataFrame:
    """Return the GPU work of the operations that a finding concerns, of its kernels only."""
    own = gpu_work.filter(pl.col(C.operation_uid).is_in(sorted(finding.row_uids)))
    return own.filter(pl.col(C.name).is_in(finding.kernels)) if finding.kernels else own


def _shorter(work: Work, own: pl.DataFrame, saved_ms: float) -> tuple[Change, ...]:
    own_ms = float(own[C.dur_ns].sum()) / 1e6
    if own_ms <= 0:
        return ()
    factor = 1 - saved_ms / own_ms
    return (ScaleGpu(work=work, factor=factor) if factor > 0 else RemoveGpu(work=work),)


def _idle(cause: str, simulation: Simulation) -> tuple[Change, ...]:
    if cause == IdleCause.LAUNCH_BOUND:
        return merged_launches(simulation)
    if cause == IdleCause.SYNCHRONIZATION:
        return (RemoveWait(calls=tuple(simulation.waiting_calls.tolist())),)
    spans = simulation.tables["sim_spans"]
    if cause in _SPANS_OF:
        own = spans.filter(pl.col(C.cause) == _SPANS_OF[IdleCause(cause)])
    else:
        own = _in_gaps(cause, simulation)
    return (_without_host(own),)


def _in_gaps(cause: str, simulation: Simulation) -> pl.DataFrame:
    """Return the gaps of a cause, or at a place of the steps, or all, on every thread."""
    gaps = simulation.tables["step_gaps"]
    if cause:
        gaps = gaps.filter((pl.col(C.cause) == cause) | (pl.col(C.place) == cause))
    threads = pl.DataFrame({C.thread: simulation.threads}, schema={C.thread: pl.Int64})
    return gaps.select(C.start_ns, (pl.col(C.start_ns) + pl.col(C.dur_ns)).alias(C.end_ns)).join(
        threads, how="cross"
    )
