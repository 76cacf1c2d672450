"""Interplay of compute, communication and copies: delays that no single kernel shows.

All numbers come from the window of ``gpu_timeline``; copies are assessed by direction,
communication by its exposed part and by how much of it is hidden behind compute.
"""

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import Analysis, CategoryData, Target
from jarvis.analyses.operations import timeline_window
from jarvis.analyses.system.multi_kernel import communication, copies
from jarvis.analyses.system.multi_kernel.communication import exposed_communication, poor_overlap
from jarvis.analyses.system.multi_kernel.copies import memory_copies
from jarvis.findings import COMMUNICATION_POOL, Finding
from jarvis.perf_report import Totals
from jarvis.perf_report.intervals import END, covered_ns
from jarvis.schemas.names import C
from jarvis.text.messages import to_text

CROSS_VALIDATION_PCT = 2.0


def prepare(data: CategoryData) -> dict[str, JsonValue]:
    """Return copies, communication and overlap in µs, as input of the assessments."""
    return {
        "memcpy_summary": copies.summary(data),
        "nccl_summary": communication.summary(data),
        "overlap_analysis": _overlap_analysis(data.totals),
    }


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return the three assessments, the patterns, and a cross-check with ``gpu_timeline``."""
    findings = [finding for check in CHECKS for finding in data.found(check)]
    return {
        "total_time_ms": data.totals.total_time_ms,
        **prepare(data),
        "memcpy_assessment": copies.assessment(data),
        "nccl_blocking_assessment": communication.blocking_assessment(data.totals),
        "overlap_assessment": communication.overlap_assessment(data.totals),
        "patterns_detected": [_pattern(finding) for finding in findings],
        "cross_validation": _cross_validation(data),
    }


def _overlap_analysis(totals: Totals) -> dict[str, JsonValue]:
    total_ms, comm_ms, copy_ms = (
        totals.total_time_ms,
        totals.total_comm_time_ms,
        totals.total_memcpy_time_ms,
    )
    return {
        "total_time_us": total_ms * 1000,
        "computation_time_us": totals.compute_time_ms * 1000,
        "total_comm_time_us": comm_ms * 1000,
        "exposed_comm_time_us": totals.exposed_comm_time_ms * 1000,
        "total_memcpy_time_us": copy_ms * 1000,
        "exposed_memcpy_time_us": totals.exposed_memcpy_time_ms * 1000,
        "comm_overlap_ratio": _ratio(totals.exposed_comm_time_ms, comm_ms),
        "memcpy_overlap_ratio": _ratio(totals.exposed_memcpy_time_ms, copy_ms),
        "comm_percent_of_total": impact.share_pct(comm_ms, total_ms),
        "memcpy_percent_of_total": impact.share_pct(copy_ms, total_ms),
    }


def _ratio(exposed_ms: float, total_ms: float) -> float | None:
    return 1 - exposed_ms / total_ms if total_ms > 0 else None


def _pattern(finding: Finding) -> dict[str, JsonValue]:
    names = {
        "exposed_communication": "nccl_blocking_compute",
        "poor_overlap": "poor_comm_compute_overlap",
    }
    return {
        "pattern": names.get(finding.check) or _copy_pattern(finding),
        "severity": finding.severity,
        "description": to_text(finding.issue),
    }


def _copy_pattern(finding: Finding) -> str:
    direction = finding.evidence.get("direction")
    return f"high_{str(direction).lower()}_memcpy" if direction else "high_exposed_memcpy"


def _cross_validation(data: CategoryData) -> dict[str, JsonValue]:
    """Compare lengths from the single GPU events with those of the GPU timeline."""
    if "gpu_work" not in data.tables:
        return {"status": "NOT_AVAILABLE", "checks": [], "warnings": []}
    window = timeline_window(data.tables["gpu_work"])
    compute = covered_ns(window.filter(pl.col(C.kind) == "compute"))
    working = covered_ns(window.filter(pl.col(C.kind) != "copy"))
    span = window.select(END.max() - pl.col(C.ts_ns).min()).item()
    totals = data.totals
    lengths = (
        ("computation_time", compute, totals.compute_time_ms),
        ("exposed_comm_time", working - compute, totals.exposed_comm_time_ms),
        ("exposed_memcpy_time", covered_ns(window) - working, totals.exposed_memcpy_time_ms),
        ("total_time", span or 0, totals.total_time_ms),
    )
    checks: list[JsonValue] = []
    warnings: list[JsonValue] = []
    for metric, events_ns, timeline_ms in lengths:
        agrees = _agree(events_ns / 1e6, timeline_ms)
        checks.append(
            {
                "metric": metric,
                "events_ms": events_ns / 1e6,
                "timeline_ms": timeline_ms,
                "agrees": agrees,
            }
        )
        if not agrees:
            warnings.append(f"{metric} differs from the GPU timeline")
    return {"status": "WARN" if warnings else "PASS", "checks": checks, "warnings": warnings}


def _agree(ours_ms: float, theirs_ms: float) -> bool:
    return abs(ours_ms - theirs_ms) <= CROSS_VALIDATION_PCT / 100 * max(ours_ms, theirs_ms, 1e-6)


CHECKS = (exposed_communication, poor_overlap, memory_copies)

ANALYSIS = Analysis(
    title="Communication / copies",
    icon=":material/hub:",
    checks=CHECKS,
    needs=("gpu_work", "memory_copies", "collectives", "operations"),
    measure=measure,
    prepare=prepare,
    target=Target(
        label="Communication hidden or removed",
        meaning="Your assumption: the share of communication that takes no time of its own, "
        "because compute hides it, or because it is less or faster. The saving is the exposed "
        "communication beyond the rest. The finding on overlap says how much compute is free to "
        "hide it.",
        default_pct=communication.HIDDEN_TARGET_PCT,
        recovered_ms=communication.to_target_ms,
        pool_ms=lambda totals: totals.exposed_comm_time_ms,
        check=exposed_communication.__name__,
        pool=COMMUNICATION_POOL,
    ),
)
