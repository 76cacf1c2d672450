"""``analysis.md``, the ends of the findings files and ``priority_data.json``: the layout that other
tools read, checked with a reading of its own."""

import csv
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jarvis.core.workspace import RunPaths
from jarvis.findings import AnalysisResult, Finding, OpRef, Priority, Status
from jarvis.impact import bounded_impact, modelled_impact
from jarvis.pipeline import analyze
from jarvis.reports.agent_layout.analysis_md import analysis_markdown
from jarvis.reports.agent_layout.findings import findings_markdown
from jarvis.reports.details import details_of
from jarvis.run import Run
from jarvis.run.agent_layout.preparation import Preparation
from jarvis.run.agent_layout.priorities import Recommended, priority_data
from tests.builders import trace
from tests.reports.conftest import Analyzed
from tests.reports.markdown import changed, headings, section

PARTS = [
    "Executive Summary",
    "Compute Kernel Optimizations",
    "Kernel Fusion Opportunities (Experimental)",
    "System-Level Optimizations",
    "Detailed Analysis",
    "Appendix",
]
INSIGHTS = {
    "compute": "Compute Kernel Insights",
    "fusion": "Kernel Fusion Insights",
    "system": "System-Level Insights",
}
COLUMNS = [
    *("Operation", "Args", "Kernel Path", "Kernel Name", "Time (ms)"),
    *("%E2E", "Count", "FLOPS/Byte", "Efficiency", "Bound"),
]
LABELS = ("Identification", "Data", "Reasoning for Slowdown", "Resolution", "Impact estimate")
BEGIN = re.compile(r"^<!-- impact-begin (.*?) -->$", re.MULTILINE)
CANDIDATE = re.compile(r"^<!-- reasoning-candidate tier=(\w+) rank=(\d+) -->$", re.MULTILINE)
RUNS = ("sample", "hostile")


@pytest.fixture(params=RUNS)
def analyzed(request: pytest.FixtureRequest) -> Analyzed:
    found: Analyzed = request.getfixturevalue(request.param)
    return found


def markers(text: str) -> list[dict[str, str]]:
    return [dict(pair.split("=") for pair in m[1].split()) for m in BEGIN.finditer(text)]


def parted(text: str, matches: Iterable[re.Match[str]]) -> list[tuple[re.Match[str], str]]:
    """Each match with the text from it up to the next one."""
    found = list(matches)
    ends = [match.start() for match in found[1:]] + [len(text)] * bool(found)
    return [(match, text[match.start() : end]) for match, end in zip(found, ends, strict=True)]


def items(text: str, level: int = 3) -> list[tuple[int, str]]:
    """Number and text of each ``P<n>:`` heading with the text under it."""
    found = re.finditer(rf"^{'#' * level} .*?\bP(\d+): .*$", text, re.MULTILINE)
    return [(int(match[1]), part) for match, part in parted(text, found)]


def candidates(text: str) -> list[tuple[str, int, str]]:
    """Tier, rank and text of each block of details."""
    parts = parted(text, CANDIDATE.finditer(text))
    return [(match[1], int(match[2]), part) for match, part in parts]


