"""The Markdown reports: layout, links, limits, and that a trace cannot break them."""

import re
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from markdown_it import MarkdownIt

from jarvis.findings import AnalysisResult, Finding, OpRef, Priority, Status
from jarvis.impact import bounded_impact, modelled_impact
from jarvis.pipeline import analyze
from jarvis.reports.agent_layout.findings import findings_markdown
from jarvis.reports.details import details_of
from jarvis.reports.fair import fair_markdown
from jarvis.reports.gaps import gaps_of
from jarvis.reports.rough import rough_markdown
from jarvis.reports.sections import trace_stem
from jarvis.run import PerfModelFailure, Run
from jarvis.run.agent_layout.recommended import Recommended
from jarvis.trace_health import Fact, Severity
from tests.builders import trace
from tests.reports.conftest import Analyzed

KEYS = ("gemm", "cpu_idle")
PARSER = MarkdownIt("commonmark").enable("table")
LINK = re.compile(r"\]\(#([^)]+)\)")


def changed(
    run: Run, *, results: dict[str, AnalysisResult] | None = None, **manifest: object
) -> Run:
    return Run(
        run.manifest.model_copy(update=manifest),
        results if results is not None else run.results,
        run.tables,
        run.paths_by_category,
    )


def headings(markdown: str, level: int) -> list[str]:
    return re.findall(rf"^{'#' * level} (.+)$", markdown, re.MULTILINE)


def section(markdown: str, heading: str) -> str:
    start = markdown.index(f"\n## {heading}\n")
    end = markdown.find("\n## ", start + 1)
    return markdown[start : end if end > 0 else None]


def github_anchor(rendered_heading: str) -> str:
    """An independent reading of how anchors are made from the text of a heading."""
    text = "".join(c for c in rendered_heading.lower() if c.isalnum() or c in " -_")
    return "-".join(text.split(" "))


def anchors(markdown: str) -> list[str]:
    tokens = PARSER.parse(markdown)
    inlines = [tokens[i + 1] for i, token in enumerate(tokens) if token.type == "heading_open"]
    texts = ["".join(child.content for child in t.children or []) for t in inlines]
    return [github_anchor(text) for text in texts]


@pytest.fixture(scope="module")
def fair(sample: Analyzed) -> str:
    return sample.text("standalone_analysis_fair.md")


@pytest.fixture(scope="module")
def rough(sample: Analyzed) -> str:
    return sample.text("standalone_analysis_rough.md")


def test_title_and_sections_of_the_fair_report(fair: str) -> None:
    assert fair.startswith("# Tiny - MI300X Standalone Analysis\n")
    wanted = ["Executive Summary", "Recommendations", "Detailed Analysis", "Appendix"]
    assert [h for h in headings(fair, 2) if h != "Warnings"] == wanted
    appendix = ["The Step", "Hardware Reference", "Trace Health"]
    appendix += ["Replay Artifacts", "Methodology and Thresholds"]
    assert headings(section(fair, "Appendix"), 3) == appendix


def test_the_executive_summary_is_short_and_says_what_matters(fair: str, sample: Analyzed) -> None:
    summary = section(fair, "Executive Summary")
    lines = [line for line in summary.splitlines() if line.strip()][1:]
    assert len(lines) <= 20
    for name in ("Total Compute Time", "GPU Utilization", "Top Bottleneck Category"):
        assert f"| {name} |" in summary
    assert "| Flash Attention Usage | Yes |" in summary
    assert "simulated trace" in summary
    assert "MI300X, preset reference" in summary
    assert len(re.findall(r"^\| \d+ \|", summary, re.MULTILINE)) == len(
        sample.run.manifest.top_operations
    )


def test_cards_are_short_complete_and_in_order(fair: str) -> None:
    cards = re.split(r"^### ", section(fair, "Recommendations"), flags=re.MULTILINE)[1:]
    cards = [card for card in cards if "Low priority" not in card.splitlines()[0]]
    assert cards
    numbers = []
    for card in cards:
        lines = [line for line in card.splitlines() if line.strip()]
        assert len(lines) <= 10
        heading = re.match(r"(\S+) P(\d+) \((Critical|High|Medium)\): \S", lines[0])
        assert heading, lines[0]
        assert heading[1] == Priority(heading[3]).icon
        numbers.append(int(heading[2]))
        for label in ("Operation", "Issue", "Action A", "Action B", "Impact"):
            assert sum(line.startswith(f"- **{label}") for line in lines) == 1, (label, card)
    assert numbers == list(range(1, len(cards) + 1))


