"""Every number of ``results.json``, computed independently from the trace and the CSV files."""

import math
from typing import Any

import pytest

from tests.arithmetic.cards import card_facts
from tests.arithmetic.categories import category_facts
from tests.arithmetic.facts_groups import products_of
from tests.arithmetic.measures import measure_problems
from tests.arithmetic.names import names_of
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.savings import priority_of, saving_of, step_saving_of, target_of
from tests.arithmetic.steps import PARTS, parts_ns, recorded_spans, step_spans
from tests.arithmetic.units import compute_pct, data_rows, efficiency_pct, share, time_ms
from tests.arithmetic.values import Values

GAINING = ("low", "mid", "high")


def values_of(run: RunDirectory, finding: dict[str, Any], names: list[str]) -> Values:
    """What compares the values of a finding with its facts."""
    rows = [*data_rows(run, finding), *products_of(run, finding)]
    return Values(run, finding["check"], card_facts(run, finding), rows, names)


def approx(value: float | None) -> Any:
    """The same number, but for the order of sums."""
    return None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)


def test_the_timeline_is_that_of_the_trace(run: RunDirectory) -> None:
    found = run.events.timeline_ms
    assert run.timeline_ms == {name: approx(value) for name, value in found.items()}
    totals = run.manifest["totals"]
    for name, value in found.items():
        assert totals[f"{name.replace('computation', 'compute')}_ms"] == approx(value)


def test_the_gaps_are_those_of_the_trace(run: RunDirectory) -> None:
    gaps = sorted((gap["start_ns"], gap["start_ns"] + gap["dur_ns"]) for gap in run.gaps)
    assert gaps == run.events.gaps


def test_the_steps_are_those_of_the_trace(run: RunDirectory) -> None:
    rows = run.table("steps")
    if rows[0]["source"] != "engine":  # whose steps end with the GPU work that they launch
        assert step_spans(run) == recorded_spans(run)
    for row, span in zip(rows, step_spans(run), strict=True):
        parts = parts_ns(run, span)
        assert {name: row[name] for name in PARTS} == parts
        assert sum(parts.values()) == row["dur_ns"]


def test_the_copies_are_those_of_the_trace(run: RunDirectory) -> None:
    for row in run.table("memory_copies"):
        copies = run.events.copies(row["direction"])
        assert row["count"] == len(copies)
        assert row["total_time_us"] == approx(sum(copy.duration_ns for copy in copies) / 1000)


def test_no_share_is_above_all(run: RunDirectory) -> None:
    for path in sorted((run.root / "tables").glob("*.parquet")):
        rows = run.table(path.stem)
        for name in (name for name in rows[0] if "percent" in name) if rows else ():
            shares = [row[name] for row in rows if row[name] is not None]
            assert max(shares, default=0.0) <= 100 + 1e-6, (path.stem, name)


def test_derived_columns_of_the_rows(run: RunDirectory) -> None:
    for row in run.rows.values():
        category_ms = time_ms(run.category(row.category))
        derived = {
            "kernel_time_us": row.time_us,
            "flops_per_byte": row.flops_per_byte,
            "pct_roofline": row.roofline_pct,
            "roofline_time_us": row.roofline_us,
            "percent_of_compute": compute_pct([row], run),
            "percent_of_total": share(row.time_us / 1000, run.total_ms),
            "percent_of_category": share(row.time_us / 1000, category_ms),
        }
        if row.bytes is not None and row.time_us:
            derived["tb_per_s"] = row.bytes * row.calls / row.time_us / 1e6
        for column, value in derived.items():
            text = row.cells[column]
            if text and value is not None:
                assert float(text) == approx(value), (row.uid, column)
            elif column == "pct_roofline":
                assert not text, (row.uid, column)


def test_categories_add_up(run: RunDirectory) -> None:
    for key, result in run.results.items():
        rows = run.category(key)
        if result["tier"] != "compute" or not rows:
            continue
        known = [row for row in rows if row.efficiency_pct is not None]
        rated = [row for row in known if (row.efficiency_pct or 0.0) <= 110]
        assert result["gpu_time_ms"] == approx(time_ms(rows)), key
        assert result["percent_of_compute"] == approx(compute_pct(rows, run)), key
        assert result["percent_of_total"] == approx(share(time_ms(rows), run.total_ms)), key
        assert result["row_count"] == len(rows), key
        assert result["invocation_count"] == sum(row.calls for row in rows), key
        assert result["efficiency_pct"] == approx(efficiency_pct(rated)), key
        if rated:
            mean = math.fsum(row.efficiency_pct or 0.0 for row in rated) / len(rated)
            coverage = share(time_ms(rated), time_ms(rows))
            assert result["mean_efficiency_pct"] == approx(mean), key
            assert result["efficiency_coverage_pct"] == approx(coverage), key


