"""CPU and idle: time in which the GPU has nothing to do, and kernels too short to keep it busy."""

from collections.abc import Iterator

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import Analysis, CategoryData, Target
from jarvis.analyses.severity import Ladder, grade, priority_of, worst
from jarvis.analyses.unmodelled import GRAPH_LAUNCH
from jarvis.analyses.window import timeline_window
from jarvis.analyses.wording import counted, ms, number, pct
from jarvis.findings import Finding, Priority, Severity
from jarvis.perf_report import Totals

IDLE_PCT: Ladder = (
    (70.0, Severity.CRITICAL),
    (50.0, Severity.HIGH),
    (30.0, Severity.MEDIUM),
    (20.0, Severity.LOW),
)
IDLE_FINDING_PCT = 15.0
"""From this share of GPU wall time on, idle time is worth a finding."""

TARGET_IDLE_PCT = 20.0
"""What a well fed GPU idles at most; the speedup is projected to it."""

SHORT_KERNEL_US = 10.0
SHORT_SHARE_PCT: Ladder = ((50.0, Severity.HIGH), (30.0, Severity.MEDIUM))
KERNEL_COUNT: Ladder = ((5000, Severity.HIGH), (1000, Severity.MEDIUM))
MEAN_KERNEL_US: Ladder = ((20.0, Severity.MEDIUM), (0.0, Severity.HIGH))
MEAN_KERNEL_LIMIT_US = 50.0
"""Kernels shorter on average are MEDIUM, shorter than 20 µs HIGH."""

WINDOW_CAVEAT = (
    "Idle time is counted between the first and the last GPU event of the trace, so it depends on "
    "what was recorded; open the trace in a timeline viewer such as Perfetto to see each gap."
)
IDLE_POOL = "idle"


def gpu_idle(data: CategoryData) -> Iterator[Finding]:
    """A GPU that waits for work.

    Symptom: no kernel, copy or communication runs for a good part of the recorded window.
    Rule: idle time as a share of GPU wall time, from the GPU timeline; the saving is idle time
    beyond TARGET_IDLE_PCT.
    Threshold: a finding from 15% on; above 70 / 50 / 30 / 20%: CRITICAL / HIGH / MEDIUM / LOW.
    """
    totals = data.totals
    idle_pct = totals.idle_pct or 0.0
    if idle_pct < IDLE_FINDING_PCT:
        return
    severity = grade(idle_pct, IDLE_PCT)
    idle_ms = totals.idle_time_ms
    saved_ms = to_target_ms(totals, TARGET_IDLE_PCT)
    yield Finding(
        check="gpu_idle",
        category=data.key,
        title="The GPU idles",
        evidence={
            "Idle (ms)": idle_ms,
            "Idle (% of GPU wall time)": idle_pct,
            "Compute (% of GPU wall time)": totals.compute_pct or 0.0,
            "Exposed communication (% of GPU wall time)": totals.exposed_comm_pct or 0.0,
            "Exposed copies (% of GPU wall time)": totals.exposed_memcpy_pct or 0.0,
            "Possible speedup": _speedup(idle_pct),
        },
        issue=f"The GPU idles for {ms(idle_ms)}, {pct(idle_pct)} of its wall time: no kernel, copy "
        "or communication runs.",
        algorithmic="Compile the model or enlarge the batch, so that each launch carries more "
        "work, and take synchronizing calls such as `.item()` out of the step.",
        kernel=_launch_advice(data),
        priority_local=priority_of(severity),
        priority=priority_of(severity),
        severity=severity,
        impact=impact.bounded_impact(idle_ms, idle_ms, mid_ms=saved_ms, **data.bases),
        hypothesis="The host does not feed the GPU fast enough: launch overhead, synchronization "
        "or host work between launches.",
        caveat=WINDOW_CAVEAT,
        verify=f"Record several steps after warm-up; idle time below {TARGET_IDLE_PCT:.0f}% is the "
        "aim.",
        time_pool=IDLE_POOL,
    )


