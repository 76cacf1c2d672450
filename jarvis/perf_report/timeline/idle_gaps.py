"""The gaps of the GPU timeline, each with its most likely cause.

A gap is a time in which no GPU event of the timeline's window runs; the gaps add up exactly to the
timeline's idle time. A trace cannot prove why the GPU waited: the causes are those that fit the
recording best, and ``unknown`` is one of them.
"""

from enum import StrEnum

import numpy as np
import polars as pl

from jarvis.core.expressions import first_of
from jarvis.perf_report.calls import HostCalls
from jarvis.perf_report.intervals import END, covered_ns, covered_until, microseconds
from jarvis.perf_report.timeline.gap_sources import MIN_SHARE, with_sources
from jarvis.perf_report.timeline.host_spans import (
    ALLOCATOR,
    COMMUNICATION,
    DATA_LOADING,
    GRAPH_LAUNCH,
    KERNEL_LOADING,
    SYNCHRONIZATION,
    HostActivity,
    deepest,
    overlaps,
    union,
    with_threads,
)
from jarvis.perf_report.work import COMMUNICATION as COMMUNICATION_KERNEL
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C
from jarvis.trace import Trace

DEVICE_GAP_NS = 50_000
"""Queued work normally starts within this time; a longer gap has another cause."""

MIN_CARRIED_NS = 1_000_000
"""A gap of carried-in work is longer than this, and longer than COMMON_GAPS times the median of
the other gaps."""

COMMON_GAPS = 20

MIN_PENDING_SHARE = 0.9
"""Minimum share of a gap for which carried-in work was queued already."""

MAX_BUSY_BEFORE = 0.01
"""Maximum share of the GPU's busy time before a gap of carried-in work."""

LAUNCH_INTERVAL_NS = 1_000_000
"""Maximum normal time between launches of consecutive operators: a few µs, or some hundred with
recorded Python stacks."""


class IdleCause(StrEnum):
    """Possible causes of a gap."""

    DATA_LOADING = "data_loading"
    HOST_WORK = "host_work"
    SYNCHRONIZATION = "synchronization"
    LAUNCH_BOUND = "launch_bound"
    KERNEL_LOADING = "kernel_loading"
    ALLOCATOR = "allocator"
    COMMUNICATION = "communication"
    STALLED_QUEUE = "stalled_queue"
    QUEUED = "queued"
    UNLINKED_WORK = "unlinked_work"
    CARRIED_IN = "carried_in"
    WINDOW_EDGE = "window_edge"
    UNKNOWN = "unknown"


_OF_ACTIVITY = {
    DATA_LOADING: IdleCause.DATA_LOADING,
    COMMUNICATION: IdleCause.COMMUNICATION,
    ALLOCATOR: IdleCause.ALLOCATOR,
    KERNEL_LOADING: IdleCause.KERNEL_LOADING,
    SYNCHRONIZATION: IdleCause.SYNCHRONIZATION,
    GRAPH_LAUNCH: IdleCause.LAUNCH_BOUND,
}
_CAUSE_SCHEMA = {
    "gap": pl.Int64,
    C.cause: pl.String,
    "call_uid": pl.Int64,
    C.host_call: pl.String,
    C.host_call_ns: pl.Int64,
}
_COPY_CALL = "(?i)memcpy"


