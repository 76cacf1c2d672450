"""Host calls that launch GPU work directly: their categories, and time by name."""

import polars as pl

from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report.calls import HostCalls, key_of, shares
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.work import COMMUNICATION, GpuWork
from jarvis.schemas.names import C

_NATIVE_KERNEL = "void at::native"
_KERNEL_CATEGORIES = ("elementwise", "reduce", "multi_tensor_apply")
OTHER = "other"


def direct_work(work: GpuWork) -> pl.DataFrame:
    """Return linked GPU work without communication, by start.

    Columns: ``owner_uid`` (its launcher), ``uid, name, stream, ts_ns, dur_ns``.
    """
    return (
        work.linked.filter(pl.col(C.kind) != COMMUNICATION)
        .select(
            C.uid, C.name, C.stream, C.ts_ns, C.dur_ns, pl.col(C.launcher_uid).alias(C.owner_uid)
        )
        .sort(C.ts_ns, C.uid)
    )


def with_op_category(
    calls: pl.DataFrame, direct: pl.DataFrame, registry: Registry = BUILTIN
) -> pl.DataFrame:
    """Return calls (``name``, ``source_uid``) with ``op_category``.

    The category follows from the operator name, else from the first kernel that ``source_uid``
    launched.
    """
    named = {name: registry.op_category(name) for name in calls[C.name].unique()}
    first_kernel = direct.group_by(C.owner_uid, maintain_order=True).agg(
        first_kernel=pl.col(C.name).first()
    )
    of_kernels = {
        kernel: next((c for c in _KERNEL_CATEGORIES if c in kernel), None)
        for kernel in first_kernel["first_kernel"].unique()
        if kernel.startswith(_NATIVE_KERNEL)
    }
    by_name, by_kernel = (
        pl.col(column).replace_strict(categories, default=None, return_dtype=pl.String)
        for column, categories in ((C.name, named), ("first_kernel", of_kernels))
    )
    return (
        calls.join(
            first_kernel,
            left_on=C.source_uid,
            right_on=C.owner_uid,
            how="left",
            maintain_order="left",
        )
        .with_columns(
            pl.coalesce(by_name, by_kernel, pl.lit(OTHER)).cast(pl.Categorical).alias(C.op_category)
        )
        .drop("first_kernel")
    )


def launchers(
    work: GpuWork, calls: HostCalls, direct: pl.DataFrame, registry: Registry = BUILTIN
) -> pl.DataFrame:
    """Return a row for each host call that launched GPU work directly, by start time.

    Args:
        direct: ``direct_work``.

    Returns:
        Columns of ``HostCalls.rows``, and ``op_category``, ``direct_kernel_time_us`` (busy time of
        work that it launched, without communication), ``subtree_kernel_time_us`` (of all work below
        it) and ``direct_kernel_count``.
    """
    below = work.below(direct[C.owner_uid].unique(), (C.ts_ns, C.dur_ns))
    times = (
        direct.group_by(C.owner_uid)
        .agg(first_kernel_uid=pl.col(C.uid).min(), direct_kernel_count=pl.len().cast(pl.Int64))
        .join(busy_ns(direct, [C.owner_uid]), on=C.owner_uid)
        .join(busy_ns(below, [C.owner_uid]), on=C.owner_uid, suffix="_below")
        .select(
            "first_kernel_uid",
            "direct_kernel_count",
            pl.col(C.owner_uid).alias(C.uid),
            microseconds(pl.col(C.busy_ns)).alias(C.direct_kernel_time_us),
            microseconds(pl.col("busy_ns_below")).alias(C.subtree_kernel_time_us),
        )
    )
    rows = calls.rows(times[C.uid]).join(times, on=C.uid).sort(C.ts_ns, "first_kernel_uid")
    rows = rows.drop(C.dur_ns, "first_kernel_uid").with_columns(pl.col(C.uid).alias(C.source_uid))
    return with_op_category(rows, direct, registry).drop(C.source_uid)


def first_call_stack(launched: pl.DataFrame) -> list[pl.Expr]:
    """Return the aggregation ``call_stack_first`` if the launchers have call stacks."""
    if C.call_stack not in launched.columns:
        return []
    return [pl.col(C.call_stack).first().alias(C.call_stack_first)]


def ops_summary(launched: pl.DataFrame) -> pl.DataFrame:
    """Sum ``launchers`` by name (schema: ``ops_summary``)."""
    times = (C.direct_kernel_time_us, C.subtree_kernel_time_us)
    return (
        launched.group_by(key_of(launched, C.name))
        .agg(
            *first_call_stack(launched),
            *(pl.col(time).sum() for time in times),
            *((pl.col(time).sum() / 1e3).alias(time.replace("_us", "_ms")) for time in times),
            pl.len().alias(C.count),
            pl.col(C.op_category).unique().sort().alias(C.categories),
        )
        .sort([C.direct_kernel_time_us, C.name], descending=[True, False])
        .with_columns(shares(C.direct_kernel_time_us))
    )