def short_kernels(data: CategoryData) -> Iterator[Finding]:
    """Kernels too short to hide the launch of the next one.

    Symptom: most kernels end before the host can launch the next.
    Rule: the share of kernels shorter than SHORT_KERNEL_US, counted from the GPU events, where the
    GPU idles from IDLE_FINDING_PCT on.
    Threshold: more than 50 / 30% of the kernels: HIGH / MEDIUM.
    """
    kernels = _kernels(data)
    if kernels.is_empty() or (data.totals.idle_pct or 0.0) < IDLE_FINDING_PCT:
        return
    count, short = kernels.height, _short(kernels).height
    share = impact.share_pct(short, count)
    severity = grade(share, SHORT_SHARE_PCT)
    if severity is Severity.ACCEPTABLE:
        return
    mean_us = _mean_us(kernels)
    priority = priority_of(severity).at_most(Priority.MEDIUM)
    yield Finding(
        check="short_kernels",
        category=data.key,
        title="Most kernels are shorter than a launch"
        if severity is Severity.HIGH
        else "Many short kernels",
        evidence={
            "Kernels": count,
            f"Kernels below {SHORT_KERNEL_US:.0f} µs": short,
            "Share of short kernels (%)": share,
            "Mean kernel time (µs)": mean_us,
        },
        issue=f"{short:,} of {counted(count, 'kernel')} ({pct(share)}) are shorter than "
        f"{SHORT_KERNEL_US:.0f} µs, {number(mean_us)} µs on average over all.",
        algorithmic="Fuse small operators with a compiler, use multi-tensor optimizers, and batch "
        "small tensors together.",
        kernel=_launch_advice(data),
        priority_local=priority,
        priority=priority,
        severity=severity,
        caveat="The saving is part of the idle time and not counted twice.",
        verify="Record the trace again: fewer kernels, a higher mean time, less idle time.",
        time_pool=IDLE_POOL,
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Severity, utilization, true kernel statistics, patterns and the possible speedup."""
    totals, kernels = data.totals, _kernels(data)
    idle_pct = totals.idle_pct or 0.0
    by_kind = kernels.group_by("kind").agg(pl.len()).sort("kind")
    return {
        "severity": grade(idle_pct, IDLE_PCT),
        "gpu_utilization": {
            "total_time_ms": totals.total_time_ms,
            "idle_time_ms": totals.idle_time_ms,
            "idle_time_percent": totals.idle_pct,
            "computation_percent": totals.compute_pct,
            "communication_percent": totals.exposed_comm_pct,
            "memcpy_percent": totals.exposed_memcpy_pct,
        },
        "kernel_analysis": {
            "total_kernel_count": kernels.height,
            "short_kernel_count": _short(kernels).height,
            "short_kernel_percent": impact.share_pct(_short(kernels).height, kernels.height),
            "short_kernel_limit_us": SHORT_KERNEL_US,
            "avg_kernel_time_us": _mean_us(kernels) if kernels.height else None,
            "kernel_count_by_kind": dict(by_kind.iter_rows()),
        },
        "patterns_detected": _patterns(data, kernels),
        "potential_speedup": _speedup(idle_pct),
        "target_idle_percent": TARGET_IDLE_PCT,
    }


def to_target_ms(totals: Totals, idle_pct: float) -> float:
    """Idle time that goes when the GPU idles for ``idle_pct`` of what is left."""
    if idle_pct >= 100:
        return 0.0
    return max(0.0, totals.total_time_ms - totals.busy_time_ms / (1 - idle_pct / 100))


def _kernels(data: CategoryData) -> pl.DataFrame:
    """The kernels (no copies, no fills) of the timeline's window; empty without single events."""
    if "gpu_work" not in data.tables:
        return pl.DataFrame(
            schema={"kind": pl.String, "dur_ns": pl.Int64, "launcher_name": pl.String}
        )
    return timeline_window(data.tables["gpu_work"]).filter(pl.col("cat") == "kernel")


def _launch_advice(data: CategoryData) -> str:
    kernels = _kernels(data)
    replayed = kernels.filter(pl.col("launcher_name").str.contains(GRAPH_LAUNCH)).height
    if replayed > kernels.height / 2:
        return (
            f"{pct(impact.share_pct(replayed, kernels.height))} of the kernels are replayed from "
            "GPU graphs already: look at the host work between the replays, and capture more of "
            "the step in one graph."
        )
    return (
        "Replay steady parts of the step from a GPU graph, which launches them at once, and "
        "prepare input data in background workers."
    )


def _short(kernels: pl.DataFrame) -> pl.DataFrame:
    return kernels.filter(pl.col("dur_ns") < SHORT_KERNEL_US * 1000)


def _mean_us(kernels: pl.DataFrame) -> float:
    return float(kernels["dur_ns"].sum()) / 1000 / kernels.height


def _speedup(idle_pct: float) -> float:
    """How much faster the window would be if the GPU idled at the target; 1 below it."""
    busy_pct = 100 - idle_pct
    return max(1.0, (100 - TARGET_IDLE_PCT) / busy_pct) if busy_pct > 0 else 1.0


def _patterns(data: CategoryData, kernels: pl.DataFrame) -> list[JsonValue]:
    idle_pct = data.totals.idle_pct or 0.0
    found = [("idle", grade(idle_pct, IDLE_PCT), f"{pct(idle_pct)} of GPU wall time is idle")]
    if kernels.height:
        short_pct = impact.share_pct(_short(kernels).height, kernels.height)
        mean_us = _mean_us(kernels)
        by_mean = Severity.ACCEPTABLE
        if mean_us < MEAN_KERNEL_LIMIT_US:
            by_mean = grade(mean_us, MEAN_KERNEL_US)
        found += [
            (
                "short_kernels",
                grade(short_pct, SHORT_SHARE_PCT),
                f"{pct(short_pct)} of the kernels are shorter than {SHORT_KERNEL_US:.0f} µs",
            ),
            ("kernel_count", grade(kernels.height, KERNEL_COUNT), f"{kernels.height:,} kernels"),
            ("mean_kernel_time", by_mean, f"{number(mean_us)} µs per kernel on average"),
        ]
    return [
        {"name": name, "severity": severity, "evidence": evidence}
        for name, severity, evidence in found
        if worst(severity, Severity.ACCEPTABLE) is not Severity.ACCEPTABLE
    ]


ANALYSIS = Analysis(
    title="CPU / idle",
    icon=":material/hourglass_empty:",
    checks=(gpu_idle, short_kernels),
    needs=("gpu_work",),
    measure=measure,
    target=Target(
        label="Target idle",
        meaning="Your assumption: the share of GPU wall time in which the GPU may still idle.",
        default_pct=TARGET_IDLE_PCT,
        recovered_ms=to_target_ms,
        check=gpu_idle.__name__,
    ),
)
