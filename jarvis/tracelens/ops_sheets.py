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


def ops_summary_by_category(found: pl.DataFrame) -> pl.DataFrame:
    """Launchers by op category (schema: ``ops_summary_by_category``)."""
    return (
        found.group_by(key_of(found, "op_category"))
        .agg(count=pl.len(), direct_kernel_time_ms=pl.col("direct_kernel_time_us").sum() / 1e3)
        .sort(["direct_kernel_time_ms", "op_category"], descending=[True, False])
        .with_columns(shares("direct_kernel_time_ms"))
    )


def ops_unique_args(
    found: pl.DataFrame, direct: pl.DataFrame, overlap: Overlaps | None = None
) -> pl.DataFrame:
    """Launchers by name, arguments and thread (schema: ``ops_unique_args``).

    Columns of OPTIONAL_KEY that the launchers have tell rows apart as well. ``overlap`` is that of
    the direct work.
    """
    if overlap is not None:
        found = with_overlaps(found, overlap)
    key = key_of(found, *CALL_KEY)
    rows = numbered(found, key)
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
