"""Checks of memory-bound categories against the bandwidth that this trace's simple operators
reach."""

from collections.abc import Iterator

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.advice import choose, values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.baseline import Baseline
from jarvis.analyses.inefficiency import evidence_of
from jarvis.analyses.operations import (
    HYPOTHESIS,
    KERNEL_FLOOR_US,
    MIN_COMPUTE_PCT,
    SHORT_CALL_US,
    OperationGroup,
    groups,
)
from jarvis.findings import Finding, Priority, texts_of
from jarvis.schemas import NUMBER, Column
from jarvis.schemas.columns import text
from jarvis.schemas.names import C
from jarvis.text.format import quoted
from jarvis.text.messages import MessageTable, action, resolve

HIGH_BASELINE_PCT = 70.0
LOW_BASELINE_PCT = 50.0
SLOW_KERNEL_PCT = 20.0
"""From HIGH_BASELINE_PCT on, the hardware delivers its bandwidth; below LOW_BASELINE_PCT, other
operators cannot be expected to; below SLOW_KERNEL_PCT, a kernel is slow."""

SLOW_SHARE = SLOW_KERNEL_PCT / HIGH_BASELINE_PCT
"""The same ratio of kernel to baseline, for baselines that are not high."""

CONTIGUOUS_PCT = 50.0
"""Below this share of time in contiguous operands, non-contiguous ones explain a low baseline."""

LADDER = ((70.0, "excellent"), (50.0, "good"), (30.0, "fuse"))
"""Rating of a simple elementwise kernel by efficiency: ``excellent`` above the first threshold;
above the last a candidate for fusion; at or below it as slow as an anomaly."""

SLOWEST, LAUNCHING, DOUBTFUL = "slow", "launch bound", "above the peak"
SIMPLE_PCT = (70.0, 80.0)
"""Efficiency expected of a simple operator on contiguous memory."""

SLOW_KERNEL = MessageTable(
    "slow_kernel",
    {
        "title.slow": "Slow kernel: {name}",
        "title.below": "Far below the bandwidth baseline: {name}",
        "issue": "{calls} of {name} over {signatures} {calls:either takes|take} {time_ms} "
        "({compute_pct} of compute) and {calls:either reaches|reach} {efficiency_pct} of the "
        "bandwidth ({achieved_tb_per_s:number??} TB/s), where simple operators on large tensors of "
        "this trace reach {baseline_pct} ({baseline_tb_per_s:number} TB/s), {verdict}.",
        "verdict.slow": "so the kernel is slow, not the hardware",
        "verdict.below": "{times:number?many} times as much",
        "caveat.below": f"Simple operators stay below {HIGH_BASELINE_PCT:.0f}% themselves, so the "
        "middle estimate assumes only the bandwidth that they reach.",
        "verify": "Record the trace again: the {calls} of {name} must drop from {time_ms} toward "
        "{aim_ms}, {limit}.",
        "limit.baseline": "their time at {baseline_tb_per_s:number} TB/s",
        "limit.shortest": "the time of as many minimal kernels",
        "capture": "Profile {kernel}{on_package} with the platform's hardware-counter "
        "profiler: more bytes than the modeled {moved_bytes} per call mean that the kernel "
        "rereads its input; about as many mean that it stalls.",
    },
)

