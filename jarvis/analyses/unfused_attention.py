"""Attention that runs as single operators, found across categories through the call tree."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses.attention_shapes import SHORT_SEQUENCE
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import KERNEL_FLOOR_US, MIN_COMPUTE_PCT, arguments, short_dtype
from jarvis.analyses.wording import counted, listed, ms, pct, quoted
from jarvis.findings import GPU_TIME, Finding
from jarvis.hardware import HardwareSpec

TABLES = ("attention_groups", "attention_steps")
"""The tables of a report that this check reads."""

SPEEDUPS = (3.0, 10.0)
"""How much faster fused attention usually is than the single operators, from least to most."""

TUNING_PCT = (10, 30)
"""What tuning the single kernels usually gains, in percent of the group's time."""

STEPS_NAMED = 12


def unfused_attention(data: CategoryData) -> Iterator[Finding]:
    """Attention as matrix product, softmax and matrix product, with the scores in memory.

    Symptom: the scores of all queries and keys are written and read by several kernels, which one
    fused attention kernel never stores.
    Rule: a softmax, or its exponentials, sum and division, between two neighbouring matrix products
    on one thread; it works on the shape that the first one makes, along the dimension over which
    the second one sums. Scale, mask, dropout and copies between them belong to the group.
    Threshold: at least {MIN_COMPUTE_PCT}% of compute time; at most
    {jarvis.perf_report.attention_groups.MAX_BETWEEN} steps between the products.
    """
    if any(name not in data.tables for name in TABLES):
        return
    steps = data.tables["attention_steps"].partition_by("group", as_dict=True)
    for row in data.tables["attention_groups"].iter_rows(named=True):
        time_ms = row["kernel_time_us"] / 1000
        compute_pct = impact.share_pct(time_ms, data.totals.compute_time_ms)
        if compute_pct >= MIN_COMPUTE_PCT:
            yield _finding(data, row, steps[(row["group"],)], compute_pct)


def _finding(
    data: CategoryData, row: Mapping[str, Any], steps: pl.DataFrame, compute_pct: float
) -> Finding:
    time_ms = row["kernel_time_us"] / 1000
    fused_ms = _fused_ms(row, data.hardware)
    usual_ms = None if fused_ms is None else fused_ms * impact.FULL_PCT / data.target_pct
    gain = impact.sped_up_impact(time_ms, SPEEDUPS, usual_ms, **data.bases)
    priority = impact.final_priority(
        is_top_operation=False,
        compute_pct=compute_pct,
        category_pct=compute_pct,
        efficiency_pct=None if fused_ms is None else impact.share_pct(fused_ms, time_ms),
        saved_compute_pct=gain.compute_pct.mid,
        saved_ms=gain.saved_ms.mid,
        is_pattern=True,
    )
    heaviest = steps.sort("kernel_time_us", "position", descending=[True, False]).row(0, named=True)
    shape = _shape_text(row)
    place = f" in {quoted(row['scope_name'])}" if row["scope_name"] else ""
    low, high = TUNING_PCT
    return Finding(
        check="unfused_attention",
        category=data.key,
        title=f"Unfused attention{place}, {counted(row['instance_count'], 'call')}",
        evidence=_evidence(row, steps, compute_pct, fused_ms),
        issue=f"{counted(row['instance_count'], 'call')} of attention{place} ({shape}) run as "
        f"{counted(len(row['step_names']), 'operator')} each, {_steps_text(steps)}: the whole "
        f"group takes {ms(time_ms)} ({pct(compute_pct)} of compute), part of it to store and "
        "read all scores.",
        algorithmic="Call `torch.nn.functional.scaled_dot_product_attention` or a Flash Attention "
        f"kernel instead of these operators: {SPEEDUPS[0]:.0f} to {SPEEDUPS[1]:.0f} times less "
        "time for the group is usual.",
        kernel=f"Tune the longest kernel of the group, {quoted(heaviest['name'])} of "
        f"{_arguments(heaviest)} ({ms(heaviest['kernel_time_us'] / 1000)} in "
        f"{quoted(heaviest['kernel'])}), with a replay package: {low} to {high}% of the group's "
        f"time, {ms(time_ms * low / 100)} to {ms(time_ms * high / 100)}, is usual.",
        priority_local=priority,
        priority=priority,
        impact=gain,
        hypothesis="The model's code computes attention itself, or an option (a returned attention "
        "matrix, a mask or bias that no fused kernel takes) rules the fused one out.",
        caveat=_caveat(fused_ms, data.target_pct, row["n_q"]),
        verify="Record the trace again: one fused attention kernel must stand in place of the "
        f"{len(row['step_names'])} operators, and the softmax must be gone.",
        capture=_capture(row),
        shared_uids=tuple(steps["operation_uid"].unique().sort()),
    )


