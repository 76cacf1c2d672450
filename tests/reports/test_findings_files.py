"""The findings files and the rough report: all numbers behind the findings."""

import re
from itertools import pairwise

import polars as pl
import pytest

from jarvis.findings import AnalysisResult, Priority, Status
from jarvis.impact import bounded_impact, modelled_impact
from jarvis.reports.agent_layout.findings import findings_markdown
from jarvis.reports.details import details_of
from jarvis.reports.fair import fair_markdown
from jarvis.reports.rough import rough_markdown
from jarvis.run import Run
from jarvis.run.agent_layout.priorities import Recommended
from tests.reports.conftest import Analyzed
from tests.reports.markdown import (
    changed,
    finding,
    headings,
    section,
    uids_of,
    with_findings,
)

KEYS = ("gemm", "cpu_idle")


@pytest.fixture(scope="module")
def gemm(sample: Analyzed) -> str:
    return sample.text("category_findings/gemm_findings.md")


@pytest.fixture(scope="module")
def rough(sample: Analyzed) -> str:
    return sample.text("standalone_analysis_rough.md")


def findings_of(run: Run, key: str = "gemm") -> str:
    own = [d for d in details_of(run) if d.finding.category == key]
    return findings_markdown(Recommended(run), run.results[key], own)


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
    assert "Formulas and thresholds:" in rough


def test_the_hardware_is_printed_with_its_sources(rough: str, sample: Analyzed) -> None:
    hardware = sample.run.manifest.hardware
    assert hardware is not None
    reference = rough[rough.index("### Hardware Reference") :].split("\n### ")[0]
    assert reference.count("Peak MAF") == len(hardware.max_achievable_tflops)
    assert str(hardware.source_of("mem_bw_gbps")) in reference


def test_projections_follow_the_formula(gemm: str) -> None:
    columns = "| Target Efficiency | Op Time | Op Improvement | Compute Improvement |"
    assert columns in gemm
    for target in (20, 50, 70, 80, 100):
        assert f"| {target}% of peak |" in gemm
    rows = re.findall(r"^\| (\d+)% of peak \| ([\d.,]+) ms \| ([\d.]+)%", gemm, re.MULTILINE)
    times = [(int(t), float(ms.replace(",", "")), float(gain)) for t, ms, gain in rows]
    compared = 0
    for (t1, ms1, gain1), (t2, ms2, gain2) in pairwise(times):
        if t2 > t1 and 0 < gain1 < gain2:
            assert ms1 * t1 == pytest.approx(ms2 * t2, rel=0.01)
            compared += 1
    assert compared


def test_efficiencies_above_the_peak_are_marked(sample: Analyzed) -> None:
    rows = sample.run.category_operations("gemm").with_columns(pct_roofline=pl.lit(132.0))
    text = findings_of(sample.run.with_tables({"category_gemm": rows}))
    shown = [line for line in text.splitlines() if re.match(r"\| `aten::.* 132\.0%", line)]
    assert shown
    assert all("132.0% ⚠ anomaly" in line for line in shown)


def test_a_finding_says_with_which_others_its_saving_does_not_add_up(sample: Analyzed) -> None:
    first, second, *_ = uids_of(sample.run, "elementwise")
    gemm = uids_of(sample.run, "gemm")[0]
    run = with_findings(
        sample.run,
        finding("kernel_fusion", saved_ms=4.0, shared_uids=(first,)),
        finding("elementwise", first, saved_ms=3.0),
        finding("elementwise", first, second, saved_ms=2.0),
        finding("gemm", gemm, saved_ms=1.0),
    )
    details = details_of(run)
    assert [detail.overlap for detail in details] == [
        "shares time with P2 and P3: the savings do not add up.",
        "covered by fusion card P1; shares time with P3: the savings do not add up.",
        "partly covered by fusion card P1; shares time with P2: the savings do not add up.",
        None,
    ]
    name = sample.run.category_operations("elementwise")["name"][0]
    assert details[0].operation == f"across operators (Kernel fusion): `{name}`"