def test_chains_take_no_more_than_their_rows(run: RunDirectory) -> None:
    steps = [*run.fusion_steps, *run.table("attention_steps")]
    for chain in run.fusion_chains:
        own = [step for step in run.fusion_steps if step["chain"] == chain["chain"]]
        assert chain["kernel_time_us"] == approx(math.fsum(s["kernel_time_us"] for s in own))
        calls = chain["instance_count"] * len(chain["step_names"])
        assert sum(step["calls"] for step in own) == calls
    for step in steps:
        row = run.rows[step["operation_uid"]]
        assert step["name"] == row.name
        assert step["calls"] <= row.calls
        assert step["kernel_time_us"] <= row.time_us * (1 + 1e-9)
        if step["calls"] == row.calls:
            assert step["kernel_time_us"] == approx(row.time_us)


def test_top_operations_add_up(run: RunDirectory) -> None:
    tops = run.manifest["top_operations"]
    assert [top["rank"] for top in tops] == list(range(1, len(tops) + 1))
    assert [top["time_ms"] for top in tops] == sorted((t["time_ms"] for t in tops), reverse=True)
    for top in tops:
        rows = [run.rows[uid] for uid in top["operation_uids"]]
        if top["name"] in run.launchers:
            launched = run.launchers[top["name"]]
            assert top["time_ms"] == approx(float(launched["total_direct_kernel_time_ms"]))
            assert top["count"] == int(launched["Count"])
        else:
            assert top["time_ms"] == approx(time_ms(rows))
            assert top["count"] == sum(row.calls for row in rows)
        # Its copies have no share of compute.
        of_compute = top["percent_of_compute"] or 0.0
        assert of_compute <= share(top["time_ms"], run.compute_ms) * (1 + 1e-3)
        assert top["percent_of_total"] == approx(share(top["time_ms"], run.total_ms))


def test_the_values_of_findings(run: RunDirectory) -> None:
    names = names_of(run)
    wrong = [
        f"{finding['title']}: {problem}"
        for finding in run.findings
        for problem in values_of(run, finding, names).of_finding(finding)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_measures_of_analyses(run: RunDirectory) -> None:
    wrong = [
        f"{key}: {problem}"
        for key in run.results
        for problem in measure_problems(run, key, category_facts(run, key))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_savings_of_findings(run: RunDirectory) -> None:
    for finding in run.findings:
        facts, title = card_facts(run, finding), finding["title"]
        expected, impact = saving_of(run, finding, facts), finding["impact"]
        assert (expected is None) == (impact is None), title
        if expected is None:
            continue
        assert impact["time_ms"] == approx(facts["impact_ms"][0]), title
        for name, saved_ms in zip(GAINING, expected, strict=True):
            assert impact["saved_ms"][name] == approx(saved_ms), (title, name)
            assert impact["compute_pct"][name] == approx(share(saved_ms, run.compute_ms)), title
            assert impact["e2e_pct"][name] == approx(share(saved_ms, run.total_ms)), title
        steps = step_saving_of(run, finding, expected, facts)
        assert steps is not None
        assert list(impact["step_ms"].values()) == [approx(each) for each in steps], title
        whole_ms = run.manifest["totals"]["step"]["step_ms"]
        shares = [share(step_ms, whole_ms) for step_ms in steps]
        assert list(impact["step_pct"].values()) == [approx(each) for each in shares], title
        if impact["method"] == "perf model":
            assert impact["target_pct"] == approx(target_of(run, finding, facts)), title
            assert impact["efficiency_pct"] == approx(facts["start_pct"][0]), title


def test_the_priorities_of_findings(run: RunDirectory) -> None:
    for finding in run.findings:
        expected = priority_of(run, finding, card_facts(run, finding))
        assert expected in (None, finding["priority"]), finding["title"]