LOW_BASELINE = MessageTable(
    "low_baseline",
    {
        "title": "Low bandwidth baseline: {reached_pct}",
        "issue": "Even {names:names} on large tensors reach only {reached_pct} of the memory "
        "bandwidth ({baseline_tb_per_s:number} TB/s over {calls}, {best_pct} at best), where "
        f"{SIMPLE_PCT[0]:.0f}-{SIMPLE_PCT[1]:.0f}% is expected.",
        "caveat": "The saving is not quantified here: the findings on the operators count it.",
        "verify": "Record the trace again and check the baseline on the page of this category: it "
        "must rise above {reached_pct}.",
        "capture": "Time a plain copy of 1 GB on this GPU alone: if it stays below "
        f"{HIGH_BASELINE_PCT:.0f}% of the bandwidth, check clocks, power limit and partitioning "
        "of the device.",
        "hypothesis.short": "The calls are short ({mean_us:number} µs on average): starting and "
        f"ending a kernel takes about {KERNEL_FLOOR_US:.0f} µs of each, regardless of bandwidth.",
        "algorithmic.short": "Give each call more data than {moved_bytes}, with a larger batch or "
        "one multi-tensor call, before comparing other operators with this baseline.",
        "kernel.short": "Time {name} with {arguments} and with a batch four times as large: if "
        "the bandwidth rises, {kernel} is fine and only has too little work.",
        "hypothesis.scattered": "{scattered_pct} of their time is in operands that are broadcast "
        "or differ in memory order.",
        "algorithmic.scattered": "Use one memory order throughout the chain{place}, so that "
        "{arguments} is accessed sequentially.",
        "kernel.scattered": "Time {name} with {arguments} as recorded and contiguous: the "
        "difference is what a better {kernel} can save.",
        "hypothesis.device": [
            "The calls are long and contiguous, so the GPU itself delivers less bandwidth: a lower "
            "clock, a power limit or a partitioned device.",
            action("Or other streams take the bandwidth.", "has_several_streams"),
        ],
        "algorithmic.device": action(
            "Record a window in which {name}{place} runs alone, to see whether other streams take "
            "the bandwidth.",
            "has_several_streams",
        ),
        "kernel.device": "Time {name} with {arguments} alone: if it stays below "
        f"{HIGH_BASELINE_PCT:.0f}% there too, check the device, not the kernels.",
    },
)

DETAILS = (
    text("rating", "Rating", "rating of a memory-bound operator by efficiency"),
    Column(
        "floor_ratio",
        "Kernel time / 2 µs",
        NUMBER,
        format=",.1f",
        meaning=f"mean GPU time of a launch divided by the {KERNEL_FLOOR_US:.0f} µs of the "
        "shortest kernels",
    ),
)
"""Columns that ``rated`` adds."""


