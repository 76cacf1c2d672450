"""Collective communication: its exposed part, and how much of it compute could hide."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import staging_ms, timeline_window
from jarvis.analyses.severity import Ladder, grade, is_worth_acting, priority_of
from jarvis.analyses.system.multi_kernel.messages import MESSAGES
from jarvis.findings import COMMUNICATION_POOL, EvidenceValue, Finding, Priority, Severity
from jarvis.perf_report import Totals
from jarvis.perf_report.timeline.step_account import steps_name
from jarvis.preconditions import BYTES_PER_MIB, LARGE_MESSAGE_BYTES
from jarvis.schemas.names import C
from jarvis.text.messages import Message, to_text

EXPOSED_PCT: Ladder = (
    (20.0, Severity.CRITICAL),
    (10.0, Severity.HIGH),
    (5.0, Severity.MEDIUM),
    (2.0, Severity.LOW),
)

HIDDEN_TARGET_PCT = 70.0

NOT_HIDDEN_PCT: Ladder = (
    (70.0, Severity.CRITICAL),
    (50.0, Severity.HIGH),
    (100 - HIDDEN_TARGET_PCT, Severity.MEDIUM),
)
"""Grades by the exposed share of communication in percent; the overlap ratio is the rest."""

MIN_COMM_MS = 0.1
"""With less communication than this, the overlap ratio is meaningless."""

TOP_COLLECTIVES = 10
KINDS_SHOWN = 4

MANY_SMALL = 10
"""From so many messages below LARGE_MESSAGE_BYTES on, bundled ones would take less time."""

SLOW_LINK_GB_PER_S = 10.0
"""Every link between the GPUs of one machine exceeds this bandwidth."""


def exposed_communication(data: CategoryData) -> Iterator[Finding]:
    """Communication on the critical path.

    Symptom: the GPU communicates while it computes nothing.
    Rule: exposed communication time as a share of the step time (of the GPU window if the input has
    no events). If the collectives that take most
    time have messages of at least {LARGE_MESSAGE_BYTES:,.0f} bytes and move less than
    {SLOW_LINK_GB_PER_S} GB/s, the message size does not explain the time, and the advice is to look
    for late ranks first. At least {MANY_SMALL} collectives of one kind with smaller messages are
    named with their mean size.
    Threshold: above {EXPOSED_PCT}%: CRITICAL / HIGH / MEDIUM / LOW; a finding from MEDIUM on.
    """
    totals, bounds = data.totals, data.totals.step
    exposed_ms, share, whole = totals.exposed_comm_time_ms, totals.exposed_comm_pct or 0.0, None
    if bounds is not None and bounds.step_ms is not None:
        exposed_ms, share = bounds.comm_ms, impact.share_pct(bounds.comm_ms, bounds.step_ms)
        whole = steps_name(bounds.is_marked, bounds.steps)
    severity = grade(share, EXPOSED_PCT)
    if not is_worth_acting(severity):
        return
    longest = next(_kinds(data), None)
    small, staged = _small(data), _staging(data)
    yield Finding(
        check="exposed_communication",
        category=data.key,
        title=MESSAGES("exposed.title"),
        evidence={
            "exposed_communication_ms": exposed_ms,
            "step_pct" if whole else "wall_pct": share,
            "communication_ms": totals.total_comm_time_ms,
            **_collective_evidence(data),
            **staged,
        },
        issue=MESSAGES(
            "exposed.issue",
            exposed_ms=exposed_ms,
            wall_pct=share,
            whole=whole or "the GPU window",
            total_ms=totals.total_comm_time_ms,
            longest=longest.message("exposed.issue.longest") if longest else None,
            small=MESSAGES("exposed.issue.small", **small) if small else None,
            staging=MESSAGES("exposed.issue.staging", **staged) if staged else None,
        ),
        algorithmic=[
            *_of_program(longest, exposed_ms),
            *([MESSAGES("exposed.algorithmic.bucket")] if small else []),
        ],
        kernel=_faster(longest),
        priority_local=priority_of(severity),
        priority=priority_of(severity),
        severity=severity,
        impact=impact.as_interval(
            impact.bounded_impact(
                exposed_ms,
                exposed_ms,
                mid_ms=min(exposed_ms, to_target_ms(totals, HIDDEN_TARGET_PCT)),
                **data.bases,
            )
        ),
        hypothesis=MESSAGES("exposed.hypothesis.slow", gb_per_s=longest.gb_per_s)
        if longest and longest.is_slow
        else MESSAGES.texts("exposed.hypothesis"),
        caveat=None if "collectives" in data.tables else MESSAGES("caveat.no_details"),
        verify=MESSAGES("exposed.verify"),
        capture=MESSAGES("capture"),
        time_pool=COMMUNICATION_POOL,
    )


def poor_overlap(data: CategoryData) -> Iterator[Finding]:
    """Communication that compute could hide but does not.

    Symptom: compute and communication take turns instead of running together.
    Rule: the exposed part of communication, if there is at least {MIN_COMM_MS} ms of it; the
    overlap is the rest. The saving is what an overlap of {HIDDEN_TARGET_PCT}% would hide, at most
    the compute that runs without communication.
    Threshold: above {NOT_HIDDEN_PCT}% exposed: CRITICAL / HIGH / MEDIUM, else GOOD; a finding from
    MEDIUM on.
    """
    totals = data.totals
    overlap_pct, severity = overlap(totals)
    if overlap_pct is None or not is_worth_acting(severity):
        return
    is_relevant = grade(totals.exposed_comm_pct or 0.0, EXPOSED_PCT) is not Severity.ACCEPTABLE
    free_ms, wanted_ms = free_compute_ms(totals), to_target_ms(totals, HIDDEN_TARGET_PCT)
    saved_ms = min(free_ms, wanted_ms)
    priority = priority_of(severity) if is_relevant and saved_ms > 0 else Priority.LOW
    part = MESSAGES("overlap.part") if any(exposed_communication(data)) else None
    caveat = [MESSAGES("caveat.single_rank")]
    if free_ms < wanted_ms:
        target_pct = HIDDEN_TARGET_PCT
        caveat.insert(0, MESSAGES("overlap.caveat", free_ms=free_ms, target_pct=target_pct))
    yield Finding(
        check="poor_overlap",
        category=data.key,
        title=MESSAGES(
            "overlap.title.critical" if severity is Severity.CRITICAL else "overlap.title"
        ),
        evidence={
            "overlap_pct": overlap_pct,
            "hidden_target_pct": HIDDEN_TARGET_PCT,
            "communication_ms": totals.total_comm_time_ms,
            "exposed_communication_ms": totals.exposed_comm_time_ms,
            "compute_free_ms": free_ms,
        },
        issue=MESSAGES(
            "overlap.issue",
            overlap_pct=overlap_pct,
            communication_ms=totals.total_comm_time_ms,
            target_pct=HIDDEN_TARGET_PCT,
        ),
        algorithmic=MESSAGES.texts("overlap.algorithmic"),
        kernel=MESSAGES.texts("overlap.kernel", part=part),
        priority_local=priority,
        priority=priority,
        severity=severity,
        impact=impact.as_interval(
            impact.bounded_impact(totals.exposed_comm_time_ms, saved_ms, **data.bases)
        ),
        hypothesis=MESSAGES.texts("overlap.hypothesis"),
        caveat=caveat,
        verify=MESSAGES("overlap.verify"),
        capture=MESSAGES("capture"),
        time_pool=COMMUNICATION_POOL,
    )


def overlap(totals: Totals) -> tuple[float | None, Severity]:
    """Return the share of communication that overlaps with compute, in percent, and its grade."""
    if totals.total_comm_time_ms < MIN_COMM_MS:
        return None, Severity.NOT_AVAILABLE
    exposed_pct = impact.share_pct(totals.exposed_comm_time_ms, totals.total_comm_time_ms)
    return 100 - exposed_pct, grade(exposed_pct, NOT_HIDDEN_PCT, Severity.GOOD)


def to_target_ms(totals: Totals, hidden_pct: float) -> float:
    """Return the exposed communication in ms beyond what an overlap of ``hidden_pct`` leaves."""
    allowed_ms = totals.total_comm_time_ms * (100 - hidden_pct) / 100
    return max(0.0, totals.exposed_comm_time_ms - allowed_ms)


def free_compute_ms(totals: Totals) -> float:
    """Return the compute in ms without concurrent communication."""
    hidden_ms = totals.total_comm_time_ms - totals.exposed_comm_time_ms
    return max(0.0, totals.compute_time_ms - hidden_ms)


def communication_kernels(data: CategoryData) -> pl.DataFrame | None:
    """Return the communication kernels of the window, longest first."""
    if "gpu_work" not in data.tables or "collectives" not in data.tables:
        return None
    window = timeline_window(data.tables["gpu_work"]).select(C.uid)
    return (
        data.tables["collectives"]
        .join(window, on=C.uid, how="semi")
        .sort(C.dur_us, C.uid, descending=[True, False])
    )


def _of_program(longest: "_Kind | None", exposed_ms: float) -> tuple[Message, ...]:
    """Return what the program can change: never to send less, as one rank does not show how much
    of the time is transfer."""
    if longest and longest.is_slow:
        hide = MESSAGES.texts("hide")
        return (MESSAGES("exposed.algorithmic.slow", exposed_ms=exposed_ms, hide=hide),)
    return MESSAGES.texts("exposed.algorithmic", exposed_ms=exposed_ms)


def _faster(longest: "_Kind | None") -> tuple[Message, ...]:
    """Return advice on the collectives themselves."""
    if longest and longest.is_slow:
        slow = MESSAGES(
            "exposed.kernel.slow",
            collective=longest.collective,
            message_bytes=longest.nbytes,
            mean_ms=longest.mean_ms,
        )
        return (slow,)
    return MESSAGES.texts("exposed.kernel")


@dataclass(frozen=True, slots=True)
class _Kind:
    """Collectives of equal type, message size and group."""

    collective: str
    nbytes: float
    ranks: int | None
    count: int
    mean_ms: float

    @property
    def gb_per_s(self) -> float:
        """Return message size divided by time, including waiting, in GB/s."""
        return self.nbytes / self.mean_ms / 1e6

    def message(self, key: str) -> Message:
        """Return the message ``key`` with the kind (``3 x allreduce of 17.6 MB over 8 ranks``) and
        the rate (``8.93 ms each (1.97 GB/s)``)."""
        kind = MESSAGES(
            "kind",
            count=self.count,
            collective=self.collective,
            message_bytes=self.nbytes,
            over=MESSAGES("kind.over", ranks=self.ranks) if self.ranks else None,
        )
        rate = MESSAGES("kind.rate", count=self.count, mean_ms=self.mean_ms, gb_per_s=self.gb_per_s)
        return MESSAGES(key, kind=kind, rate=rate)

    @property
    def is_slow(self) -> bool:
        """Return whether the message size does not explain the time."""
        return self.nbytes >= LARGE_MESSAGE_BYTES and self.gb_per_s < SLOW_LINK_GB_PER_S


def _kinds(data: CategoryData) -> Iterator[_Kind]:
    """Yield the collectives of known size by kind, most time first."""
    kernels = communication_kernels(data)
    if kernels is None:
        return
    known = kernels.drop_nulls([C.collective, C.message_mb]).filter(pl.col(C.dur_us) > 0)
    kinds = (
        known.group_by(C.collective, C.message_mb, C.group_size, maintain_order=True)
        .agg(pl.len().alias(C.count), time_us=pl.col(C.dur_us).sum())
        .sort("time_us", descending=True)
    )
    for name, mebibytes, ranks, count, time_us in kinds.iter_rows():
        yield _Kind(name, mebibytes * BYTES_PER_MIB, ranks, count, time_us / 1000 / count)


def _small(data: CategoryData) -> dict[str, Any]:
    """Return kind, number and mean size of the collectives of the kind with most small messages."""
    kernels = communication_kernels(data)
    if kernels is None:
        return {}
    nbytes = pl.col(C.message_mb) * BYTES_PER_MIB
    found = (
        kernels.drop_nulls([C.collective, C.message_mb])
        .filter((nbytes < LARGE_MESSAGE_BYTES) & (nbytes > 0))
        .group_by(C.collective)
        .agg(small_collectives=pl.len(), mean_bytes=nbytes.mean())
        .filter(pl.col("small_collectives") >= MANY_SMALL)
        .sort("small_collectives", C.collective, descending=[True, False])
    )
    return {} if found.is_empty() else found.row(0, named=True)


def _staging(data: CategoryData) -> dict[str, float]:
    """Return the time of the copies for collectives by the name of their evidence."""
    if "gpu_work" not in data.tables:
        return {}
    time_ms = staging_ms(data.tables["gpu_work"], data.tables.get("operations"))
    return {"staging_ms": time_ms} if time_ms else {}


def _collective_evidence(data: CategoryData) -> dict[str, EvidenceValue]:
    kernels = communication_kernels(data)
    if kernels is None or kernels.is_empty():
        return {}
    kinds = [kind.message("evidence.kind") for kind in islice(_kinds(data), KINDS_SHOWN)]
    found: dict[str, EvidenceValue] = {"communication_kernels": kernels.height}
    if kinds:
        found["largest_collectives"] = MESSAGES("evidence.kinds", kinds=kinds)
    return found


def top_collectives(kernels: pl.DataFrame) -> list[JsonValue]:
    """Return the longest communication kernels: name, time in µs, stream, collective, message,
    group."""
    columns = {
        "name": C.name,
        "duration_us": C.dur_us,
        "stream": C.stream,
        "collective": C.collective,
        "message_mb": C.message_mb,
        "group_size": C.group_size,
    }
    longest = kernels.head(TOP_COLLECTIVES).select(**columns)
    return [dict(row) for row in longest.iter_rows(named=True)]


def summary(data: CategoryData) -> dict[str, JsonValue]:
    """Return count, time and the longest communication kernels of the window, in µs.

    Only the total of the GPU timeline if single kernels are not known.
    """
    kernels = communication_kernels(data)
    if kernels is None:
        return {"total_count": None, "total_time_us": data.totals.total_comm_time_ms * 1000}
    durations_us = kernels[C.dur_us].to_list()
    return {
        "total_count": len(durations_us),
        "total_time_us": sum(durations_us),
        "avg_time_us": sum(durations_us) / len(durations_us) if durations_us else None,
        "max_time_us": max(durations_us, default=None),
        "top_ops": top_collectives(kernels),
    }


def blocking_assessment(totals: Totals) -> dict[str, JsonValue]:
    """Return the grade of exposed communication."""
    share = totals.exposed_comm_pct or 0.0
    return {
        "severity": grade(share, EXPOSED_PCT),
        "exposed_comm_time_ms": totals.exposed_comm_time_ms,
        "total_comm_time_ms": totals.total_comm_time_ms,
        "exposed_percent_of_total": share,
        "recoverable_ms": totals.exposed_comm_time_ms,
        "description": to_text(MESSAGES("description.exposed", wall_pct=share)),
    }


def overlap_assessment(totals: Totals) -> dict[str, JsonValue]:
    """Return the grade of overlap, and the recoverable time in ms."""
    overlap_pct, severity = overlap(totals)
    return {
        "severity": severity,
        "overlap_ratio": None if overlap_pct is None else overlap_pct / 100,
        "overlap_percent": overlap_pct,
        "target_percent": HIDDEN_TARGET_PCT,
        "recoverable_ms": to_target_ms(totals, HIDDEN_TARGET_PCT),
        "compute_without_communication_ms": free_compute_ms(totals),
        "description": to_text(
            MESSAGES("description.little", least_ms=MIN_COMM_MS)
            if overlap_pct is None
            else MESSAGES("description.overlap", overlap_pct=overlap_pct)
        ),
    }
