"""The sheet ``coll_analysis``: communication kernels by collective, message and group."""

import polars as pl

from jarvis.perf_report.collectives import communication_kernels
from jarvis.perf_report.work import GpuWork

UNKNOWN_GROUP = "Unknown_Group"
_SIZED = ("Float", "Int", "Long", "BFloat16", "Bool", "Byte", "Double", "Half", "Short")
"""The dtypes whose size TraceLens knows."""

_KEYS = (
    "rank",
    "process_group_name",
    "process_group_ranks",
    "collective",
    "group_size",
    "dtype",
    "in_msg_nelems",
    "out_msg_nelems",
    "in_split_size",
    "out_split_size",
    "stream",
)


def coll_analysis(work: GpuWork) -> pl.DataFrame:
    """Communication kernels by collective, message and group (schema: ``coll_analysis``).

    Kernels whose metadata the trace does not record in full are left out.
    """
    us = pl.col("dur_us")
    return (
        communication_kernels(work)
        .filter(pl.any_horizontal(pl.col("correlation", "external_id").is_not_null()))
        .with_columns(
            rank=pl.lit(0), process_group_name=pl.col("process_group_name").fill_null(UNKNOWN_GROUP)
        )
        .with_columns(
            pl.when(pl.col("dtype").is_in(_SIZED)).then(column).alias(column)
            for column in ("in_msg_mb", "out_msg_mb")
        )
        .drop_nulls(_KEYS)
        .group_by(_KEYS, maintain_order=True)
        .agg(
            pl.col("in_msg_mb").first(),
            pl.col("out_msg_mb").first(),
            dur_us_sum=us.sum(),
            dur_us_mean=us.mean(),
            dur_us_std=us.std(),
            dur_us_min=us.min(),
            dur_us_max=us.max(),
            operation_count=pl.len(),
        )
        .sort("dur_us_sum", descending=True, maintain_order=True)
    )