def rated(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``rating`` and ``floor_ratio``; small calls are compared with the minimal kernel time."""
    efficiency = pl.when(impact.has_efficiency()).then(pl.col(C.pct_roofline))
    rungs = [pl.when(efficiency > above).then(pl.lit(word)) for above, word in LADDER]
    launches = pl.col(C.kernel_count).cast(pl.Float64)
    return rows.with_columns(
        rating=pl.coalesce(
            pl.when(C.is_launch_bound).then(pl.lit(LAUNCHING)),
            pl.when(efficiency > impact.FULL_PCT).then(pl.lit(DOUBTFUL)),
            *rungs,
            pl.when(efficiency.is_not_null()).then(pl.lit(SLOWEST)),
        ),
        floor_ratio=pl.when(launches > 0).then(
            pl.col(C.kernel_time_us) / launches / KERNEL_FLOOR_US
        ),
    )


def slow_kernel(data: CategoryData) -> Iterator[Finding]:
    """Operators far below the bandwidth that simple operators reach in the same trace.

    Symptom: an operator leaves most of the bandwidth unused that additions, multiplications and
    copies of large tensors do reach, so its kernel is slow and not the hardware.
    Rule: memory-bound rows of one operator and pattern below {SLOW_KERNEL_PCT}% of the roofline and
    below {SLOW_SHARE:.0%} of the bandwidth baseline, not launch bound, that pass the time test of
    ``low_efficiency``, which then skips them. The finding rules out the hardware as the limit only
    if the baseline is at least {HIGH_BASELINE_PCT}%. The saving is the time above what the baseline
    bandwidth would take, or above that of as many minimal kernels.
    Threshold: {SLOW_KERNEL_PCT}% of the roofline and {SLOW_SHARE:.0%} of the baseline; baseline
    {HIGH_BASELINE_PCT}%; {impact.BOTTLENECK_TIME_MS} ms or {impact.BOTTLENECK_CATEGORY_PCT}% of
    category time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    baseline = data.baseline
    if baseline is None or baseline.efficiency_pct is None:
        return
    limit = min(SLOW_KERNEL_PCT, SLOW_SHARE * baseline.efficiency_pct)
    is_low = pl.col(C.pct_roofline) < impact.BOTTLENECK_EFFICIENCY_PCT
    rated = impact.has_efficiency() & (pl.col(C.bound) == "memory")
    is_slow_row = rated & is_low & (pl.col(C.kernel_time_us) > 0)
    for group in groups(data.operations, is_slow_row, MIN_COMPUTE_PCT):
        efficiency = group.efficiency_pct
        is_slow = efficiency is not None and efficiency < limit and not group.is_launch_bound
        is_relevant = impact.is_time_relevant(group.time_ms, group.category_pct)
        if is_slow and is_relevant:
            yield _slow_kernel(data, group, baseline)


def low_baseline(data: CategoryData) -> Iterator[Finding]:
    """Simple operators that do not reach half of the bandwidth themselves.

    Symptom: additions, multiplications and copies of large tensors, which the hardware should run
    at {SIMPLE_PCT[0]} to {SIMPLE_PCT[1]}% of its bandwidth, stay far below.
    Rule: bandwidth baseline below {LOW_BASELINE_PCT}%. The likely cause is derived from the rows:
    short calls, non-contiguous operands, or neither.
    Threshold: {LOW_BASELINE_PCT}% of the peak; the rows take at least {MIN_COMPUTE_PCT}% of
    compute.
    """
    baseline = data.baseline
    if baseline is None or baseline.efficiency_pct is None:
        return
    rows = data.operations.filter(pl.col(C.uid).is_in(baseline.uids))
    group = OperationGroup(rows.sort(C.kernel_time_us, C.uid, descending=[True, False]))
    if baseline.efficiency_pct < LOW_BASELINE_PCT and group.compute_pct >= MIN_COMPUTE_PCT:
        yield _low_baseline(data, group, baseline, baseline.efficiency_pct)


def time_ms_by(rows: pl.DataFrame, column: str) -> dict[str, JsonValue]:
    """Return GPU time in ms by the values of a column."""
    timed = rows[[column, C.kernel_time_us]].drop_nulls(column)
    times = timed.group_by(column).agg(pl.col(C.kernel_time_us).sum() / 1000)
    return dict(times.sort(column).iter_rows())


def baseline_metrics(baseline: Baseline | None) -> dict[str, JsonValue]:
    """Return the baseline as metrics of a category; None without a baseline."""
    return {
        "baseline_bandwidth_tbs": baseline.tb_per_s if baseline else None,
        "baseline_efficiency_percent": baseline.efficiency_pct if baseline else None,
        "baseline_row_count": len(baseline.uids) if baseline else 0,
    }


def _slow_kernel(data: CategoryData, group: OperationGroup, baseline: Baseline) -> Finding:
    efficiency, reference_pct = group.efficiency_pct or 0.0, baseline.efficiency_pct or 0.0
    shortest_ms = KERNEL_FLOOR_US * max(group.launches, group.calls) / 1000
    shortest_pct = efficiency * group.time_ms / shortest_ms
    target_pct = max(efficiency, min(reference_pct, shortest_pct, impact.FULL_PCT))
    gain = impact.modelled_impact(group.time_ms, efficiency, target_pct, **data.bases)
    aim_ms = group.time_ms - gain.saved_ms.mid
    is_high = reference_pct >= HIGH_BASELINE_PCT
    kind = "slow" if is_high and not impact.is_little(gain) else "below"
    limit = "limit.baseline" if shortest_pct > reference_pct else "limit.shortest"
    values = values_of(group) | {
        "signatures": group.signatures,
        "time_ms": group.time_ms,
        "compute_pct": group.compute_pct,
        "efficiency_pct": efficiency,
        "achieved_tb_per_s": group.rate[0] if group.rate else None,
        "baseline_pct": reference_pct,
        "baseline_tb_per_s": baseline.tb_per_s,
        "times": reference_pct / efficiency if efficiency else None,
        "aim_ms": aim_ms,
    }
    values["verdict"] = SLOW_KERNEL.pick(f"verdict.{kind}", values)
    values["limit"] = SLOW_KERNEL.pick(limit, values)
    chosen = choose(data, group.pattern, "memory")
    assert chosen is not None, "categories with this check have advice for memory"
    caveats = [chosen.message("caveat", values), None if is_high else SLOW_KERNEL("caveat.below")]
    local = impact.local_priority(compute_pct=group.compute_pct, efficiency_pct=efficiency)
    final = impact.final_priority(
        is_top_operation=group.is_top,
        compute_pct=group.compute_pct,
        category_pct=group.category_pct,
        efficiency_pct=efficiency,
        saved_compute_pct=gain.compute_pct.mid,
        saved_ms=gain.saved_ms.mid,
    )
    return Finding(
        check="slow_kernel",
        category=data.key,
        title=SLOW_KERNEL.pick(f"title.{kind}", values),
        operations=group.operations,
        evidence=evidence_of(group)
        | {
            "baseline_tb_per_s": baseline.tb_per_s,
            "baseline_pct": reference_pct,
            "aim_ms": aim_ms,
        },
        issue=SLOW_KERNEL.pick("issue", values),
        algorithmic=chosen.message("algorithmic", values),
        kernel=chosen.message("kernel", values),
        priority_local=local,
        priority=final,
        impact=gain,
        caveat=[caveat for caveat in caveats if caveat is not None],
        hypothesis=resolve(group.heaviest[HYPOTHESIS], values),
        verify=SLOW_KERNEL.pick("verify", values),
        capture=SLOW_KERNEL.pick("capture", values),
    )


def _low_baseline(
    data: CategoryData, group: OperationGroup, baseline: Baseline, reached_pct: float
) -> Finding:
    best = baseline.best_efficiency_pct or reached_pct
    names = group.rows[C.name].unique(maintain_order=True).to_list()
    mean_us = baseline.mean_call_us
    why = _why_low(baseline)
    values = values_of(group) | {
        "calls": baseline.calls,
        "names": names,
        "reached_pct": reached_pct,
        "best_pct": best,
        "baseline_tb_per_s": baseline.tb_per_s,
        "mean_us": mean_us,
        "scattered_pct": impact.FULL_PCT - baseline.contiguous_pct,
    }
    priority = Priority.MEDIUM if group.compute_pct > impact.MEDIUM_COMPUTE_PCT else Priority.LOW
    return Finding(
        check="low_baseline",
        category=data.key,
        **texts_of(LOW_BASELINE, values),
        **texts_of(LOW_BASELINE, values, suffix=why),
        operations=group.operations,
        evidence={
            "gpu_time_ms": group.time_ms,
            "compute_pct": group.compute_pct,
            "baseline_tb_per_s": baseline.tb_per_s,
            "baseline_pct": reached_pct,
            "best_row_pct": best,
            "calls": baseline.calls,
            "mean_gpu_time_us": mean_us,
            "contiguous_pct": baseline.contiguous_pct,
            "operators": ", ".join(map(quoted, names)),
        },
        priority_local=priority,
        priority=priority,
    )


def _why_low(baseline: Baseline) -> str:
    """Return the likely cause of a low baseline: ``short`` calls, ``scattered`` operands, or the
    ``device``."""
    if baseline.mean_call_us < SHORT_CALL_US:
        return "short"
    return "scattered" if baseline.contiguous_pct < CONTIGUOUS_PCT else "device"
