"""CPU and idle: GPU idle time and its causes, and kernels too short to hide launches."""

from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import Analysis, CategoryData, Target
from jarvis.analyses.severity import grade, priority_of, worst
from jarvis.analyses.system.cpu_idle import kernels
from jarvis.analyses.system.cpu_idle.causes import (
    IDLE_FINDING_PCT,
    IDLE_PCT,
    Cause,
    cause_evidence,
    causes,
    has_host_evidence,
    idle_causes,
    issue_parts,
    kernel_advice,
    launch_advice,
    longest_call,
    own_totals,
    reported_causes,
    sole_cause,
)
from jarvis.analyses.system.cpu_idle.step_edges import step_edges
from jarvis.analyses.system.cpu_idle.wording import MESSAGES
from jarvis.findings import IDLE_POOL, Finding, Priority, Severity
from jarvis.perf_report import Totals
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.text.messages import Message, to_text

TARGET_IDLE_PCT = 20.0
"""Idle share of a well-fed GPU, in percent; the speedup is projected to it."""

CAUSES_NAMED = 3


def gpu_idle(data: CategoryData) -> Iterator[Finding]:
    """A GPU that waits for work.

    Symptom: no kernel, copy or communication runs for a good part of the recorded window.
    Rule: idle time as a share of the GPU window, from the GPU timeline, both without the time in
    which the GPU finished work from before the recording; the saving is idle time beyond
    {TARGET_IDLE_PCT}%, at most the gaps in which the GPU was not busy with work that the timeline
    excludes or the trace lacks.
    Threshold: a finding from {IDLE_FINDING_PCT}% on; above {IDLE_PCT}%: CRITICAL / HIGH / MEDIUM /
    LOW, the priority by the share without those gaps.
    """
    totals = own_totals(data)
    idle_pct = totals.idle_pct or 0.0
    if idle_pct < IDLE_FINDING_PCT:
        return
    parts = [part for part in causes(data) if part.cause is not IdleCause.CARRIED_IN]
    sole = sole_cause(data)
    doubtful_ms = sum(cause.idle_ms for cause in parts if not cause.words.is_idle)
    idle_ms, true_ms = totals.idle_time_ms, max(0.0, totals.idle_time_ms - doubtful_ms)
    is_doubtful = doubtful_ms > true_ms
    saved_ms = min(true_ms, to_target_ms(totals, TARGET_IDLE_PCT))
    priority = priority_of(grade(impact.share_pct(true_ms, totals.total_time_ms), IDLE_PCT))
    yield Finding(
        check="gpu_idle",
        category=data.key,
        title=_title(sole, is_doubtful=is_doubtful),
        evidence={
            "idle_ms": idle_ms,
            "idle_pct": idle_pct,
            "compute_wall_pct": totals.compute_pct or 0.0,
            "exposed_communication_wall_pct": totals.exposed_comm_pct or 0.0,
            "exposed_copies_wall_pct": totals.exposed_memcpy_pct or 0.0,
            **({} if is_doubtful else {"possible_speedup": _speedup(idle_pct)}),
            **{cause.words.quantity: cause.idle_ms for cause in parts},
            **(cause_evidence(data, sole) if sole else {}),
        },
        issue=MESSAGES(
            "issue",
            idle_ms=idle_ms,
            idle_pct=idle_pct,
            own=MESSAGES("issue.own") if totals != data.totals else None,
            mostly=_mostly(parts, idle_ms),
            host_call=longest_call(data, sole) if sole else None,
            **issue_parts(data, sole),
        ),
        priority_local=priority,
        priority=priority,
        severity=grade(idle_pct, IDLE_PCT),
        impact=impact.bounded_impact(idle_ms, true_ms, mid_ms=saved_ms, **data.bases),
        caveat=MESSAGES("caveat.window"),
        time_pool=IDLE_POOL,
        **(_advice_for(data, sole) if sole else _general_advice(data, parts)),
    )