def test_every_link_leads_somewhere(fair: str) -> None:
    links = LINK.findall(fair)
    assert links
    found = anchors(fair)
    assert len(found) == len(set(found))
    assert set(links) <= set(found)


def test_detailed_analysis_names_shares_and_projections(fair: str, sample: Analyzed) -> None:
    details = section(fair, "Detailed Analysis")
    numbered = headings(details, 3)
    compute = [r for r in sample.run.results.values() if r.tier == "compute" and r.row_count]
    assert len([h for h in numbered if h.endswith("% of compute)")]) == len(compute)
    assert [h.split(".")[0] for h in numbered] == [str(n + 1) for n in range(len(numbered))]
    columns = "| Target Efficiency | Op Time | Op Improvement | Compute Improvement |"
    assert columns in details
    for target in (20, 50, 70, 80, 100):
        assert f"| {target}% of peak |" in details


def test_projections_follow_the_formula(fair: str) -> None:
    rows = re.findall(r"^\| (\d+)% of peak \| ([\d.,]+) ms \| ([\d.]+)%", fair, re.MULTILINE)
    times = [(int(t), float(ms.replace(",", "")), float(gain)) for t, ms, gain in rows]
    for (t1, ms1, gain1), (t2, ms2, gain2) in pairwise(times):
        if t2 > t1 and 0 < gain1 < gain2:
            assert ms1 * t1 == pytest.approx(ms2 * t2, rel=0.01)


def test_impacts_stay_within_what_they_concern(sample: Analyzed) -> None:
    totals = sample.run.manifest.totals
    for detail in details_of(sample.run):
        if impact := detail.finding.impact:
            assert impact.saved_ms.high <= impact.time_ms + 1e-9
            assert impact.saved_ms.high <= totals.total_time_ms + 1e-9


def test_the_hardware_is_printed_with_its_sources(fair: str, sample: Analyzed) -> None:
    hardware = sample.run.manifest.hardware
    assert hardware is not None
    reference = fair[fair.index("### Hardware Reference") :]
    assert f"{hardware.name}, preset {hardware.preset}" in reference
    assert reference.count("Peak MAF") == len(hardware.max_achievable_tflops)
    assert str(hardware.source_of("mem_bw_gbps")) in reference


def test_sections_of_the_rough_report(rough: str) -> None:
    assert rough.startswith("# Tiny - MI300X Standalone Analysis (Rough)\n")
    assert headings(rough, 2) == [
        "Analysis Process Summary",
        "Raw Data Exploration",
        "Tree Analysis",
        "TraceLens Gaps",
        "Questions for Further Investigation",
    ]
    assert "jarvis analyze sample.json.gz --platform MI300X" in rough
    assert "=> aten::" in section(rough, "Tree Analysis")
    assert "nn.Module" in section(rough, "Tree Analysis")


def test_findings_of_a_category(sample: Analyzed) -> None:
    text = sample.text("category_findings/gemm_findings.md")
    assert text.startswith("# GEMM Analysis Summary\n")
    wanted = ["Overview", "Operations Breakdown", "Key Bottlenecks", "Additional Notes"]
    assert headings(text, 2) == [*wanted, "Recommendations", "Detailed Analysis"]
    columns = "| Operation | Count | Time (ms) | % of Category | Efficiency | FLOPS/Byte | Type |"
    assert columns in text
    result = sample.run.results["gemm"]
    bottlenecks = section(text, "Key Bottlenecks")
    assert len(headings(bottlenecks, 3)) == len(result.findings) > 0
    for label in ("Time", "Efficiency", "Issue", "Algorithmic", "Kernel", "Priority"):
        assert bottlenecks.count(f"- **{label}:**") == len(result.findings)


def test_findings_of_the_system(hostile: Analyzed) -> None:
    text = hostile.text("system_findings/multi_kernel_findings.md")
    assert "- **Status**: SUCCESS" in text
    assert "- **Analysis Tier**: System-Level" in text
    assert "| Metric | Value | Severity |" in text
    for name in ("Total Memcpy Events", "D2H Transfers", "H2D Transfers", "Compute/Comm Overlap"):
        assert f"| {name} |" in text
    wanted = ["Summary", "Memory Copy Analysis", "Communication Blocking Analysis"]
    wanted += ["Detected Patterns", "Recommendations", "Technical Details", "Detailed Analysis"]
    assert headings(text, 2) == wanted
    numbers = re.findall(r"^### System P(\d+): \S", text, re.MULTILINE)
    assert len(numbers) == len(hostile.run.results["multi_kernel"].findings) > 0
    assert "| Rank | Operation | Duration (us) | Stream |" in text
    assert "| Direction | Count | Total Time (ms) | Avg Size | Severity |" in text
    assert "Likely cause (hypothesis)" in text


