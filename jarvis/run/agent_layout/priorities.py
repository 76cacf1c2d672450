"""``priority_data.json``: the findings of all categories, in the order of the run.

It determines the order of ``analysis.md``; tools use it for charts and rankings. A score is a share
of the GPU window in percent. That of a gap to the roofline is fixed (``impact.gap_scores``) and
independent of the target of our own projections.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis import impact, savings
from jarvis.analyses.operations import DETAILS
from jarvis.findings import AnalysisResult, Finding, Range, Status, worded
from jarvis.perf_report.efficiency import MEMORY_ONLY
from jarvis.run.run import Run
from jarvis.schemas import TABLES
from jarvis.schemas.names import C
from jarvis.schemas.rows import RowsByUid

COLUMNS = (*(column.name for column in TABLES["operations"]), *(c.name for c in DETAILS))
"""Columns that the rows of every category have, in addition to ``category``."""


@dataclass(frozen=True)
class Recommended:
    """The recommendations of ``run``; sorted and joined once, as the order depends on all
    findings."""

    run: Run

    def of(self, key: str) -> list[Finding]:
        """Return the findings of an analysis, most urgent first; those of low priority get no
        card."""
        return [finding for finding in self.ranked if finding.category == key]

    def rows(self, finding: Finding) -> pl.DataFrame:
        """Return its operations or, without any, those of other categories whose time it shares.

        Most time first, with COLUMNS and ``category``.
        """
        uids = [reference.uid for reference in finding.operations] or finding.shared_uids
        return self._rows.of(uids)

    @cached_property
    def ranked(self) -> list[Finding]:
        """Return the findings of all analyses that get a card, in the order of the run."""
        everything = (f for result in self.run.results.values() for f in result.findings)
        ordered = savings.ranked(everything, self.run.manifest.totals)
        return [finding for finding in ordered if finding.has_agent_card]

    @cached_property
    def _rows(self) -> RowsByUid:
        columns = [*COLUMNS, C.category]
        categories = [
            self.run.category_operations(result.key)[columns]
            for result in self.run.results.values()
            if result.tier == "compute" and result.status is Status.OK and result.row_count
        ]
        if not categories:
            return RowsByUid(pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64())))
        order: Mapping[str, bool] = {"kernel_time_us": True, "uid": False}
        rows = pl.concat(categories).sort(list(order), descending=list(order.values()))
        return RowsByUid(rows)


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


_ESTIMATED = [
    C.name,
    C.uid,
    C.bound,
    "library",
    C.kernel_time_us,
    C.pct_roofline,
    C.percent_of_total,
]


def operation_estimates(category: str, rows: pl.DataFrame) -> list[JsonValue]:
    """Return the rows with a known and relevant gap to the roofline, largest score first."""
    efficiency = pl.col(C.pct_roofline)
    rated = rows[_ESTIMATED].filter(impact.has_efficiency() & (efficiency < impact.FULL_PCT))
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


UNMODELLED_COMPUTE_PCT = 5.0
"""Categories from this share of compute on are listed even without quantified findings."""

RECOMMENDATIONS = 6
"""Maximum number of categories in a chart."""

SCORES = ("impact_score_low", "impact_score", "impact_score_high")

Entry = dict[str, Any]


def priority_data(chosen: Recommended) -> Entry:
    """Return the content of the file.

    ``findings`` are in the order of the run and joined to a findings file by ``category`` and
    ``category_rank``; ``priorities`` are categories by GPU time.
    """
    run = chosen.run
    results = [r for r in run.results.values() if r.tier == "compute" and r.status is Status.OK]
    findings, estimates = list[Entry](), list[Any]()
    for result in results:
        rows = run.category_operations(result.key)
        estimates += operation_estimates(result.key, rows)
        findings += _findings(result, finding_entries(chosen, result))
    places = _places(chosen)
    findings.sort(key=lambda entry: places[entry["category"], entry["category_rank"]])
    for rank, finding in enumerate(findings, start=1):
        finding["global_rank"] = rank
    sums = {result.key: _sums(result.key, findings) for result in results}
    return {
        "baseline_ms": run.manifest.totals.total_time_ms,
        "findings": findings,
        "priorities": _priorities(results, sums),
        "recommendations": _recommendations(results, sums),
        "all_estimates": estimates,
    }


def _findings(result: AnalysisResult, entries: list[Any]) -> list[Entry]:
    return [
        {"category_rank": entry.pop("rank"), **entry, "category": result.key} for entry in entries
    ]


def _places(chosen: Recommended) -> dict[tuple[str, int], int]:
    """Return the place of each finding among all, by category and its rank there."""
    ranks: Counter[str] = Counter()
    places = {}
    for place, finding in enumerate(chosen.ranked):
        ranks[finding.category] += 1
        places[finding.category, ranks[finding.category]] = place
    return places


def _sums(category: str, findings: list[Entry]) -> dict[str, float]:
    """Return the sums of the scores of a category's findings; empty if none is quantified."""
    scored = [
        finding
        for finding in findings
        if finding["category"] == category
        and finding["impact_score"] is not None
        and finding["estimate_method"] != HEURISTIC
    ]
    if not scored:
        return {}
    return {name: round(sum(f[name] for f in scored), SCORE_DIGITS) for name in SCORES}


def _recommendations(
    results: list[AnalysisResult], sums: Mapping[str, Mapping[str, float]]
) -> list[Entry]:
    ranked = sorted(
        (result for result in results if sums[result.key]),
        key=lambda result: (-sums[result.key]["impact_score"], result.key),
    )
    return [
        {
            "category": result.key,
            "display_name": result.title,
            "type": "kernel_tuning",
            **sums[result.key],
        }
        for result in ranked[:RECOMMENDATIONS]
    ]


def _priorities(
    results: list[AnalysisResult], sums: Mapping[str, Mapping[str, float]]
) -> list[Entry]:
    listed = [
        result
        for result in sorted(results, key=lambda r: (-r.gpu_time_ms, r.key))
        if sums[result.key] or (result.percent_of_compute or 0.0) >= UNMODELLED_COMPUTE_PCT
    ]
    return [
        {
            "rank": rank,
            "category": result.key,
            "display_name": result.title,
            **(sums[result.key] or dict.fromkeys(SCORES)),
            "gpu_kernel_time_ms": result.gpu_time_ms,
            "source": "findings_rollup" if sums[result.key] else "manifest_fallback",
        }
        for rank, result in enumerate(listed, start=1)
    ]