def short_kernels(data: CategoryData) -> Iterator[Finding]:
    """Kernels too short to hide the launch of the next one.

    Symptom: most kernels end before the host can launch the next.
    Rule: the share of kernels shorter than {kernels.SHORT_KERNEL_US} µs, counted from the GPU
    events, if the GPU idles at least {IDLE_FINDING_PCT}% of the time and no host calls are
    recorded; if they are, the gaps show whether launches delay the GPU.
    Threshold: more than {kernels.SHORT_SHARE_PCT}% of the kernels: HIGH / MEDIUM.
    """
    rows = kernels.kernels(data)
    if rows.is_empty() or (data.totals.idle_pct or 0.0) < IDLE_FINDING_PCT:
        return
    if has_host_evidence(data):
        return
    share = kernels.short_share_pct(rows)
    severity = grade(share, kernels.SHORT_SHARE_PCT)
    if severity is Severity.ACCEPTABLE:
        return
    priority = priority_of(severity).at_most(Priority.MEDIUM)
    yield Finding(
        check="short_kernels",
        category=data.key,
        title=MESSAGES(
            "title.mostly_short_kernels" if severity is Severity.HIGH else "title.short_kernels"
        ),
        evidence=kernels.evidence(rows),
        issue=MESSAGES(
            "issue.short_kernels",
            short=kernels.short_kernels(rows).height,
            kernels=rows.height,
            share_pct=share,
            limit_us=kernels.SHORT_KERNEL_US,
            mean_us=kernels.mean_us(rows),
        ),
        algorithmic=MESSAGES.texts("algorithmic.short_kernels"),
        kernel=launch_advice(data),
        priority_local=priority,
        priority=priority,
        severity=severity,
        caveat=MESSAGES("caveat.short_kernels"),
        verify=MESSAGES("verify.short_kernels"),
        time_pool=IDLE_POOL,
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return severity, utilization, idle time by cause, kernel statistics, patterns and the
    possible speedup."""
    totals, rows = data.totals, kernels.kernels(data)
    idle_pct = totals.idle_pct or 0.0
    parts = causes(data)
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
        "idle_by_cause_ms": {cause.cause.value: cause.idle_ms for cause in parts},
        "gap_count_by_cause": {cause.cause.value: cause.gaps.height for cause in parts},
        "longest_gap_ms": max((cause.longest_ms for cause in parts), default=None),
        "kernel_analysis": kernels.statistics(rows),
        "patterns_detected": _patterns(idle_pct, kernels.patterns(rows)),
        "potential_speedup": _speedup(idle_pct),
        "target_idle_percent": TARGET_IDLE_PCT,
    }


def to_target_ms(totals: Totals, idle_pct: float) -> float:
    """Return the idle time in ms to remove for an idle share of ``idle_pct`` of the remaining
    time."""
    if idle_pct >= 100:
        return 0.0
    return max(0.0, totals.total_time_ms - totals.busy_time_ms / (1 - idle_pct / 100))


def _title(sole: Cause | None, *, is_doubtful: bool) -> Message:
    if sole is not None:
        return MESSAGES("title.cause", cause=sole.words.label)
    return MESSAGES("title.doubtful" if is_doubtful else "title")


def _mostly(parts: list[Cause], idle_ms: float) -> Message | None:
    """Return the largest cause, as the continuation of a sentence; None if the causes are not
    known."""
    if not parts or parts[0].cause is IdleCause.UNKNOWN:
        return None
    main = parts[0]
    share_pct = impact.share_pct(main.idle_ms, idle_ms)
    return MESSAGES("issue.mostly", share_pct=share_pct, what=main.what())


def _advice_for(data: CategoryData, sole: Cause) -> dict[str, Any]:
    """Return the advice for idle time that has nearly a single cause."""
    return {
        "algorithmic": sole.words.texts("algorithmic"),
        "kernel": kernel_advice(data, sole),
        "hypothesis": sole.hypothesis(data),
        "verify": [
            sole.words.message("verify"),
            MESSAGES("verify.aim", target_pct=TARGET_IDLE_PCT),
        ],
        "capture": sole.words.texts("capture"),
    }


def _general_advice(data: CategoryData, parts: list[Cause]) -> dict[str, Any]:
    """Return the advice for several or unknown causes; large causes have their own findings."""
    verify = MESSAGES("verify.steps", target_pct=TARGET_IDLE_PCT)
    if parts and not has_host_evidence(data):
        fields = ("algorithmic", "kernel", "hypothesis", "capture")
        return {field: MESSAGES(f"{field}.without_host") for field in fields} | {"verify": verify}
    if reported := reported_causes(data):
        main = reported[0]
        return {
            "algorithmic": MESSAGES(
                "algorithmic.causes", cause=main.words.label, idle_ms=main.idle_ms
            ),
            "kernel": MESSAGES("kernel.causes"),
            "hypothesis": MESSAGES(
                "hypothesis.causes",
                causes=[
                    MESSAGES("cause", cause=cause.words.label, idle_ms=cause.idle_ms)
                    for cause in parts[:CAUSES_NAMED]
                ],
            ),
            "verify": verify,
        }
    return {
        "algorithmic": MESSAGES.texts("algorithmic.unknown"),
        "kernel": launch_advice(data),
        "hypothesis": MESSAGES("hypothesis.unknown"),
        "verify": verify,
    }


def _speedup(idle_pct: float) -> float:
    """Return how much faster the window would be if the GPU idled at the target; 1 below it."""
    busy_pct = 100 - idle_pct
    return max(1.0, (100 - TARGET_IDLE_PCT) / busy_pct) if busy_pct > 0 else 1.0


def _patterns(idle_pct: float, of_kernels: list[kernels.Pattern]) -> list[JsonValue]:
    idle = ("idle", grade(idle_pct, IDLE_PCT), MESSAGES("pattern.idle", idle_pct=idle_pct))
    return [
        {"name": name, "severity": severity, "evidence": to_text(evidence)}
        for name, severity, evidence in (idle, *of_kernels)
        if worst(severity, Severity.ACCEPTABLE) is not Severity.ACCEPTABLE
    ]


ANALYSIS = Analysis(
    title="CPU / idle",
    icon=":material/hourglass_empty:",
    checks=(gpu_idle, idle_causes, step_edges, short_kernels),
    needs=("gpu_work", "idle_gaps", "steps", "step_gaps", "timeline_states", "host_threads"),
    measure=measure,
    target=Target(
        label="Target idle",
        meaning="Your assumption: the share of the GPU window in which the GPU may still idle.",
        default_pct=TARGET_IDLE_PCT,
        recovered_ms=to_target_ms,
        check=gpu_idle.__name__,
    ),
)
