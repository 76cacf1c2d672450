"""Attention that runs as single operators, found across categories through the call tree."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import reproduced
from jarvis.analyses.attention_shapes import SHORT_SEQUENCE
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import KERNEL_FLOOR_US, MIN_COMPUTE_PCT, arguments, short_dtype
from jarvis.findings import Finding, texts_of
from jarvis.hardware import HardwareSpec
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable, action

TABLES = ("attention_groups", "attention_steps")
"""Report tables that this check reads."""

SPEEDUPS = (3.0, 10.0)
"""Usual speedup of fused attention over single operators, low and high."""

TUNING_PCT = (10, 30)
"""Usual gain from tuning the single kernels, in percent of the group's time."""

STEPS_NAMED = 12

MESSAGES = MessageTable(
    "unfused_attention",
    {
        "title": "Unfused attention{place}, {calls}",
        "title.shape": "Unfused attention{place} ({shape}, {operators:count operator}), {calls}",
        "place": " in {name}",
        "issue": "{calls} of attention{place} ({shape}) {calls:either runs|run} as "
        "{operators:count operator} each, {steps}: the whole group takes {time_ms} ({compute_pct} "
        "of compute), part of it for storing and reading all scores.",
        "algorithmic": "Call `torch.nn.functional.scaled_dot_product_attention` or a Flash "
        "Attention kernel instead of these operators: this usually makes the group {least:.0f} to "
        "{most:.0f} times faster.",
        "kernel": "Tune the longest kernel of the group, {step:name} of {shapes?shapes not "
        "recorded} ({step_ms} in {kernel:name}){reproduced}: this usually saves "
        "{least_pct:.0f} to {most_pct:.0f}% of the group's time, {least_ms} to {most_ms}.",
        "hypothesis": "The model's code computes attention itself, or an option (a returned "
        "attention matrix, a mask or bias that no fused kernel takes) rules the fused one out.",
        "caveat": "The range is the saving at {least:.0f} to {most:.0f} times the speed, not "
        "measured; {middle}.",
        "caveat.no_model": "the middle of the range is not modeled",
        "caveat.model": "the middle is a fused kernel at {target_pct:g}% of its roofline, limited "
        "to the range",
        "caveat.short": "Short sequences gain least.",
        "verify": "Record the trace again: one fused attention kernel must replace the "
        "{operators} operators, and the softmax must be gone.",
        "capture.place_known": "Time the fused operator alone with these shapes and this mask: "
        "the trace does not show which backends accept them.",
        "capture.place_unknown": action(
            "Record with `with_stack=True` to see which module computes its attention this way.",
            "not has_stacks",
        ),
        "shape": "{sequences}, {queries:count query}, {keys:count key}, head dimension {dims}, "
        "{dtype}",
        "shape.batch": "batch {batch:,} of {heads:count head}",
        "shape.batch_times_heads": "batch times heads {batch:,}",
        "shape.dim": "{dim:,}",
        "shape.dims": "{qk_dim:,}/{v_dim:,}",
        "step": "{name} {time_ms}",
        "steps": f"{{steps:list {STEPS_NAMED}}}",
    },
)


def unfused_attention(data: CategoryData) -> Iterator[Finding]:
    """Attention as matrix product, softmax and matrix product, with the scores in memory.

    Symptom: several kernels write and read the scores of all queries and keys, which one fused
    attention kernel never stores.
    Rule: a softmax, or its exponentials, sum and division, between two neighboring matrix products
    on one thread; it works on the shape that the first one produces, along the dimension over which
    the second one sums. Scale, mask, dropout and copies between them belong to the group.
    Threshold: at least {MIN_COMPUTE_PCT}% of compute time; at most
    {jarvis.perf_report.fusion.attention_groups.MAX_STEPS_BETWEEN} steps between the products.
    """
    if any(name not in data.tables for name in TABLES):
        return
    steps = data.tables["attention_steps"].partition_by(C.group, as_dict=True)
    groups = data.tables["attention_groups"]
    is_only = groups.select(pl.len().over(C.scope_name) == 1).to_series()
    for row, has_own_name in zip(groups.iter_rows(named=True), is_only, strict=True):
        time_ms = row[C.kernel_time_us] / 1000
        compute_pct = impact.share_pct(time_ms, data.totals.compute_time_ms)
        if compute_pct >= MIN_COMPUTE_PCT:
            yield _finding(data, row, steps[(row[C.group],)], compute_pct, has_own_name)


