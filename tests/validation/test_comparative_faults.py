"""A good comparison passes; each planted fault fails the check that it is for, and no other."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jarvis.cli import main
from jarvis.core.workspace import RunPaths
from jarvis.validation import CHECKS, is_valid, validate
from jarvis.validation import comparative_report as report
from jarvis.validation.check import Find
from tests.validation.test_faults import change_json, substitute, told

Fault = Callable[[RunPaths], None]


def fair(paths: RunPaths) -> Path:
    return paths.comparative_report("fair")


def change_table(paths: RunPaths, name: str, change: Callable[[list[dict[str, str]]], Any]) -> None:
    path = paths.comparison_table(name)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    change(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def row_of(rows: list[dict[str, str]], name: str) -> dict[str, str]:
    return next(row for row in rows if row["name"] == name)


def longer_category(rows: list[dict[str, str]]) -> None:
    for column in ("target_ms", "difference_ms"):
        rows[0][column] = str(float(rows[0][column]) + 1)
    share = 100 * float(rows[0]["difference_ms"]) / float(rows[0]["reference_ms"])
    rows[0]["difference_pct"] = str(share)


def other_ratio(rows: list[dict[str, str]]) -> None:
    row = row_of(rows, "aten::add")
    for column in ("expected_ratio", "expected_ratio_least", "expected_ratio_most"):
        row[column] = "0.7"


def doubled_finding(facts: dict[str, Any]) -> None:
    first, *others = facts["findings"]
    copy = {**first, "title": others[0]["title"]}
    facts["findings"][1] = copy


FAULTS: dict[str, tuple[Find, Fault]] = {
    "the rough report is gone": (
        report.comparative_reports_are_there,
        lambda p: p.comparative_report("rough").unlink(),
    ),
    "a table is gone": (
        report.comparative_reports_are_there,
        lambda p: p.comparison_table("comparison_kernels").unlink(),
    ),
    "another title": (
        report.comparative_reports_name_both_sides,
        lambda p: substitute(fair(p), r"^# Tiny Performance Comparison", "# Performance"),
    ),
    "roles exchanged": (
        report.comparative_reports_name_both_sides,
        lambda p: [
            change_json(p.comparison, lambda facts: facts.update(title=exchanged(facts["title"]))),
            *(
                substitute(p.comparative_report(kind), "^# .*", exchanged_heading(p, kind))
                for kind in ("fair", "rough")
            ),
        ],
    ),
    "no appendix": (
        report.comparative_parts_are_in_order,
        lambda p: substitute(fair(p), "^## Appendix", "### Annex"),
    ),
    "no method": (
        report.comparative_parts_are_in_order,
        lambda p: substitute(fair(p), "^### Methodology", "### Words"),
    ),
    "a long summary": (
        report.comparative_summary_is_short,
        lambda p: substitute(fair(p), "^### Key Findings\n", r"\g<0>" + "\n- and more" * 15),
    ),
    "a card without gap": (
        report.comparative_cards_are_complete,
        lambda p: substitute(fair(p), r"^- \*\*Gap\*\*.*\n", ""),
    ),
    "a card without link": (
        report.comparative_cards_are_complete,
        lambda p: substitute(fair(p), r"^- → .*\n", ""),
    ),
    "a long card": (
        report.comparative_cards_are_complete,
        lambda p: substitute(fair(p), r"^(- \*\*Impact\*\*.*)", r"\1" + "\n- and more" * 6),
    ),
    "another number": (
        report.comparative_cards_are_the_findings,
        lambda p: substitute(fair(p), r"^(### .*) Priority 2 \(", r"\1 Priority 7 ("),
    ),
    "a finding that is not told": (
        report.comparative_cards_are_the_findings,
        lambda p: substitute(fair(p), r"^### \S+ Priority 2 .*\n(?:\n|- .*\n)*", ""),
    ),
    "no analysis": (
        report.comparative_details_say_what_is_expected,
        lambda p: substitute(fair(p), r"^\*\*Analysis\*\*:.*\n", ""),
    ),
    "another column": (
        report.comparative_details_say_what_is_expected,
        lambda p: substitute(fair(p), r"^\| Metric .* Expected\? \|$", "| A | B | C | D | E |"),
    ),
    "another total": (
        report.comparative_summary_gives_the_timelines,
        lambda p: substitute(
            fair(p), r"^(\| Total Compute \| [^|]+) \| [\d.]+ ms", r"\1 | 9.99 ms"
        ),
    ),
    "a difference with the wrong sign": (
        report.differences_are_target_less_reference,
        lambda p: change_table(
            p,
            "comparison_totals",
            lambda rows: rows[0].update(difference_ms=f"-{rows[0]['difference_ms']}"),
        ),
    ),
    "a share of the target": (
        report.differences_are_target_less_reference,
        lambda p: change_table(
            p,
            "comparison_totals",
            lambda rows: rows[0].update(
                difference_pct=str(
                    100 * float(rows[0]["difference_ms"]) / float(rows[0]["target_ms"])
                )
            ),
        ),
    ),
    "a category that takes longer": (
        report.compared_times_add_up,
        lambda p: change_table(p, "comparison_categories", longer_category),
    ),
    "another expected ratio": (
        report.expectations_follow_from_the_hardware,
        lambda p: change_table(p, "comparison_operations", other_ratio),
    ),
    "another tolerance": (
        report.outcomes_follow_from_the_ratios,
        lambda p: change_json(p.comparison, lambda facts: facts.update(tolerance=50.0)),
    ),
    "more unexplained": (
        report.outcomes_follow_from_the_ratios,
        lambda p: change_table(
            p,
            "comparison_operations",
            lambda rows: row_of(rows, "aten::bmm").update(unexplained_ms="1.79"),
        ),
    ),
    "a finding twice": (
        report.savings_of_a_comparison_are_disjoint,
        lambda p: change_json(p.comparison, doubled_finding),
    ),
    "savings beyond compute": (
        report.savings_of_a_comparison_are_disjoint,
        lambda p: change_json(
            p.comparison, lambda facts: facts["sides"]["target"].update(compute_ms=0.5)
        ),
    ),
    "an operation that is not worked out": (
        report.every_compared_operation_is_worked_out,
        lambda p: substitute(p.comparative_report("rough"), r"^\| 1 \| `aten.* per call .*\n", ""),
    ),
    "another ratio": (
        report.every_compared_operation_is_worked_out,
        lambda p: substitute(p.comparative_report("rough"), r"= [\d.]+ per call", "= 77 per call"),
    ),
}


def exchanged(title: str) -> str:
    return re.sub(r": (.*) vs (.*)", r": \2 vs \1", title)


def exchanged_heading(paths: RunPaths, kind: str) -> str:
    title = json.loads(paths.comparison.read_text())["title"]
    return f"# {title}" + (" (Rough)" if kind == "rough" else "")


def test_the_good_comparison_passes(compared_once: Path) -> None:
    problems = [str(p) for o in validate(compared_once) for p in o.problems]
    assert problems == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_its_check_and_no_other(name: str, compared_run: Path) -> None:
    find, plant = FAULTS[name]
    plant(RunPaths(compared_run))
    outcomes = validate(compared_run)
    assert {f.__name__ for f in told(outcomes)} == {find.__name__}
    assert not is_valid(outcomes)
    for problem in (problem for outcome in outcomes for problem in outcome.problems):
        assert problem.file
        assert problem.text.endswith(".")


def test_every_check_of_a_comparison_has_a_fault() -> None:
    assert {find for find, _ in FAULTS.values()} == {check.find for check in report.CHECKS}
    assert {check.find for check in report.CHECKS} <= {check.find for check in CHECKS}


def test_the_folder_of_a_comparison_is_checked_too(
    compared_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # What `jarvis compare --output-dir` writes: the reports and their data, and no analysis.
    folder = compared_run.with_name("comparison")
    shutil.copytree(compared_run / "comparison_data", folder / "comparison_data")
    for kind in ("fair", "rough"):
        shutil.copy(RunPaths(compared_run).comparative_report(kind), folder)
    assert main(["validate", str(folder)]) == 0
    assert "comparative reports are there\n" in capsys.readouterr().out
    fair(RunPaths(folder)).unlink()
    assert main(["validate", str(folder)]) == 3
    assert "comparative_analysis_fair.md: The file is missing" in capsys.readouterr().out
