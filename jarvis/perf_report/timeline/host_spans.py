"""Find the host calls that overlap spans of time, by activity.

A span belongs to a gap: ``gap, thread, from_ns, to_ns``. A call is a row ``uid, thread, ts_ns,
end_ns, name``. Threads are numbers (``thread_numbers``), times integer nanoseconds.
"""

from dataclasses import dataclass

import polars as pl

from jarvis.perf_report import intervals
from jarvis.perf_report.intervals import END
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.links import GRAPH_LAUNCHES
from jarvis.trace.tables import THREAD_KEY

LONG_CALL_NS = 500_000
"""Minimum duration of Python frames and operators that can explain a long wait alone."""

LONG_ASYNC_COPY_NS = 50_000
"""An asynchronous copy call of at least this duration is waiting."""

SLOW_LAUNCH_NS = 1_000_000
"""A launch call of at least this duration (normally a few µs) does more, such as loading code."""

DATA_LOADING, COMMUNICATION, ALLOCATOR = "data_loading", "communication", "allocator"
KERNEL_LOADING, SYNCHRONIZATION, GRAPH_LAUNCH = "kernel_loading", "synchronization", "graph_launch"


_LOADS_DATA = r"(?i)enumerate\(DataLoader|data[ _]?load"
_LOADER_FRAME = r"utils/data/dataloader\.py|DataLoaderIter"
_COMMUNICATES = r"(?i)^(c10d|gloo|nccl|mpi|ucc):|barrier"
_ALLOCATES = (
    r"(?i)^(cuda|hip|cu)(Malloc|Free|Host(Alloc|Malloc|Free|Register)"
    r"|Mem(Alloc|Free|Create|Map|Unmap|Release))"
)
LOADS_KERNELS = r"(?i)(Module|Library)(Load|Get)"
_LAUNCHES = r"(?i)launch"
WAITS = r"(?i)synchronize|memcpy"
"""Pattern of the calls that can wait for the GPU; ``is_waiting`` says which of them do."""
_IS_ASYNC = r"(?i)async"

_CALL = (C.uid, C.thread, C.ts_ns, C.end_ns, C.name)


@dataclass(frozen=True)
class HostActivity:
    """Host calls by activity.

    ``by_activity``: calls by activity, without overlaps within a thread; if calls of two activities
    fill the same time, the earlier activity counts. Activities without calls are omitted.
    ``long_calls``: operators and Python frames of at least LONG_CALL_NS. ``first_ns, last_ns``:
    start of the first and end of the last operator or runtime call of any thread, or None.
    """

    threads: pl.DataFrame
    by_activity: dict[str, pl.DataFrame]
    long_calls: pl.DataFrame
    first_ns: int | None
    last_ns: int | None
    operators: pl.DataFrame

    def at_work(self) -> pl.DataFrame:
        """Return operators and long calls, by thread and time, without calls inside others."""
        return outermost(pl.concat([_calls(self.operators, self.threads), self.long_calls]))


def is_waiting() -> pl.Expr:
    """Return whether a call named as WAITS waits for the GPU: an asynchronous copy only if long."""
    return ~pl.col(C.name).str.contains(_IS_ASYNC) | (pl.col(C.dur_ns) >= LONG_ASYNC_COPY_NS)


def host_activity(trace: Trace) -> HostActivity:
    """Classify the host calls of a trace by activity."""
    threads = thread_numbers(trace)
    runtime = _Events(trace.runtime, threads)
    steps = [
        _Events(trace.cpu_ops, threads),
        _Events(trace.host_annotations, threads),
    ]
    is_long = pl.col(C.dur_ns) >= LONG_CALL_NS
    frames = _Events(trace.python_functions.filter(is_long), threads)
    is_slow = pl.col(C.dur_ns) >= SLOW_LAUNCH_NS
    is_graph = pl.col(C.name).is_in(GRAPH_LAUNCHES)
    parts = {
        DATA_LOADING: [*(s.named(_LOADS_DATA) for s in steps), frames.named(_LOADER_FRAME)],
        COMMUNICATION: [step.named(_COMMUNICATES) for step in steps],
        ALLOCATOR: [runtime.named(_ALLOCATES)],
        KERNEL_LOADING: [
            runtime.named(LOADS_KERNELS),
            runtime.named(_LAUNCHES, is_slow & ~is_graph),
        ],
        SYNCHRONIZATION: [runtime.named(WAITS, is_waiting())],
        GRAPH_LAUNCH: [runtime.named("|".join(GRAPH_LAUNCHES), is_graph)],
    }
    by_activity = {activity: pl.concat(calls) for activity, calls in parts.items()}
    recorded = pl.concat(
        events.select(C.ts_ns, END.alias(C.end_ns)) for events in (trace.runtime, trace.cpu_ops)
    )
    return HostActivity(
        threads=threads,
        by_activity={
            activity: outermost(calls) for activity, calls in by_activity.items() if calls.height
        },
        long_calls=pl.concat(
            _calls(events, threads)
            for events in (trace.cpu_ops.filter(is_long), trace.python_functions.filter(is_long))
        ),
        first_ns=intervals.least_ns(recorded[C.ts_ns]),
        last_ns=intervals.greatest_ns(recorded[C.end_ns]),
        operators=trace.cpu_ops,
    )


def thread_numbers(trace: Trace) -> pl.DataFrame:
    """Return ``pid, tid, thread`` of the threads that make runtime calls, numbered from 0."""
    threads = trace.runtime.select(THREAD_KEY).unique(maintain_order=True)
    return threads.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(C.thread))


