"""The sheets of kernels: summary by kernel, short kernels and their histogram."""

import numpy as np
import polars as pl

from jarvis.core.expressions import first_of
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report.calls import ARGUMENTS, HostCalls
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.launchers import with_op_category
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C

GRAPH, RUNTIME = "graph", "runtime"
"""Parent categories of kernels without an operator: from a graph launch, from another call."""

_KEYS = (C.parent_op_category, C.parent_cpu_op, C.kernel_name, C.kernel_stream)


def kernels(
    work: GpuWork, calls: HostCalls, direct: pl.DataFrame, registry: Registry = BUILTIN
) -> pl.DataFrame:
    """Return a row for each kernel in file order, with or without a recorded launch.

    Columns: ``kernel_name, kernel_stream, dur_ns, launcher_name`` (of the runtime call),
    ``parent_cpu_op, parent_op_category`` and the arguments of the nearest operator above the
    launch, each null if there is none.
    """
    rows = work.events.filter(pl.col(C.cat) == "kernel")
    ops = calls.rows(rows[C.op_uid].unique())
    launches = calls.select(rows[C.launch_uid].unique(), C.name)
    parents = with_op_category(
        ops.with_columns(pl.col(C.uid).alias(C.source_uid)), direct, registry
    ).select(
        *ARGUMENTS,
        pl.col(C.uid).alias(C.op_uid),
        pl.col(C.name).alias(C.parent_cpu_op),
        pl.col(C.op_category).alias(C.parent_op_category),
    )
    return (
        rows.select(
            C.launch_uid,
            C.op_uid,
            C.dur_ns,
            pl.col(C.name).alias(C.kernel_name),
            pl.col(C.stream).alias(C.kernel_stream),
        )
        .join(
            launches.select(
                pl.col(C.uid).alias(C.launch_uid), pl.col(C.name).alias(C.launcher_name)
            ),
            on=C.launch_uid,
            how="left",
            maintain_order="left",
        )
        .join(parents, on=C.op_uid, how="left", maintain_order="left")
    )


def kernel_summary(rows: pl.DataFrame, total_time_ms: float, gpu_only: bool) -> pl.DataFrame:
    """Sum ``kernels`` by operator, name and stream (schema: ``kernel_summary``).

    Args:
        rows: ``kernels``.
        total_time_ms: Total time of the GPU timeline.
        gpu_only: The trace has no host operators, so the column for them is omitted.
    """
    launcher = pl.col(C.launcher_name)
    is_graph = launcher.str.to_lowercase().str.contains("cudagraph|graphlaunch")
    by_launcher = first_of({None: launcher.is_null(), GRAPH: is_graph}, RUNTIME)
    filled = rows.with_columns(
        pl.coalesce(C.parent_cpu_op, launcher).alias(C.parent_cpu_op),
        pl.coalesce(C.parent_op_category, by_launcher).alias(C.parent_op_category),
    )
    keys = [key for key in _KEYS if not (gpu_only and key == C.parent_cpu_op)]
    ns = pl.col(C.dur_ns)
    return (
        filled.group_by(keys, maintain_order=True)
        .agg(
            microseconds(ns.sum()).alias(C.dur_us_sum),
            pl.len().alias(C.dur_us_count),
            (microseconds(ns.sum()) / pl.len()).alias(C.dur_us_mean),
            microseconds(ns.min()).alias(C.dur_us_min),
            microseconds(ns.max()).alias(C.dur_us_max),
        )
        .sort(C.dur_us_sum, descending=True, maintain_order=True)
        .with_columns(
            percent_of(pl.col(C.dur_us_sum).sum()).alias(C.percent_of_kernels),
            percent_of(pl.lit(total_time_ms * 1e3)).alias(C.percent_of_total),
        )
    )


def percent_of(whole_us: pl.Expr) -> pl.Expr:
    """Return ``dur_us_sum`` in percent of a time; null if that is 0."""
    return pl.when(whole_us > 0).then(100 * pl.col(C.dur_us_sum) / whole_us)


_OPERATOR = (C.parent_cpu_op, C.input_dims, C.input_strides, C.concrete_inputs)


def shorter_than(kernels: pl.DataFrame, threshold_us: float) -> pl.DataFrame:
    """Return the rows of ``kernel_summary.kernels`` with a duration below the threshold."""
    return kernels.filter(pl.col(C.dur_ns) < 1000 * threshold_us)


def short_kernel_histogram(short: pl.DataFrame, bins: int) -> pl.DataFrame:
    """Return a histogram of durations with ``bins`` bins (schema: ``short_kernel_histogram``)."""
    durations_us = short.select(microseconds(pl.col(C.dur_ns))).to_series().to_numpy()
    if not durations_us.size:
        counts, edges = np.zeros(0, np.int64), np.zeros(1)
    else:
        counts, edges = np.histogram(durations_us, bins)
    return pl.DataFrame({C.bin_start: edges[:-1], C.bin_end: edges[1:], C.count: counts})


def short_kernels_summary(
    short: pl.DataFrame, total_time_ms: float, gpu_only: bool, top: int | None = None
) -> pl.DataFrame:
    """Sum short kernels by operator, arguments and name (schema: ``short_kernels_summary``).

    Kernels without an operator, or whose operator has no recorded arguments, are excluded; in a
    trace without host operators rows are by kernel name only. ``top`` limits the number of rows.
    """
    keys = [C.kernel_name] if gpu_only else [*_OPERATOR, C.kernel_name]
    ns = pl.col(C.dur_ns)
    rows = (
        short.drop_nulls(keys)
        .group_by(keys, maintain_order=True)
        .agg(
            microseconds(ns.sum()).alias(C.dur_us_sum),
            pl.len().alias(C.dur_us_count),
            (microseconds(ns.sum()) / pl.len()).alias(C.dur_us_mean),
        )
        .with_columns(percent_of(pl.lit(total_time_ms * 1e3)).alias(C.percent_of_total))
        .sort(
            C.dur_us_sum,
            C.dur_us_count,
            C.dur_us_mean,
            descending=[True, False, False],
            maintain_order=True,
        )
    )
    if not gpu_only:
        rows = rows.with_columns(tuples_text(name) for name in _OPERATOR[1:])
    return rows if top is None else rows.head(top)
