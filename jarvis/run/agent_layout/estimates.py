"""Savings of operations and findings, as scores that other tools read.

A score is a share of the GPU window in percent. The score of a gap to the roofline is fixed
(``impact.gap_scores``) and independent of the target of our own projections.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.findings import AnalysisResult, Finding, Range, worded
from jarvis.perf_report.efficiency import MEMORY_ONLY
from jarvis.run.agent_layout.recommended import Recommended
from jarvis.schemas.names import C

MIN_OPERATION_SCORE = 0.01
"""Rows that would save less have no estimate."""

EFFICIENCY_BUCKETS = ((30.0, "0-30"), (60.0, "30-60"), (float("inf"), "60-100"))
"""Upper ends and names of the efficiency bands that tools group findings by."""

NO_BUCKET = "unknown"
SCORE_DIGITS = 2

_METHODS = {"perf model": "quantified", "upper bound": "quantified", "heuristic": "heuristic"}
HEURISTIC = _METHODS["heuristic"]

Json = dict[str, JsonValue]


def scores(finding: Finding) -> Range | None:
    """Return the scores of a finding; None if unknown.

    A gap of operations to their roofline is scored as by tools; other estimates are used as they
    are.
    """
    gain = finding.impact
    if gain is None:
        return None
    is_gap = gain.method == "perf model" and bool(finding.operations)
    return impact.gap_scores(gain.e2e_pct.high) if is_gap else gain.e2e_pct


def score_fields(found: Range | None) -> dict[str, float | None]:
    """Return the three scores under the names that tools read, rounded as in the reports."""
    return {
        "impact_score_low": round(found.low, SCORE_DIGITS) if found else None,
        "impact_score": round(found.mid, SCORE_DIGITS) if found else None,
        "impact_score_high": round(found.high, SCORE_DIGITS) if found else None,
    }


def bound_type(bound: str | None) -> str | None:
    """Return ``compute``, ``memory`` or None, as tools name it."""
    return "memory" if bound == MEMORY_ONLY else bound


def operation_estimates(category: str, rows: pl.DataFrame) -> list[JsonValue]:
    """Return the rows with a known and relevant gap to the roofline, largest score first."""
    efficiency = pl.col(C.pct_roofline)
    rated = rows.filter(impact.has_efficiency() & (efficiency < impact.FULL_PCT))
    estimates = [_estimate(category, row) for row in rated.iter_rows(named=True)]
    estimates.sort(key=lambda e: (-e["impact_score"], e["ex_uid"]))
    return [e for e in estimates if e["impact_score"] >= MIN_OPERATION_SCORE]


def _estimate(category: str, row: Mapping[str, Any]) -> dict[str, Any]:
    gap_pct = (row[C.percent_of_total] or 0.0) * (1 - row[C.pct_roofline] / impact.FULL_PCT)
    return {
        "operation": row[C.name],
        "ex_uid": row[C.uid],
        "category": category,
        "type": "kernel_tuning",
        "estimation": "perf model",
        "bound_type": bound_type(row[C.bound]),
        "library": row["library"],
        "time_ms": row[C.kernel_time_us] / 1000,
        "efficiency_pct": row[C.pct_roofline],
        "percent_of_total": row[C.percent_of_total],
        **score_fields(impact.gap_scores(gap_pct)),
    }


def finding_entries(chosen: Recommended, result: AnalysisResult) -> list[JsonValue]:
    """Return the findings of an analysis that get a card, with rank, group and scores."""
    return [
        {
            **worded(finding),
            "rank": rank,
            **score_fields(scores(finding)),
            "step_saved_ms": finding.impact.gain_ms
            if finding.impact and finding.impact.step_ms
            else None,
            "estimate_method": _METHODS[finding.impact.method] if finding.impact else None,
            **(_group(finding, chosen.rows(finding)) if result.tier == "compute" else {}),
        }
        for rank, finding in enumerate(chosen.of(result.key), start=1)
    ]


def _group(finding: Finding, rows: pl.DataFrame) -> Json:
    """Return the common properties of a finding's rows: those of the heaviest one."""
    members = rows.to_dicts()
    heaviest: Mapping[str, Any] = members[0] if members else {}
    efficiency = finding.impact.efficiency_pct if finding.impact else None
    return {
        "bound_type": bound_type(heaviest.get(C.bound)),
        "library": heaviest.get("library"),
        "eff_bucket": _bucket(efficiency),
        "time_ms": sum(row[C.kernel_time_us] for row in members) / 1000,
        "percent_of_total": sum(row[C.percent_of_total] or 0.0 for row in members),
        "operation_count": sum(row[C.operation_count] for row in members),
        "member_count": len(members),
        "members": [_member(row) for row in members],
    }


def _member(row: Mapping[str, Any]) -> JsonValue:
    return {
        "operation": row[C.name],
        "ex_uid": row[C.uid],
        "time_ms": row[C.kernel_time_us] / 1000,
        "count": row[C.operation_count],
        "efficiency_pct": row[C.pct_roofline],
        "percent_of_total": row[C.percent_of_total],
    }


def _bucket(efficiency_pct: float | None) -> str:
    if efficiency_pct is None:
        return NO_BUCKET
    return next(name for below, name in EFFICIENCY_BUCKETS if efficiency_pct < below)
