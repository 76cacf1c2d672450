"""The reports of a good run pass; each planted fault fails only its check."""

from pathlib import Path

import pytest

from jarvis.core.workspace import RunPaths
from jarvis.validation.check import Find
from tests.layout import analysis_report as report
from tests.layout import checks, figures, findings_files, wording
from tests.layout import comparative_report as comparative
from tests.layout import fair_report as fair
from tests.planting import Fault, change_json, substitute


def fair_of(paths: RunPaths) -> Path:
    return paths.standalone_report("fair")


def rough_of(paths: RunPaths) -> Path:
    return paths.standalone_report("rough")


def analysis(paths: RunPaths) -> Path:
    return paths.analysis_report


def gemm(paths: RunPaths) -> Path:
    return paths.findings("gemm", "compute")


def compared_of(paths: RunPaths) -> Path:
    return paths.comparative_report("fair")


def between(begin: str, end: str) -> str:
    """Return the text between two comments, including them."""
    return rf"<!-- {begin}(?:.*\n)*?.*<!-- {end} -->"


def repeat_top_operations(path: Path) -> None:
    substitute(path, r"^(\| Rank .*\n(?:\|.*\n)+)", r"\1\n\1")


def longer_summary(paths: RunPaths) -> None:
    row = "| Something | else |\n"
    substitute(fair_of(paths), r"^(\| Flash Attention Usage .*\n)", rf"\1{row * 20}")


def fused(paths: RunPaths, impact: str) -> None:
    """Return a recommendation of the fusion part, with its details."""
    marks = "<!-- impact-begin kind=p_item category=kernel_fusion low=1.00 mid=2.00 high=3.00 -->"
    labels = f"**Insight**: i.\n\n**Action**: a.\n\n{marks}\n**Impact**: {impact}\n"
    item = f"### P1: Norm\n\n{labels}<!-- impact-end -->\n"
    details = "<!-- reasoning-candidate tier=fusion rank=1 -->\n#### P1: Norm\n"
    path = analysis(paths)
    substitute(path, "^No kernel fusion opportunities detected.$", item)
    substitute(path, "^### Kernel Fusion Insights$", rf"\g<0>\n\n{details}")