def test_a_category_without_operations_says_so(sample: Analyzed) -> None:
    text = sample.text("category_findings/moe_fused_findings.md")
    assert "- **Status**: NO_DATA" in text
    assert "No MoE operations found in the trace." in text
    assert headings(text, 2) == ["Recommendations", "Detailed Analysis"]


def test_a_failed_analysis_is_told_and_left_out(sample: Analyzed) -> None:
    failed = AnalysisResult(
        key="gemm",
        title="GEMM",
        tier="compute",
        status=Status.ERROR,
        error="ValueError: a|b <c>",
        traceback="Traceback\n```\nValueError: a|b <c>",
    )
    run = changed(sample.run, results={**sample.run.results, "gemm": failed})
    text = findings_markdown(Recommended(run), failed, [])
    assert "- **Status**: ERROR" in text
    assert "## Recommendations" not in text
    fair = fair_markdown(run, sample.root)
    assert "| GEMM | compute | `ValueError: a\\|b <c>` |" in section(fair, "Warnings")
    assert ". GEMM (" not in fair
    assert "Traceback\n```\n" in rough_markdown(run)


def test_without_hardware_nothing_is_invented(sample: Analyzed) -> None:
    run = changed(sample.run, hardware=None, model_name=None, platform_warning="Unknown GPU.")
    fair = fair_markdown(run, sample.root)
    assert fair.startswith("# sample - Hardware not known Standalone Analysis\n")
    assert "The title is its file name: no model was named." in fair
    assert "Peak MAF" not in fair
    assert "Unknown GPU." in section(fair, "Warnings")
    assert "not known" in section(fair, "Warnings")


def test_efficiencies_above_the_peak_are_marked(sample: Analyzed) -> None:
    rows = sample.run.category_operations("gemm").with_columns(pct_roofline=pl.lit(132.0))
    run = Run(
        sample.run.manifest,
        sample.run.results,
        {**sample.run.tables, "category_gemm": rows, "operations": sample.run.table("operations")},
        sample.run.paths_by_category,
    )
    fair = fair_markdown(run, sample.root)
    gemm = fair[fair.index(". GEMM (") :].split("\n### ")[0]
    table = [line for line in gemm.splitlines() if re.match(r"\| \d+ \| `aten::", line)]
    shown = [line for line in table if "132.0%" in line]
    assert shown
    assert all("132.0% ⚠ anomaly" in line for line in shown)


def test_low_priorities_get_a_line_and_no_card(sample: Analyzed) -> None:
    row = sample.run.category_operations("reduce").row(0, named=True)
    finding = Finding(
        check="low_efficiency",
        category="reduce",
        title="A trifle",
        operations=(OpRef(uid=row["uid"], name=row["name"], operation_count=1),),
        issue="It is slow.",
        algorithmic="Do less.",
        kernel="Do it faster.",
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        impact=modelled_impact(1.0, 50.0, 80.0, compute_ms=100.0, total_ms=200.0),
    )
    result = sample.run.results["reduce"].model_copy(update={"findings": (finding,)})
    fair = fair_markdown(changed(sample.run, results={"reduce": result}), sample.root)
    assert "Nothing needs attention" in fair
    assert "No finding is above low priority." in fair
    assert "| P1 | A trifle | Reduce | 0.375 ms (0.19% of the GPU window) |" in fair
    assert "#### P1" not in fair


def finding(category: str, *uids: int, saved_ms: float, **values: object) -> Finding:
    facts: dict[str, object] = {
        "check": "c",
        "category": category,
        "title": f"Of {category}",
        "operations": tuple(OpRef(uid=uid, name="op", operation_count=1) for uid in uids),
        "issue": "It is slow.",
        "algorithmic": "Do less.",
        "kernel": "Do it faster.",
        "priority_local": Priority.HIGH,
        "priority": Priority.HIGH,
        "impact": bounded_impact(9.0, saved_ms, mid_ms=saved_ms, compute_ms=10.0, total_ms=20.0),
    }
    return Finding.model_validate(facts | values)


