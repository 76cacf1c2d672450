"""Idle time at the edges of a step: host work before its first and after its last GPU event."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.severity import grade, priority_of
from jarvis.analyses.system.cpu_idle.causes import (
    CAUSE_FINDING_PCT,
    CAUSE_PCT,
    NEVER_IDLE,
    Cause,
    kernel_advice,
    longest_call,
)
from jarvis.analyses.system.cpu_idle.wording import MESSAGES
from jarvis.findings import IDLE_POOL, Finding, Impact, Priority, Range
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.step_gaps import Place
from jarvis.perf_report.timeline.steps import StepSource, TimedBy, timed_by
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
    Threshold: from {CAUSE_FINDING_PCT}% of the step time on: LOW; above {CAUSE_PCT}%: CRITICAL /
    HIGH / MEDIUM. If the GPU may have been busy, the priority is LOW.
    """
    if "steps" not in data.tables or "step_gaps" not in data.tables:
        return
    timed = data.tables["steps"].drop_nulls(C.dur_ns)
    if timed.is_empty() or timed_by(timed) is TimedBy.GPU:
        return
    gaps = data.tables["step_gaps"].join(timed.select(C.step), on=C.step, how="semi")
    for place in (Place.BEFORE, Place.AFTER):
        rows = gaps.filter(pl.col(C.place) == place.value)
        share = impact.share_pct(float(rows[C.dur_ns].sum()), float(timed[C.dur_ns].sum()))
        if share >= CAUSE_FINDING_PCT:
            yield _finding(data, timed, place, rows, share)


def _finding(
    data: CategoryData, steps: pl.DataFrame, place: Place, gaps: pl.DataFrame, share: float
) -> Finding:
    count = steps.height
    idle_ms, step_ms = (float(rows[C.dur_ns].sum()) / 1e6 / count for rows in (gaps, steps))
    cause = _main_cause(gaps)
    words = cause.words
    severity = grade(share, CAUSE_PCT)
    priority = priority_of(severity)
    if not words.is_idle:
        priority = priority.at_most(Priority.LOW)
    is_marked = StepSource.RECORDING.value not in steps[C.source]
    whole = MESSAGES("step" if is_marked else "recording")
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
            what=cause.what(),
            host_call=longest_call(data, cause),
        ),
        algorithmic=words.texts("algorithmic"),
        kernel=kernel_advice(data, cause),
        impact=_impact(data, gaps) if words.is_idle else None,
        time_pool=IDLE_POOL,
        priority_local=priority,
        priority=priority,
        severity=severity,
        hypothesis=cause.hypothesis(data),
        verify=words.message("verify"),
        capture=words.texts("capture"),
    )


def _impact(data: CategoryData, gaps: pl.DataFrame) -> Impact | None:
    """Return the saving of at most the idle time; None if the step time is not known.

    Of the GPU window it saves only what lies within, which is nothing for a single step.
    """
    totals, states = data.totals, data.tables.get("timeline_states")
    if totals.step is None or totals.step.step_ms is None or states is None:
        return None
    start, end = pl.col(C.start_ns), pl.col(C.start_ns) + pl.col(C.dur_ns)
    first_ns, last_ns = states.select(first=start.min(), last=end.max()).row(0)
    within = pl.min_horizontal(end, last_ns) - pl.max_horizontal(start, first_ns)
    idle_ms = float(gaps[C.dur_ns].sum()) / 1e6
    within_ms = float(gaps.select(within.clip(lower_bound=0).sum()).item()) / 1e6
    gain = impact.bounded_impact(
        idle_ms, within_ms, compute_ms=totals.compute_time_ms, total_ms=totals.total_time_ms
    )
    whole = Range(low=0.0, mid=idle_ms / 2, high=idle_ms)
    of_steps = impact.of_steps(
        gain.model_copy(update={"saved_ms": whole}), totals.step.idle_ms, totals.step.step_ms
    )
    return of_steps.model_copy(update={"saved_ms": gain.saved_ms})


def _main_cause(gaps: pl.DataFrame) -> Cause:
    """Return the cause with most of the time; of a gap in which the GPU was busy only if no other
    is known."""
    found = [
        Cause(IdleCause(cause), rows)
        for (cause,), rows in gaps.group_by(C.cause, maintain_order=True)
    ]
    return min(found, key=lambda cause: (cause.cause in NEVER_IDLE, -cause.idle_ms, cause.cause))


def _host_calls(cause: Cause) -> dict[str, Message]:
    calls = cause.host_calls()
    return {"host_calls": MESSAGES("evidence.list", items=calls)} if calls else {}
