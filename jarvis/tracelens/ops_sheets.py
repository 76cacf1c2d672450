"""The sheets ``ops_summary_by_category`` and ``ops_unique_args``."""

import polars as pl

from jarvis.perf_report.calls import (
    ARGUMENTS,
    CALL_KEY,
    key_of,
    numbered,
    shares,
    statistics,
    with_kernel_details,
)
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.tracelens.overlap import (
    Overlaps,
    overlap_statistics,
    with_overlap_details,
    with_overlaps,
)

_STATISTICS = ("mean", "median", "std", "min", "max", "sum")


def ops_summary_by_category(launched: pl.DataFrame) -> pl.DataFrame:
    """Sum ``launchers`` by op category (schema: ``ops_summary_by_category``)."""
    return (
        launched.group_by(key_of(launched, "op_category"))
        .agg(count=pl.len(), direct_kernel_time_ms=pl.col("direct_kernel_time_us").sum() / 1e3)
        .sort(["direct_kernel_time_ms", "op_category"], descending=[True, False])
        .with_columns(shares("direct_kernel_time_ms"))
    )


def ops_unique_args(
    launched: pl.DataFrame, direct: pl.DataFrame, overlap: Overlaps | None = None
) -> pl.DataFrame:
    """Sum ``launchers`` by name, arguments and thread (schema: ``ops_unique_args``).

    Columns of OPTIONAL_KEY are part of the key if they exist. ``overlap`` is that of ``direct``,
    the direct work.
    """
    if overlap is not None:
        launched = with_overlaps(launched, overlap)
    key = key_of(launched, *CALL_KEY)
    rows = numbered(launched, key)
    groups = rows.group_by("group", *key, maintain_order=True).agg(
        *statistics("direct_kernel_time_us", "direct_kernel_time_us", _STATISTICS),
        *statistics("subtree_kernel_time_us", "subtree_kernel_time_us", _STATISTICS),
        *overlap_statistics(rows),
        operation_count=pl.len(),
        ex_uid=pl.col("uid").first(),
        first_ts_ns=pl.col("ts_ns").min(),
    )
    first = pl.col("first_ts_ns")
    return (
        with_overlap_details(with_kernel_details(groups, rows, direct), rows, overlap)
        .sort(["direct_kernel_time_us_sum", "ex_uid"], descending=[True, False])
        .with_columns(
            *shares("direct_kernel_time_us_sum"),
            *(tuples_text(name) for name in ARGUMENTS),
            first_occurrence_time=microseconds(first - first.min()),
        )
    )
