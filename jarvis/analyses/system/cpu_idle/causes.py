"""Idle time by cause: the sum of its gaps, and a finding for each relevant cause."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.severity import Ladder, grade, priority_of
from jarvis.analyses.system.cpu_idle.kernels import evidence, graph_replay_pct, kernels
from jarvis.analyses.system.cpu_idle.wording import CAUSES, MESSAGES, CauseWords
from jarvis.findings import EvidenceValue, Finding, Priority, Severity
from jarvis.perf_report import Totals
from jarvis.perf_report.intervals import greatest_ns
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.schemas.names import C
from jarvis.text.messages import Message

IDLE_FINDING_PCT = 15.0
"""Share of the GPU window from which idle time is reported."""

CAUSE_FINDING_PCT = 5.0
"""Share of the GPU window from which a cause has its own finding."""

SOLE_CAUSE_PCT = 90.0
"""Share of idle time from which a cause explains the idle time as a whole."""

IDLE_PCT: Ladder = (
    (70.0, Severity.CRITICAL),
    (50.0, Severity.HIGH),
    (30.0, Severity.MEDIUM),
    (20.0, Severity.LOW),
)
CAUSE_PCT: Ladder = (*IDLE_PCT[:-1], (0.0, Severity.LOW))
IDLE_POOL = "idle"
NEVER_IDLE = (IdleCause.UNLINKED_WORK, IdleCause.CARRIED_IN)
"""Causes in whose gaps the GPU certainly ran something."""


@dataclass(frozen=True)
class Cause:
    """The gaps of one cause (rows of ``idle_gaps``) and its texts."""

    cause: IdleCause
    gaps: pl.DataFrame

    @property
    def words(self) -> CauseWords:
        """Return the texts of the cause."""
        return CAUSES[self.cause]

    @property
    def idle_ms(self) -> float:
        """Return the sum of the gaps in ms."""
        return float(self.gaps[C.dur_ns].sum()) / 1e6

    @property
    def longest_ms(self) -> float:
        """Return the longest gap in ms."""
        return (greatest_ns(self.gaps[C.dur_ns]) or 0) / 1e6

    def waits_before(self) -> list[Message]:
        """Return the operators or calls whose launch ended most of the time."""
        ended = self.gaps.drop_nulls(C.launcher_name).group_by(C.launcher_name)
        most = ended.agg(pl.col(C.dur_ns).sum()).sort(
            C.dur_ns, C.launcher_name, descending=[True, False]
        )
        return [
            MESSAGES("evidence.wait", name=name, time_ms=ns / 1e6) for name, ns in most.iter_rows()
        ]

    def host_calls(self) -> list[Message]:
        """Return the host calls that indicate the cause, those with the longest gaps first."""
        by_call = self.gaps.drop_nulls(C.host_call).group_by(C.host_call, C.host_op)
        most = by_call.agg(pl.len(), pl.col(C.dur_ns).sum(), pl.col(C.host_call_us).max()).sort(
            C.dur_ns, C.host_call, C.host_op, descending=[True, False, False]
        )
        return [
            MESSAGES(
                "evidence.host_call",
                count=count,
                call=_call(name, operator),
                longest_ms=longest_us / 1000,
            )
            for name, operator, count, longest_us in most.drop(C.dur_ns).iter_rows()
        ]


def causes(data: CategoryData) -> list[Cause]:
    """Return the causes of the gaps, most time first; empty without the table of gaps."""
    if "idle_gaps" not in data.tables:
        return []
    gaps = data.tables["idle_gaps"]
    found = [
        Cause(IdleCause(cause), rows)
        for (cause,), rows in gaps.group_by(C.cause, maintain_order=True)
    ]
    return sorted(found, key=lambda cause: (-cause.idle_ms, cause.cause))


def has_host_evidence(data: CategoryData) -> bool:
    """Return whether the trace records the launches that ended the gaps."""
    gaps = data.tables.get("idle_gaps")
    return gaps is not None and bool(gaps[C.launch_uid].is_not_null().any())


def own_totals(data: CategoryData) -> Totals:
    """Return the totals without the time in which the GPU finished work from before the
    recording."""
    carried_ms = sum(part.idle_ms for part in causes(data) if part.cause is IdleCause.CARRIED_IN)
    totals = data.totals
    return replace(
        totals,
        idle_time_ms=totals.idle_time_ms - carried_ms,
        total_time_ms=totals.total_time_ms - carried_ms,
    )


def _wall_pct(data: CategoryData, cause: Cause) -> float:
    """Return the share of the GPU window, which counts carried-in work only for this work."""
    is_carried = cause.cause is IdleCause.CARRIED_IN
    totals = data.totals if is_carried else own_totals(data)
    return impact.share_pct(cause.idle_ms, totals.total_time_ms)


def reported_causes(data: CategoryData) -> list[Cause]:
    """Return the causes that have their own finding."""
    if not has_host_evidence(data):
        return []
    return [cause for cause in causes(data) if _wall_pct(data, cause) >= CAUSE_FINDING_PCT]


def sole_cause(data: CategoryData) -> Cause | None:
    """Return the cause of nearly all idle time, which the finding on idle time includes."""
    totals = own_totals(data)
    own = [cause for cause in reported_causes(data) if cause.cause is not IdleCause.CARRIED_IN]
    if not own or (totals.idle_pct or 0.0) < IDLE_FINDING_PCT:
        return None
    main = own[0]
    is_sole = impact.share_pct(main.idle_ms, totals.idle_time_ms) >= SOLE_CAUSE_PCT
    return main if is_sole and main.words.is_idle else None


def idle_causes(data: CategoryData) -> Iterator[Finding]:
    """What the GPU waits for.

    Symptom: the gaps of the GPU timeline have one cause for a good part of the recorded window.
    Rule: each gap has one cause, the first that fits what the trace records of the host and of the
    queue (see the table `idle_gaps`); the finding covers all gaps of a cause. The causes add up to
    the idle time. A cause of at least {SOLE_CAUSE_PCT}% of it is part of the finding of `gpu_idle`
    instead, if the GPU was certainly idle.
    Threshold: from {CAUSE_FINDING_PCT}% of the GPU window on: LOW; above {CAUSE_PCT}%: CRITICAL /
    HIGH / MEDIUM. If the GPU may have been busy, the priority is HIGH at most, and LOW if it was.
    """
    sole = sole_cause(data)
    for cause in reported_causes(data):
        if sole is None or cause.cause is not sole.cause:
            yield _finding(data, cause)


def _finding(data: CategoryData, cause: Cause) -> Finding:
    words, idle_ms = cause.words, cause.idle_ms
    share = _wall_pct(data, cause)
    severity = grade(share, CAUSE_PCT)
    is_under_recorded = _is_under_recorded(data, cause)
    priority = priority_of(severity)
    if not words.is_idle:
        cap = Priority.LOW if cause.cause in NEVER_IDLE else Priority.HIGH
        priority = priority.at_most(cap)
    return Finding(
        check="idle_causes",
        category=data.key,
        title=words.message("title"),
        evidence={
            "idle_ms": idle_ms,
            "idle_pct": share,
            "share_of_idle_pct": impact.share_pct(idle_ms, data.totals.idle_time_ms),
            **cause_evidence(data, cause),
        },
        issue=MESSAGES(
            "issue.carried_in" if cause.cause is IdleCause.CARRIED_IN else "issue.cause",
            idle_ms=idle_ms,
            idle_pct=share,
            gaps=cause.gaps.height,
            what=words.message("what"),
            host_call=longest_call(cause),
        ),
        algorithmic=MESSAGES("algorithmic.under_recorded")
        if is_under_recorded
        else words.texts("algorithmic"),
        kernel=kernel_advice(data, cause),
        priority_local=priority,
        priority=priority,
        severity=severity,
        impact=impact.bounded_impact(idle_ms, idle_ms, **data.bases) if words.is_idle else None,
        hypothesis=MESSAGES("hypothesis.under_recorded")
        if is_under_recorded
        else words.texts("hypothesis"),
        caveat=MESSAGES("caveat.part" if words.is_idle else "caveat.doubtful"),
        verify=words.message("verify"),
        capture=MESSAGES("capture.under_recorded") if is_under_recorded else words.texts("capture"),
        time_pool=IDLE_POOL,
    )


def cause_evidence(data: CategoryData, cause: Cause) -> dict[str, EvidenceValue]:
    """Return the number of gaps of a cause, and what the trace records of host and kernels
    there."""
    found: dict[str, EvidenceValue] = {
        "gaps": cause.gaps.height,
        "longest_gap_ms": cause.longest_ms,
    }
    if early_ms := _before_first_kernel_ms(data, cause):
        found["before_first_kernel_ms"] = early_ms
    if calls := cause.host_calls():
        found["host_calls"] = MESSAGES("evidence.list", items=calls)
    if waits := cause.waits_before():
        found["waits_before"] = MESSAGES("evidence.list", items=waits)
    rows = kernels(data)
    if cause.cause is IdleCause.LAUNCH_BOUND and rows.height:
        found |= evidence(rows)
    return found


def _before_first_kernel_ms(data: CategoryData, cause: Cause) -> float:
    """Return the host work before the first kernel in ms, while only copies and fills ran."""
    if cause.cause is not IdleCause.HOST_WORK:
        return 0.0
    first_ns = kernels(data)[C.ts_ns].min()
    early = cause.gaps.filter(pl.col(C.start_ns) < first_ns) if first_ns is not None else None
    return 0.0 if early is None else float(early[C.dur_ns].sum()) / 1e6


def longest_call(cause: Cause) -> Message | None:
    """Return the host call during the longest gap, as the end of a sentence."""
    calls = cause.gaps.drop_nulls(C.host_call)
    if calls.is_empty():
        return None
    longest = calls.sort(C.dur_ns, C.start_ns, descending=[True, False]).row(0, named=True)
    key = "call.beside"
    if cause.cause in (IdleCause.STALLED_QUEUE, IdleCause.CARRIED_IN):
        is_copy = "memcpy" in longest[C.host_call].lower()
        key = "call.blocking_copy" if is_copy else "call.blocking"
    return MESSAGES(
        key,
        call=_call(longest[C.host_call], longest[C.host_op]),
        length_ms=longest[C.host_call_us] / 1000,
    )


def _call(name: str, operator: str | None) -> Message:
    if operator:
        return MESSAGES("call.of", name=name, operator=operator)
    return MESSAGES("call", name=name)


def _is_under_recorded(data: CategoryData, cause: Cause) -> bool:
    return cause.cause is IdleCause.STALLED_QUEUE and graph_replay_pct(kernels(data)) > 0


def kernel_advice(data: CategoryData, cause: Cause) -> tuple[Message, ...]:
    """Return the advice on a cause that does not change the model."""
    return cause.words.texts("kernel", replayed_pct=graph_replay_pct(kernels(data)))


def launch_advice(data: CategoryData) -> tuple[Message, ...]:
    """Return the advice on launches."""
    return MESSAGES.texts("kernel.launches", replayed_pct=graph_replay_pct(kernels(data)))
