"""Find what repeats: replays of one graph, calls of the same modules, layers in the kernels."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s, has_any
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.perf_report.intervals import END
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.links import GRAPH_LAUNCHES
from jarvis.trace.tables import THREAD_KEY

MIN_REPEATS = 3
MIN_PERIOD = 2
MAX_PERIOD = 1000
"""Longest period that is searched for, to bound the time; a layer has tens of kernels."""

MIN_TIME_SHARE = 0.05
"""Minimum share of the time of a sequence that a period covers."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """``count`` repeats of ``period`` elements, from the position ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """Return the position behind the last repeat."""
        return self.start + self.period * self.count


def repeats(ids: Int64s, times: Int64s) -> list[Repeats]:
    """Return what repeats, by position: the stretch that takes most time, then the one outside it,
    while they take MIN_TIME_SHARE of the time.

    Of stretches with the same time that with the shortest period counts.

    Args:
        ids: The names as numbers, in order.
        times: Their durations.
    """
    passed = np.concatenate([[0], np.cumsum(times)])
    found = _within(ids, passed, 0, ids.size, MIN_TIME_SHARE * float(passed[-1]))
    return sorted(found, key=lambda part: part.start)


def _within(ids: Int64s, passed: Int64s, first: int, last: int, least: float) -> Iterator[Repeats]:
    """Yield the repeats from ``first`` to ``last`` that take at least ``least``; there are few."""
    if passed[last] - passed[first] < least:
        return
    best = longest_repeats(ids[first:last], passed[first : last + 1])
    if best is None or passed[first + best.stop] - passed[first + best.start] < least:
        return
    yield Repeats(first + best.start, best.period, best.count)
    yield from _within(ids, passed, first, first + best.start, least)
    yield from _within(ids, passed, first + best.stop, last, least)