def idle_gaps(
    trace: Trace, work: GpuWork, calls: HostCalls, activity: HostActivity
) -> pl.DataFrame:
    """Return one row per gap (schema: ``idle_gaps``), in order of time.

    The cause is the first of these that fits ("most" is MIN_SHARE). *Gap*: from the end of all
    earlier work to the start of the next event; *host time*: from the end of the previous launch
    call (or from its start, if it copies and may wait) to the end of the call that launched the
    next event, or to that event.

    1. ``unlinked_work``: GPU events without a recorded launch fill most of the gap.
    2. ``carried_in``: the work was queued for nearly all of a long gap near the beginning of the
       recording, in which nothing recorded ran: the GPU finished work from before it.
    3. ``queued``: the launch call had returned when a gap of at most DEVICE_GAP_NS began.
    4. ``window_edge``: most of the gap is before the first or after the last host event.
    5. ``unknown``: no launch of the next event is recorded.
    6. ``communication``: the work was queued for most of the gap, and a communication kernel of
       another stream is on one side of it.
    7. ``stalled_queue``: the work was queued for most of the gap, and longer than DEVICE_GAP_NS.
    8. ``data_loading``, ``communication``, ``allocator``, ``kernel_loading``,
       ``synchronization``: such calls fill most of the gap, or else most of the host time (after a
       host has waited for the GPU, no work is queued). Graph launches count as ``launch_bound``.
    9. ``launch_bound``: the host time is at most LAUNCH_INTERVAL_NS.
    10. ``host_work``: operators or Python frames fill most of the host time.
    11. ``unknown``.
    """
    gaps = with_launches(find_gaps(work.window), trace, activity)
    gaps = gaps.with_columns(is_pending=_is_pending(gaps, work.window))
    return explained(gaps, trace, work, calls, activity)


def explained(
    gaps: pl.DataFrame, trace: Trace, work: GpuWork, calls: HostCalls, activity: HostActivity
) -> pl.DataFrame:
    """Return gaps with causes and names (schema: ``idle_gaps``).

    Args:
        gaps: Result of ``with_launches``, with ``is_pending``.
    """
    gaps = gaps.with_columns(unlinked_ns=_unlinked_ns(gaps, work.events, work.window))
    named = _named(_with_causes(gaps, activity), trace, calls)
    return with_sources(named, trace, work.events, activity)


def _is_pending(gaps: pl.DataFrame, window: pl.DataFrame) -> pl.Series:
    """Return whether work was queued for nearly all of a long gap near the first GPU work.

    A launch call that still runs, such as one that loads the kernel, has queued nothing yet.
    """
    others = gaps[C.dur_ns].sort().head(max(gaps.height - 1, 0)).to_numpy()
    common_ns = float(np.median(others)) if others.size else 0.0
    busy_before = covered_until(window, gaps[C.start_ns].to_numpy())
    return gaps.select(
        (pl.col(C.dur_ns) > max(MIN_CARRIED_NS, COMMON_GAPS * common_ns))
        & (pl.col(C.end_ns) - pl.col("submitted_ns") >= MIN_PENDING_SHARE * pl.col(C.dur_ns))
        & pl.Series(busy_before <= MAX_BUSY_BEFORE * covered_ns(window))
    ).to_series()


def find_gaps(window: pl.DataFrame) -> pl.DataFrame:
    """Return ``gap, start_ns, end_ns, dur_ns``, and the GPU events before and after each gap.

    Their columns ``uid, name, kind, stream, launch_uid, launcher_uid`` have the prefixes ``prev_``
    and ``next_``. The event before is the one that ended last.
    """
    ordered = window.sort(C.ts_ns, C.uid).with_columns(END.alias(C.end_ns))
    row = pl.int_range(pl.len(), dtype=pl.UInt32)
    ends_last = pl.col(C.end_ns) == pl.col(C.end_ns).cum_max()
    placed = ordered.select(
        **{
            C.row: row,
            "before": pl.when(ends_last).then(row).forward_fill().shift(1),
            C.start_ns: pl.col(C.end_ns).cum_max().shift(1),
            C.end_ns: pl.col(C.ts_ns),
        },
    ).filter(pl.col(C.end_ns) > pl.col(C.start_ns))
    events = ordered.select(C.uid, C.name, C.kind, C.stream, C.launch_uid, C.launcher_uid)
    gaps = placed.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("gap"),
        C.start_ns,
        C.end_ns,
        (pl.col(C.end_ns) - pl.col(C.start_ns)).alias(C.dur_ns),
    )
    return pl.concat(
        [
            gaps,
            events[placed["before"]].select(pl.all().name.prefix("prev_")),
            events[placed[C.row]].select(pl.all().name.prefix("next_")),
        ],
        how="horizontal",
    )


