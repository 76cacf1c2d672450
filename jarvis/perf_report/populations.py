"""Groups of the calls of an operation whose kernel times lie apart, for rows that have several.

Equal arguments do not make equal work: layers with and without a window share a signature, a
library chooses between kernels, and the first call may initialize something. The mean of such a row
is the time of none of its calls.
"""

from typing import Any

import polars as pl

from jarvis.perf_report.call_tree.stacks import INSTANCE_NUMBER, CallStacks
from jarvis.perf_report.calls import entries
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.schemas import POPULATIONS
from jarvis.schemas.names import C

MIN_RATIO = 1.5
MIN_GAP_US = 1.0
"""Calls next to each other by time belong to different groups if the slower one takes at least
MIN_RATIO times as long and more than MIN_GAP_US longer; old profilers record whole microseconds."""

MIN_CALLS = 3
"""Groups of fewer calls are outliers."""

_KEY = (C.operation_uid, "part")


def lie_apart(before: Any, after: Any) -> Any:
    """Return whether times in µs, the shorter one first, belong to different groups.

    Of numbers, arrays or expressions.
    """
    return (after >= MIN_RATIO * before) & (after - before > MIN_GAP_US)


def parted_calls(of: UnifiedCalls) -> pl.DataFrame:
    """Return the calls of operations that have several groups.

    At least half of the calls of such an operation are in groups that are no outliers; times that
    are scattered more than that have no typical value to separate.

    Args:
        of: ``grouped`` unified calls.

    Returns:
        ``operation_uid``, ``part`` (number of the group, shortest times first), ``uid``,
        ``source_uid``, ``kernel_time_us``, ``is_outlier``, ``kernel`` (the longest one of the call)
        and ``is_first`` (its GPU work starts first); by operation and time.
    """
    time, row, part = pl.col(C.kernel_time_us), pl.col(C.operation_uid), pl.col("part")
    calls = (
        of.calls.select(
            C.operation_uid,
            C.uid,
            C.source_uid,
            C.kernel_time_us,
        )
        .sort(C.operation_uid, C.kernel_time_us, C.uid)
        .with_columns(part=lie_apart(time.shift(), time).fill_null(value=False).cum_sum().over(row))
        .filter(part.max().over(row) > 0)
        .with_columns((pl.len().over(_KEY) < MIN_CALLS).alias(C.is_outlier))
        .filter(2 * (~pl.col(C.is_outlier)).sum().over(row) >= pl.len().over(row))
    )
    work = (
        of.work.filter(pl.col(C.owner_uid).is_in(calls[C.uid].implode()))
        .sort([C.owner_uid, C.dur_ns, C.name], descending=[False, True, False])
        .group_by(pl.col(C.owner_uid).alias(C.uid), maintain_order=True)
        .agg(pl.col(C.name).first().cast(pl.String).alias(C.kernel), pl.col(C.ts_ns).min())
    )
    start = pl.col(C.ts_ns)
    return (
        calls.join(work, on=C.uid, how="left", maintain_order="left")
        .with_columns((start == start.min().over(row)).alias(C.is_first))
        .drop(C.ts_ns)
    )


def unnamed_sources(calls: pl.DataFrame) -> pl.Series:
    """Return the host calls whose modules may name the groups that kernels do not name.

    Args:
        calls: ``parted_calls``.
    """
    several = pl.col("part").filter(~pl.col(C.is_outlier)).n_unique().over(C.operation_uid) > 1
    unnamed = _with_own(calls.filter(several), C.kernel).filter(pl.col(C.kernel).is_null())
    return unnamed[C.source_uid].unique()


def populations(calls: pl.DataFrame, stacks: CallStacks) -> pl.DataFrame:
    """Return ``uid, populations`` of the operations that have several groups of calls.

    Args:
        calls: ``parted_calls``.
        stacks: The calls above ``unnamed_sources``.
    """
    time = pl.col(C.kernel_time_us)
    modules = {uid: "".join(stacks.modules(uid)[-1:]) or None for uid in unnamed_sources(calls)}
    named = calls.with_columns(
        pl.col(C.source_uid)
        .replace_strict(modules, default=None, return_dtype=pl.String)
        .alias(C.module)
    ).with_columns(pl.col(C.module).str.replace(INSTANCE_NUMBER, "").alias("class"))
    # A group has one kernel, but it may have several modules.
    one_kernel = pl.col(C.kernel).n_unique().over(_KEY) == 1
    for column in (C.kernel, C.module, "class"):
        named = _with_own(named, column)
    return (
        named.with_columns(
            pl.when(one_kernel).then(C.kernel).alias(C.kernel),
            pl.coalesce("class", C.module).alias(C.modules),
        )
        .group_by(_KEY, maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias(C.count),
            time.sum().alias(C.total_us),
            time.mean().alias(C.mean_us),
            time.min().alias(C.min_us),
            time.max().alias(C.max_us),
            pl.col(C.is_outlier).first(),
            (pl.col(C.is_first).any() & (pl.len() == 1)).alias(C.is_first),
            pl.col(C.kernel).first(),
            pl.col(C.modules).sort_by(C.uid).drop_nulls().unique(maintain_order=True),
        )
        .group_by(pl.col(C.operation_uid).alias(C.uid), maintain_order=True)
        .agg(entries(POPULATIONS).alias(C.populations))
    )


def _with_own(calls: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the calls without the names of groups that share a name with another group."""
    is_only_here = pl.col("part").n_unique().over(C.operation_uid, name) == 1
    own = calls.with_columns(is_own=pl.col(name).is_not_null() & is_only_here)
    every = pl.col("is_own").all().over(_KEY)
    return own.with_columns(pl.when(every).then(name).alias(name)).drop("is_own")
