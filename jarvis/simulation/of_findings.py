"""The changes of the recording that a finding proposes, for its replays."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple, get_args

import polars as pl

from jarvis.changes import (
    Change,
    Collective,
    CollectiveMode,
    Fuse,
    RemoveGpu,
    RemoveWait,
    ScaleGpu,
    ScaleHost,
    Span,
    Work,
)
from jarvis.findings import COMMUNICATION_POOL, COPIES_POOL, IDLE_POOL, Finding
from jarvis.impact import KERNEL_FLOOR_US
from jarvis.perf_report.timeline import host_spans
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.step_gaps import Place
from jarvis.perf_report.work import COPY
from jarvis.schemas.names import C
from jarvis.simulation.simulation import Simulation

Changes = Callable[[float], tuple[Change, ...]]
"""Returns the changes that save a number of ms of GPU work."""

End = Literal["low", "mid", "high"]
ENDS: tuple[End, ...] = get_args(End)
"""The estimates of a finding."""

FUSED = ("fusible_chain", "gemm_epilogue")
"""Checks of which one kernel replaces several in a row."""

POOR_OVERLAP = "poor_overlap"
"""Check of the communication that compute could hide: at most the compute without it."""

MIN_REMAINING = 1e-6
"""GPU work that would keep a smaller part of its time is removed with its launches."""

LOW_FACTOR = 0.5
"""Part that remains, by the low estimate, of the host time that a finding removes."""

_SPANS_OF = {
    IdleCause.DATA_LOADING: host_spans.DATA_LOADING,
    IdleCause.ALLOCATOR: host_spans.ALLOCATOR,
    IdleCause.KERNEL_LOADING: host_spans.KERNEL_LOADING,
}
"""Causes of idle time whose host calls are known: calls that overlap a gap are removed whole."""


def finding_changes(finding: Finding, simulation: Simulation) -> tuple[Change, ...]:
    """Return the changes that a finding proposes, by its middle estimate; none without a saving.

    Kernels get shorter by what the finding saves on them, to KERNEL_FLOOR_US each if they become
    more efficient, or go with their launches if that is all of their time; one kernel replaces a
    chain. Copies get shorter and are not waited for. Host time in the gaps of a cause is removed,
    waits are not waited for, and communication is hidden, as far as the finding says.
    """
    return _proposal(finding, simulation)("mid")


def changes_by_end(finding: Finding, simulation: Simulation) -> list[tuple[Change, ...]]:
    """Return the changes that a finding proposes by each of ``ENDS`` (``finding_changes``)."""
    proposal = _proposal(finding, simulation)
    return [proposal(end) for end in ENDS]


def _proposal(finding: Finding, simulation: Simulation) -> Callable[[End], tuple[Change, ...]]:
    """Return a function of the changes by an estimate, which finds what they share once."""
    if finding.impact is None:
        return lambda _: ()
    pool = finding.time_pool or ""
    if pool.startswith(IDLE_POOL):
        return partial(_idle, pool.removeprefix(IDLE_POOL).strip(), simulation)
    if pool.startswith(COMMUNICATION_POOL):
        hidden = pool_changes(pool, 0, simulation)
        if finding.check == POOR_OVERLAP:
            hidden = _hidden_part(finding.impact.saved_ms.high, simulation)
        return lambda _: hidden
    saved_ms = finding.impact.saved_ms
    least_us = KERNEL_FLOOR_US if finding.impact.method == "perf model" else 0.0
    own = _own_events(finding, simulation)
    if own is None:
        work = _operations(finding)
        if not (gpu_ns := simulation.gpu_ns(work.operations)):
            return lambda _: ()
        changes: Changes = partial(_shorter, work, gpu_ns, least_us)
    elif own.is_empty():
        return lambda _: ()
    elif finding.check in FUSED:
        changes = _fused(finding, own, saved_ms.high, simulation)
    elif pool.startswith(COPIES_POOL):
        changes = partial(_fewer_copies, own, simulation)
    else:
        changes = partial(_shorter, _named(finding, own), _gpu_ns(own), least_us)
    return lambda end: changes(getattr(saved_ms, end))


def _own_events(finding: Finding, simulation: Simulation) -> pl.DataFrame | None:
    """Return the GPU work of a finding; None if it is named by operations (``_operations``) and
    gets shorter as a whole, as the rows of a million events are not needed then."""
    if finding.check not in FUSED and _is_of_operations(finding):
        return None
    return own_work(finding, simulation.tables["gpu_work"])


def _shorter(work: Work, gpu_ns: int, least_us: float, saved_ms: float) -> tuple[Change, ...]:
    """Return the changes that shorten GPU work of ``gpu_ns`` by ``saved_ms``, kernels to
    ``least_us`` each."""
    factor = _factor(gpu_ns, saved_ms)
    if factor < MIN_REMAINING:
        return (RemoveGpu(work=work),)
    return (ScaleGpu(work=work, factor=factor, least_us=least_us),)


def _fewer_copies(own: pl.DataFrame, simulation: Simulation, saved_ms: float) -> tuple[Change, ...]:
    """Return the changes that shorten copies by ``saved_ms`` and remove the waits for them."""
    calls = own[C.launch_uid].drop_nulls()
    waits = calls.filter(calls.is_in(simulation.waiting_calls.tolist()))
    work = Work(uids=tuple(own[C.uid].to_list()))
    return (
        ScaleGpu(work=work, factor=_factor(_gpu_ns(own), saved_ms)),
        RemoveWait(calls=tuple(waits.to_list())),
    )


def pool_changes(pool: str, left: float, simulation: Simulation) -> tuple[Change, ...]:
    """Return the changes that leave a part of the idle time or of the communication: of the host
    time in each gap, or of the time of each collective."""
    if pool.startswith(IDLE_POOL):
        return (ScaleHost(spans=united_spans(_in_gaps("", simulation)), factor=left),)
    uids = tuple(simulation.tables["collectives"][C.uid].to_list())
    if left == 0:
        return (Collective(uids=uids, mode=CollectiveMode.HIDDEN),)
    return (Collective(uids=uids, mode=CollectiveMode.SCALE, factor=left),)


def _hidden_part(saved_ms: float, simulation: Simulation) -> tuple[Change, ...]:
    """Return the change in which collectives take ``saved_ms`` less: what compute can hide."""
    uids = simulation.tables["collectives"][C.uid].implode()
    own = simulation.tables["gpu_work"].filter(pl.col(C.linked) & pl.col(C.uid).is_in(uids))
    factor = _factor(_gpu_ns(own), saved_ms)
    mode = CollectiveMode.SCALE
    return (Collective(uids=tuple(own[C.uid].to_list()), mode=mode, factor=factor),)


def _gpu_ns(work: pl.DataFrame) -> int:
    """Return the time of GPU work."""
    return int(work[C.dur_ns].sum())


def _factor(gpu_ns: int, saved_ms: float) -> float:
    """Return the part of its time (0 to 1) that GPU work of ``gpu_ns`` takes if it saves
    ``saved_ms``."""
    whole_ms = float(gpu_ns) / 1e6
    return max(0.0, 1 - saved_ms / whole_ms) if whole_ms > 0 else 1.0


def _fused(finding: Finding, own: pl.DataFrame, most_ms: float, simulation: Simulation) -> Changes:
    """Return the changes of a finding in which one kernel replaces each instance of a chain.

    The other launches are removed, and the host time between them. The saving is one of GPU time:
    if the steps would gain more, with ``most_ms`` saved, than without any kernel time, the host
    time remains; if they still would, or if no instance is found, the kernels only get shorter.
    """
    number = _count(finding, "instances")
    size = _count(finding, "kernels") // number
    key = (finding.row_uids, finding.kernels, finding.events, number, size)
    if (chains := simulation.fused_of.get(key)) is None:
        chains = simulation.fused_of[key] = list(_instances(own, number, size, simulation))
    for without_host in (True, False) if chains else ():
        changes = partial(_with_instances, finding, own, chains, without_host=without_host)
        if simulation.steps_saved_ms(changes(most_ms)) <= simulation.compute_saved_ms:
            return changes
    work, gpu_ns = _named(finding, own), _gpu_ns(own)
    return lambda saved_ms: (ScaleGpu(work=work, factor=_factor(gpu_ns, saved_ms)),)


def _with_instances(
    finding: Finding,
    own: pl.DataFrame,
    chains: list["_Instance"],
    saved_ms: float,
    *,
    without_host: bool,
) -> tuple[Change, ...]:
    """Return each instance as one kernel, and the work of those that were not found as shorter."""
    part = min(1.0, len(chains) / _count(finding, "instances"))
    factor = _factor(sum(chain.dur_ns for chain in chains), saved_ms * part)
    fused = [
        Fuse(
            uids=chain.uids,
            duration_ns=round(chain.dur_ns * factor),
            host=chain.host if without_host else (),
        )
        for chain in chains
    ]
    if part == 1:
        return tuple(fused)
    rest = own.filter(~pl.col(C.uid).is_in([uid for chain in chains for uid in chain.uids]))
    if rest.is_empty():
        return tuple(fused)
    others = Work(uids=tuple(rest[C.uid].to_list()))
    return (ScaleGpu(work=others, factor=_factor(_gpu_ns(rest), saved_ms * (1 - part))), *fused)


class _Instance(NamedTuple):
    """The kernels of an instance of a chain, their time, and the host time between launches."""

    uids: tuple[int, ...]
    dur_ns: int
    host: tuple[Span, ...]


def _instances(
    own: pl.DataFrame, number: int, size: int, simulation: Simulation
) -> Iterator["_Instance"]:
    """Return the instances of a chain: ``size`` kernels that follow each other on a stream.

    The operations of a chain can also run elsewhere. Of more than ``number`` instances, those with
    the closest launches are returned.
    """
    lanes = [C.device, C.stream]
    ordered = simulation.tables["gpu_work"].sort(*lanes, C.ts_ns, C.uid).with_row_index("place")
    ordered = ordered.join(own.select(C.uid), on=C.uid, how="semi", maintain_order="left")
    is_next = (pl.col("place").diff() == 1) & (pl.struct(lanes) == pl.struct(lanes).shift(1))
    calls = simulation.call_starts.rename({C.uid: C.launch_uid})
    rows = (
        ordered.with_columns((~is_next.fill_null(False)).cum_sum().alias("run"))
        .with_columns((pl.int_range(pl.len()).over("run") // size).alias("instance"))
        .join(calls, on=C.launch_uid, how="left", maintain_order="left")
        .group_by("run", "instance", maintain_order=True)
        .agg(
            C.uid,
            pl.col(C.dur_ns).sum(),
            pl.col(C.thread).first(),
            start=pl.col(C.start_ns).first(),
            end=pl.col(C.start_ns).last(),
            has_host=(pl.col(C.thread).n_unique() == 1) & (pl.col(C.start_ns).diff() >= 0).all(),
        )
        .filter(pl.col(C.uid).list.len() == size)
        .sort(pl.col("end") - pl.col("start"), nulls_last=True, maintain_order=True)
        .head(number)
    )
    for row in rows.iter_rows(named=True):
        host = (
            (Span(thread=row[C.thread], start_ns=row["start"], end_ns=row["end"]),)
            if row["has_host"] and row["start"] is not None
            else ()
        )
        yield _Instance(tuple(row[C.uid]), row[C.dur_ns], host)


def _count(finding: Finding, name: str) -> int:
    value = finding.evidence.get(name)
    return value if isinstance(value, int) else 1


def _named(finding: Finding, own: pl.DataFrame) -> Work:
    """Return the work of a finding, by its operations if it concerns all of their work: there can
    be a million events."""
    if not _is_of_operations(finding):
        return Work(uids=tuple(own[C.uid].to_list()))
    return _operations(finding)


def _operations(finding: Finding) -> Work:
    return Work(operations=tuple(sorted(finding.row_uids)))


def _is_of_operations(finding: Finding) -> bool:
    """Return whether a finding concerns all work of its operations."""
    return not (finding.time_pool or finding.kernels or finding.events)


def united_spans(spans: pl.DataFrame) -> tuple[Span, ...]:
    """Return the union of spans of each thread, which can be nested."""
    return tuple(
        Span(thread=thread, start_ns=start, end_ns=end)
        for thread, start, end in _union(spans).iter_rows()
    )


def _union(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the time that spans cover, as disjoint spans (``thread, start_ns, end_ns``)."""
    ordered = spans.select(C.thread, C.start_ns, C.end_ns).sort(C.thread, C.start_ns)
    reached = pl.col(C.end_ns).cum_max().shift(1).over(C.thread)
    group = (pl.col(C.start_ns) > reached).fill_null(True).cum_sum()
    return (
        ordered.group_by(group.alias("group"), maintain_order=True)
        .agg(pl.col(C.thread, C.start_ns).first(), pl.col(C.end_ns).max())
        .drop("group")
    )


