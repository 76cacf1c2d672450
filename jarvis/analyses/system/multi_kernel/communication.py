"""Collective communication: what of it is exposed, and what compute could hide."""

from collections.abc import Iterator

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.severity import Ladder, grade, is_worth_acting, priority_of
from jarvis.analyses.window import timeline_window
from jarvis.analyses.wording import listed, ms, number, pct
from jarvis.findings import Finding, Priority, Severity
from jarvis.perf_report import Totals

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
"""Share of communication that is exposed; the overlap ratio is the rest."""

MIN_COMM_MS = 0.1
"""With less communication than this an overlap ratio says nothing."""

TOP_COLLECTIVES = 10

EXPOSED_COMMUNICATION = "exposed communication"

ALL_RANKS = (
    "Record the same step on all ranks: the last rank to reach a collective waits for nobody, so "
    "only all of them tell transfer from waiting."
)
NO_DETAILS = "Types, message sizes and groups of the collectives are not available."

SINGLE_RANK = (
    "One rank cannot tell the transfer from waiting for slower ranks; compare all ranks before "
    "naming a cause."
)


def exposed_communication(data: CategoryData) -> Iterator[Finding]:
    """Communication on the critical path.

    Symptom: the GPU communicates while it computes nothing.
    Rule: exposed communication time as a share of GPU wall time.
    Threshold: above 20 / 10 / 5 / 2%: CRITICAL / HIGH / MEDIUM / LOW; a finding from MEDIUM on.
    """
    totals = data.totals
    share = totals.exposed_comm_pct or 0.0
    severity = grade(share, EXPOSED_PCT)
    if not is_worth_acting(severity):
        return
    exposed_ms = totals.exposed_comm_time_ms
    yield Finding(
        check="exposed_communication",
        category=data.key,
        title="Collective communication blocks compute",
        evidence={
            "Exposed communication (ms)": exposed_ms,
            "Share of GPU wall time (%)": share,
            "Total communication (ms)": totals.total_comm_time_ms,
            **_collective_evidence(data),
        },
        issue=f"Collective communication is exposed for {ms(exposed_ms)} ({pct(share)} of GPU wall "
        f"time) of its {ms(totals.total_comm_time_ms)}, and the GPU computes nothing meanwhile.",
        algorithmic="Start gradient reductions asynchronously during the backward pass and "
        "pipeline micro-batches; send less, by accumulation, compression or quantization of large "
        "messages."
        if is_training(data)
        else "Split the batch so that one part computes while the other communicates; send less, "
        "by fewer and fused collectives, or by compression or quantization of large messages.",
        kernel="Check topology, interconnect and library settings, and keep communication on a "
        "stream of its own with buckets sized to the compute available.",
        priority_local=priority_of(severity),
        priority=priority_of(severity),
        severity=severity,
        impact=impact.bounded_impact(
            exposed_ms,
            exposed_ms,
            mid_ms=to_target_ms(totals, HIDDEN_TARGET_PCT),
            **data.bases,
        ),
        hypothesis="Collectives start late, or ranks wait for each other.",
        caveat=SINGLE_RANK if "collectives" in data.tables else f"{SINGLE_RANK} {NO_DETAILS}",
        verify="Record the trace again, on all ranks if possible: exposed communication must fall "
        "while total communication stays.",
        capture=ALL_RANKS,
        time_pool=EXPOSED_COMMUNICATION,
    )


def poor_overlap(data: CategoryData) -> Iterator[Finding]:
    """Communication that compute could hide but does not.

    Symptom: compute and communication take turns instead of running together.
    Rule: overlap = 1 - exposed / total communication, where there is at least MIN_COMM_MS of it.
    The saving is what reaching the target would hide, and no more than the compute that runs
    without communication.
    Threshold: below 30 / 50 / 70%: CRITICAL / HIGH / MEDIUM, above GOOD; a finding from MEDIUM on.
    """
    totals = data.totals
    overlap_pct, severity = overlap(totals)
    if overlap_pct is None or not is_worth_acting(severity):
        return
    is_felt = grade(totals.exposed_comm_pct or 0.0, EXPOSED_PCT) is not Severity.ACCEPTABLE
    free_ms, wanted_ms = free_compute_ms(totals), to_target_ms(totals, HIDDEN_TARGET_PCT)
    saved_ms = min(free_ms, wanted_ms)
    priority = priority_of(severity) if is_felt and saved_ms > 0 else Priority.LOW
    caveat = SINGLE_RANK
    if free_ms < wanted_ms:
        caveat = (
            f"Only {ms(free_ms)} of compute run without communication, so overlap alone cannot "
            f"reach {HIDDEN_TARGET_PCT:.0f}%: the rest needs less or faster communication. {caveat}"
        )
    yield Finding(
        check="poor_overlap",
        category=data.key,
        title="Compute and communication barely overlap"
        if severity is Severity.CRITICAL
        else "Compute and communication overlap too little",
        evidence={
            "Overlap (% of communication)": overlap_pct,
            "Target (%)": HIDDEN_TARGET_PCT,
            "Total communication (ms)": totals.total_comm_time_ms,
            "Exposed communication (ms)": totals.exposed_comm_time_ms,
            "Compute without communication (ms)": free_ms,
        },
        issue=f"Only {pct(overlap_pct)} of {ms(totals.total_comm_time_ms)} of communication runs "
        f"beside compute; more than {HIDDEN_TARGET_PCT:.0f}% is good.",
        algorithmic="Let reductions run asynchronously during the backward pass, with buckets that "
        "fill early, and overlap one micro-batch's compute with the communication of another."
        if is_training(data)
        else "Overlap the compute of one part of the batch with the communication of another, and "
        "split large collectives so that their first parts can be used early.",
        kernel="Give communication a stream of higher priority and leave it compute units, so that "
        "its kernels start as soon as the data is ready.",
        priority_local=priority,
        priority=priority,
        severity=severity,
        impact=impact.bounded_impact(totals.exposed_comm_time_ms, saved_ms, **data.bases),
        hypothesis="Communication is issued only when the compute that could hide it has ended.",
        caveat=caveat,
        verify="Record the trace again: the overlap ratio rises and the total time falls.",
        capture=ALL_RANKS,
        time_pool=EXPOSED_COMMUNICATION,
    )


