"""All kernels with their launching operator, and the sheet ``kernel_summary``."""

import polars as pl

from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report.calls import ARGUMENTS, HostCalls
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.launchers import with_op_category
from jarvis.perf_report.work import GpuWork

GRAPH, RUNTIME = "graph", "runtime"
"""Parent categories of kernels without an operator: from a graph launch, from another call."""

_KEYS = ("parent_op_category", "parent_cpu_op", "kernel_name", "kernel_stream")


def kernels(
    work: GpuWork, calls: HostCalls, direct: pl.DataFrame, registry: Registry = BUILTIN
) -> pl.DataFrame:
    """Return a row for each kernel in file order, with or without a recorded launch.

    Columns: ``kernel_name, kernel_stream, dur_ns, launcher_name`` (of the runtime call),
    ``parent_cpu_op, parent_op_category`` and the arguments of the nearest operator above the
    launch, each null if there is none.
    """
    rows = work.events.filter(pl.col("cat") == "kernel")
    ops = calls.rows(rows["op_uid"].unique())
    launches = calls.select(rows["launch_uid"].unique(), "name")
    parents = with_op_category(ops.with_columns(source_uid="uid"), direct, registry).select(
        *ARGUMENTS, op_uid="uid", parent_cpu_op="name", parent_op_category="op_category"
    )
    return (
        rows.select("launch_uid", "op_uid", "dur_ns", kernel_name="name", kernel_stream="stream")
        .join(
            launches.select(launch_uid="uid", launcher_name="name"),
            on="launch_uid",
            how="left",
            maintain_order="left",
        )
        .join(parents, on="op_uid", how="left", maintain_order="left")
    )


def kernel_summary(rows: pl.DataFrame, total_time_ms: float, gpu_only: bool) -> pl.DataFrame:
    """Sum ``kernels`` by operator, name and stream (schema: ``kernel_summary``).

    Args:
        rows: ``kernels``.
        total_time_ms: Total time of the GPU timeline.
        gpu_only: The trace has no host operators, so the column for them is omitted.
    """
    launcher = pl.col("launcher_name")
    is_graph = launcher.str.to_lowercase().str.contains("cudagraph|graphlaunch")
    by_launcher = (
        pl.when(launcher.is_null())
        .then(None)
        .when(is_graph)
        .then(pl.lit(GRAPH))
        .otherwise(pl.lit(RUNTIME))
    )
    filled = rows.with_columns(
        parent_cpu_op=pl.coalesce("parent_cpu_op", launcher),
        parent_op_category=pl.coalesce("parent_op_category", by_launcher),
    )
    keys = [key for key in _KEYS if not (gpu_only and key == "parent_cpu_op")]
    ns = pl.col("dur_ns")
    return (
        filled.group_by(keys, maintain_order=True)
        .agg(
            dur_us_sum=microseconds(ns.sum()),
            dur_us_count=pl.len(),
            dur_us_mean=microseconds(ns.sum()) / pl.len(),
            dur_us_min=microseconds(ns.min()),
            dur_us_max=microseconds(ns.max()),
        )
        .sort("dur_us_sum", descending=True, maintain_order=True)
        .with_columns(
            percent_of_kernels=percent_of(pl.col("dur_us_sum").sum()),
            percent_of_total=percent_of(pl.lit(total_time_ms * 1e3)),
        )
    )


def percent_of(whole_us: pl.Expr) -> pl.Expr:
    """Return ``dur_us_sum`` in percent of a time; null if that is 0."""
    return pl.when(whole_us > 0).then(100 * pl.col("dur_us_sum") / whole_us)
