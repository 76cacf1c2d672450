"""Kernels so short that launching may take longer than running them."""

import numpy as np
import polars as pl

from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.tracelens.kernel_summary import percent_of

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