def with_launches(gaps: pl.DataFrame, trace: Trace, activity: HostActivity) -> pl.DataFrame:
    """Return gaps with the call that launched the next event, and the previous launch call.

    Adds ``launch_name, launch_ns, launch_end_ns, launch_thread`` and ``submitted_ns``, when the
    event was queued; ``before_thread`` and ``before_ns``, when the previous launch was done. A copy
    call may wait: it submits at its start, and its duration counts as time after the launch. All
    are null if no launch is recorded.
    """
    launched = trace.launches[C.runtime_uid].unique()
    names = trace.runtime[C.name].unique()
    copies = names.filter(names.str.contains(_COPY_CALL))
    timed = (
        trace.runtime.select(C.uid, C.name, C.pid, C.tid, C.ts_ns, C.dur_ns)
        .filter(pl.col(C.uid).is_in(launched.implode()))
        .drop_nulls([C.ts_ns, C.dur_ns])
        .with_columns(is_copy=pl.col(C.name).is_in(copies.implode()))
    )
    done_ns = pl.when("is_copy").then(C.ts_ns).otherwise(END)
    calls = (
        with_threads(timed, activity.threads)
        .sort(C.ts_ns, C.uid)
        .select(
            next_launch_uid=C.uid,
            **{C.launch_name: pl.col(C.name)},
            launch_ns=C.ts_ns,
            launch_end_ns=END,
            submitted_ns=done_ns,
            launch_thread=C.thread,
            before_ns=done_ns.shift(1),
            before_thread=pl.col(C.thread).shift(1),
        )
    )
    return gaps.hstack(_looked_up(gaps, calls))


