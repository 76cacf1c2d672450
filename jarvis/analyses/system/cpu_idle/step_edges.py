"""Idle time at the edges of a step: host work before its first and after its last GPU event."""

from collections.abc import Iterator

import polars as pl

from jarvis.analyses.base import CategoryData
from jarvis.analyses.severity import grade, priority_of
from jarvis.analyses.system.cpu_idle.causes import (
    CAUSE_PCT,
    NEVER_IDLE,
    Cause,
    account_of,
    by_cause,
    idle_impact,
    kernel_advice,
    longest_call,
    reported_edges,
)
from jarvis.analyses.system.cpu_idle.wording import MESSAGES
from jarvis.findings import IDLE_POOL, Finding, Priority
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.perf_report.timeline.step_gaps import Place
from jarvis.schemas.names import C
from jarvis.text.messages import Message


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
            **_host_calls(cause),
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


def _host_calls(cause: Cause) -> dict[str, Message]:
    calls = cause.host_calls()
    return {"host_calls": MESSAGES("evidence.list", items=calls)} if calls else {}
