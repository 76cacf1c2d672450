"""The sheet ``unified_perf_summary``."""

import polars as pl

from jarvis.hardware import HardwareSpec
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
from jarvis.perf_report.roofline import COST_SCHEMA, sheet_metrics
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.schemas import SPREAD
from jarvis.tracelens.models import TRACELENS_MODELS
from jarvis.tracelens.overlap import (
    Overlaps,
    overlap_statistics,
    with_overlap_details,
    with_overlaps,
)

_FIRST_METRICS = ("gflops", "data_moved_mb", "flops_per_byte", "compute_spec", "perf_params")


def unified_perf_summary(
    unified: UnifiedCalls,
    hardware: HardwareSpec | None,
    tracelens_models_only: bool,
    overlap: Overlaps | None = None,
) -> pl.DataFrame:
    """Sum unified ops by name, category, thread and arguments (schema: ``unified_perf_summary``).

    Columns of OPTIONAL_KEY are part of the key if they exist. ``overlap`` is that of the GPU work
    of the calls.
    """
    calls = unified.calls if overlap is None else with_overlaps(unified.calls, overlap)
    if tracelens_models_only:
        of_tracelens = pl.col("is_extension") | pl.col("model").is_in(list(TRACELENS_MODELS))
        keep = of_tracelens.fill_null(True)
        calls = calls.with_columns(
            pl.when(keep).then(column).alias(column) for column in COST_SCHEMA
        )
    key = key_of(calls, *CALL_KEY)
    rows = numbered(sheet_metrics(calls, hardware), key).with_columns(
        host_time_us=microseconds(pl.col("dur_ns"))
    )
    priced = ("pct_roofline",) if "pct_roofline" in rows.columns else ()
    first_priced = ("roofline_time_us", "roofline_bound") if priced else ()
    groups = rows.group_by("group", *key, maintain_order=True).agg(
        *(
            statistic
            for column in ("host_time_us", "kernel_time_us")
            for statistic in statistics(column, column, (*SPREAD, "sum"))
        ),
        *(
            statistic
            for column in ("tb_per_s", "tflops_per_s", *priced)
            for statistic in statistics(column, column, SPREAD)
        ),
        *(pl.col(column).drop_nulls().first() for column in (*_FIRST_METRICS, *first_priced)),
        *overlap_statistics(rows),
        ex_uid=pl.col("uid").first(),
        operation_count=pl.len(),
        has_perf_model=pl.col("modelled").first().fill_null(False),
    )
    return (
        with_overlap_details(with_kernel_details(groups, rows, unified.work), rows, overlap)
        .sort(["kernel_time_us_sum", "ex_uid"], descending=[True, False])
        .with_columns(*shares("kernel_time_us_sum"), *(tuples_text(name) for name in ARGUMENTS))
    )