def is_training(data: CategoryData) -> bool:
    """Whether the trace has backward operations, and so gradients to reduce."""
    operations = data.tables.get("operations")
    return operations is not None and bool((operations["direction"] == "backward").any())


def overlap(totals: Totals) -> tuple[float | None, Severity]:
    """Share of communication beside compute, and its grade."""
    if totals.total_comm_time_ms < MIN_COMM_MS:
        return None, Severity.NOT_AVAILABLE
    exposed_pct = impact.share_pct(totals.exposed_comm_time_ms, totals.total_comm_time_ms)
    return 100 - exposed_pct, grade(exposed_pct, NOT_HIDDEN_PCT, Severity.GOOD)


def to_target_ms(totals: Totals, hidden_pct: float) -> float:
    """Exposed communication beyond what an overlap of ``hidden_pct`` allows."""
    allowed_ms = totals.total_comm_time_ms * (100 - hidden_pct) / 100
    return max(0.0, totals.exposed_comm_time_ms - allowed_ms)


def free_compute_ms(totals: Totals) -> float:
    """Compute that runs without communication beside it."""
    hidden_ms = totals.total_comm_time_ms - totals.exposed_comm_time_ms
    return max(0.0, totals.compute_time_ms - hidden_ms)


def communication_kernels(data: CategoryData) -> pl.DataFrame | None:
    """The communication kernels of the window, longest first."""
    if "gpu_work" not in data.tables or "collectives" not in data.tables:
        return None
    window = timeline_window(data.tables["gpu_work"]).select("uid")
    return (
        data.tables["collectives"]
        .join(window, on="uid", how="semi")
        .sort("dur_us", "uid", descending=[True, False])
    )


def _collective_evidence(data: CategoryData) -> dict[str, float | int | str]:
    kernels = communication_kernels(data)
    if kernels is None or kernels.is_empty():
        return {}
    known = kernels.drop_nulls(["collective", "message_mb"])
    kinds = (
        known.group_by("collective", "message_mb", "group_size", maintain_order=True)
        .agg(count=pl.len(), time_us=pl.col("dur_us").sum())
        .sort("time_us", descending=True)
    )
    texts = [
        f"{row['count']} x {row['collective']} of {number(row['message_mb'])} MB"
        + (f" over {row['group_size']} ranks" if row["group_size"] else "")
        for row in kinds.iter_rows(named=True)
    ]
    named = {"Largest by time": listed(texts)} if texts else {}
    return {"Communication kernels": kernels.height, **named}


def top_collectives(kernels: pl.DataFrame) -> list[JsonValue]:
    """The longest communication kernels: name, time in µs, stream, collective, message, group."""
    columns = {
        "name": "name",
        "duration_us": "dur_us",
        "stream": "stream",
        "collective": "collective",
        "message_mb": "message_mb",
        "group_size": "group_size",
    }
    longest = kernels.head(TOP_COLLECTIVES).select(**columns)
    return [dict(row) for row in longest.iter_rows(named=True)]


def summary(data: CategoryData) -> dict[str, JsonValue]:
    """Count, time and the longest communication kernels of the window, in µs; the total of the GPU
    timeline alone where single kernels are not known."""
    kernels = communication_kernels(data)
    if kernels is None:
        return {"total_count": None, "total_time_us": data.totals.total_comm_time_ms * 1000}
    durations_us = kernels["dur_us"].to_list()
    return {
        "total_count": len(durations_us),
        "total_time_us": sum(durations_us),
        "avg_time_us": sum(durations_us) / len(durations_us) if durations_us else None,
        "max_time_us": max(durations_us, default=None),
        "top_ops": top_collectives(kernels),
    }


def blocking_assessment(totals: Totals) -> dict[str, JsonValue]:
    """The grade of exposed communication."""
    share = totals.exposed_comm_pct or 0.0
    return {
        "severity": grade(share, EXPOSED_PCT),
        "exposed_comm_time_ms": totals.exposed_comm_time_ms,
        "total_comm_time_ms": totals.total_comm_time_ms,
        "exposed_percent_of_total": share,
        "recoverable_ms": totals.exposed_comm_time_ms,
        "description": f"Communication is exposed for {pct(share)} of GPU wall time.",
    }


def overlap_assessment(totals: Totals) -> dict[str, JsonValue]:
    """The grade of overlap, and what could be recovered in ms."""
    overlap_pct, severity = overlap(totals)
    return {
        "severity": severity,
        "overlap_ratio": None if overlap_pct is None else overlap_pct / 100,
        "overlap_percent": overlap_pct,
        "target_percent": HIDDEN_TARGET_PCT,
        "recoverable_ms": to_target_ms(totals, HIDDEN_TARGET_PCT),
        "compute_without_communication_ms": free_compute_ms(totals),
        "description": f"{pct(overlap_pct)} of communication runs beside compute."
        if overlap_pct is not None
        else f"Less than {number(MIN_COMM_MS)} ms of communication: there is nothing to hide.",
    }