def own_work(finding: Finding, gpu_work: pl.DataFrame) -> pl.DataFrame:
    """Return the GPU work that a finding concerns: copies of its direction, or of its rows."""
    pool = finding.time_pool or ""
    if pool.startswith(COPIES_POOL):
        direction = pool.removeprefix(COPIES_POOL).strip()
        copies = gpu_work.filter((pl.col(C.kind) == COPY) & pl.col(C.linked))
        return copies.filter(pl.col(C.direction) == direction) if direction else copies
    return work_of_rows(finding, gpu_work)


def work_of_rows(finding: Finding, gpu_work: pl.DataFrame) -> pl.DataFrame:
    """Return the GPU work that a finding concerns: its events, or of the kernels of its rows."""
    if finding.events:
        return gpu_work.filter(pl.col(C.uid).is_in(finding.events))
    own = gpu_work.filter(pl.col(C.operation_uid).is_in(list(finding.row_uids)))
    return own.filter(pl.col(C.name).is_in(finding.kernels)) if finding.kernels else own


def _idle(cause: str, simulation: Simulation, end: End) -> tuple[Change, ...]:
    if cause == IdleCause.SYNCHRONIZATION:
        return (RemoveWait(calls=tuple(simulation.waiting_calls.tolist())),)
    spans = _in_gaps(cause, simulation)
    if cause in _SPANS_OF:
        gaps = spans.rename({C.thread: "at", C.start_ns: "from_ns", C.end_ns: "to_ns"})
        calls = simulation.tables["sim_spans"].filter(
            pl.col(C.cause) == _SPANS_OF[IdleCause(cause)]
        )
        overlaps = (pl.col(C.start_ns) < pl.col("to_ns")) & (pl.col(C.end_ns) > pl.col("from_ns"))
        spans = calls.join_where(gaps, pl.col(C.thread) == pl.col("at"), overlaps)
    return (ScaleHost(spans=united_spans(spans), factor=LOW_FACTOR if end == "low" else 0),)


def _in_gaps(cause: str, simulation: Simulation) -> pl.DataFrame:
    """Return the gaps of a cause, or at a place of the steps, or all, on every thread."""
    gaps = own_gaps(cause, simulation.tables["step_gaps"])
    threads = pl.DataFrame({C.thread: simulation.threads}, schema={C.thread: pl.Int64})
    return gaps.select(C.start_ns, (pl.col(C.start_ns) + pl.col(C.dur_ns)).alias(C.end_ns)).join(
        threads, how="cross"
    )


def own_gaps(cause: str, step_gaps: pl.DataFrame) -> pl.DataFrame:
    """Return the gaps of a cause, or at a place of the steps, or all.

    Those of a cause at the edges of the steps are those of the place.
    """
    if not cause:
        return step_gaps
    own = (pl.col(C.cause) == cause) & (pl.col(C.place) == Place.BETWEEN.value)
    return step_gaps.filter(own | (pl.col(C.place) == cause))
