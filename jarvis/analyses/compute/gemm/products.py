"""Checks of matrix products that do not follow from their efficiency alone."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import evidence_of, facts_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, groups
from jarvis.analyses.small_calls import MANY_CALLS
from jarvis.analyses.wording import counted, listed, ms, number, pct, quoted
from jarvis.findings import GPU_TIME, Finding, Priority

HELPER_KERNELS = r"postgsu|splitkreduce|splitk_reduce|transpose|memset|fillbuffer"
HELPER_SHARE_PCT = 10.0
"""Kernels beside the product itself, and the share of an operator's time that is worth a word."""

WEIGHT_SHARE_PCT = 50.0
"""From here on most of what a product reads is its K by N operand."""

WIDER_PEAK = "matrix_bf16"
"""What a quantized product competes with."""


def helper_kernels(data: CategoryData) -> Iterator[Finding]:
    """Products that need kernels beside the product itself.

    Symptom: an operator launches a reduction over split K, a transpose or a clearing kernel with
    each product.
    Rule: launches named like HELPER_KERNELS take enough of the operator's time.
    Threshold: {HELPER_SHARE_PCT}% of the operator's time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = data.operations.with_columns(helper_us=kernel_names.time_us(HELPER_KERNELS))
    for group in groups(rows.filter(pl.col("helper_us") > 0)):
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
    facts, helpers = facts_of(group), listed(_helpers(group))
    return Finding(
        check="helper_kernels",
        category=data.key,
        title=f"Helper kernels: {quoted(group.name)}",
        operations=group.operations,
        evidence={
            "Helper time (ms)": helper_ms,
            "Share of the operator (%)": share,
            GPU_TIME: group.time_ms,
            "Calls": group.calls,
            "Launches": group.launches,
            "Helper kernels": helpers,
        },
        issue=f"{helpers} around the product take {ms(helper_ms)} ({pct(share)}) of the "
        f"{ms(group.time_ms)} of {quoted(group.name)}.",
        algorithmic=f"Store the weights of {facts['arguments']} in the layout that "
        f"{facts['kernel']} reads, and batch the {facts['calls']} so that K need not be split.",
        kernel=f"Compare {facts['kernel']} with a kernel that needs no helper for "
        f"{facts['arguments']}; a replay package reproduces it.",
        priority_local=priority,
        priority=priority,
        impact=impact.bounded_impact(group.time_ms, helper_ms, **data.bases),
        verify=f"Record the trace again: {helpers} are gone and {facts['kernel']} is not slower.",
        capture=f"Time {facts['arguments']} alone with and without the helper: the trace does not "
        "say what the product would take in another layout or without splitting K.",
    )


def _helpers(group: OperationGroup) -> list[str]:
    """The helper kernels by name, most time first."""
    kernels = group.rows.select(pl.col("kernels").explode()).unnest("kernels")
    helpers = kernels.filter(pl.col("name").str.to_lowercase().str.contains(HELPER_KERNELS))
    times = helpers.group_by("name").agg(pl.col("total_us").sum())
    return [
        quoted(name) for name in times.sort(["total_us", "name"], descending=[True, False])["name"]
    ]


def quantized_without_gain(data: CategoryData) -> Iterator[Finding]:
    """Quantized products that are no faster than wide ones could be.

    Symptom: narrow inputs are paid for with accuracy, and the time saved is small.
    Rule: compute-bound quantized rows whose achieved rate stays below what a product in bf16
    reaches that runs at {impact.GOOD_EFFICIENCY_PCT}% of its own peak.
    Threshold: {impact.GOOD_EFFICIENCY_PCT}% of the bf16 peak; at least
    {impact.RELEVANT_COMPUTE_PCT}% of compute.
    """
    wide_peak = data.hardware.peak_tflops(WIDER_PEAK) if data.hardware else None
    if wide_peak is None:
        return
    wide_rate = wide_peak * impact.GOOD_EFFICIENCY_PCT / impact.FULL_PCT
    is_meant = (pl.col("gemm_type") == "quantized") & (pl.col("bound") == "compute")
    for group in groups(data.operations.filter(is_meant & impact.is_judged())):
        rate = group.rate
        if group.compute_pct >= impact.RELEVANT_COMPUTE_PCT and rate and rate[0] < wide_rate:
            yield _no_gain(data, group, rate[0], wide_rate)


def _no_gain(
    data: CategoryData, group: OperationGroup, reached: float, wide_rate: float
) -> Finding:
    facts = facts_of(group)
    return Finding(
        check="quantized_without_gain",
        category=data.key,
        title=f"Quantized without gain: {quoted(group.name)}",
        operations=group.operations,
        evidence={**evidence_of(group), "Rate of a good bf16 product (TFLOPS/s)": wide_rate},
        issue=f"The {facts['calls']} of {quoted(group.name)} ({facts['dtype']}) reach "
        f"{number(reached)} TFLOPS/s, less than the {number(wide_rate)} TFLOPS/s of a good bf16 "
        f"product, so quantization saves no time in these {ms(group.time_ms)}.",
        algorithmic=f"Validate that the scheme {facts['dtype']} and its calibration are worth it "
        f"for {facts['arguments']}: without a faster kernel, bf16 takes no longer.",
        kernel=f"Give a replay package of {facts['arguments']} to the kernel team to tune "
        f"{facts['kernel']} ({facts['tile_note']}).",
        priority_local=Priority.MEDIUM,
        priority=Priority.MEDIUM,
        caveat="The saving stands in the finding on efficiency, if there is one. A trace shows "
        "times, not accuracy.",
        verify=f"Record the trace again: {quoted(group.name)} must exceed {number(wide_rate)} "
        "TFLOPS/s.",
        capture=f"Time {facts['arguments']} alone in bf16 and in {facts['dtype']}, and evaluate "
        "the model with both.",
    )


def repeated_reads(data: CategoryData) -> Iterator[Finding]:
    """Efficient products that read their weights again for every few rows.

    Symptom: one product is called many times; each call is bound by reading its operands, at good
    speed.
    Rule: a memory-bound row at or above the target with at least {MANY_CALLS} calls, whose K by N
    elements are at least {WEIGHT_SHARE_PCT}% of what a call moves, and that is not launch bound.
    Threshold: {MANY_CALLS} calls; {WEIGHT_SHARE_PCT}% of the traffic; the target efficiency,
    {impact.TARGET_PCT}% by default; at least {impact.RELEVANT_COMPUTE_PCT}% of compute.
    """
    weights, whole = pl.col("k") * pl.col("n"), pl.sum_horizontal(*_elements())
    rows = data.operations.with_columns(weight_pct=100 * weights / whole).filter(
        (pl.col("bound") == "memory")
        & pl.col("pct_roofline").is_between(data.target_pct, impact.ANOMALY_PCT)
        & (pl.col("operation_count") >= MANY_CALLS)
        & (pl.col("weight_pct") >= WEIGHT_SHARE_PCT)
        & ~pl.col("is_launch_bound")
    )
    for part in rows.partition_by("uid", maintain_order=True):
        group = OperationGroup(part)
        if group.compute_pct >= impact.RELEVANT_COMPUTE_PCT:
            yield _repeated(data, group)


def _elements() -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Elements of both inputs and of the output of one product."""
    m, n, k = pl.col("m"), pl.col("n"), pl.col("k")
    return m * k, k * n, m * n