def _finding(
    data: CategoryData,
    row: Mapping[str, Any],
    steps: pl.DataFrame,
    compute_pct: float,
    has_own_name: bool,
) -> Finding:
    time_ms = row[C.kernel_time_us] / 1000
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
    heaviest = steps.sort(C.kernel_time_us, C.position, descending=[True, False]).row(0, named=True)
    scope = row[C.scope_name]
    least, most = TUNING_PCT
    values = {
        "place": MESSAGES("place", name=scope) if scope else None,
        "calls": row[C.instance_count],
        "shape": _shape(row),
        "operators": len(row[C.step_names]),
        "steps": _steps(steps),
        "time_ms": time_ms,
        "compute_pct": compute_pct,
        "least": SPEEDUPS[0],
        "most": SPEEDUPS[1],
        "step": heaviest[C.name],
        "shapes": arguments(heaviest[C.input_dims], heaviest[C.input_types]),
        "step_ms": heaviest[C.kernel_time_us] / 1000,
        "kernel": heaviest[C.kernel],
        "reproduced": reproduced(heaviest[C.operation_uid]),
        "least_pct": least,
        "most_pct": most,
        "least_ms": time_ms * least / impact.FULL_PCT,
        "most_ms": time_ms * most / impact.FULL_PCT,
        "middle": MESSAGES("caveat.no_model")
        if fused_ms is None
        else MESSAGES("caveat.model", target_pct=data.target_pct),
    }
    is_place_known = row[C.scope_kind] in ("module", "function")
    texts = texts_of(MESSAGES, values)
    texts |= texts_of(MESSAGES, suffix="place_known" if is_place_known else "place_unknown")
    if not has_own_name:
        texts |= texts_of(MESSAGES, values, suffix="shape")
    if row[C.n_q] < SHORT_SEQUENCE:
        texts["caveat"] += (MESSAGES("caveat.short"),)
    return Finding(
        check="unfused_attention",
        category=data.key,
        **texts,
        evidence={
            "gpu_time_ms": time_ms,
            "compute_pct": compute_pct,
            "calls": row[C.instance_count],
            "kernels": row[C.kernel_count],
            "shape": values["shape"],
            "operators_of_calls": values["steps"],
            "attention_fused_roofline_ms": fused_ms,
        },
        priority_local=priority,
        priority=priority,
        impact=gain,
        shared_uids=tuple(steps[C.operation_uid].unique().sort()),
    )


def _fused_ms(row: Mapping[str, Any], hardware: HardwareSpec | None) -> float | None:
    """Return the roofline time of fused kernels for all calls in ms, at least the minimal kernel
    time each; None if a peak or the work is not known."""
    peak = hardware.max_achievable_tflops.get(row[C.compute] or "") if hardware else None
    if hardware is None or peak is None or not row[C.fused_flops] or not row[C.fused_bytes]:
        return None
    arithmetic_ms = row[C.fused_flops] / peak / 1e9
    memory_ms = row[C.fused_bytes] / hardware.mem_bw_gbps / 1e6
    return float(row[C.instance_count] * max(arithmetic_ms, memory_ms, KERNEL_FLOOR_US / 1000))


def _shape(row: Mapping[str, Any]) -> Message:
    sequences = (
        MESSAGES("shape.batch", batch=row[C.batch], heads=row[C.heads])
        if row[C.heads]
        else MESSAGES("shape.batch_times_heads", batch=row[C.batch])
    )
    dims = (
        MESSAGES("shape.dim", dim=row[C.d_qk])
        if row[C.d_qk] == row[C.d_v]
        else MESSAGES("shape.dims", qk_dim=row[C.d_qk], v_dim=row[C.d_v])
    )
    return MESSAGES(
        "shape",
        sequences=sequences,
        queries=row[C.n_q],
        keys=row[C.n_kv],
        dims=dims,
        dtype=short_dtype(row[C.dtype]),
    )


def _steps(steps: pl.DataFrame) -> Message:
    times = steps.group_by(C.position, maintain_order=True).agg(
        pl.col(C.name).first(), pl.col(C.kernel_time_us).sum()
    )
    timed = [
        MESSAGES("step", name=name, time_ms=time_us / 1000)
        for _, name, time_us in times.iter_rows()
    ]
    return MESSAGES("steps", steps=timed)
