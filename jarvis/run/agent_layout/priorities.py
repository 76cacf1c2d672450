"""``priority_data.json``: the findings of all categories, in the order of the run.

It determines the order of ``analysis.md``; tools use it for charts and rankings.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from jarvis.findings import AnalysisResult, Status
from jarvis.run.agent_layout.estimates import (
    HEURISTIC,
    SCORE_DIGITS,
    finding_entries,
    operation_estimates,
)
from jarvis.run.agent_layout.recommended import Recommended

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