def with_findings(run: Run, *findings: Finding) -> Run:
    """A run whose analyses have these findings only."""
    results = {key: r.model_copy(update={"findings": ()}) for key, r in run.results.items()}
    for one in findings:
        old = results[one.category]
        results[one.category] = old.model_copy(update={"findings": (*old.findings, one)})
    return changed(run, results=results)


def uids_of(run: Run, key: str) -> list[int]:
    return run.category_operations(key)["uid"].to_list()


def test_a_card_says_with_which_others_its_saving_does_not_add_up(sample: Analyzed) -> None:
    first, second, *_ = uids_of(sample.run, "elementwise")
    gemm = uids_of(sample.run, "gemm")[0]
    run = with_findings(
        sample.run,
        finding("kernel_fusion", saved_ms=4.0, shared_uids=(first,)),
        finding("elementwise", first, saved_ms=3.0),
        finding("elementwise", first, second, saved_ms=2.0),
        finding("gemm", gemm, saved_ms=1.0),
    )
    fair = fair_markdown(run, sample.root)
    cards = re.split(r"^### ", section(fair, "Recommendations"), flags=re.MULTILINE)[1:]
    overlaps = [re.findall(r"\*\*Overlap\*\*: (.*)", card) for card in cards]
    assert overlaps == [
        ["shares time with P2 and P4: the savings do not add up."],
        ["partly covered by fusion card P1; shares time with P4: the savings do not add up."],
        [],
        ["covered by fusion card P1; shares time with P2: the savings do not add up."],
    ]
    name = sample.run.category_operations("elementwise")["name"][0]
    assert f"- **Operation**: across operators (Kernel fusion): `{name}`" in cards[0]
    assert "add up to 5.00 ms (" in section(fair, "Executive Summary")