def rows_of(text: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the first table of ``text``, its cells split as a naive tool does."""
    lines = text[text.index("\n|") :].strip().split("\n")
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return table[0], table[2:end]


def subsection(text: str, title: str) -> str:
    detailed = section(text, "Detailed Analysis")
    return detailed[detailed.index(f"\n### {title}\n") :].split("\n### ")[1]


def loaded(analyzed: Analyzed, path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((analyzed.root / path).read_text(encoding="utf-8"))
    return content


def metrics(analyzed: Analyzed, key: str) -> dict[str, Any]:
    return loaded(analyzed, RunPaths(Path()).metrics(key))


def finding_of(result: AnalysisResult, row: dict[str, Any], **values: Any) -> Finding:
    given = {
        "check": "a_check",
        "category": result.key,
        "title": "A title",
        "operations": (OpRef(uid=row["uid"], name=row["name"], operation_count=1),),
        "issue": "It is slow.",
        "algorithmic": "Do less.",
        "kernel": "Do it faster.",
        "priority_local": Priority.HIGH,
        "priority": Priority.HIGH,
        **values,
    }
    return Finding(**given)


def with_findings(run: Run, key: str, *findings: Finding, **others: AnalysisResult) -> Run:
    result = run.results[key].model_copy(update={"findings": findings})
    quiet = {k: r.model_copy(update={"findings": ()}) for k, r in run.results.items()}
    return changed(run, results={**quiet, key: result, **others})


def test_the_parts_are_there_in_their_order(analyzed: Analyzed) -> None:
    text = analyzed.text("analysis.md")
    assert [title for title in headings(text, 2) if title != "Warnings"] == PARTS
    assert headings(section(text, "Detailed Analysis"), 3) == list(INSIGHTS.values())
    assert headings(section(text, "Appendix"), 3) == ["Model Architecture", "Hardware Reference"]
    assert not re.search(r"<(?:Brief Title|Library|[Pp]latform|[Mm]odel|architecture|scale)>", text)


def test_the_metrics_are_those_of_the_gpu_timeline(analyzed: Analyzed) -> None:
    header, rows = rows_of(section(analyzed.text("analysis.md"), "Executive Summary"))
    assert header == ["Metric", "Value"]
    assert [name for name, _ in rows] == [
        *("Total Time", "Compute %", "Idle %"),
        *("Exposed Communication %", "Top Bottleneck Category"),
    ]
    with (RunPaths(analyzed.root).perf_report_csvs / "gpu_timeline.csv").open() as file:
        timeline = {row["type"]: row for row in csv.DictReader(file)}
    values = dict(rows)
    assert float(values["Total Time"].removesuffix(" ms")) == pytest.approx(
        float(timeline["total_time"]["time ms"]), abs=0.006
    )
    for name, kind in (
        ("Compute %", "computation_time"),
        ("Idle %", "idle_time"),
        ("Exposed Communication %", "exposed_comm_time"),
    ):
        expected = float(timeline[kind]["percent"])
        assert float(values[name].removesuffix("%")) == pytest.approx(expected, abs=0.006)


def test_the_top_bottleneck_is_the_category_with_most_time(analyzed: Analyzed) -> None:
    compute = [r for r in analyzed.run.results.values() if r.tier == "compute"]
    top = max(compute, key=lambda result: result.gpu_time_ms)
    row = f"| Top Bottleneck Category | {top.title} ({top.percent_of_compute:.2f}%) |"
    assert row in analyzed.text("analysis.md")
    _, rows = rows_of(section(analyzed.text("analysis.md"), "Compute Kernel Optimizations"))
    times = [float(row[2]) for row in rows]
    assert times == sorted(times, reverse=True)
    assert rows[0][1] == top.title


def test_the_report_agrees_with_the_priorities(analyzed: Analyzed) -> None:
    data = loaded(analyzed, Path("priority_data.json"))
    compute = section(analyzed.text("analysis.md"), "Compute Kernel Optimizations")
    found = items(compute)
    assert len(found) == len(data["findings"]) > 0
    for (_, text), finding in zip(found, data["findings"], strict=True):
        (marker,) = markers(text)
        assert (marker["kind"], marker["category"]) == ("p_item", finding["category"])
        for name, key in (("low", "_low"), ("mid", ""), ("high", "_high")):
            score = finding[f"impact_score{key}"]
            assert marker[name] == ("null" if score is None else f"{score:.2f}")
    (top_ops,) = [m for m in markers(compute) if m["kind"] == "top_ops"]
    assert top_ops == {"kind": "top_ops"}
    _, rows = rows_of(compute[compute.index("### Top Operations") :])
    assert len(rows) == len(data["priorities"])
    for row, priority in zip(rows, data["priorities"], strict=True):
        assert row[1] == priority["display_name"]
        low, high = (priority[f"impact_score_{end}"] for end in ("low", "high"))
        written = [f"{score:.2f}" if score is not None else "null" for score in (low, high)]
        assert row[4].endswith(f"<!-- top-ops-row low={written[0]} high={written[1]} -->")


def test_the_priorities_are_sorted_ranked_and_summed(analyzed: Analyzed) -> None:
    data = loaded(analyzed, Path("priority_data.json"))
    assert data == loaded(analyzed, Path("category_data") / "priority_data.json")
    findings, priorities = data["findings"], data["priorities"]
    saved = [round(f["step_saved_ms"], 3) for f in findings if f["step_saved_ms"] is not None]
    assert saved == sorted(saved, reverse=True)
    assert [f["global_rank"] for f in findings] == list(range(1, len(findings) + 1))
    assert [p["rank"] for p in priorities] == list(range(1, len(priorities) + 1))
    assert data["baseline_ms"] == analyzed.run.manifest.totals.total_time_ms
    for priority in priorities:
        mine = [f for f in findings if f["category"] == priority["category"]]
        summed = [f for f in mine if f["impact_score"] and f["estimate_method"] != "heuristic"]
        if priority["source"] == "manifest_fallback":
            assert priority["impact_score"] is None
        else:
            expected = sum(f["impact_score"] for f in summed)
            assert priority["impact_score"] == pytest.approx(expected, abs=0.006)
    for key in {f["category"] for f in findings}:
        ranks = sorted(f["category_rank"] for f in findings if f["category"] == key)
        assert ranks == list(range(1, len(ranks) + 1))


def test_no_large_category_is_missing_from_the_priorities(sample: Analyzed) -> None:
    gemm = sample.run.results["gemm"]
    row = sample.run.category_operations("gemm").row(0, named=True)
    heuristic = modelled_impact(1.0, 50.0, 80.0, compute_ms=10.0, total_ms=20.0).model_copy(
        update={"method": "heuristic"}
    )
    run = with_findings(sample.run, "gemm", finding_of(gemm, row, impact=heuristic))
    data = priority_data(Recommended(run))
    assert [f["estimate_method"] for f in data["findings"]] == ["heuristic"]
    assert data["recommendations"] == []
    (found,) = [p for p in data["priorities"] if p["category"] == "gemm"]
    assert (found["source"], found["impact_score"]) == ("manifest_fallback", None)
    report = analysis_markdown(run, sample.root)
    assert "> **Warning — estimated:** the scores come from experience" in report


def test_the_scores_follow_from_the_rows(sample: Analyzed) -> None:
    """Low, middle and high are 75%, 87.5% and 100% of the gap to the roofline of wall time."""
    wall_us = 1000 * sample.run.manifest.totals.total_time_ms
    checked = 0
    for key in ("gemm", "elementwise", "sdpa_fwd", "convolution", "batchnorm"):
        path = RunPaths(sample.root).operations_csv(key)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        rows = list(csv.DictReader(text.splitlines()))
        gap_us = {
            int(r["ex_UID"]): float(r["kernel_time_us"]) * (1 - float(r["pct_roofline"]) / 100)
            for r in rows
            if r["pct_roofline"] and r["bound"] != "memory only"
        }
        for finding in metrics(sample, key)["category_findings"]:
            impact = finding["impact"]
            if not impact or impact["method"] != "perf model":
                continue
            uids = [op["uid"] for op in finding["operations"]]
            gap_pct = 100 * sum(gap_us[uid] for uid in uids) / wall_us
            assert finding["impact_score_high"] == pytest.approx(gap_pct, abs=0.02)
            assert finding["impact_score"] == pytest.approx(0.875 * gap_pct, abs=0.02)
            assert finding["impact_score_low"] == pytest.approx(0.75 * gap_pct, abs=0.02)
            checked += 1
        for estimate in metrics(sample, key).get("impact_estimates", ()):
            expected = 100 * gap_us[estimate["ex_uid"]] / wall_us
            assert estimate["impact_score_high"] == pytest.approx(expected, abs=0.006)
            checked += 1
    assert checked > 5


@pytest.mark.parametrize("tier", INSIGHTS)
def test_each_tier_has_numbers_icons_and_anchors_of_its_own(analyzed: Analyzed, tier: str) -> None:
    text = analyzed.text("analysis.md")
    title = dict(zip(INSIGHTS, PARTS[1:4], strict=True))[tier]
    cards, blocks = items(section(text, title)), items(subsection(text, INSIGHTS[tier]), 4)
    assert [number for number, _ in cards] == list(range(1, len(cards) + 1))
    assert [number for number, _ in blocks] == [number for number, _ in cards]
    mark = "P" if tier == "fusion" else "p"
    for (number, card), (_, block) in zip(cards, blocks, strict=True):
        assert card.splitlines()[0].removeprefix("#") == block.splitlines()[0].removeprefix("##")
        if tier != "fusion":
            icon = {1: "🔴", 2: "🟡"}.get(number, "🟢")
            assert card.startswith(f"### {icon} P{number}: ")
        target = f"detailed-analysis-{tier}-{mark}{number}"
        assert f"> P{number}](#{target}) for details*" in card
        assert text.count(f'<a id="{target}"></a>\n<!-- reasoning-candidate tier={tier} ') == 1
    ranks = [rank for kind, rank, _ in candidates(text) if kind == tier]
    assert ranks == [number for number, _ in cards]


def test_cards_have_their_labels_and_the_scores_of_their_details(analyzed: Analyzed) -> None:
    text = analyzed.text("analysis.md")
    for title, insights in zip(PARTS[1:4], INSIGHTS.values(), strict=True):
        blocks = items(subsection(text, insights), 4)
        for (_, card), (_, block) in zip(items(section(text, title)), blocks, strict=True):
            for label in ("Insight", "Action", "Impact"):
                assert len(re.findall(rf"^\*\*{label}\*\*", card, re.MULTILINE)) == 1
            for label in LABELS:
                assert len(re.findall(rf"^\*\*{label}:\*\*", block, re.MULTILINE)) == 1
            (marker,) = markers(card)
            if marker["mid"] == "null":
                assert "**Impact**: Not quantifiable from trace data." in card
                assert "Impact estimate is not quantifiable from trace data." in block
                continue
            assert f"**Impact**: impact_score: {marker['mid']}; saving " in card
            (estimate,) = markers(block)
            assert estimate == {
                "kind": "detail_estimate",
                "low": marker["low"],
                "high": marker["high"],
            }
            for end in ("low", "high"):
                line = f"- {end.capitalize()} end impact_score: {marker[end]}\n"
                assert block.count(line) == 1


def test_every_marker_is_closed_and_whole(analyzed: Analyzed) -> None:
    for name, text in analyzed.markdown().items():
        assert text.count("<!-- impact-begin ") == text.count("<!-- impact-end -->"), name
        assert len(markers(text)) == text.count("<!-- impact-begin "), name
        for marker in markers(text):
            assert marker["kind"] in ("p_item", "detail_estimate", "top_ops")
            values = [marker[end] for end in ("low", "mid", "high") if end in marker]
            assert len({value == "null" for value in values}) <= 1, name


def test_cells_are_those_of_the_metrics_letter_by_letter(analyzed: Analyzed) -> None:
    """A naive tool splits rows at ``|`` and compares the texts."""
    files = {"analysis.md": "", **{n: n for n in analyzed.markdown() if "category_fi" in n}}
    operations = {
        key: {op["ex_uid"]: op for op in metrics(analyzed, key).get("operations", ())}
        for key, result in analyzed.run.results.items()
        if result.tier == "compute"
    }
    known = [op for rows in operations.values() for op in rows.values()]
    texts = {
        column: {op[key] if op[key] is not None else "—" for op in known}
        for column, key in (
            ("Args", "args"),
            ("Kernel Path", "launcher_path"),
            ("Kernel Name", "kernel_name_trunc"),
        )
    }
    checked = 0
    for name in files:
        for tier, _, block in candidates(analyzed.text(name)):
            header, rows = rows_of(block[block.index("**Data:**") :])
            if tier != "compute":
                assert header != COLUMNS
                continue
            assert header == COLUMNS, name
            for row in rows:
                assert len(row) == len(COLUMNS), (name, row)
                cells = dict(zip(header, row, strict=True))
                for column, allowed in texts.items():
                    assert cells[column] in allowed, (name, column)
                match = [
                    op
                    for op in known
                    if f"{op['time_ms']:.3f}" == cells["Time (ms)"]
                    and str(op["count"]) == cells["Count"]
                ]
                assert match, (name, row)
                checked += 1
    assert checked


def test_rows_of_other_categories_are_in_the_metrics_of_a_finding_that_shares_them(
    sample: Analyzed, tmp_path: Path
) -> None:
    row = sample.run.category_operations("elementwise").row(0, named=True)
    finding = finding_of(sample.run.results["gemm"], row, operations=(), shared_uids=(row["uid"],))
    run = with_findings(sample.run, "gemm", finding)
    Preparation(run, tmp_path).write({})
    found = json.loads(RunPaths(tmp_path).metrics("gemm").read_text(encoding="utf-8"))
    (shared,) = [op for op in found["operations"] if "shared_from" in op]
    assert (shared["ex_uid"], shared["shared_from"]) == (row["uid"], "elementwise")
    assert found["category_findings"][0]["members"][0]["ex_uid"] == row["uid"]
    own = sum(op["time_ms"] for op in found["operations"] if "shared_from" not in op)
    assert own == pytest.approx(found["total_time_ms"], abs=0.001)
    block = candidates(findings_markdown(Recommended(run), run.results["gemm"], details_of(run)))[
        0
    ][2]
    header, cells = rows_of(block[block.index("**Data:**") :])
    assert header == COLUMNS
    assert cells[0][3] == shared["kernel_name_trunc"]


def test_a_finding_s_rows_are_all_in_its_table(sample: Analyzed) -> None:
    data = loaded(sample, Path("priority_data.json"))
    blocks = [b for tier, _, b in candidates(sample.text("analysis.md")) if tier == "compute"]
    for finding, block in zip(data["findings"], blocks, strict=True):
        _, rows = rows_of(block[block.index("**Data:**") :])
        spoken_of = finding["operations"] or finding["shared_uids"]
        assert len(rows) == finding["member_count"] == len(spoken_of)
        total = sum(float(row[4]) for row in rows)
        assert total == pytest.approx(finding["time_ms"], abs=0.0006 * len(rows))


def test_the_end_of_every_findings_file(analyzed: Analyzed) -> None:
    seen = 0
    for key, result in analyzed.run.results.items():
        text = analyzed.text(str(RunPaths(Path()).findings(key, result.tier)))
        found = headings(text, 2)
        assert found.index("Recommendations") < found.index("Detailed Analysis") == len(found) - 1
        entries = metrics(analyzed, key)["category_findings"]
        cards, blocks = items(section(text, "Recommendations")), candidates(text)
        assert len(cards) == len(blocks) == len(entries), key
        assert len(markers(text)) == sum(2 if e["impact"] else 1 for e in entries), key
        for (number, card), (tier, rank, block) in zip(cards, blocks, strict=True):
            assert (number, tier) == (rank, result.tier)
            for label in ("Insight", "Action", "Impact"):
                assert f"**{label}**" in card, key
            for label in LABELS:
                assert block.count(f"**{label}:**") == 1, key
            seen += 1
        if result.tier == "compute":
            assert [number for number, _ in cards] == [entry["rank"] for entry in entries]
            scores = [entry["impact_score"] for entry in entries]
            written = [m["mid"] for m in markers(text) if m["kind"] == "p_item"]
            assert written == ["null" if s is None else f"{s:.2f}" for s in scores]
    assert seen


def test_items_of_the_system_are_numbered_through_its_files(hostile: Analyzed) -> None:
    texts = [
        hostile.text(str(RunPaths(Path()).findings(key, "system")))
        for key, result in hostile.run.results.items()
        if result.tier == "system"
    ]
    numbers = [n for text in texts for n, _ in items(section(text, "Recommendations"))]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert numbers


def fusion_of(run: Run, **values: Any) -> tuple[Finding, dict[str, Any]]:
    """A finding about the first rows of elementwise, and what its analysis measures of it."""
    row = run.category_operations("elementwise").row(0, named=True)
    gain = bounded_impact(
        2.0,
        values.pop("saved_ms"),
        compute_ms=run.manifest.totals.compute_time_ms,
        total_ms=run.manifest.totals.total_time_ms,
    )
    name, rated, instances = (values.pop(key) for key in ("name", "confidence", "instances"))
    finding = finding_of(
        run.results["kernel_fusion"],
        row,
        operations=(),
        shared_uids=(row["uid"],),
        title=f"Unfused chain: `{name}`",
        evidence={"gpu_time_ms": gain.time_ms, "instances": instances},
        impact=gain,
        **values,
    )
    chain = {
        "time_ms": gain.time_ms,
        "instance_count": instances,
        "confidence": rated,
        "modeled_kernel_count": 3,
        "kernel_count": 4,
    }
    return finding, chain


def test_fusion_says_its_confidence_and_what_the_models_cover(sample: Analyzed) -> None:
    low, high = (
        fusion_of(
            sample.run, name=name, confidence=confidence, saved_ms=saved_ms, instances=instances
        )
        for name, confidence, saved_ms, instances in (
            ("Unsure", "low", 1.0, 2),
            ("Sure", "high", 0.5, 3),
        )
    )
    quiet = {k: r.model_copy(update={"findings": ()}) for k, r in sample.run.results.items()}
    row = sample.run.category_operations("elementwise").row(0, named=True)
    compute = finding_of(sample.run.results["elementwise"], row)
    quiet["elementwise"] = quiet["elementwise"].model_copy(update={"findings": (compute,)})
    quiet["kernel_fusion"] = quiet["kernel_fusion"].model_copy(
        update={
            "status": Status.OK,
            "findings": (low[0], high[0]),
            "metrics": {"candidates": [low[1], high[1]], "impact_estimates": [low[1], high[1]]},
        }
    )
    text = analysis_markdown(changed(sample.run, results=quiet), sample.root)
    part = section(text, "Kernel Fusion Opportunities (Experimental)")
    titles = ["🟢 P1: Unfused chain: `Unsure`", "🔴 P2: Unfused chain: `Sure`"]
    assert headings(part, 3) == titles
    assert re.findall(r"^\*\*Confidence\*\*: (.*)$", part, re.MULTILINE) == ["low", "high"]
    for line in re.findall(r"^\*\*Impact\*\*: (.*)$", part, re.MULTILINE):
        assert re.fullmatch(r"impact_score: [\d.]+ \(perf-model coverage 3/4 kernels\)", line)
    assert [kind for kind, _, _ in candidates(text)] == ["compute", "fusion", "fusion"]
    assert "Kernel Fusion P1 and P2 would save part of the same time" in section(
        text, "Compute Kernel Optimizations"
    )


def test_sections_without_findings_say_so(sample: Analyzed) -> None:
    run = with_findings(sample.run, "gemm")
    text = analysis_markdown(run, sample.root)
    compute = section(text, "Compute Kernel Optimizations")
    assert "✅ No compute kernel optimization opportunities identified." in compute
    assert "No check of any category found a problem." in compute
    assert "No kernel fusion opportunities detected." in section(text, PARTS[2])
    assert "✅ No system-level bottlenecks detected. The GPU computes for" in section(
        text, PARTS[3]
    )
    assert "No fusion impact estimates available." in section(text, "Detailed Analysis")
    assert not candidates(text)


def test_low_priorities_get_no_item(sample: Analyzed) -> None:
    gemm = sample.run.results["gemm"]
    row = sample.run.category_operations("gemm").row(0, named=True)
    impact = modelled_impact(1.0, 50.0, 80.0, compute_ms=10.0, total_ms=20.0)
    low = finding_of(gemm, row, priority=Priority.LOW, impact=impact, title="A trifle")
    run = with_findings(sample.run, "gemm", low)
    text = analysis_markdown(run, sample.root)
    assert "A trifle" not in text
    assert "All findings have low priority; see the findings" in text
    mine = findings_markdown(Recommended(run), run.results["gemm"], details_of(run))
    assert "Nothing to recommend." in section(mine, "Recommendations")
    assert "A trifle" in section(mine, "Key Bottlenecks")
    assert priority_data(Recommended(run))["findings"] == []


def test_a_bound_of_the_trace_is_its_own_score(sample: Analyzed) -> None:
    gemm = sample.run.results["gemm"]
    row = sample.run.category_operations("gemm").row(0, named=True)
    impact = bounded_impact(2.0, 1.0, low_ms=0.2, compute_ms=10.0, total_ms=20.0)
    run = with_findings(sample.run, "gemm", finding_of(gemm, row, impact=impact))
    (found,) = priority_data(Recommended(run))["findings"]
    scores = [found[f"impact_score{end}"] for end in ("_low", "", "_high")]
    assert scores == pytest.approx([1.0, 3.0, 5.0])
    assert found["estimate_method"] == "quantified"


def test_a_library_ends_the_heading_and_nothing_else_does(sample: Analyzed) -> None:
    """Tools take the text in parentheses at the end of a heading as the library."""
    gemm = sample.run.results["gemm"]
    rows = sample.run.category_operations("gemm")
    row = rows.row(0, named=True)
    run = with_findings(sample.run, "gemm", finding_of(gemm, row, title="Slow (tiny)"))
    library = f"Slow, tiny (`{row['library']}`)"
    assert row["library"]
    assert f"### 🔴 P1: {library}\n" in analysis_markdown(run, sample.root)
    unknown = rows.with_columns(library=None)
    run = replace(run, tables={**run.tables, "category_gemm": unknown})
    assert "### 🔴 P1: Slow, tiny\n" in analysis_markdown(run, sample.root)


def test_a_failed_analysis_is_excluded_and_reported(sample: Analyzed) -> None:
    failed = sample.run.results["gemm"].model_copy(
        update={"status": Status.ERROR, "error": "ValueError: a|b <c>", "findings": ()}
    )
    text = analysis_markdown(
        changed(sample.run, results={**sample.run.results, "gemm": failed}), sample.root
    )
    warnings = section(text, "Warnings")
    assert "| GEMM | Compute Kernels | `ValueError: a\\|b <c>` |" in warnings
    assert "category=gemm" not in text


def test_times_that_differ_much_are_warned_of(sample: Analyzed) -> None:
    gemm = sample.run.results["gemm"]
    row = sample.run.category_operations("gemm").row(0, named=True)
    doubted = finding_of(gemm, row, check="high_variance", priority=Priority.LOW)
    text = analysis_markdown(with_findings(sample.run, "gemm", doubted), sample.root)
    warnings = section(text, "Warnings")
    assert "| Operation | Category | CoV | Reported Time (ms) |" in warnings
    assert f"| `{row['name']}` | GEMM | " in warnings


def test_the_model_and_the_hardware_are_in_the_appendix(sample: Analyzed) -> None:
    model = loaded(sample, Path("metadata") / "model_info.json")
    assert set(model) == {"model", "architecture", "scale", "precision"}
    assert all(model.values())
    appendix = section(sample.text("analysis.md"), "Appendix")
    for name, value in model.items():
        assert f"- **{name.capitalize()}**: {value}\n" in appendix
    hardware = sample.run.manifest.hardware
    assert hardware is not None
    assert f"- **Platform**: {hardware.title}\n" in appendix
    assert f"- **Peak HBM BW**: {hardware.mem_bw_gbps / 1000:g} TB/s\n" in appendix
    assert f"- **Peak MAF (BF16)**: {hardware.max_achievable_tflops['matrix_bf16']:g} TFLOPS\n" in (
        appendix
    )


def test_the_title_names_the_model_of_the_user_else_of_the_trace(sample: Analyzed) -> None:
    assert sample.text("analysis.md").startswith("# Tiny - MI300X Standalone Analysis\n")
    model = loaded(sample, Path("metadata") / "model_info.json")["model"]
    unnamed = analysis_markdown(changed(sample.run, model_name=None), sample.root)
    assert unnamed.startswith(f"# {model} - MI300X Standalone Analysis\n")


def test_a_trace_without_hardware_and_operators(tmp_path: Path) -> None:
    built = trace(device="Strange 9000")
    for _ in range(3):
        built.unlinked("mystery_kernel", us=500.0)
    run = analyze(built.write(tmp_path / "trace.json"), output_dir=tmp_path / "r")
    text = (tmp_path / "r" / "analysis.md").read_text(encoding="utf-8")
    assert text.startswith("# Workload - Hardware not known Standalone Analysis\n")
    assert [title for title in headings(text, 2) if title != "Warnings"] == PARTS
    assert "- **Platform**: Hardware not known\n" in text
    assert "TFLOPS" not in section(text, "Appendix")
    assert run.manifest.hardware is None


def test_the_operations_of_a_category_carry_what_tools_join_on(sample: Analyzed) -> None:
    operations = metrics(sample, "gemm")["operations"]
    first = operations[0]
    assert re.fullmatch(r"\(\d+(,\d+)*,?\) \w+(<br>\(\d+(,\d+)*,?\) \w+)*", first["args"])
    assert first["launcher_path"] is None or ".py(" in first["launcher_path"]
    assert first["module_chain"]
    assert first["call_chain"]
    assert not any("torch/" in frame for frame in first["call_chain"])
    assert {op["high_variance"] for op in operations} <= {True, False}
    for op in operations:
        assert op["efficiency"]["bound_type"] in ("compute", "memory", None)
        if not op["kernel_name"].startswith("Kernel 1: "):
            assert op["kernel_name"].startswith(op["kernel_name_trunc"])
            assert len(op["kernel_name_trunc"]) <= 75 or "&" in op["kernel_name_trunc"]


def test_numbers_above_the_peak_are_marked(sample: Analyzed) -> None:
    gemm = sample.run.results["gemm"]
    rows = sample.run.category_operations("gemm").with_columns(pct_roofline=132.0, bound=None)
    row = rows.row(0, named=True)
    run = with_findings(sample.run, "gemm", finding_of(gemm, row))
    run = replace(run, tables={**run.tables, "category_gemm": rows})
    text = analysis_markdown(run, sample.root)
    assert re.search(r"\| 132\.00% of [\d.]+ TB/s ⚠ anomaly \| — \|", text)


def test_items_keep_their_details_where_a_finding_covers_another(sample: Analyzed) -> None:
    """The rank of a finding may depend on those of other categories."""
    gemm = sample.run.results["gemm"]
    rows = sample.run.category_operations("gemm")
    bases = {"compute_ms": 10.0, "total_ms": 20.0}
    covered, free = (
        finding_of(
            gemm,
            rows.row(place, named=True),
            title=title,
            impact=modelled_impact(time_ms, 50.0, 80.0, **bases),
        )
        for place, title, time_ms in ((0, "Covered", 2.0), (1, "Free", 1.0))
    )
    over = finding_of(
        sample.run.results["kernel_fusion"],
        rows.row(0, named=True),
        operations=(),
        shared_uids=(rows["uid"][0],),
        title="Over",
        evidence={"Confidence": "low: so"},
        impact=bounded_impact(5.0, 4.0, **bases),
    )
    fusion = sample.run.results["kernel_fusion"].model_copy(
        update={"status": Status.OK, "findings": (over,)}
    )
    run = with_findings(sample.run, "gemm", covered, free, kernel_fusion=fusion)
    data, text = priority_data(Recommended(run)), analysis_markdown(run, sample.root)
    ranks = {f["title"]: f["category_rank"] for f in data["findings"]}
    mine = findings_markdown(
        Recommended(run), run.results["gemm"], [d for d in details_of(run) if d.rows is not None]
    )
    assert {t.split(" (")[0]: n for n, t in re.findall(r"^### P(\d): (.*)$", mine, re.M)} == {
        title: str(rank) for title, rank in ranks.items()
    }
    marked = [m["mid"] for m in markers(section(text, PARTS[1])) if m["kind"] == "p_item"]
    assert marked == [f"{finding['impact_score']:.2f}" for finding in data["findings"]]
    titles = [
        title.split(": ")[1].split(" (")[0] for title in headings(section(text, PARTS[1]), 3)[1:]
    ]
    assert titles == [finding["title"] for finding in data["findings"]] == ["Covered", "Free"]
