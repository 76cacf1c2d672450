"""A good run passes; each planted fault fails the check that it is for, and no other."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jarvis import savings as rules
from jarvis.cli import main
from jarvis.core.workspace import RunPaths
from jarvis.findings import Priority
from jarvis.validation import (
    CHECKS,
    Outcome,
    comparison,
    evidence,
    files,
    findings,
    is_valid,
    savings,
    shares,
    totals,
    validate,
)
from jarvis.validation.check import Find
from tests.planting import Fault, change_csv, change_json, substitute


def change_manifests(paths: RunPaths, change: Callable[[Any], None]) -> None:
    for manifest in paths.category_manifests:
        change_json(manifest, change)


def change_priority_data(paths: RunPaths, change: Callable[[Any], None]) -> None:
    for path in paths.priority_data:
        change_json(path, change)


def change_finding(paths: RunPaths, check: str, change: Callable[[Any], Any]) -> None:
    """Change the first finding of a check, in every file that lists it."""
    results = json.loads(paths.results.read_text())
    found = (f for r in results["analyses"].values() for f in r["findings"])
    finding = next(finding for finding in found if finding["check"] == check)
    before, metrics = deepcopy(finding), paths.metrics(finding["category"])
    change(finding)
    paths.results.write_text(json.dumps(results))

    def repeat(entries: list[Any]) -> None:
        for entry in entries:
            if all(entry[name] == before[name] for name in ("check", "title", "operations")):
                entry.update({name: finding[name] for name in entry.keys() & finding.keys()})
                if entry["step_saved_ms"] is not None:
                    end = "high" if finding["impact"]["is_interval"] else "mid"
                    entry["step_saved_ms"] = finding["impact"]["step_ms"][end]

    change_json(metrics, lambda content: repeat(content["category_findings"]))
    change_priority_data(paths, lambda content: repeat(content["findings"]))


def set_message(**values: object) -> Callable[[Any], Any]:
    """Return a change of values of the first message on the kernels."""
    return lambda finding: finding["messages"]["kernel"][0]["values"].update(values)


def set_needs(need: str) -> Callable[[Any], Any]:
    return lambda finding: finding["messages"]["kernel"][0].update(needs=[need])


def set_quantity(finding: Any, **values: float) -> None:
    for quantity in finding["quantities"]:
        quantity["value"] = values.get(quantity["name"], quantity["value"])


SHARES = {"saved_ms": ("compute_pct", "e2e_pct"), "step_ms": ("step_pct",)}


def set_saving(finding: Any, of: str = "saved_ms", **saved_ms: float) -> None:
    """Change the ends of a saving, and their shares with them."""
    impact = finding["impact"]
    known = impact[of]["high"]
    parts = {name: impact[name]["high"] / known for name in SHARES[of]}
    impact[of].update(saved_ms)
    for name, part in parts.items():
        impact[name].update({end: value * part for end, value in saved_ms.items()})


def take_twice_the_time(finding: Any) -> None:
    values = {quantity["name"]: quantity["value"] for quantity in finding["quantities"]}
    names = ("gpu_time_ms", "mean_kernel_time_us")
    set_quantity(finding, **{name: 2 * values[name] for name in names})
    finding["quantities"] = [q for q in finding["quantities"] if not q["name"].endswith("_pct")]


def saves_more_than_it_takes(finding: Any) -> None:
    set_saving(finding, high=1.01 * finding["impact"]["time_ms"])


def saves_all_time(finding: Any) -> None:
    impact = finding["impact"]
    total_ms = 100 * impact["saved_ms"]["high"] / impact["e2e_pct"]["high"]
    set_saving(finding, mid=0.99 * total_ms, high=total_ms)


def saves_more_than_the_idle_time(finding: Any) -> None:
    set_saving(finding, "step_ms", high=20 * finding["impact"]["step_ms"]["high"])


def saves_its_bound(finding: Any) -> None:
    set_saving(finding, "step_ms", low=0.0, mid=finding["impact"]["step_ms"]["high"])
    finding["impact"]["is_replayed"] = False


def saves_more_than_all_kernels(finding: Any) -> None:
    set_saving(finding, "step_ms", high=finding["impact"]["step_ms"]["high"] + 10.0)


def reverse_results(results: Any) -> None:
    results["analyses"]["multi_kernel"]["findings"].reverse()


def reverse_priorities(data: Any) -> None:
    data["findings"].reverse()
    for rank, finding in enumerate(data["findings"], start=1):
        finding["global_rank"] = rank


def change_step(paths: RunPaths, **bounds: float) -> None:
    change_json(paths.manifest, lambda manifest: manifest["totals"]["step"].update(bounds))


def change_table(paths: RunPaths, name: str, column: pl.Expr) -> None:
    rows = pl.read_parquet(paths.table(name)).with_columns(column)
    rows.write_parquet(paths.table(name))


def twice_as_long() -> pl.Expr:
    mean_us = pl.element().struct.field("mean_us")
    return pl.element().struct.with_fields((2 * mean_us).alias("mean_us"))


def launch_as_operation(manifest: Any) -> None:
    manifest["top_operations"][0]["name"] = "cudaLaunchKernel"


def share_without_base(finding: Any) -> None:
    for quantity in finding["quantities"]:
        if quantity["name"] == "compute_pct":
            quantity.update(label="Share", unit="%")


def double_finding(paths: RunPaths) -> None:
    change_json(
        paths.results,
        lambda r: r["analyses"]["gemm"].update(
            findings=[r["analyses"]["gemm"]["findings"][0], *r["analyses"]["gemm"]["findings"]]
        ),
    )

    def count(manifest: Any) -> None:
        found = (c for c in manifest["categories"] if c.get("key", c.get("name")) == "gemm")
        next(found)["finding_count"] += 1

    change_json(paths.manifest, count)
    change_manifests(paths, count)


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


def foreign_findings(paths: RunPaths) -> None:
    paths.findings("gemm", "compute").with_name("other_tool_findings.md").write_text(
        paths.findings("gemm", "compute").read_text()
    )


def nan(paths: RunPaths) -> None:
    substitute(paths.metadata("gemm"), r'"memory_gb": [\d.]+', '"memory_gb": NaN')


def second_rank_twice(manifest: Any) -> None:
    manifest["top_operations"][2]["rank"] = 2


def idle_share_off(manifest: Any) -> None:
    manifest["gpu_utilization"]["idle_time_percent"] += 1.1


def gemm_time_off(manifest: Any) -> None:
    entry = next(c for c in manifest["categories"] if c["name"] == "gemm")
    entry["gpu_kernel_time_ms"] *= 1.5


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


def exchange_roles(facts: Any) -> None:
    head, _, sides = facts["title"].rpartition(": ")
    facts["title"] = f"{head}: {' vs '.join(reversed(sides.split(' vs ')))}"


FAULTS: dict[str, tuple[Find, Fault]] = {
    "a folder is gone": (files.folders_are_there, no_system_folder),
    "the rough report is gone": (
        files.reports_are_there,
        lambda p: p.standalone_report("rough").unlink(),
    ),
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
    "no precision": (
        totals.model_facts_are_complete,
        lambda p: change_json(p.model_info, lambda facts: facts.pop("precision")),
    ),
    "a priority that is not its sum": (
        totals.priorities_are_sorted_and_add_up,
        lambda p: change_priority_data(
            p, lambda data: data["priorities"][0].update(impact_score=1.0)
        ),
    ),
    "a rank of a finding twice": (
        totals.priorities_are_sorted_and_add_up,
        lambda p: change_priority_data(p, lambda data: data["findings"][1].update(global_rank=1)),
    ),
    "priority data differ": (
        files.priority_data_agree,
        lambda p: change_json(p.priority_data[1], lambda data: data.update(baseline_ms=0)),
    ),
    "another idle share": (
        totals.shares_equal_the_timeline,
        lambda p: change_manifests(p, idle_share_off),
    ),
    "categories take longer than compute": (
        totals.category_times_add_up,
        lambda p: change_manifests(p, gemm_time_off),
    ),
    "a rank twice": (
        totals.ranks_are_contiguous,
        lambda p: change_manifests(p, second_rank_twice),
    ),
    "saves more than it takes": (
        savings.impacts_stay_within_their_share,
        lambda p: change_finding(p, "low_efficiency", saves_more_than_it_takes),
    ),
    "savings beyond the total": (
        savings.savings_add_up_to_less_than_the_total,
        lambda p: change_finding(p, "idle_causes", saves_all_time),
    ),
    "a saving of the step beyond the bound of its time": (
        savings.savings_stay_within_the_step,
        lambda p: change_finding(p, "idle_causes", saves_more_than_the_idle_time),
    ),
    "kernels that save more of the step than they run": (
        savings.savings_stay_within_the_step,
        lambda p: change_finding(p, "low_efficiency", saves_more_than_all_kernels),
    ),
    "idle time that the steps do not have": (
        savings.bounds_follow_from_the_tables,
        lambda p: change_step(p, idle_ms=1e6),
    ),
    "exposed copies that the steps have and the bound does not": (
        savings.bounds_follow_from_the_tables,
        lambda p: change_step(p, copies_ms=0.0),
    ),
    "a step that is longer than its parts": (
        savings.steps_are_the_sum_of_their_parts,
        lambda p: change_table(p, "steps", pl.col("compute_ns") - 1000),
    ),
    "a summary of another finding": (
        findings.summary_names_the_first_finding,
        lambda p: substitute(p.standalone_report("fair"), r"(Summary\n\n).*", r"\1None."),
    ),
    "kernels that bound more than the GPU works": (
        savings.bounds_follow_from_the_tables,
        lambda p: change_step(p, kernels_ms=1e6),
    ),
    "a middle that is the bound": (
        savings.savings_are_ranges,
        lambda p: change_finding(p, "low_efficiency", saves_its_bound),
    ),
    "a priority above its bound": (
        savings.priorities_follow_from_the_saving,
        lambda p: change_finding(p, "low_efficiency", lambda f: f.update(priority="Critical")),
    ),
    "an interval above Medium": (
        savings.priorities_follow_from_the_saving,
        lambda p: change_finding(p, "exposed_communication", lambda f: f.update(priority="High")),
    ),
    "results in another order": (
        findings.findings_are_ordered_by_their_saving,
        lambda p: change_json(p.results, reverse_results),
    ),
    "priority data in another order": (
        findings.findings_are_ordered_by_their_saving,
        lambda p: change_priority_data(p, reverse_priorities),
    ),
    "another saving in the priority data": (
        findings.findings_are_the_same_in_every_file,
        lambda p: change_priority_data(
            p, lambda data: data["findings"][0]["impact"].update(time_ms=1.0)
        ),
    ),
    "another saving of the step in the priority data": (
        findings.findings_are_the_same_in_every_file,
        lambda p: change_priority_data(
            p, lambda data: data["findings"][0].update(step_saved_ms=1.0)
        ),
    ),
    "another title in the metrics": (
        findings.findings_are_the_same_in_every_file,
        lambda p: change_json(
            p.metrics("gemm"), lambda m: m["category_findings"][0].update(title="Slow")
        ),
    ),
    "metrics without a finding": (
        findings.findings_are_the_same_in_every_file,
        lambda p: change_json(p.metrics("gemm"), lambda m: m["category_findings"].pop()),
    ),
    "a share of another base": (
        shares.shares_are_those_of_their_base,
        lambda p: change_finding(p, "low_efficiency", lambda f: set_quantity(f, compute_pct=1.0)),
    ),
    "a share without a base": (
        shares.shares_are_those_of_their_base,
        lambda p: change_finding(p, "low_efficiency", share_without_base),
    ),
    "a category above everything": (
        shares.categories_share_the_operations,
        lambda p: change_json(
            p.results, lambda r: r["analyses"]["gemm"].update(percent_of_compute=120.0)
        ),
    ),
    "a sentence of more calls than the time allows": (
        shares.counts_times_means_are_the_totals,
        lambda p: change_finding(p, "low_efficiency", set_message(calls=10**6, mean_time_ms=1.0)),
    ),
    "operations with another mean": (
        shares.operations_take_their_calls,
        lambda p: change_table(p, "operations", pl.col("kernel_time_us_mean") * 2),
    ),
    "a kernel that takes longer than its operation": (
        shares.operations_take_their_calls,
        lambda p: change_table(p, "operations", pl.col("kernels").list.eval(twice_as_long())),
    ),
    "a call of the runtime among the operations": (
        evidence.operations_are_no_runtime_calls,
        lambda p: change_manifests(p, launch_as_operation),
    ),
    "an operator that is not called": (
        evidence.operators_exist,
        lambda p: change_finding(p, "idle_causes", set_message(operator="aten::bmm")),
    ),
    "a module that is not called": (
        evidence.places_exist,
        lambda p: change_finding(p, "low_efficiency", set_message(place="Model / Linear")),
    ),
    "a line that is not recorded": (
        evidence.places_exist,
        lambda p: change_finding(p, "idle_causes", set_message(text="in train.py(7): step")),
    ),
    "an annotation that is not recorded": (
        evidence.places_exist,
        lambda p: change_finding(p, "idle_causes", set_message(annotation="## optimizer ##")),
    ),
    "a table is gone": (files.tables_can_be_read, lambda p: p.table("idle_gaps").unlink()),
    "a table cut off": (
        files.tables_can_be_read,
        lambda p: p.table("idle_gaps").write_bytes(p.table("idle_gaps").read_bytes()[:-9]),
    ),
    "a row of a category is gone": (
        totals.category_rows_are_the_operations,
        lambda p: change_csv(p.operations_csv("gemm"), list.pop),
    ),
    "a row takes another time": (
        totals.category_rows_are_the_operations,
        lambda p: change_csv(
            p.operations_csv("gemm"), lambda rows: rows[0].update(kernel_time_us="7")
        ),
    ),
    "scores that fall": (
        totals.priorities_are_sorted_and_add_up,
        lambda p: change_priority_data(
            p, lambda data: data["findings"][0].update(impact_score_high=0.001)
        ),
    ),
    "a finding is gone": (
        findings.results_are_the_manifest,
        lambda p: change_json(p.results, lambda r: r["analyses"]["gemm"]["findings"].pop()),
    ),
    "a finding without an issue": (
        findings.findings_are_complete,
        lambda p: change_finding(p, "idle_causes", lambda f: f.update(issue=None)),
    ),
    "a finding of another analysis": (
        findings.findings_are_complete,
        lambda p: change_finding(p, "idle_causes", lambda f: f.update(category="gemm")),
    ),
    "a finding twice": (findings.findings_are_distinct, double_finding),
    "a saving that falls": (
        savings.savings_are_ranges,
        lambda p: change_finding(p, "low_efficiency", lambda f: set_saving(f, mid=0.0)),
    ),
    "a share of another saving": (
        savings.savings_are_ranges,
        lambda p: change_finding(
            p, "low_efficiency", lambda f: f["impact"]["compute_pct"].update(low=0.1)
        ),
    ),
    "a share above everything": (
        shares.shares_are_at_most_everything,
        lambda p: change_finding(p, "idle_causes", set_message(share_pct=120.0)),
    ),
    "another number of calls": (
        shares.counts_times_means_are_the_totals,
        lambda p: change_finding(p, "low_efficiency", lambda f: set_quantity(f, calls=3)),
    ),
    "an operation that does not run": (
        evidence.operations_exist,
        lambda p: change_finding(
            p, "low_efficiency", lambda f: f["operations"][0].update(name="aten::mv")
        ),
    ),
    "a row that is not there": (
        evidence.operations_exist,
        lambda p: change_finding(p, "idle_causes", lambda f: f.update(shared_uids=[987654])),
    ),
    "another time of the operations": (
        evidence.operations_of_a_finding_take_its_time,
        lambda p: change_finding(p, "low_efficiency", take_twice_the_time),
    ),
    "a kernel that does not run": (
        evidence.kernels_exist,
        lambda p: change_finding(p, "low_efficiency", set_message(kernel="x9")),
    ),
    "an action that the trace refutes": (
        evidence.actions_meet_their_preconditions,
        lambda p: change_finding(p, "idle_causes", set_needs("has_graph_replay")),
    ),
    "a replay package that cannot be made": (
        evidence.actions_meet_their_preconditions,
        lambda p: change_finding(p, "low_efficiency", set_needs("has_replay_package(987654)")),
    ),
    "a precondition that is no fact": (
        evidence.actions_meet_their_preconditions,
        lambda p: change_finding(p, "idle_causes", set_needs("has_luck")),
    ),
}

COMPARED: dict[str, tuple[Find, Fault]] = {
    "the rough report is gone": (
        comparison.comparative_reports_are_there,
        lambda p: p.comparative_report("rough").unlink(),
    ),
    "a table is gone": (
        comparison.comparative_reports_are_there,
        lambda p: p.comparison_table("comparison_kernels").unlink(),
    ),
    "roles exchanged": (
        comparison.comparison_names_both_sides,
        lambda p: change_json(p.comparison, exchange_roles),
    ),
    "a difference with the wrong sign": (
        comparison.differences_are_target_less_reference,
        lambda p: change_csv(
            p.comparison_table("comparison_totals"),
            lambda rows: rows[0].update(difference_ms=f"-{rows[0]['difference_ms']}"),
        ),
    ),
    "a share of the target": (
        comparison.differences_are_target_less_reference,
        lambda p: change_csv(
            p.comparison_table("comparison_totals"),
            lambda rows: rows[0].update(
                difference_pct=str(
                    100 * float(rows[0]["difference_ms"]) / float(rows[0]["target_ms"])
                )
            ),
        ),
    ),
    "a category that takes longer": (
        comparison.compared_times_add_up,
        lambda p: change_csv(p.comparison_table("comparison_categories"), longer_category),
    ),
    "another expected ratio": (
        comparison.expectations_follow_from_the_hardware,
        lambda p: change_csv(p.comparison_table("comparison_operations"), other_ratio),
    ),
    "another tolerance": (
        comparison.outcomes_follow_from_the_ratios,
        lambda p: change_json(p.comparison, lambda facts: facts.update(tolerance=50.0)),
    ),
    "more unexplained": (
        comparison.outcomes_follow_from_the_ratios,
        lambda p: change_csv(
            p.comparison_table("comparison_operations"),
            lambda rows: row_of(rows, "aten::bmm").update(unexplained_ms="1.79"),
        ),
    ),
    "a finding twice": (
        comparison.savings_of_a_comparison_are_disjoint,
        lambda p: change_json(p.comparison, doubled_finding),
    ),
    "savings beyond compute": (
        comparison.savings_of_a_comparison_are_disjoint,
        lambda p: change_json(
            p.comparison, lambda facts: facts["sides"]["target"].update(compute_ms=0.5)
        ),
    ),
}


def failed(outcomes: list[Outcome]) -> set[str]:
    return {outcome.check.find.__name__ for outcome in outcomes if outcome.problems}


def test_good_runs_pass(made_once: Path, compared_once: Path) -> None:
    for root in (made_once, compared_once):
        assert [str(p) for o in validate(root) for p in o.problems] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_its_check_and_no_other(name: str, good_run: Path) -> None:
    find, plant = FAULTS[name]
    plant(RunPaths(good_run))
    outcomes = validate(good_run)
    assert failed(outcomes) == {find.__name__}
    outcome = next(outcome for outcome in outcomes if outcome.problems)
    assert is_valid(outcomes) == outcome.check.is_warning
    for problem in outcome.problems:
        assert problem.file
        assert problem.text.endswith(".")


@pytest.mark.parametrize("name", COMPARED)
def test_a_fault_in_a_comparison_fails_its_check(name: str, compared_run: Path) -> None:
    find, plant = COMPARED[name]
    plant(RunPaths(compared_run))
    outcomes = validate(compared_run)
    assert failed(outcomes) == {find.__name__}
    assert not is_valid(outcomes)


def test_the_thresholds_are_those_of_the_findings() -> None:
    assert savings.CAPS == rules.CAPS
    assert savings.FLOORS == rules.FLOORS
    assert findings.EQUAL_DIGITS == rules.EQUAL_DIGITS
    assert list(reversed(savings.WORDS)) == list(Priority)


def test_every_check_has_a_fault() -> None:
    planted = {find for find, _ in (*FAULTS.values(), *COMPARED.values())}
    assert planted == {check.find for check in CHECKS}


def test_a_file_of_another_layout_is_a_problem_and_no_crash(good_run: Path) -> None:
    change_manifests(RunPaths(good_run), lambda m: m.update(categories=[{"name": "gemm"}]))
    outcomes = validate(good_run)
    texts = [problem.text for outcome in outcomes for problem in outcome.problems]
    assert any("does not have the expected layout" in text for text in texts)
    assert not is_valid(outcomes)


def test_the_results_of_the_last_release_are_checked_too(good_run: Path) -> None:
    # They are the object of analyses alone; findings have sentences, and evidence by label.
    paths = RunPaths(good_run)
    results = json.loads(paths.results.read_text())["analyses"]
    for result in results.values():
        for finding in result["findings"]:
            del finding["messages"], finding["quantities"]
    paths.results.write_text(json.dumps(results))
    assert failed(validate(good_run)) == set()
    results["gemm"]["findings"][0]["operations"][0]["uid"] = 987654
    paths.results.write_text(json.dumps(results))
    assert "operations_exist" in failed(validate(good_run))


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
    RunPaths(folder).comparative_report("fair").unlink()
    assert main(["validate", str(folder)]) == 3
    assert "comparative_analysis_fair.md: The file is missing" in capsys.readouterr().out
