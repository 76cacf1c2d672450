"""Normalizations without a perf model: traffic estimated from their passes over memory."""

from collections.abc import Iterator
from math import prod

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup
from jarvis.core.dtypes import element_bytes
from jarvis.core.literals import parse_literal
from jarvis.findings import Finding
from jarvis.text.messages import MessageTable

TRAINING, INFERENCE, BACKWARD = "training", "inference", "backward"

PASSES = {TRAINING: 3, INFERENCE: 2, BACKWARD: 5}
"""Passes over memory, in tensors as large as the input. Training: read for the statistics, read
again, write. Inference: read, write. Backward: read gradient and input twice, write the input's
gradient once."""

MESSAGES = MessageTable(
    "estimated_bandwidth",
    {
        "title": "Low estimated bandwidth: {name}",
        "title_with_mode": "Low estimated bandwidth: {name} ({mode})",
        "issue": "{calls} of {name} take {time_ms} ({compute_pct} of compute); counted as {passes} "
        "passes over the input they reach about {reached_pct} of the memory bandwidth "
        "({tb_per_s:number} TB/s).",
        "algorithmic": "Fuse {name}{place} with the operator that follows it, so that {arguments} "
        "is written one time less.",
        "kernel": "Give a replay package of {arguments} to the kernel team; {kernel} takes "
        "{mean_time_ms} per call.",
        "caveat": "No perf model covers it: the traffic is an estimate, and the saving is an "
        "upper bound set by the bandwidth.",
        "verify": "Replay {arguments} alone and compare the time with {mean_time_ms} per call.",
        "capture": "Measure the bytes that {kernel} moves with the platform's hardware-counter "
        "profiler on the replay package, to replace the estimate.",
    },
)


def estimated_bytes(
    shape: tuple[int, ...], input_types: str | None, mode: str | None
) -> float | None:
    """Return the traffic of one call in bytes; None if the dtype of its first argument is not
    recorded.

    An unknown mode counts as training.
    """
    types = parse_literal(input_types)
    element = element_bytes(str(types[0])) if types else None
    return None if element is None else float(PASSES[mode or TRAINING] * prod(shape) * element)


def estimated_bandwidth(data: CategoryData) -> Iterator[Finding]:
    """Normalizations without a perf model whose estimated bandwidth is far below the peak.

    Symptom: a normalization that no perf model covers takes time.
    Rule: rows without a perf model whose estimated traffic (PASSES times the size of the input) is
    below the threshold, and that together pass the time test of ``low_efficiency``;
    ``no_perf_model`` then skips them. The saving is an upper bound.
    Threshold: {impact.BOTTLENECK_EFFICIENCY_PCT}% of the bandwidth; {impact.BOTTLENECK_TIME_MS} ms
    or {impact.BOTTLENECK_CATEGORY_PCT}% of category time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    if data.peak_tb_per_s is None:
        return
    rows = data.operations.filter(
        ~pl.col("has_perf_model") & pl.col("estimated_bytes").is_not_null()
    ).sort("kernel_time_us", "uid", descending=[True, False])
    for part in rows.partition_by("name", "mode", maintain_order=True):
        group = OperationGroup(part)
        moved = float((part["estimated_bytes"] * part["operation_count"]).sum())
        tb_per_s = moved / 1e9 / group.time_ms if group.time_ms > 0 else 0.0
        reached_pct = impact.share_pct(tb_per_s, data.peak_tb_per_s)
        is_slow = 0 < reached_pct < impact.BOTTLENECK_EFFICIENCY_PCT
        is_relevant = impact.is_time_relevant(group.time_ms, group.category_pct)
        if is_slow and is_relevant and group.compute_pct >= MIN_COMPUTE_PCT:
            yield _card(data, group, tb_per_s, reached_pct)


def _card(
    data: CategoryData, group: OperationGroup, tb_per_s: float, reached_pct: float
) -> Finding:
    mode = group.heaviest["mode"]
    gain = impact.bounded_impact(
        group.time_ms, group.time_ms * (1 - reached_pct / impact.FULL_PCT), **data.bases
    )
    passes = PASSES[mode or TRAINING]
    values = values_of(group) | {
        "time_ms": group.time_ms,
        "compute_pct": group.compute_pct,
        "passes": passes,
        "reached_pct": reached_pct,
        "tb_per_s": tb_per_s,
    }
    return Finding(
        check="estimated_bandwidth",
        category=data.key,
        title=MESSAGES.pick("title_with_mode" if mode else "title", values),
        operations=group.operations,
        evidence={
            "gpu_time_ms": group.time_ms,
            "compute_pct": group.compute_pct,
            "category_pct": group.category_pct,
            "estimated_passes": passes,
            "estimated_tb_per_s": tb_per_s,
            "estimated_bandwidth_pct": reached_pct,
            "calls": group.calls,
        },
        issue=MESSAGES.pick("issue", values),
        algorithmic=MESSAGES.pick("algorithmic", values),
        kernel=MESSAGES.pick("kernel", values),
        priority_local=impact.local_priority(
            compute_pct=group.compute_pct, efficiency_pct=reached_pct
        ),
        priority=impact.final_priority(
            is_top_operation=group.is_top,
            compute_pct=group.compute_pct,
            category_pct=group.category_pct,
            efficiency_pct=reached_pct,
            saved_compute_pct=gain.compute_pct.mid,
        ),
        impact=gain,
        caveat=MESSAGES("caveat"),
        verify=MESSAGES.pick("verify", values),
        capture=MESSAGES.pick("capture", values),
    )