FAULTS: dict[str, tuple[Find, Fault]] = {
    "an image is missing": (
        figures.images_are_there,
        lambda p: substitute(rough_of(p), r"\Z", "\n![Wall time](wall_time.png)\n"),
    ),
    "a part is missing": (
        fair.parts_are_in_order,
        lambda p: substitute(fair_of(p), "^## Appendix", "## Notes"),
    ),
    "a long summary": (fair.summary_is_short, longer_summary),
    "a long report": (
        fair.report_is_short,
        lambda p: substitute(fair_of(p), r"^## Appendix\n", "## Appendix\n\n" + "word " * 1500),
    ),
    "a long card": (
        fair.cards_are_short,
        lambda p: substitute(fair_of(p), r"^(- \*\*Impact\*\*.*)", r"\1" + "\n- and more" * 6),
    ),
    "a card without path B": (
        fair.cards_are_complete,
        lambda p: substitute(fair_of(p), r"^- \*\*Action B.*\n", ""),
    ),
    "a card without link": (
        fair.cards_are_complete,
        lambda p: substitute(fair_of(p), r" → \[evidence\].*", ""),
    ),
    "a gap in the numbers": (
        fair.recommendations_are_numbered_without_gaps,
        lambda p: substitute(fair_of(p), r"^\| \[P2\]", "| [P3]"),
    ),
    "a link to nowhere": (
        fair.links_lead_somewhere,
        lambda p: substitute(fair_of(p), r"\]\(#-p1-", "](#-p0-"),
    ),
    "an issue reported twice": (
        fair.facts_occur_once,
        lambda p: substitute(
            fair_of(p), r"^- \*\*Issue\*\*: (.*`.*)\n((?:.*\n)*?)(## Appendix)", r"\g<0>\n\n\1\n"
        ),
    ),
    "a table twice": (fair.facts_occur_once, lambda p: repeat_top_operations(fair_of(p))),
    "an efficiency above the peak": (
        fair.efficiencies_above_the_peak_are_marked,
        lambda p: substitute(gemm(p), r"194\.1% ⚠ anomaly", "194.1%"),
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
        lambda p: substitute(analysis(p), r"(category=gemm low=([\d.]+)) mid=[\d.]+", r"\1 mid=\2"),
    ),
    "a top operation unmarked": (
        report.top_operations_are_the_priorities,
        lambda p: substitute(analysis(p), "<!-- top-ops-row .*-->", ""),
    ),
    "details of the report unmarked": (
        report.analysis_details_are_marked,
        lambda p: substitute(analysis(p), "^<!-- reasoning-candidate .*\n", ""),
    ),
    "a model that the appendix does not tell": (
        report.appendix_has_the_model,
        lambda p: change_json(p.model_info, lambda facts: facts.update(model="GPT-5")),
    ),
    "an idle share that is not the timeline's": (
        figures.reports_give_the_shares_of_the_timeline,
        lambda p: substitute(fair_of(p), r"[\d.]+% idle", "99.0% idle"),
    ),
    "another bandwidth": (
        figures.hardware_is_named,
        lambda p: substitute(analysis(p), r"5\.3 TB/s$", "5.4 TB/s"),
    ),
    "no compute peak": (
        figures.hardware_is_named,
        lambda p: substitute(analysis(p), r"^.*Peak MAF.*\n", "", count=0),
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

COMPARED: dict[str, tuple[Find, Fault]] = {
    "another title": (
        comparative.comparative_reports_have_the_title,
        lambda p: substitute(compared_of(p), r"^# Tiny Performance Comparison", "# Performance"),
    ),
    "no appendix": (
        comparative.comparative_parts_are_in_order,
        lambda p: substitute(compared_of(p), "^## Appendix", "### Annex"),
    ),
    "no inputs": (
        comparative.comparative_parts_are_in_order,
        lambda p: substitute(compared_of(p), "^### Inputs", "### Words"),
    ),
    "too many words": (
        comparative.comparative_report_is_short,
        lambda p: substitute(compared_of(p), r"\Z", "\n" + "a word " * 800),
    ),
    "a long summary": (
        comparative.comparative_summary_is_short,
        lambda p: substitute(compared_of(p), "^### Key Findings\n", r"\g<0>" + "\n- and more" * 20),
    ),
    "a card without gap": (
        comparative.comparative_cards_are_complete,
        lambda p: substitute(compared_of(p), r"^- \*\*Gap\*\*.*\n", ""),
    ),
    "a card without link": (
        comparative.comparative_cards_are_complete,
        lambda p: substitute(compared_of(p), r"^- → .*\n", ""),
    ),
    "a long card": (
        comparative.comparative_cards_are_complete,
        lambda p: substitute(compared_of(p), r"^(- \*\*Impact\*\*.*)", r"\1" + "\n- and more" * 8),
    ),
    "another number": (
        comparative.comparative_cards_are_the_findings,
        lambda p: substitute(compared_of(p), r"^(### .*) Priority 2 \(", r"\1 Priority 7 ("),
    ),
    "a finding that is not reported": (
        comparative.comparative_cards_are_the_findings,
        lambda p: substitute(compared_of(p), r"^### \S+ Priority 2 .*\n(?:\n|- .*\n)*", ""),
    ),
    "another column": (
        comparative.comparative_details_have_a_table,
        lambda p: substitute(
            compared_of(p), r"^\| Metric .* Expected\? \|$", "| A | B | C | D | E |"
        ),
    ),
    "another total": (
        comparative.comparative_summary_gives_the_steps,
        lambda p: substitute(
            compared_of(p), r"^(\| Compute \| [^|]+) \| [\d.]+ ms", r"\1 | 9.99 ms"
        ),
    ),
    "an operation that is not worked out": (
        comparative.every_compared_operation_is_worked_out,
        lambda p: substitute(p.comparative_report("rough"), r"^\| 1 \| `aten.* per call .*\n", ""),
    ),
    "another ratio": (
        comparative.every_compared_operation_is_worked_out,
        lambda p: substitute(p.comparative_report("rough"), r"= [\d.]+ per call", "= 77 per call"),
    ),
}


def failed(root: Path) -> set[str]:
    return {check.find.__name__ for check in checks.problems(root)}


def test_the_reports_of_good_runs_have_their_layout(made_once: Path, compared_once: Path) -> None:
    assert checks.problems(made_once) == {}
    assert checks.problems(compared_once) == {}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_its_check_and_no_other(name: str, good_run: Path) -> None:
    find, plant = FAULTS[name]
    plant(RunPaths(good_run))
    assert failed(good_run) == {find.__name__}


@pytest.mark.parametrize("name", COMPARED)
def test_a_fault_in_a_comparison_fails_its_check(name: str, compared_run: Path) -> None:
    find, plant = COMPARED[name]
    plant(RunPaths(compared_run))
    assert failed(compared_run) == {find.__name__}


def test_every_check_has_a_fault() -> None:
    planted = {find for find, _ in (*FAULTS.values(), *COMPARED.values())}
    assert planted == {check.find for check in checks.CHECKS}


def test_problems_name_file_and_line(good_run: Path) -> None:
    path = fair_of(RunPaths(good_run))
    substitute(path, r"\]\(#-p1-", "](#-p0-")
    line = 1 + path.read_text(encoding="utf-8").partition("](#-p0-")[0].count("\n")
    assert [[str(p) for p in found] for found in checks.problems(good_run).values()] == [
        [
            f"standalone_analysis_fair.md:{line}: The link "
            "#-p0-high-the-gpu-waits-for-communication leads to no heading of this name."
        ]
    ]