def test_findings_say_their_efficiency_and_what_they_overlap_with(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    bases = {"compute_ms": 10.0, "total_ms": 20.0}
    small = bounded_impact(2.0, 1.0, efficiency_pct=4.6, **bases)
    run = with_findings(
        sample.run,
        finding("gemm", uid, saved_ms=1.0, impact=small),
        finding("gemm", uid, saved_ms=2.0),
        finding("cpu_idle", saved_ms=3.0, time_pool="idle"),
        finding("cpu_idle", saved_ms=2.0, time_pool="idle"),
    )
    details = {key: [d for d in details_of(run) if d.finding.category == key] for key in KEYS}
    gemm, idle = (
        findings_markdown(Recommended(run), run.results[key], details[key]) for key in KEYS
    )
    assert "- **Efficiency:** 4.6% of the roofline (needs investigation)" in gemm
    assert gemm.count("- **Overlap:** shares time with P") == 2
    assert idle.count("   - Overlap: shares time with P") == 2


def test_findings_that_save_nothing_known_overlap_with_nothing(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    unknown = finding("gemm", uid, saved_ms=1.0, impact=None)
    run = with_findings(sample.run, unknown, finding("gemm", uid, saved_ms=2.0))
    assert "**Overlap**" not in fair_markdown(run, sample.root)


def test_system_numbers_begin_with_what_the_gpu_waits_for(sample: Analyzed) -> None:
    run = with_findings(
        sample.run,
        finding("multi_kernel", saved_ms=5.0, priority=Priority.CRITICAL),
        finding("cpu_idle", saved_ms=1.0),
        finding("cpu_idle", saved_ms=2.0),
    )
    details = details_of(run)
    labels = [(d.finding.category, d.recommendation.label) for d in details]
    assert labels == [("multi_kernel", "P1"), ("cpu_idle", "P2"), ("cpu_idle", "P3")]
    assert [d.recommendation.local_label for d in details] == [
        "System P3",
        "System P1",
        "System P2",
    ]


def test_details_begin_with_the_system_level(sample: Analyzed) -> None:
    fair = fair_markdown(with_findings(sample.run), sample.root)
    titles = headings(section(fair, "Detailed Analysis"), 3)
    assert [title.split(". ")[1] for title in titles[:3]] == [
        "CPU / idle (system level)",
        "Multi-kernel (system level)",
        "Kernel fusion (across operators)",
    ]
    assert titles[3].endswith("% of compute)")


def test_no_table_stands_twice_nor_what_the_summary_says(sample: Analyzed) -> None:
    fair = sample.text("standalone_analysis_fair.md")
    tables = re.findall(r"(?:^\|.*\n)+", fair, re.MULTILINE)
    assert len(tables) > 10
    assert len(tables) == len(set(tables))
    paragraph = section(fair, "Executive Summary").strip().splitlines()[2]
    told = [sentence for sentence in re.split(r"(?<=\.) ", paragraph) if len(sentence) > 30]
    assert len(told) > 3
    assert all(fair.count(sentence) == 1 for sentence in told)


def test_the_table_of_kernels_refers_to_rows_and_repeats_none(sample: Analyzed) -> None:
    details = section(sample.text("standalone_analysis_fair.md"), "Detailed Analysis")
    gemm = details[details.index(". GEMM (") :].split("\n### ")[0]
    operations = re.findall(r"^\| (\d+) \| `aten::", gemm, re.MULTILINE)
    kernels = re.findall(
        r"^\| (\d+) \| `[^`]+` \| [\d.]+ \| [\d.]+ [mµ]s \| ([\d.]+)% \|$", gemm, re.MULTILINE
    )
    assert operations == [str(n + 1) for n in range(len(operations))]
    assert {number for number, _ in kernels} <= set(operations)
    for number in {number for number, _ in kernels}:
        shares = [float(share) for row, share in kernels if row == number]
        assert sum(shares) == pytest.approx(100.0, abs=0.5)


def test_what_is_not_in_the_trace_is_said(sample: Analyzed) -> None:
    absent = [r for r in sample.run.results.values() if r.status is Status.NO_DATA]
    assert absent
    said = sample.text("standalone_analysis_fair.md").split(". Not in this trace")[1]
    for result in absent:
        assert result.title in said.split("## Appendix")[0]


def test_an_analysis_without_findings_says_so(sample: Analyzed) -> None:
    details = section(fair_markdown(with_findings(sample.run), sample.root), "Detailed Analysis")
    parts = [part for part in details.split("\n### ")[1:] if "Not in this trace" not in part]
    assert parts
    assert all("Nothing to fix here" in part for part in parts)


def test_what_to_capture_next_stands_with_the_details(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    asking = finding("gemm", uid, saved_ms=1.0, capture="Record with `with_stack=True`.")
    fair = fair_markdown(with_findings(sample.run, asking), sample.root)
    assert "- **Capture next**: Record with `with_stack=True`." in fair


def test_unsteady_times_are_a_warning(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    unsteady = finding("gemm", uid, saved_ms=1.0, check="high_variance", issue="Times vary.")
    fair = fair_markdown(with_findings(sample.run, unsteady), sample.root)
    assert "- P1 (Of gemm): calls with equal arguments differ widely in time." in section(
        fair, "Warnings"
    )
    assert fair.count("Times vary.") == 1


def test_targets_that_are_reached_promise_nothing(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    gain = modelled_impact(1.0, 60.0, 80.0, compute_ms=10.0, total_ms=20.0)
    fair = fair_markdown(
        with_findings(sample.run, finding("gemm", uid, saved_ms=1.0, impact=gain)), sample.root
    )
    assert "| 50% of peak | reached already | — | — | — |" in fair
    assert "| 80% of peak | 0.750 ms | 25.0% | " in fair


def test_no_projection_where_the_efficiency_alone_does_not_give_the_saving(
    sample: Analyzed,
) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    gain = modelled_impact(1.0, 60.0, 80.0, compute_ms=10.0, total_ms=20.0)
    limited = gain.saved_ms.model_copy(update={"mid": 0.2})
    gain = gain.model_copy(update={"saved_ms": limited})
    fair = fair_markdown(
        with_findings(sample.run, finding("gemm", uid, saved_ms=1.0, impact=gain)), sample.root
    )
    assert "about 0.200 ms at 80% of the roofline" in fair
    assert "% of peak |" not in fair


@pytest.mark.parametrize(
    ("file_name", "title"),
    [
        ("bert.json.gz", "bert"),
        ("step.pt.trace.json", "step"),
        ("a.b.zip", "a.b"),
        (".json", ".json"),
        ("trace", "trace"),
    ],
)
def test_without_a_model_the_title_is_the_file_name(file_name: str, title: str) -> None:
    assert trace_stem(file_name) == title


def test_gaps_lead_to_questions(sample: Analyzed) -> None:
    lacking = (
        Fact("operators", "", "The trace holds GPU events only.", severity=Severity.WARNING),
        Fact("stacks", "", "The trace holds no Python stacks.", severity=Severity.NOTE),
        Fact("repair_truncated", "", "The file is cut.", severity=Severity.WARNING),
        Fact("launched_before", "", "A part of another fact.", severity=Severity.NOTE),
    )
    failures = {
        "perf_model_failures": (PerfModelFailure(name="aten::x", input_dims=None, reason="r"),)
    }
    run = changed(sample.run, hardware=None, load_failures={"theirs": "no module"}, **failures)
    health = pl.DataFrame([asdict(fact) for fact in lacking])
    run = replace(run, tables={**run.tables, "trace_health": health})
    gaps = gaps_of(run)
    texts = " ".join(gap.text for gap in gaps)
    for missing in (
        "`theirs` of another package",
        "perf model of `aten::x` failed",
        "hardware is not known",
        "GPU events only",
        "no Python stacks",
    ):
        assert missing in texts
    assert "A part of another fact" not in texts
    assert [gap.text for gap in gaps if gap.is_grave and "GPU events" in gap.text]
    assert "Do the conclusions hold despite this: The file is cut?" in {
        gap.question for gap in gaps
    }
    assert all(gap.question.endswith("?") for gap in gaps)


def test_no_name_becomes_markup(hostile: Analyzed) -> None:
    assert hostile.run.results["gemm"].row_count
    for name, text in hostile.markdown().items():
        tokens = PARSER.parse(text)
        kinds = {token.type for token in tokens}
        kinds |= {child.type for token in tokens for child in token.children or []}
        html = [t.content for t in tokens if t.type == "html_block"]
        html += [c.content for t in tokens for c in t.children or [] if c.type == "html_inline"]
        ours = (
            r"<!-- (reasoning-candidate|impact-begin|impact-end|top-ops-row)[a-z0-9_=. ]*-->\n?"
            r'|<a id="detailed-analysis-[a-z]+-[pP]\d+">|</a>|<br>'
        )
        assert all(re.fullmatch(ours, content) for content in html), name
        assert "image" not in kinds, name
        links = [c.attrs["href"] for t in tokens for c in t.children or [] if c.type == "link_open"]
        assert all(str(link).startswith("#") for link in links), name
        assert set(headings(text, 1)) <= {text.splitlines()[0].removeprefix("# ")}
        assert "# heading" not in [line.strip() for line in text.splitlines()], name


def test_hostile_links_still_lead_somewhere(hostile: Analyzed) -> None:
    fair = hostile.text("standalone_analysis_fair.md")
    assert LINK.findall(fair)
    assert set(LINK.findall(fair)) <= set(anchors(fair))


def test_tables_keep_their_columns(hostile: Analyzed) -> None:
    for name, text in hostile.markdown().items():
        tokens = PARSER.parse(text)
        widths: list[int] = []
        for token in tokens:
            if token.type == "tr_open":
                widths.append(0)
            elif token.type in ("td_open", "th_open"):
                widths[-1] += 1
            elif token.type == "table_close":
                assert len(set(widths)) == 1, name
                widths = []


def test_the_summary_says_what_stands_beside_compute(hostile: Analyzed, sample: Analyzed) -> None:
    summary = section(hostile.text("standalone_analysis_fair.md"), "Executive Summary")
    assert re.search(r"address .*(exposed communication|exposed copies) .*before single", summary)
    assert "address idle" not in summary
    assert "none of them critical" in section(
        sample.text("standalone_analysis_fair.md"), "Executive Summary"
    )


def test_system_findings_speak_of_both_directions_and_name_collectives(sample: Analyzed) -> None:
    text = sample.text("system_findings/multi_kernel_findings.md")
    copies = section(text, "Memory Copy Analysis")
    assert {h.split()[0] for h in headings(copies, 3)} >= {"D2H", "H2D"}
    technical = section(text, "Technical Details")
    assert re.search(
        r"^\| 1 \| `.*` \| [\d,.]+ \| \d+ \| allreduce \| [\d.]+ \| 8 \|$", technical, re.M
    )


def test_without_hardware_the_summary_says_how_to_have_efficiencies(tmp_path: Path) -> None:
    builder = trace(device="Strange 9000").op("aten::mm", [[512, 512], [512, 512]])
    path = builder.launches("k", us=500.0).write(tmp_path / "trace.json")
    analyze(path, output_dir=tmp_path / "r")
    fair = (tmp_path / "r" / "standalone_analysis_fair.md").read_text(encoding="utf-8")
    summary = section(fair, "Executive Summary")
    assert "peaks of" not in summary
    assert "Name the GPU (`--platform`) to get them." in summary
    assert ".," not in summary
