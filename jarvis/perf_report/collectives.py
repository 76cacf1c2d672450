"""Communication kernels: one by one, and summed as in the sheet ``coll_analysis``."""

import polars as pl

from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.work import COMMUNICATION, GpuWork

MIB = 1 << 20
ELEMENT_BYTES = {
    "Float": 4,
    "Int": 4,
    "Long": 8,
    "BFloat16": 2,
    "Bool": 1,
    "Byte": 1,
    "Double": 8,
    "Half": 2,
    "Short": 2,
}
"""Bytes per element by the dtype names of communication kernels."""

UNKNOWN_GROUP = "Unknown_Group"
_CUSTOM_ALL_REDUCE = "cross_device_reduce"
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


def _kernels(work: GpuWork) -> pl.DataFrame:
    element_bytes = pl.col("dtype").replace_strict(
        ELEMENT_BYTES, default=None, return_dtype=pl.Int64
    )
    return work.events.filter(
        (pl.col("cat") == "kernel") & (pl.col("kind") == COMMUNICATION)
    ).with_columns(
        dur_us=microseconds(pl.col("dur_ns")),
        collective=pl.when(pl.col("name").str.contains(f"(?i){_CUSTOM_ALL_REDUCE}"))
        .then(pl.col("collective").fill_null("allreduce"))
        .otherwise("collective"),
        in_msg_mb=pl.col("in_msg_nelems") * element_bytes / MIB,
        out_msg_mb=pl.col("out_msg_nelems") * element_bytes / MIB,
    )


def collectives(work: GpuWork) -> pl.DataFrame:
    """Return a row for each communication kernel (schema: ``collectives``)."""
    return _kernels(work).with_columns(
        group="process_group_name", message_mb=pl.max_horizontal("in_msg_mb", "out_msg_mb")
    )


def coll_analysis(work: GpuWork) -> pl.DataFrame:
    """Return communication by collective, message and group (schema: ``coll_analysis``).

    Kernels with incomplete metadata are excluded.
    """
    us = pl.col("dur_us")
    return (
        _kernels(work)
        .filter(pl.any_horizontal(pl.col("correlation", "external_id").is_not_null()))
        .with_columns(
            rank=pl.lit(0), process_group_name=pl.col("process_group_name").fill_null(UNKNOWN_GROUP)
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