def _fused_ms(row: Mapping[str, Any], hardware: HardwareSpec | None) -> float | None:
    """Roofline time of fused kernels for all calls, each at least as long as any kernel takes; None
    where a peak or the work is not known."""
    peak = hardware.max_achievable_tflops.get(row["compute"] or "") if hardware else None
    if hardware is None or peak is None or not row["fused_flops"] or not row["fused_bytes"]:
        return None
    arithmetic_ms = row["fused_flops"] / peak / 1e9
    memory_ms = row["fused_bytes"] / hardware.mem_bw_gbps / 1e6
    return float(row["instance_count"] * max(arithmetic_ms, memory_ms, KERNEL_FLOOR_US / 1000))


def _evidence(
    row: Mapping[str, Any], steps: pl.DataFrame, compute_pct: float, fused_ms: float | None
) -> dict[str, float | int | str]:
    evidence: dict[str, float | int | str | None] = {
        GPU_TIME: row["kernel_time_us"] / 1000,
        "Share of compute (%)": compute_pct,
        "Calls": row["instance_count"],
        "Kernels": row["kernel_count"],
        "Shape": _shape_text(row),
        "Operators, time of all calls": _steps_text(steps),
        "Roofline time of a fused kernel, all calls (ms)": fused_ms,
    }
    return {label: value for label, value in evidence.items() if value is not None}


def _shape_text(row: Mapping[str, Any]) -> str:
    sequences = (
        f"batch {row['batch']:,} of {row['heads']:,} heads"
        if row["heads"]
        else f"batch times heads {row['batch']:,}"
    )
    dims = f"{row['d_qk']:,}" if row["d_qk"] == row["d_v"] else f"{row['d_qk']:,}/{row['d_v']:,}"
    return (
        f"{sequences}, {row['n_q']:,} queries, {row['n_kv']:,} keys, head dimension {dims}, "
        f"{short_dtype(row['dtype'])}"
    )


def _steps_text(steps: pl.DataFrame) -> str:
    times = steps.group_by("position", maintain_order=True).agg(
        pl.col("name").first(), pl.col("kernel_time_us").sum()
    )
    named = [f"{quoted(name)} {ms(time_us / 1000)}" for _, name, time_us in times.iter_rows()]
    return listed(named, STEPS_NAMED)


def _arguments(step: Mapping[str, Any]) -> str:
    return arguments(step["input_dims"], step["input_types"]) or "shapes not recorded"


def _caveat(fused_ms: float | None, target_pct: float, queries: int) -> str:
    least, most = SPEEDUPS
    middle = (
        "the middle of the range has no model behind it"
        if fused_ms is None
        else f"the middle is a fused kernel at {target_pct:g}% of its roofline, kept within it"
    )
    short = " Short sequences gain least." if queries < SHORT_SEQUENCE else ""
    return (
        f"The range is what {least:.0f} to {most:.0f} times as fast would save, not measured; "
        f"{middle}.{short}"
    )


def _capture(row: Mapping[str, Any]) -> str:
    if row["scope_kind"] in ("module", "function"):
        return (
            "Time the fused operator alone with these shapes and this mask: the trace does not "
            "say which backends accept them."
        )
    return "Record with `with_stack=True` to see which module computes its attention this way."
