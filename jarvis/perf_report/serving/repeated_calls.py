"""Calls of the same modules in a row: the steps of a recording that nothing marks."""

import numpy as np
import polars as pl

from jarvis.perf_report.call_tree.frames import has_any
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.perf_report.intervals import END, Int64s
from jarvis.perf_report.serving.periods import Repeats, longest_repeats
from jarvis.schemas.names import C
from jarvis.trace import Trace

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
                for _, siblings in level.group_by(C.parent_uid, *_THREAD, maintain_order=True)
                if (repeats := _repeats(siblings)) is not None
            ]
            if found:
                _, siblings, repeats = max(found, key=lambda each: each[0])
                return _spans(siblings, repeats)
    return pl.DataFrame(schema=_SPANS)


_THREAD = (C.pid, C.tid)
_SPANS = {
    **dict.fromkeys(_THREAD, pl.Categorical),
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
            *_THREAD,
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
        .agg(pl.first(*_THREAD, C.host_start_ns), pl.last("host_end_ns"))
        .drop("repeat")
    )
