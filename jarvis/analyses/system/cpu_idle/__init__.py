"""CPU and idle: GPU idle time and its causes, and kernels too short to hide launches."""

from collections.abc import Iterator
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import Analysis, CategoryData, Target
from jarvis.analyses.severity import grade, priority_of, worst
from jarvis.analyses.system.cpu_idle import kernels
from jarvis.analyses.system.cpu_idle.causes import (
    CAUSE_PCT,
    IDLE_FINDING_PCT,
    IDLE_PCT,
    NEVER_IDLE,
    Cause,
    account_of,
    by_cause,
    carried_in_ms,
    causes,
    has_host_evidence,
    idle_causes,
    idle_impact,
    idle_pct,
    kernel_advice,
    launch_advice,
    longest_call,
    reported_causes,
    reported_edges,
    unreported,
    whole_of,
)
from jarvis.analyses.system.cpu_idle.wording import MESSAGES
from jarvis.findings import IDLE_POOL, Finding, Priority, Severity, texts_of
from jarvis.perf_report import Totals
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.perf_report.timeline.step_gaps import Place
from jarvis.schemas.names import C
from jarvis.text.messages import to_text

TARGET_IDLE_PCT = 20.0
"""Idle share of a well-fed GPU, in percent; the speedup is projected to it."""