def with_threads(events: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Return the events of these threads with ``thread``."""
    if threads.height == 1:
        pid, tid, thread = threads.row(0)
        is_on_thread = pl.col(C.pid).eq_missing(pid) & pl.col(C.tid).eq_missing(tid)
        number = pl.lit(thread, dtype=pl.Int64).alias(C.thread)
        return events.filter(is_on_thread).with_columns(number)
    return events.join(threads, on=THREAD_KEY, nulls_equal=True, maintain_order="left")


def outermost(calls: pl.DataFrame) -> pl.DataFrame:
    """Return calls that are not inside another one of the same thread, by thread and time."""
    ordered = calls.sort(C.thread, C.ts_ns, C.end_ns, C.uid, descending=[False, False, True, False])
    reached = pl.col(C.end_ns).cum_max().shift(1).over(C.thread)
    return ordered.filter((pl.col(C.end_ns) > reached).fill_null(True))


def union(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the union of intervals ``ts_ns, end_ns`` as disjoint intervals, by time."""
    ordered = intervals.sort(C.ts_ns)
    is_new = (pl.col(C.ts_ns) > pl.col(C.end_ns).cum_max().shift(1)).fill_null(True)
    return (
        ordered.with_columns(part=is_new.cum_sum())
        .group_by("part", maintain_order=True)
        .agg(pl.col(C.ts_ns).min(), pl.col(C.end_ns).max())
    )


def overlaps(spans: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return ``gap, call, overlap_ns`` for each call that overlaps a span of its thread.

    ``calls`` are a result of ``outermost``; ``call`` is a row of it.
    """
    nothing = pl.DataFrame(schema={"gap": pl.Int64, "call": pl.Int64, C.overlap_ns: pl.Int64})
    if spans.is_empty() or calls.is_empty():
        return nothing
    # Thread and time in one number, so that one search finds the range of calls.
    origin = intervals.least_ns(pl.concat([spans["from_ns"], calls[C.ts_ns]])) or 0
    end = intervals.greatest_ns(pl.concat([spans["to_ns"], calls[C.end_ns]])) or 0
    reach = end - origin + 1

    def key(frame: pl.DataFrame, time: str) -> pl.Series:
        return frame.select(pl.col(C.thread) * reach + pl.col(time) - origin).to_series()

    ranges = spans.select(
        "gap",
        "from_ns",
        "to_ns",
        first=key(calls, C.end_ns).search_sorted(key(spans, "from_ns"), side="right"),
        last=key(calls, C.ts_ns).search_sorted(key(spans, "to_ns"), side="left"),
    ).filter(pl.col("first") < pl.col("last"))
    if ranges.is_empty():
        return nothing
    pairs = ranges.select(
        "gap", "from_ns", "to_ns", call=pl.int_ranges("first", "last", dtype=pl.Int64)
    ).explode("call")
    times = calls.select(C.ts_ns, C.end_ns)[pairs["call"]]
    return pairs.hstack(times).select(
        "gap",
        "call",
        (pl.min_horizontal("to_ns", C.end_ns) - pl.max_horizontal("from_ns", C.ts_ns)).alias(
            C.overlap_ns
        ),
    )


def deepest(spans: pl.DataFrame, calls: pl.DataFrame, share: float) -> pl.DataFrame:
    """Return ``gap, host_call, host_call_ns``: the innermost call filling ``share`` of a span."""
    overlap = pl.min_horizontal("to_ns", C.end_ns) - pl.max_horizontal("from_ns", C.ts_ns)
    return (
        spans.join_where(
            calls.select(C.uid, C.ts_ns, C.end_ns, C.name, call_thread=C.thread),
            pl.col(C.thread) == pl.col("call_thread"),
            pl.col(C.ts_ns) < pl.col("to_ns"),
            pl.col(C.end_ns) > pl.col("from_ns"),
        )
        .filter(overlap >= share * (pl.col("to_ns") - pl.col("from_ns")))
        .sort("gap", C.ts_ns, C.end_ns, C.uid, descending=[False, True, False, True])
        .unique("gap", keep="first", maintain_order=True)
        .select(
            "gap",
            pl.col(C.name).alias(C.host_call),
            (pl.col(C.end_ns) - pl.col(C.ts_ns)).alias(C.host_call_ns),
        )
    )


class _Events:
    """Events of some threads, searchable by name; each distinct name is tested once."""

    def __init__(self, events: pl.DataFrame, threads: pl.DataFrame) -> None:
        self._events, self._threads = events, threads
        self._names = events[C.name].unique()

    def named(self, pattern: str, also: pl.Expr | None = None) -> pl.DataFrame:
        """Return the calls whose name matches and for which ``also`` holds."""
        names = self._names.filter(self._names.str.contains(pattern))
        events = self._events.clear()
        if names.len():
            events = self._events.filter(pl.col(C.name).is_in(names.implode()))
        return _calls(events if also is None else events.filter(also), self._threads)


def _calls(events: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Return the timed events of these threads as calls."""
    if events.is_empty():
        return pl.DataFrame(schema=dict.fromkeys(_CALL, pl.Int64) | {C.name: pl.String})
    timed = events.select(C.uid, C.ts_ns, C.dur_ns, C.name, *THREAD_KEY).drop_nulls(
        [C.ts_ns, C.dur_ns]
    )
    return with_threads(timed, threads).with_columns(END.alias(C.end_ns)).select(_CALL)