def _looked_up(gaps: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Return the row of ``facts`` for each gap by their first column; null if there is none."""
    key, *_ = facts.columns
    return gaps.select(key).join(facts, on=key, how="left", maintain_order="left").drop(key)


def _unlinked_ns(gaps: pl.DataFrame, events: pl.DataFrame, window: pl.DataFrame) -> pl.Series:
    """Return the busy time of GPU events outside the timeline's window in each gap."""
    outside = events.select(C.uid, C.ts_ns, C.dur_ns).join(
        window.select(C.uid), on=C.uid, how="anti"
    )
    busy = union(outside.select(C.ts_ns, END.alias(C.end_ns))).with_columns(
        pl.lit(0).alias(C.thread)
    )
    spans = gaps.select("gap", pl.lit(0).alias(C.thread), from_ns=C.start_ns, to_ns=C.end_ns)
    per_gap = overlaps(spans, busy).group_by("gap").agg(unlinked_ns=pl.col(C.overlap_ns).sum())
    joined = gaps.join(per_gap, on="gap", how="left", maintain_order="left")
    return joined["unlinked_ns"].fill_null(0)


def _with_causes(gaps: pl.DataFrame, activity: HostActivity) -> pl.DataFrame:
    """Return gaps with ``cause``, the host time ``host_ns`` before them, and the responsible host
    call: ``call_uid, host_call, host_call_ns``."""
    gaps = gaps.with_columns(
        from_ns=pl.min_horizontal(pl.coalesce("before_ns", C.start_ns), C.start_ns),
        to_ns=pl.min_horizontal("launch_end_ns", C.end_ns),
    ).with_columns(
        host_ns=pl.col("to_ns") - pl.col("from_ns"), device_cause=_device_cause(activity)
    )
    by_host = gaps.filter(pl.col("device_cause").is_null())
    in_gap = _filled_by(by_host, C.start_ns, activity)
    by_host = _without(by_host, in_gap)
    before = _filled_by(by_host, "from_ns", activity)
    late = _without(by_host, before).filter(pl.col("host_ns") > LAUNCH_INTERVAL_NS)
    queued = (IdleCause.STALLED_QUEUE, IdleCause.CARRIED_IN)
    stalled = gaps.filter(pl.col("device_cause").is_in(queued))
    causes = [in_gap, before, _at_work(late, activity), _waiting(stalled, activity)]
    otherwise = pl.lit(IdleCause.LAUNCH_BOUND)
    return gaps.join(
        pl.concat(causes, how="diagonal"), on="gap", how="left", maintain_order="left"
    ).with_columns(pl.coalesce("device_cause", C.cause, otherwise).alias(C.cause))


def _without(gaps: pl.DataFrame, explained: pl.DataFrame) -> pl.DataFrame:
    return gaps.join(explained, on="gap", how="anti", maintain_order="left")


def _device_cause(activity: HostActivity) -> pl.Expr:
    """Return the causes that do not depend on host activity, or null."""
    min_ns = MIN_SHARE * pl.col(C.dur_ns)
    queued_ns = pl.col(C.end_ns) - pl.max_horizontal(C.start_ns, "submitted_ns")
    recorded_ns = pl.min_horizontal(C.end_ns, pl.lit(activity.last_ns)) - pl.max_horizontal(
        C.start_ns, pl.lit(activity.first_ns)
    )
    is_collective = [pl.col(f"{side}_kind") == COMMUNICATION_KERNEL for side in ("prev", "next")]
    other_stream = pl.col("prev_stream") != pl.col("next_stream")
    is_short = pl.col(C.dur_ns) <= DEVICE_GAP_NS
    tests: dict[str | None, pl.Expr | pl.Series | str] = {
        IdleCause.UNLINKED_WORK: pl.col("unlinked_ns") >= min_ns,
        IdleCause.CARRIED_IN: pl.col("is_pending") & (pl.col("unlinked_ns") == 0),
        IdleCause.QUEUED: (pl.col("submitted_ns") <= pl.col(C.start_ns)) & is_short,
        IdleCause.WINDOW_EDGE: recorded_ns < pl.col(C.dur_ns) - min_ns,
        IdleCause.UNKNOWN: pl.col("launch_ns").is_null(),
        IdleCause.COMMUNICATION: (queued_ns >= min_ns)
        & (queued_ns > DEVICE_GAP_NS)
        & pl.any_horizontal(is_collective)
        & other_stream,
        IdleCause.STALLED_QUEUE: (queued_ns >= min_ns) & (queued_ns > DEVICE_GAP_NS),
    }
    return first_of(tests)


def _filled_by(gaps: pl.DataFrame, first: str, activity: HostActivity) -> pl.DataFrame:
    """Return ``gap, cause, call_uid, host_call, host_call_ns`` of the gaps in which one activity
    fills most of the time from ``first`` to the launch."""
    spans = _spans(gaps, first, "to_ns")
    candidates = [
        _longest(overlapping, calls).with_columns(
            pl.lit(_OF_ACTIVITY[name]).alias(C.cause), pl.lit(rank).alias(C.rank)
        )
        for rank, (name, calls) in enumerate(activity.by_activity.items())
        if not (overlapping := overlaps(spans, calls)).is_empty()
    ]
    if not candidates:
        return pl.DataFrame(schema=_CAUSE_SCHEMA)
    return (
        pl.concat(candidates)
        .join(gaps.select("gap", length_ns=pl.col("to_ns") - pl.col(first)), on="gap")
        .filter(pl.col("total_ns") >= MIN_SHARE * pl.col("length_ns"))
        .sort("gap", "total_ns", C.rank, descending=[False, True, False])
        .unique("gap", keep="first", maintain_order=True)
        .drop(C.rank, "total_ns", "length_ns")
    )


def _at_work(gaps: pl.DataFrame, activity: HostActivity) -> pl.DataFrame:
    """Return ``gap, cause, host_call, host_call_ns`` of gaps after a long time without a launch.

    The cause is whether operators or Python frames fill that time.
    """
    if gaps.is_empty():
        return pl.DataFrame(schema=_CAUSE_SCHEMA)
    spans = _spans(gaps, "from_ns", "to_ns")
    busy = overlaps(spans, activity.at_work()).group_by("gap").agg(pl.col(C.overlap_ns).sum())
    is_busy = (pl.col(C.overlap_ns) >= MIN_SHARE * pl.col("host_ns")).fill_null(False)
    return (
        gaps.select("gap", "host_ns")
        .join(busy, on="gap", how="left")
        .join(deepest(spans, activity.long_calls, MIN_SHARE), on="gap", how="left")
        .with_columns(first_of({IdleCause.HOST_WORK: is_busy}, IdleCause.UNKNOWN).alias(C.cause))
        .drop("host_ns", C.overlap_ns)
    )


def _waiting(gaps: pl.DataFrame, activity: HostActivity) -> pl.DataFrame:
    """Return the longest blocking call of the launching threads during each gap."""
    calls = activity.by_activity.get(SYNCHRONIZATION)
    if gaps.is_empty() or calls is None:
        return pl.DataFrame(schema=_CAUSE_SCHEMA)
    overlapping = overlaps(_spans(gaps, C.start_ns, C.end_ns), calls)
    return _longest(overlapping, calls).drop("total_ns")


def _longest(overlapping: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return ``gap, total_ns`` of the overlaps, and ``call_uid, host_call, host_call_ns`` of the
    longest one."""
    of_call = calls.select(
        call=pl.int_range(pl.len(), dtype=pl.Int64),
        call_uid=C.uid,
        **{C.host_call: pl.col(C.name), C.host_call_ns: pl.col(C.end_ns) - pl.col(C.ts_ns)},
    )
    return (
        overlapping.sort("gap", C.overlap_ns, "call", descending=[False, True, False])
        .group_by("gap", maintain_order=True)
        .agg(total_ns=pl.col(C.overlap_ns).sum(), call=pl.col("call").first())
        .join(of_call, on="call", how="left", maintain_order="left")
        .drop("call")
    )


def _spans(gaps: pl.DataFrame, first: str, last: str) -> pl.DataFrame:
    """Return the time from ``first`` to ``last`` of each gap, on the threads of the launch and of
    the previous launch."""
    return (
        pl.concat(
            [
                gaps.select("gap", pl.col(thread).alias(C.thread), from_ns=first, to_ns=last)
                for thread in ("launch_thread", "before_thread")
            ]
        )
        .drop_nulls(C.thread)
        .unique(maintain_order=True)
    )


def _named(gaps: pl.DataFrame, trace: Trace, calls: HostCalls) -> pl.DataFrame:
    """Return gaps with operator names and the remaining columns of the schema ``idle_gaps``."""
    above = trace.call_tree.select(call_uid=C.uid, host_op_uid=C.op_uid).filter(
        pl.col("call_uid").is_in(gaps["call_uid"].drop_nulls().implode())
    )
    gaps = gaps.hstack(_looked_up(gaps, above))
    uids = pl.concat([gaps["next_launcher_uid"], gaps["host_op_uid"]]).drop_nulls().unique()
    names = calls.select(uids, C.name)
    launchers = names.select(next_launcher_uid=C.uid, **{C.launcher_name: pl.col(C.name)})
    operators = names.select(host_op_uid=C.uid, **{C.host_op: pl.col(C.name)})
    return (
        gaps.hstack(_looked_up(gaps, launchers))
        .hstack(_looked_up(gaps, operators))
        .with_columns(
            microseconds(pl.col(C.end_ns) - pl.col("launch_ns")).alias(C.launch_lead_us),
            microseconds(pl.col("host_ns")).alias(C.host_time_us),
            microseconds(pl.col(C.host_call_ns)).alias(C.host_call_us),
            microseconds(pl.col("unlinked_ns")).alias(C.unlinked_us),
            pl.col("next_launch_uid").alias(C.launch_uid),
            pl.col("next_launcher_uid").alias(C.launcher_uid),
        )
    )