def longest_repeats(ids: Int64s, passed: Int64s, min_period: int = MIN_PERIOD) -> Repeats | None:
    """Return the repeats that take most time, of those with the same time that with the shortest
    period; None if nothing repeats.

    Args:
        ids: The names as numbers, in order.
        passed: The time before each position, and that of all.
        min_period: Minimum period.
    """
    best: Repeats | None = None
    most = 0
    for period in range(min_period, min(ids.size // MIN_REPEATS, MAX_PERIOD) + 1):
        same = np.concatenate([[0], ids[:-period] == ids[period:], [0]]).astype(np.int8)
        edges = np.diff(same)
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        counts = (ends - starts + period) // period
        is_enough = counts >= MIN_REPEATS
        starts, counts = starts[is_enough], counts[is_enough]
        if not starts.size:
            continue
        taken = passed[starts + period * counts] - passed[starts]
        longest = int(np.argmax(taken))
        if taken[longest] > most:
            most = int(taken[longest])
            best = Repeats(int(starts[longest]), period, int(counts[longest]))
    return best


MIN_REPLAYS = 3
"""Minimum number of replays of one graph in a row that are steps."""


def graph_launches(trace: Trace, work: GpuWork) -> pl.DataFrame:
    """Return ``launch_uid, pid, tid, host_start_ns, host_end_ns, graph_key`` of the launches of
    graphs with GPU work, by time.

    Launches that replay the same kernels in the same order have the same key.
    """
    calls = trace.runtime.filter(pl.col(C.name).is_in(GRAPH_LAUNCHES)).select(
        pl.col(C.uid).alias(C.launch_uid),
        C.pid,
        C.tid,
        pl.col(C.ts_ns).alias(C.host_start_ns),
        host_end_ns=END,
    )
    names = pl.col(C.name).cast(pl.String).sort_by(C.ts_ns, C.uid).str.join("\n")
    calls = calls.drop_nulls()
    replayed = work.events.join(calls, on=C.launch_uid, how="semi")
    keys = replayed.group_by(C.launch_uid).agg(names.alias(C.graph_key))
    return (
        calls.join(keys, on=C.launch_uid)
        .sort(C.host_start_ns, C.launch_uid)
        .with_columns(pl.col(C.graph_key).rank("dense"))
    )


def replays(launches: pl.DataFrame) -> pl.DataFrame:
    """Return the longest run of at least MIN_REPLAYS launches with the same key; the first of
    equal ones."""
    runs = launches.with_columns(run=pl.col(C.graph_key).rle_id())
    lengths = runs.group_by("run").len().sort("len", "run", descending=[True, False])
    longest = lengths.filter(pl.col("len") >= MIN_REPLAYS).head(1)
    return runs.join(longest, on="run", how="semi", maintain_order="left").drop("run")


MIN_SHARE = 0.5
"""Minimum share that repeats have of the calls from the first repeat on."""

MAX_CALLS = 20_000
"""Maximum number of calls in a row that are searched, to bound the time."""


def repeated_calls(trace: Trace) -> pl.DataFrame:
    """Return ``pid, tid, host_start_ns, host_end_ns`` of repeated calls, by time.

    Calls are those of one thread or of one call that launch GPU work. They repeat if at least three
    times in a row calls of the same name enter the same module first: layers of a model, which are
    different modules, do not. The outermost calls that repeat count, the longest stretch of them,
    then the shortest period.

    Args:
        trace: The trace; without Python frames no modules are known, and nothing is found.
    """
    is_module = pl.col(C.name).cast(pl.String).str.starts_with(MODULE_PREFIX)
    modules = trace.python_functions.filter(is_module).select(C.uid, pl.col(C.name).cast(pl.String))
    if not modules.is_empty():
        calls = _launching(trace, modules)
        for _, level in calls.group_by(C.depth, maintain_order=True):
            found = [
                (repeats.count * repeats.period, siblings, repeats)
                for _, siblings in level.group_by(C.parent_uid, *THREAD_KEY, maintain_order=True)
                if (repeats := _repeats(siblings)) is not None
            ]
            if found:
                _, siblings, repeats = max(found, key=lambda each: each[0])
                return _spans(siblings, repeats)
    return pl.DataFrame(schema=_SPANS)


_SPANS = {
    **dict.fromkeys(THREAD_KEY, pl.Categorical),
    C.host_start_ns: pl.Int64,
    "host_end_ns": pl.Int64,
}


def _launching(trace: Trace, modules: pl.DataFrame) -> pl.DataFrame:
    """Return the calls that launch GPU work, level by level and by time, with ``module``: a number
    for the name of the first module in or below each."""
    tree = trace.python_call_tree
    order, end = tree["order"].to_numpy(), tree[C.subtree_end].to_numpy()
    is_launch = tree[C.uid].is_in(trace.launches[C.runtime_uid].implode()).to_numpy()
    names = modules.with_columns(pl.col(C.name).rank("dense").cast(pl.Int64).alias(C.module))
    placed = tree.select(C.uid, "order").join(names, on=C.uid).sort("order")
    next_module = placed["order"].search_sorted(tree["order"])
    first = placed[next_module.replace(placed.height, None)]
    module = pl.when(first["order"] < tree[C.subtree_end]).then(first[C.module])
    hosts = (trace.cpu_ops, trace.runtime, trace.python_functions)
    named = pl.concat(
        table.select(
            C.uid,
            pl.col(C.name).cast(pl.String),
            *THREAD_KEY,
            pl.col(C.ts_ns).alias(C.host_start_ns),
            host_end_ns=END,
        )
        for table in hosts
    )
    return (
        tree.with_columns(module.alias(C.module))
        .filter(pl.Series(has_any(is_launch, order, end)) & ~pl.col(C.is_dropped))
        .join(named, on=C.uid)
        .sort(C.depth, "order")
    )


def _repeats(calls: pl.DataFrame) -> Repeats | None:
    """Return the stretch of calls that repeat, if they are enough and in modules."""
    if calls.height > MAX_CALLS or calls[C.module].count() == 0:
        return None
    ids = calls.select(pl.struct(C.name, C.module).rank("dense").cast(pl.Int64)).to_series()
    passed: Int64s = np.arange(calls.height + 1, dtype=np.int64)
    found = longest_repeats(ids.to_numpy(), passed, min_period=1)
    if found is None:
        return None
    modules = calls[C.module][found.start : found.start + found.period]
    is_enough = found.stop - found.start > MIN_SHARE * (calls.height - found.start)
    return found if is_enough and modules.count() else None


def _spans(calls: pl.DataFrame, repeats: Repeats) -> pl.DataFrame:
    """Return the time of each repeat on the host, from its first to its last call."""
    inside = calls[repeats.start : repeats.stop].with_columns(
        repeat=pl.int_range(pl.len()) // repeats.period
    )
    return (
        inside.group_by("repeat", maintain_order=True)
        .agg(pl.first(*THREAD_KEY, C.host_start_ns), pl.last("host_end_ns"))
        .drop("repeat")
    )
