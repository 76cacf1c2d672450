"""The sheets of operations: by category, by arguments, unified; recomputed operations."""

from dataclasses import replace

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
from jarvis.perf_report.launchers import first_call_stack
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.roofline import COST_SCHEMA, sheet_metrics
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.perf_report.work import GpuWork
from jarvis.schemas import SPREAD
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.tracelens.models import TRACELENS_MODELS
from jarvis.tracelens.overlap import (
    Overlaps,
    overlap_statistics,
    with_overlap_details,
    with_overlaps,
)

_FIRST_METRICS = (C.gflops, C.data_moved_mb, C.flops_per_byte, C.compute_spec, C.perf_params)


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
        microseconds(pl.col(C.dur_ns)).alias(C.host_time_us)
    )
    priced = (C.pct_roofline,) if C.pct_roofline in rows.columns else ()
    first_priced = (C.roofline_time_us, C.roofline_bound) if priced else ()
    groups = rows.group_by(C.group, *key, maintain_order=True).agg(
        *statistics((C.host_time_us, C.kernel_time_us), (*SPREAD, "sum")),
        *statistics((C.tb_per_s, C.tflops_per_s, *priced), SPREAD),
        *(pl.col(column).drop_nulls().first() for column in (*_FIRST_METRICS, *first_priced)),
        *overlap_statistics(rows),
        pl.col(C.uid).first().alias(C.ex_uid),
        pl.len().alias(C.operation_count),
        pl.col(C.modelled).first().fill_null(False).alias(C.has_perf_model),
    )
    return (
        with_overlap_details(with_kernel_details(groups, rows, unified.work), rows, overlap)
        .sort([C.kernel_time_us_sum, C.ex_uid], descending=[True, False])
        .with_columns(*shares(C.kernel_time_us_sum), *(tuples_text(name) for name in ARGUMENTS))
    )


_CHECKPOINT_FILE = "torch/utils/checkpoint.py"
_RECOMPUTING_FUNCTION = "recompute_fn"


def recomputed_uids(trace: Trace) -> pl.Series:
    """Return the host events below a recomputing Python frame of the same thread."""
    name = pl.col(C.name)
    roots = trace.python_functions.filter(
        name.str.contains(_CHECKPOINT_FILE, literal=True)
        & name.str.contains(_RECOMPUTING_FUNCTION, literal=True)
    )[C.uid]
    reached = pl.when(pl.col(C.uid).is_in(roots.implode())).then(C.subtree_end).otherwise(0)
    return trace.python_call_tree.sort("order").filter(reached.cum_max() > pl.col("order"))[C.uid]


def marked_work(work: GpuWork, recomputed: pl.Series) -> GpuWork:
    """Return GPU work whose events have ``is_recompute`` of the call that launched them."""
    is_recompute = pl.col(C.launch_uid).is_in(recomputed.implode()).fill_null(False)
    return replace(work, events=work.events.with_columns(is_recompute.alias(C.is_recompute)))


_STATISTICS = ("mean", "median", "std", "min", "max", "sum")


def ops_summary_by_category(launched: pl.DataFrame) -> pl.DataFrame:
    """Sum ``launchers`` by op category (schema: ``ops_summary_by_category``)."""
    return (
        launched.group_by(key_of(launched, C.op_category))
        .agg(
            pl.len().alias(C.count),
            (pl.col(C.direct_kernel_time_us).sum() / 1e3).alias(C.direct_kernel_time_ms),
            *first_call_stack(launched),
        )
        .sort([C.direct_kernel_time_ms, C.op_category], descending=[True, False])
        .with_columns(shares(C.direct_kernel_time_ms))
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
    groups = rows.group_by(C.group, *key, maintain_order=True).agg(
        *statistics((C.direct_kernel_time_us, C.subtree_kernel_time_us), _STATISTICS),
        *overlap_statistics(rows),
        pl.len().alias(C.operation_count),
        pl.col(C.uid).first().alias(C.ex_uid),
        *(pl.col(column).first() for column in (C.call_stack,) if column in rows.columns),
        first_ts_ns=pl.col(C.ts_ns).min(),
    )
    first = pl.col("first_ts_ns")
    return (
        with_overlap_details(with_kernel_details(groups, rows, direct), rows, overlap)
        .sort([C.direct_kernel_time_us_sum, C.ex_uid], descending=[True, False])
        .with_columns(
            *shares(C.direct_kernel_time_us_sum),
            *(tuples_text(name) for name in ARGUMENTS),
            microseconds(first - first.min()).alias(C.first_occurrence_time),
        )
    )