def _repeated(data: CategoryData, group: OperationGroup) -> Finding:
    facts, row = facts_of(group), group.heaviest
    is_large = group.compute_pct > impact.MEDIUM_COMPUTE_PCT
    priority = Priority.MEDIUM if is_large else Priority.LOW
    return Finding(
        check="repeated_reads",
        category=data.key,
        title=f"Weights read again and again: {quoted(group.name)}",
        operations=group.operations,
        evidence=evidence_of(group),
        issue=f"The {facts['calls']} of {quoted(group.name)} (M={row['m']}, N={row['n']}, "
        f"K={row['k']}) take {ms(group.time_ms)} ({pct(group.compute_pct)} of compute) at "
        f"{pct(row['pct_roofline'])} of the memory roofline: each moves {facts['moved']} for "
        f"{counted(row['m'], 'row')}, {pct(row['weight_pct'])} of it weights.",
        algorithmic=f"Batch more rows than M={row['m']} into each call (tokens, requests): the "
        f"weights are read once whatever M is.{facts['narrower_note']}",
        kernel=f"Leave {facts['kernel']} alone: it is close to its roofline.",
        priority_local=priority,
        priority=priority,
        caveat="The saving is not quantified: a trace does not say how many rows could be batched.",
        verify=f"Record the trace again at the same output: fewer than {facts['calls']}, each with "
        "more rows and hardly longer.",
        capture="Record batch sizes and request lengths beside the trace, to see how many rows "
        f"could share one of the {facts['calls']}.",
    )
