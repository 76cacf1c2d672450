"""The sheets of kernels: summary by kernel, short kernels and their histogram."""

import numpy as np
import polars as pl

from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report.calls import ARGUMENTS, HostCalls
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.launchers import with_op_category
from jarvis.perf_report.literals import tuples_text
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


_OPERATOR = ("parent_cpu_op", "input_dims", "input_strides", "concrete_inputs")


def shorter_than(kernels: pl.DataFrame, threshold_us: float) -> pl.DataFrame:
    """Return the rows of ``kernel_summary.kernels`` with a duration below the threshold."""
    return kernels.filter(pl.col("dur_ns") < 1000 * threshold_us)


def short_kernel_histogram(short: pl.DataFrame, bins: int) -> pl.DataFrame:
    """Return a histogram of durations with ``bins`` bins (schema: ``short_kernel_histogram``)."""
    durations_us = short.select(microseconds(pl.col("dur_ns"))).to_series().to_numpy()
    if not durations_us.size:
        counts, edges = np.zeros(0, np.int64), np.zeros(1)
    else:
        counts, edges = np.histogram(durations_us, bins)
    return pl.DataFrame({"bin_start": edges[:-1], "bin_end": edges[1:], "count": counts})


def short_kernels_summary(
    short: pl.DataFrame, total_time_ms: float, gpu_only: bool, top: int | None = None
) -> pl.DataFrame:
    """Sum short kernels by operator, arguments and name (schema: ``short_kernels_summary``).

    Kernels without an operator, or whose operator has no recorded arguments, are excluded; in a
    trace without host operators rows are by kernel name only. ``top`` limits the number of rows.
    """
    keys = ["kernel_name"] if gpu_only else [*_OPERATOR, "kernel_name"]
    ns = pl.col("dur_ns")
    rows = (
        short.drop_nulls(keys)
        .group_by(keys, maintain_order=True)
        .agg(
            dur_us_sum=microseconds(ns.sum()),
            dur_us_count=pl.len(),
            dur_us_mean=microseconds(ns.sum()) / pl.len(),
        )
        .with_columns(percent_of_total=percent_of(pl.lit(total_time_ms * 1e3)))
        .sort(
            "dur_us_sum",
            "dur_us_count",
            "dur_us_mean",
            descending=[True, False, False],
            maintain_order=True,
        )
    )
    if not gpu_only:
        rows = rows.with_columns(tuples_text(name) for name in _OPERATOR[1:])
    return rows if top is None else rows.head(top)
