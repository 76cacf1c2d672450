"""The sheet ``coll_analysis``: communication kernels by collective, message and group."""

import polars as pl

from jarvis.perf_report.collectives import communication_kernels
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C

UNKNOWN_GROUP = "Unknown_Group"
SIZED = ("Float", "Int", "Long", "BFloat16", "Bool", "Byte", "Double", "Half", "Short")
"""The dtypes whose size TraceLens knows."""

RECORDED = (
    C.process_group_name,
    C.process_group_ranks,
    C.collective,
    C.group_size,
    C.dtype,
    C.in_msg_nelems,
    C.out_msg_nelems,
    C.in_split_size,
    C.out_split_size,
)
"""What is recorded of a collective and its message."""

_KEYS = (C.rank, *RECORDED, C.stream)


def coll_analysis(work: GpuWork) -> pl.DataFrame:
    """Communication kernels by collective, message and group (schema: ``coll_analysis``).

    Kernels whose metadata the trace does not record in full are left out.
    """
    return by_message(
        communication_kernels(work)
        .filter(pl.any_horizontal(pl.col("correlation", C.external_id).is_not_null()))
        .with_columns(
            **{
                C.rank: pl.lit(0),
                C.process_group_name: pl.col(C.process_group_name).fill_null(UNKNOWN_GROUP),
            }
        )
        .with_columns(
            pl.when(pl.col(C.dtype).is_in(SIZED)).then(column).alias(column)
            for column in (C.in_msg_mb, C.out_msg_mb)
        )
    )


def by_message(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return kernels by rank, collective, message and group; those without full metadata are left
    out."""
    us = pl.col(C.dur_us)
    return (
        kernels.drop_nulls(_KEYS)
        .group_by(_KEYS, maintain_order=True)
        .agg(
            pl.col(C.in_msg_mb).first(),
            pl.col(C.out_msg_mb).first(),
            us.sum().alias(C.dur_us_sum),
            us.mean().alias(C.dur_us_mean),
            us.std().alias(C.dur_us_std),
            us.min().alias(C.dur_us_min),
            us.max().alias(C.dur_us_max),
            pl.len().alias(C.operation_count),
        )
        .sort(C.dur_us_sum, descending=True, maintain_order=True)
    )
