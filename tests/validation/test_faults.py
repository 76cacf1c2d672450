"""A good run passes; each planted fault fails the check that it is for, and no other."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jarvis.core.workspace import RunPaths
from jarvis.validation import (
    CHECKS,
    Outcome,
    Verdict,
    comparative_report,
    files,
    findings_files,
    is_valid,
    numbers,
    validate,
    wording,
)
from jarvis.validation import analysis_report as report
from jarvis.validation import fair_report as fair
from jarvis.validation.check import Find

Fault = Callable[[RunPaths], None]


def substitute(path: Path, pattern: str, replacement: str, count: int = 1) -> None:
    """Replace the first matches; a fault that changes nothing is no fault."""
    text = path.read_text(encoding="utf-8")
    changed, found = re.subn(pattern, replacement, text, count=count, flags=re.MULTILINE)
    assert found, f"{pattern} is not in {path.name}"
    path.write_text(changed, encoding="utf-8")


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def change_manifests(paths: RunPaths, change: Callable[[Any], None]) -> None:
    for manifest in paths.category_manifests:
        change_json(manifest, change)


def fair_of(paths: RunPaths) -> Path:
    return paths.standalone_report("fair")


def rough_of(paths: RunPaths) -> Path:
    return paths.standalone_report("rough")


def analysis(paths: RunPaths) -> Path:
    return paths.analysis_report


def gemm(paths: RunPaths) -> Path:
    return paths.findings("gemm", "compute")


def no_system_folder(paths: RunPaths) -> None:
    # Its files are missing too, so the manifest lists none of them.
    folder = paths.findings("any", "system").parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    is_compute = "compute_kernel".__eq__
    change_manifests(
        paths,
        lambda m: m.update(categories=[c for c in m["categories"] if is_compute(c["tier"])]),
    )


def between(begin: str, end: str) -> str:
    """What stands between two comments, with them."""
    return rf"<!-- {begin}(?:.*\n)*?.*<!-- {end} -->"


def repeat_top_operations(path: Path) -> None:
    substitute(path, r"^(\| Rank .*\n(?:\|.*\n)+)", r"\1\n\1")


def longer_summary(paths: RunPaths) -> None:
    row = "| Something | else |\n"
    substitute(fair_of(paths), r"^(\| Flash Attention Usage .*\n)", rf"\1{row * 20}")


def foreign_findings(paths: RunPaths) -> None:
    gemm(paths).with_name("other_tool_findings.md").write_text(gemm(paths).read_text())


def nan(paths: RunPaths) -> None:
    substitute(paths.metadata("gemm"), r'"memory_gb": [\d.]+', '"memory_gb": NaN')


def saves_more_than_it_takes(results: Any) -> None:
    impact = results["gemm"]["findings"][0]["impact"]
    impact["saved_ms"]["high"] = 1.01 * impact["time_ms"]


def savings_beyond_the_total(results: Any) -> None:
    results["cpu_idle"]["findings"][0]["impact"]["saved_ms"]["mid"] = 1e6


def change_priority_data(paths: RunPaths, change: Callable[[Any], None]) -> None:
    for path in paths.priority_data:
        change_json(path, change)


def fused(paths: RunPaths, impact: str) -> None:
    """A recommendation in the part about fusion, with its details."""
    marks = "<!-- impact-begin kind=p_item category=kernel_fusion low=1.00 mid=2.00 high=3.00 -->"
    labels = f"**Insight**: i.\n\n**Action**: a.\n\n{marks}\n**Impact**: {impact}\n"
    item = f"### P1: Norm\n\n{labels}<!-- impact-end -->\n"
    details = "<!-- reasoning-candidate tier=fusion rank=1 -->\n#### P1: Norm\n"
    path = analysis(paths)
    substitute(path, "^No kernel fusion opportunities detected.$", item)
    substitute(path, "^### Kernel Fusion Insights$", rf"\g<0>\n\n{details}")


def second_rank_twice(manifest: Any) -> None:
    manifest["top_operations"][2]["rank"] = 2


def idle_share_off(manifest: Any) -> None:
    manifest["gpu_utilization"]["idle_time_percent"] += 1.1


def gemm_time_off(manifest: Any) -> None:
    entry = next(c for c in manifest["categories"] if c["name"] == "gemm")
    entry["gpu_kernel_time_ms"] *= 1.5


FAULTS: dict[str, tuple[Find, Fault]] = {
    "a folder is gone": (files.folders_are_there, no_system_folder),
    "the rough report is gone": (files.reports_are_there, lambda p: rough_of(p).unlink()),
    "a sheet is gone": (
        files.sheets_are_there,
        lambda p: (p.perf_report_csvs / "unified_perf_summary.csv").unlink(),
    ),
    "metadata are gone": (files.metadata_files_are_there, lambda p: p.metadata("gemm").unlink()),
    "call paths are gone": (files.prepared_files_are_there, lambda p: p.tree_data("gemm").unlink()),
    "findings are gone": (
        files.findings_are_in_the_folder_of_their_tier,
        lambda p: p.findings("triton", "compute").unlink(),
    ),
    "findings of no analysis": (files.findings_are_in_the_folder_of_their_tier, foreign_findings),
    "NaN in JSON": (files.json_is_strict, nan),
    "JSON cut off": (
        files.json_is_strict,
        lambda p: p.tree_data("gemm").write_bytes(p.tree_data("gemm").read_bytes()[:-4]),
    ),
    "manifests differ": (
        files.category_manifests_agree,
        lambda p: change_json(p.category_manifests[1], lambda m: m.update(cpu_idle_critical=9)),
    ),
    "an image is missing": (
        files.images_are_there,
        lambda p: substitute(rough_of(p), r"\Z", "\n![Wall time](wall_time.png)\n"),
    ),
    "a part is missing": (
        fair.parts_are_in_order,
        lambda p: substitute(fair_of(p), "^## Appendix", "## Notes"),
    ),
    "a long summary": (fair.summary_is_short, longer_summary),
    "a long card": (
        fair.cards_are_short,
        lambda p: substitute(fair_of(p), r"^(- \*\*Impact\*\*.*)", r"\1" + "\n- and more" * 5),
    ),
    "a card without path B": (
        fair.cards_are_complete,
        lambda p: substitute(fair_of(p), r"^- \*\*Action B.*\n", ""),
    ),
    "a card without link": (
        fair.cards_are_complete,
        lambda p: substitute(fair_of(p), r"^- → .*\n", ""),
    ),
    "a gap in the numbers": (
        fair.recommendations_are_numbered_without_gaps,
        lambda p: substitute(fair_of(p), r"^(### .*) P2 \(", r"\1 P22 ("),
    ),
    "a link to nowhere": (
        fair.links_lead_somewhere,
        lambda p: substitute(fair_of(p), r"\]\(#p1-", "](#p0-"),
    ),
    "an issue told twice": (
        fair.facts_are_told_once,
        lambda p: substitute(
            fair_of(p), r"^- \*\*Issue\*\*: (.*)\n((?:.*\n)*?)(## Appendix)", r"\g<0>\n\n\1\n"
        ),
    ),
    "a table twice": (fair.facts_are_told_once, lambda p: repeat_top_operations(fair_of(p))),
    "an efficiency above the peak": (
        fair.efficiencies_above_the_peak_are_marked,
        lambda p: substitute(fair_of(p), r"194\.1% ⚠ anomaly", "194.1%"),
    ),
    "details before recommendations": (
        findings_files.recommendations_come_before_details,
        lambda p: substitute(gemm(p), "^## Detailed Analysis", "## Afterthoughts"),
    ),
    "findings without recommendations": (
        findings_files.findings_are_recommendations,
        lambda p: substitute(
            gemm(p),
            r"^(## Recommendations)(?:.*\n)*?^(## Detailed Analysis)(?:.*\n)*",
            r"\1\n\n\2\n",
        ),
    ),
    "no insight": (
        findings_files.recommendations_have_their_labels,
        lambda p: substitute(gemm(p), r"^\*\*Insight\*\*", "Insight"),
    ),
    "details of another tier": (
        findings_files.details_match_recommendations,
        lambda p: substitute(gemm(p), "candidate tier=compute", "candidate tier=system"),
    ),
    "details of another number": (
        findings_files.details_match_recommendations,
        lambda p: substitute(gemm(p), "tier=compute rank=1", "tier=compute rank=4"),
    ),
    "details unmarked": (
        findings_files.details_match_recommendations,
        lambda p: substitute(gemm(p), r"<!-- reasoning-candidate .*-->\n", ""),
    ),
    "columns in another order": (
        findings_files.details_have_their_table,
        lambda p: substitute(gemm(p), r"\| Kernel Path \| Kernel Name", "| Kernel Name | Path"),
    ),
    "another kernel in the table": (
        findings_files.tables_quote_the_metrics,
        lambda p: substitute(gemm(p), r"\| gemm_a \|", "| gemm_x |"),
    ),
    "a marker without end": (
        findings_files.impacts_are_marked,
        lambda p: substitute(gemm(p), r"<!-- impact-end -->", ""),
    ),
    "null beside numbers": (
        findings_files.impacts_are_marked,
        lambda p: substitute(gemm(p), r"(kind=p_item.*) mid=[\d.]+", r"\1 mid=null"),
    ),
    "a recommendation without marker": (
        findings_files.impacts_are_marked,
        lambda p: substitute(
            p.findings("cpu_idle", "system"),
            between("impact-begin kind=p_item", "impact-end"),
            "**Impact**: much.",
        ),
    ),
    "no estimate": (
        findings_files.details_estimate_their_impact,
        lambda p: substitute(
            gemm(p), between("impact-begin kind=detail_estimate", "impact-end"), "It is some."
        ),
    ),
    "details with another impact": (
        findings_files.details_repeat_the_impact,
        lambda p: substitute(gemm(p), r"(kind=detail_estimate low=)[\d.]+", r"\g<1>0.01"),
    ),
    "details without resolution": (
        findings_files.details_have_their_labels,
        lambda p: substitute(gemm(p), r"^\*\*Resolution:\*\*", "Resolution:"),
    ),
    "advice of a failed analysis": (
        findings_files.failed_analyses_recommend_nothing,
        lambda p: substitute(p.findings("triton", "compute"), r"\Z", "\n### P1: Do more\n"),
    ),
    "another part than the six": (
        report.analysis_report_has_its_parts,
        lambda p: substitute(analysis(p), r"\Z", "\n## Notes\n"),
    ),
    "four metrics": (
        report.analysis_report_has_its_metrics,
        lambda p: substitute(analysis(p), r"^\| Exposed Communication % .*\n", ""),
    ),
    "a metric without value": (
        report.analysis_report_has_its_metrics,
        lambda p: substitute(analysis(p), r"^\| Total Time \|.*\|", "| Total Time | — |"),
    ),
    "an item without action": (
        report.analysis_items_have_their_labels,
        lambda p: substitute(analysis(p), r"^\*\*Action\*\*: ", ""),
    ),
    "a gap in a tier's numbers": (
        report.analysis_items_are_numbered_without_gaps,
        lambda p: substitute(analysis(p), "^### (.*) P2:", r"### \1 P4:"),
    ),
    "another kernel in the report's table": (
        report.analysis_quotes_the_metrics,
        lambda p: substitute(analysis(p), r"\| gemm_a \|", "| gemm_x |"),
    ),
    "a fusion without coverage": (
        report.fusion_impacts_name_their_coverage,
        lambda p: fused(p, "impact_score: 2.00"),
    ),
    "an item without category": (
        report.analysis_impacts_are_marked,
        lambda p: substitute(analysis(p), "kind=p_item category=cpu_idle", "kind=p_item"),
    ),
    "another score": (
        report.compute_items_are_the_findings,
        lambda p: substitute(analysis(p), r"(category=gemm low=[\d.]+) mid=[\d.]+", r"\1 mid=20"),
    ),
    "a top operation unmarked": (
        report.top_operations_are_the_priorities,
        lambda p: substitute(analysis(p), "<!-- top-ops-row .*-->", ""),
    ),
    "details of the report unmarked": (
        report.analysis_details_are_marked,
        lambda p: substitute(analysis(p), "^<!-- reasoning-candidate .*\n", ""),
    ),
    "no precision": (
        report.model_is_told,
        lambda p: change_json(p.model_info, lambda facts: facts.pop("precision")),
    ),
    "a model that the appendix does not tell": (
        report.model_is_told,
        lambda p: change_json(p.model_info, lambda facts: facts.update(model="GPT-5")),
    ),
    "a priority that is not its sum": (
        report.priorities_are_sorted_and_add_up,
        lambda p: change_priority_data(
            p, lambda data: data["priorities"][0].update(impact_score=1.0)
        ),
    ),
    "a rank of a finding twice": (
        report.priorities_are_sorted_and_add_up,
        lambda p: change_priority_data(p, lambda data: data["findings"][1].update(global_rank=1)),
    ),
    "priority data differ": (
        report.priority_data_agree,
        lambda p: change_json(p.priority_data[1], lambda data: data.update(baseline_ms=0)),
    ),
    "an idle share that is not the timeline's": (
        numbers.reports_give_the_shares_of_the_timeline,
        lambda p: substitute(fair_of(p), r"[\d.]+% idle", "99.0% idle"),
    ),
    "another bandwidth": (
        numbers.hardware_is_told,
        lambda p: substitute(analysis(p), r"5\.3 TB/s$", "5.4 TB/s"),
    ),
    "no compute peak": (
        numbers.hardware_is_told,
        lambda p: substitute(analysis(p), r"^.*Peak MAF.*\n", "", count=0),
    ),
    "another idle share": (
        numbers.shares_equal_the_timeline,
        lambda p: change_manifests(p, idle_share_off),
    ),
    "categories take longer than compute": (
        numbers.category_times_add_up,
        lambda p: change_manifests(p, gemm_time_off),
    ),
    "a rank twice": (
        numbers.ranks_are_contiguous,
        lambda p: change_manifests(p, second_rank_twice),
    ),
    "saves more than it takes": (
        numbers.impacts_stay_within_their_share,
        lambda p: change_json(p.results, saves_more_than_it_takes),
    ),
    "savings beyond the total": (
        numbers.savings_add_up_to_less_than_the_total,
        lambda p: change_json(p.results, savings_beyond_the_total),
    ),
    "a vendor's word": (
        wording.words_are_vendor_neutral,
        lambda p: substitute(rough_of(p), r"\Z", "\nTry a CUDA graph.\n"),
    ),
    "a claim": (
        wording.claims_are_what_a_trace_can_show,
        lambda p: substitute(gemm(p), r"\Z", "\nLow occupancy slows it. Wait.\n"),
    ),
    "a winner": (wording.nobody_wins, lambda p: substitute(rough_of(p), r"\Z", "\nThe winner.\n")),
    "a placeholder": (
        wording.placeholders_are_filled,
        lambda p: substitute(gemm(p), r"\Z", "\n### P1 <Brief Title>\n"),
    ),
    "raw data for a report": (
        wording.reports_are_text,
        lambda p: rough_of(p).write_text('{"executive": "summary"}' * 9),
    ),
}


def told(outcomes: list[Outcome]) -> set[Find]:
    return {outcome.check.find for outcome in outcomes if outcome.problems}


def test_the_good_run_passes(made_once: Path) -> None:
    problems = [str(p) for o in validate(made_once) for p in o.problems]
    assert problems == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_its_check_and_no_other(name: str, good_run: Path) -> None:
    find, plant = FAULTS[name]
    plant(RunPaths(good_run))
    outcomes = validate(good_run)
    assert {f.__name__ for f in told(outcomes)} == {find.__name__}
    outcome = next(outcome for outcome in outcomes if outcome.problems)
    assert is_valid(outcomes) == outcome.check.is_warning
    for problem in outcome.problems:
        assert problem.file
        assert problem.text.endswith(".")


def test_every_check_has_a_fault() -> None:
    comparative = {check.find for check in comparative_report.CHECKS}  # have their own faults
    assert {find for find, _ in FAULTS.values()} == {c.find for c in CHECKS} - comparative


def test_a_file_of_another_layout_is_a_problem_and_no_crash(good_run: Path) -> None:
    change_manifests(RunPaths(good_run), lambda m: m.update(categories=[{"name": "gemm"}]))
    outcomes = validate(good_run)
    texts = [problem.text for outcome in outcomes for problem in outcome.problems]
    assert any("has not the expected layout" in text for text in texts)
    assert not is_valid(outcomes)


def test_problems_name_file_and_line(good_run: Path) -> None:
    report = fair_of(RunPaths(good_run))
    substitute(report, r"\]\(#p1-", "](#p0-")
    line = 1 + report.read_text(encoding="utf-8").partition("](#p0-")[0].count("\n")
    failed = [o for o in validate(good_run) if o.verdict is Verdict.FAIL]
    assert [str(p) for p in failed[0].problems] == [
        f"standalone_analysis_fair.md:{line}: The link #p0-low-efficiency-atenmm leads to no "
        "heading of this name."
    ]