def test_findings_that_save_nothing_known_overlap_with_nothing(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    unknown = finding("gemm", uid, saved_ms=1.0, impact=None)
    run = with_findings(sample.run, unknown, finding("gemm", uid, saved_ms=2.0))
    assert [detail.overlap for detail in details_of(run)] == [None, None]


def test_items_of_a_tier_are_numbered_in_the_order_of_the_run(sample: Analyzed) -> None:
    run = with_findings(
        sample.run,
        finding("multi_kernel", saved_ms=5.0, priority=Priority.CRITICAL),
        finding("cpu_idle", saved_ms=1.0),
        finding("cpu_idle", saved_ms=2.0),
    )
    labels = [(d.finding.category, d.recommendation.local_label) for d in details_of(run)]
    assert labels == [
        ("multi_kernel", "System P1"),
        ("cpu_idle", "System P2"),
        ("cpu_idle", "System P3"),
    ]


def test_the_table_of_kernels_refers_to_rows_and_repeats_none(gemm: str) -> None:
    kernels = re.findall(
        r"^\| (\d+) \| `[^`]+` \| [\d.]+ \| [\d.]+ [mµ]s \| ([\d.]+)% \|$", gemm, re.MULTILINE
    )
    rows = len(re.findall(r"^\| `aten::", section(gemm, "Operations Breakdown"), re.MULTILINE))
    assert {int(number) for number, _ in kernels} <= {*range(1, rows + 1)}
    assert kernels
    for number in {number for number, _ in kernels}:
        shares = [float(share) for row, share in kernels if row == number]
        assert sum(shares) == pytest.approx(100.0, abs=0.5)


def test_what_to_capture_next_is_part_of_the_resolution(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    asking = finding("gemm", uid, saved_ms=1.0, capture="Record with `with_stack=True`.")
    text = findings_of(with_findings(sample.run, asking))
    assert re.search(r"\*\*Resolution:\*\* .*Record with `with_stack=True`\.", text)


def test_targets_that_are_reached_promise_nothing(sample: Analyzed) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    gain = modelled_impact(1.0, 60.0, 80.0, compute_ms=10.0, total_ms=20.0)
    text = findings_of(with_findings(sample.run, finding("gemm", uid, saved_ms=1.0, impact=gain)))
    assert "| 50% of peak | reached already | — | — | — |" in text
    assert "| 80% of peak | 0.750 ms | 25.0% | " in text


def test_no_projection_where_the_efficiency_alone_does_not_give_the_saving(
    sample: Analyzed,
) -> None:
    uid = uids_of(sample.run, "gemm")[0]
    gain = modelled_impact(1.0, 60.0, 80.0, compute_ms=10.0, total_ms=20.0)
    limited = gain.saved_ms.model_copy(update={"mid": 0.2})
    gain = gain.model_copy(update={"saved_ms": limited})
    text = findings_of(with_findings(sample.run, finding("gemm", uid, saved_ms=1.0, impact=gain)))
    assert "about 0.200 ms at 80% of the roofline" in text
    assert "% of peak |" not in text


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


def test_a_failed_analysis_is_reported_and_left_out(sample: Analyzed) -> None:
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


def test_system_findings_speak_of_both_directions_and_name_collectives(sample: Analyzed) -> None:
    text = sample.text("system_findings/multi_kernel_findings.md")
    copies = section(text, "Memory Copy Analysis")
    assert {h.split()[0] for h in headings(copies, 3)} >= {"D2H", "H2D"}
    technical = section(text, "Technical Details")
    assert re.search(
        r"^\| 1 \| `.*` \| [\d,.]+ \| \d+ \| allreduce \| [\d.]+ \| 8 \|$", technical, re.M
    )


def test_impacts_stay_within_what_they_concern(sample: Analyzed) -> None:
    totals = sample.run.manifest.totals
    for detail in details_of(sample.run):
        if impact := detail.finding.impact:
            assert impact.saved_ms.high <= impact.time_ms + 1e-9
            assert impact.saved_ms.high <= totals.total_time_ms + 1e-9