def gpu_idle(data: CategoryData) -> Iterator[Finding]:
    """A GPU that waits for work, for no cause that has a finding of its own.

    Symptom: no kernel, copy or communication runs for a good part of the step.
    Rule: idle time of the steps without that of `idle_causes` and `step_edges`, as a share of the
    step time; of the GPU window if the input has no events. The saving is idle time beyond
    {TARGET_IDLE_PCT}% of it, at most the gaps in which the GPU was not busy with work
    that the timeline excludes or the trace lacks.
    Threshold: a finding from {IDLE_FINDING_PCT}% on; above {IDLE_PCT}%: CRITICAL / HIGH / MEDIUM /
    LOW.
    """
    totals, account, parts = data.totals, account_of(data), unreported(data)
    idle_ms = totals.idle_time_ms if account is None else sum(part.idle_ms for part in parts)
    whole_ms = totals.total_time_ms if account is None else account.total_ns / 1e6
    share = impact.share_pct(idle_ms, whole_ms)
    if share < IDLE_FINDING_PCT:
        return
    saved_ms = idle_ms - sum(part.idle_ms for part in parts if not part.words.is_idle)
    severity = grade(share, IDLE_PCT)
    priority = priority_of(grade(impact.share_pct(saved_ms, whole_ms), IDLE_PCT))
    is_part = bool(reported_causes(data) or reported_edges(data))
    yield Finding(
        check="gpu_idle",
        category=data.key,
        title=MESSAGES("title.other" if is_part else "title"),
        evidence={
            "idle_ms": idle_ms,
            "idle_pct" if account is None else "step_pct": share,
            **{part.words.quantity: part.idle_ms for part in parts},
        },
        issue=MESSAGES(
            "issue.other" if is_part else "issue",
            idle_ms=idle_ms,
            idle_pct=share,
            whole=whole_of(account),
        ),
        priority_local=priority,
        priority=priority,
        severity=severity,
        impact=impact.bounded_impact(
            idle_ms,
            saved_ms,
            mid_ms=min(saved_ms, to_target_ms(totals, TARGET_IDLE_PCT)),
            **data.bases,
        ),
        caveat=MESSAGES("caveat.window") if account is None else None,
        time_pool=IDLE_POOL,
        **_advice(data),
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
    values = {
        "short": kernels.short_count(rows),
        "kernels": rows.height,
        "share_pct": share,
        "limit_us": kernels.SHORT_KERNEL_US,
        "mean_us": kernels.mean_us(rows),
    }
    texts = texts_of(MESSAGES, values, suffix="short_kernels")
    if severity is Severity.HIGH:
        texts["title"] = MESSAGES("title.mostly_short_kernels")
    priority = priority_of(severity).at_most(Priority.MEDIUM)
    yield Finding(
        check="short_kernels",
        category=data.key,
        **texts,
        evidence=kernels.evidence(rows),
        kernel=launch_advice(data),
        priority_local=priority,
        priority=priority,
        severity=severity,
        time_pool=IDLE_POOL,
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return severity, utilization, idle time by cause, kernel statistics, patterns and the
    possible speedup."""
    totals, rows = data.totals, kernels.kernels(data)
    parts = causes(data)
    return {
        "severity": grade(idle_pct(data), IDLE_PCT),
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
        "patterns_detected": _patterns(data, kernels.patterns(rows)),
        "potential_speedup": _speedup(totals, carried_in_ms(parts)),
        "target_idle_percent": TARGET_IDLE_PCT,
    }


def to_target_ms(totals: Totals, idle_pct: float) -> float:
    """Return the idle time in ms to remove for an idle share of ``idle_pct`` of the remaining
    time: of the steps, or of the GPU window if the input has no events."""
    if idle_pct >= 100:
        return 0.0
    whole_ms, idle_ms = _whole_and_idle_ms(totals)
    return max(0.0, whole_ms - (whole_ms - idle_ms) / (1 - idle_pct / 100))


def _whole_and_idle_ms(totals: Totals) -> tuple[float, float]:
    if totals.step is not None and totals.step.step_ms is not None:
        return totals.step.step_ms, totals.step.idle_ms
    return totals.total_time_ms, totals.idle_time_ms


def _advice(data: CategoryData) -> dict[str, Any]:
    """Return the advice for idle time of several or unknown causes."""
    verify = MESSAGES("verify.steps", target_pct=TARGET_IDLE_PCT)
    if "idle_gaps" in data.tables and not has_host_evidence(data):
        fields = ("algorithmic", "hypothesis", "capture")
        texts = {field: MESSAGES(f"{field}.without_host") for field in fields}
        return {**texts, "kernel": (), "verify": verify}
    return {
        "algorithmic": MESSAGES.texts("algorithmic.unknown"),
        "kernel": launch_advice(data),
        "hypothesis": MESSAGES("hypothesis.unknown"),
        "verify": verify,
    }


def _speedup(totals: Totals, carried_ms: float) -> float:
    """Return how much faster the window, without carried-in work, would be if the GPU idled at the
    target; 1 below it."""
    busy_pct = impact.share_pct(totals.busy_time_ms, totals.total_time_ms - carried_ms)
    return max(1.0, (100 - TARGET_IDLE_PCT) / busy_pct) if busy_pct > 0 else 1.0


def _patterns(data: CategoryData, of_kernels: list[kernels.Pattern]) -> list[JsonValue]:
    share, whole = idle_pct(data), whole_of(account_of(data))
    idle = ("idle", grade(share, IDLE_PCT), MESSAGES("pattern.idle", idle_pct=share, whole=whole))
    return [
        {"name": name, "severity": severity, "evidence": to_text(evidence)}
        for name, severity, evidence in (idle, *of_kernels)
        if worst(severity, Severity.ACCEPTABLE) is not Severity.ACCEPTABLE
    ]


def step_edges(data: CategoryData) -> Iterator[Finding]:
    """A GPU that starts late in the step, or has finished long before it ends.

    Symptom: host work before the first or after the last GPU event of a step, in which the GPU has
    nothing to do; the window of the GPU timeline need not include it.
    Rule: idle time before the first and after the last GPU event of the profiler's steps, or of the
    recording if none are marked, as a share of the step time; the cause is that of most of it. A
    step that is timed by the GPU begins with the end of the GPU work before, so it has no such
    edges.
    Threshold: as for `idle_causes`. If the GPU may have been busy, the priority is LOW.
    """
    account = account_of(data)
    if account is not None:
        for place, gaps in reported_edges(data).items():
            yield _finding(data, account, place, gaps)


def _finding(data: CategoryData, account: StepAccount, place: Place, gaps: pl.DataFrame) -> Finding:
    idle_ns, count = int(gaps[C.dur_ns].sum()), account.step_count
    share, idle_ms = account.pct(idle_ns), account.mean_ms(idle_ns)
    step_ms = account.step_ms
    cause = _main_cause(gaps, account)
    words = cause.words
    severity = grade(share, CAUSE_PCT)
    priority = priority_of(severity)
    if not words.is_idle:
        priority = priority.at_most(Priority.LOW)
    whole = MESSAGES("step" if account.is_marked else "recording")
    return Finding(
        check="step_edges",
        category=data.key,
        title=MESSAGES(f"title.{place}", whole=whole, cause=words.label),
        evidence={
            "step_idle_ms": idle_ms,
            "step_ms": step_ms,
            "step_pct": share,
            "step_count": count,
            "host_calls": cause.host_calls(),
        },
        issue=MESSAGES(
            f"issue.{place}",
            share_pct=share,
            idle_ms=idle_ms,
            step_ms=step_ms,
            whole=whole,
            average=MESSAGES("average", steps=count) if count > 1 else None,
            what=cause.what(data),
            host_call=longest_call(data, cause),
        ),
        algorithmic=cause.algorithmic(data),
        kernel=kernel_advice(data, cause),
        impact=idle_impact(data, gaps) if words.is_idle else None,
        time_pool=f"{IDLE_POOL} {place}",
        priority_local=priority,
        priority=priority,
        severity=severity,
        hypothesis=cause.hypothesis(data),
        verify=words.message("verify"),
        capture=words.texts("capture"),
    )


def _main_cause(gaps: pl.DataFrame, account: StepAccount) -> Cause:
    """Return the cause with most of the time; of a gap in which the GPU was busy only if no other
    is known."""
    found = by_cause(gaps, account.total_ns / 1e6)
    return next((cause for cause in found if cause.cause not in NEVER_IDLE), found[0])


ANALYSIS = Analysis(
    title="CPU / idle",
    icon=":material/hourglass_empty:",
    checks=(gpu_idle, idle_causes, step_edges, short_kernels),
    needs=(
        *("gpu_work", "idle_gaps", "steps", "step_gaps", "timeline_states", "host_threads"),
        *("inference_events", "host_slices"),
    ),
    measure=measure,
    target=Target(
        label="Target idle",
        meaning="Your assumption: the share of the step time in which the GPU may still idle.",
        default_pct=TARGET_IDLE_PCT,
        recovered_ms=to_target_ms,
        pool_ms=lambda totals: _whole_and_idle_ms(totals)[1],
        check=gpu_idle.__name__,
        pool=IDLE_POOL,
    ),
)
