"""Checks of matrix products beyond their efficiency."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.compute.gemm.messages import HELPERS, QUANTIZED, REPEATED
from jarvis.analyses.inefficiency import evidence_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, groups
from jarvis.analyses.small_calls import MANY_CALLS
from jarvis.core.expressions import rows_where
from jarvis.findings import Finding, Priority, texts_of
from jarvis.schemas.names import C

HELPER_KERNELS = r"postgsu|splitkreduce|splitk_reduce|transpose|memset|fillbuffer"
HELPER_SHARE_PCT = 10.0
"""Kernels that support the product, and the share of an operator's time from which to report
them."""

WEIGHT_SHARE_PCT = 50.0
"""From this share on, most of what a product reads is its K by N operand."""

WIDER_PEAK = "matrix_bf16"
"""The peak that a quantized product competes with."""


def helper_kernels(data: CategoryData) -> Iterator[Finding]:
    """Products that need helper kernels.

    Symptom: an operator launches a reduction over split K, a transpose or a clearing kernel with
    each product.
    Rule: launches named like HELPER_KERNELS take enough of the operator's time.
    Threshold: {HELPER_SHARE_PCT}% of the operator's time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = data.operations.with_columns(helper_us=kernel_names.time_us(HELPER_KERNELS))
    for group in groups(rows, pl.col("helper_us") > 0):
        helper_ms = float(group.rows["helper_us"].sum()) / 1000
        share = impact.share_pct(helper_ms, group.time_ms)
        helper_compute_pct = impact.share_pct(helper_ms, data.totals.compute_time_ms)
        if share >= HELPER_SHARE_PCT and helper_compute_pct >= MIN_COMPUTE_PCT:
            yield _helper_finding(data, group, helper_ms, share, helper_compute_pct)


def _helper_finding(
    data: CategoryData, group: OperationGroup, helper_ms: float, share: float, compute_pct: float
) -> Finding:
    is_relevant = compute_pct > impact.RELEVANT_COMPUTE_PCT
    priority = Priority.MEDIUM if is_relevant else Priority.LOW
    helpers = kernel_names.names_by_time(group.rows, HELPER_KERNELS)
    values = values_of(group) | {
        "helpers": helpers,
        "helper_ms": helper_ms,
        "helper_pct": share,
        "time_ms": group.time_ms,
    }
    return Finding(
        check="helper_kernels",
        category=data.key,
        **texts_of(HELPERS, values),
        operations=group.operations,
        evidence={
            "helper_ms": helper_ms,
            "operator_pct": share,
            "gpu_time_ms": group.time_ms,
            "calls": group.calls,
            "launches": group.launches,
            "helper_kernels": HELPERS.pick("evidence.helpers", values),
        },
        priority_local=priority,
        priority=priority,
        impact=impact.bounded_impact(group.time_ms, helper_ms, **data.bases),
    )


def quantized_without_gain(data: CategoryData) -> Iterator[Finding]:
    """Quantized products that are no faster than bf16 ones could be.

    Symptom: narrow inputs cost accuracy but save little time.
    Rule: compute-bound quantized rows whose achieved rate is below that of a bf16 product at
    {impact.GOOD_EFFICIENCY_PCT}% of its own peak.
    Threshold: {impact.GOOD_EFFICIENCY_PCT}% of the bf16 peak; at least
    {impact.RELEVANT_COMPUTE_PCT}% of compute.
    """
    wide_peak = data.hardware.peak_tflops(WIDER_PEAK) if data.hardware else None
    if wide_peak is None:
        return
    wide_rate = wide_peak * impact.GOOD_EFFICIENCY_PCT / impact.FULL_PCT
    is_candidate = (pl.col(C.gemm_type) == "quantized") & (pl.col(C.bound) == "compute")
    for group in groups(data.operations, is_candidate & impact.has_efficiency()):
        rate = group.rate
        if group.compute_pct >= impact.RELEVANT_COMPUTE_PCT and rate and rate[0] < wide_rate:
            yield _no_gain(data, group, rate[0], wide_rate)


def _no_gain(
    data: CategoryData, group: OperationGroup, reached: float, wide_rate: float
) -> Finding:
    values = values_of(group) | {
        "achieved_tflops_per_s": reached,
        "wide_tflops_per_s": wide_rate,
        "time_ms": group.time_ms,
    }
    return Finding(
        check="quantized_without_gain",
        category=data.key,
        **texts_of(QUANTIZED, values),
        operations=group.operations,
        evidence={**evidence_of(group), "good_bf16_tflops_per_s": wide_rate},
        priority_local=Priority.MEDIUM,
        priority=Priority.MEDIUM,
    )


def repeated_reads(data: CategoryData) -> Iterator[Finding]:
    """Efficient products that reread their weights for every few rows.

    Symptom: one product is called many times; each call is bound by reading its operands, at good
    speed.
    Rule: a memory-bound row at or above the target with at least {MANY_CALLS} calls, whose K by N
    elements are at least {WEIGHT_SHARE_PCT}% of what a call moves, and that is not launch bound.
    Threshold: {MANY_CALLS} calls; {WEIGHT_SHARE_PCT}% of the traffic; the target efficiency,
    {impact.TARGET_PCT}% by default; at least {impact.RELEVANT_COMPUTE_PCT}% of compute.
    """
    rows = data.once(_weight_reads, _weight_reads)
    reached_pct = rows[C.pct_roofline]
    is_efficient = (reached_pct >= data.target_pct) & (reached_pct <= impact.ANOMALY_PCT)
    for part in rows_where(rows, is_efficient).partition_by(C.uid, maintain_order=True):
        group = OperationGroup(part)
        if group.compute_pct >= impact.RELEVANT_COMPUTE_PCT:
            yield _repeated(data, group)


def _weight_reads(data: CategoryData) -> pl.DataFrame:
    """Return the rows that are called often and mostly read weights, with ``weight_pct``."""
    weights, whole = pl.col("k") * pl.col("n"), pl.sum_horizontal(*_elements())
    is_repeated = (
        (pl.col(C.bound) == "memory")
        & (pl.col(C.operation_count) >= MANY_CALLS)
        & ~pl.col(C.is_launch_bound)
    )
    rows = data.operations.filter(is_repeated).with_columns(weight_pct=100 * weights / whole)
    return rows.filter(pl.col("weight_pct") >= WEIGHT_SHARE_PCT)


def _elements() -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return the numbers of elements of both inputs and of the output of one product."""
    m, n, k = pl.col("m"), pl.col("n"), pl.col("k")
    return m * k, k * n, m * n


def _repeated(data: CategoryData, group: OperationGroup) -> Finding:
    values = values_of(group) | {"time_ms": group.time_ms, "compute_pct": group.compute_pct}
    is_large = group.compute_pct > impact.MEDIUM_COMPUTE_PCT
    priority = Priority.MEDIUM if is_large else Priority.LOW
    return Finding(
        check="repeated_reads",
        category=data.key,
        **texts_of(REPEATED, values),
        operations=group.operations,
        evidence=evidence_of(group),
        priority_local=priority,
        priority=priority,
    )
