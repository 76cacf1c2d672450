"""What the reports of one trace must say, beyond their layout."""

import re

import polars as pl
import pytest

from jarvis.core.workspace import RunPaths
from jarvis.findings import IDLE_POOL, Priority
from jarvis.perf_report.timeline.steps import PARTS
from jarvis.reports.account import account_of
from jarvis.reports.details import details_of
from jarvis.reports.fair import fair_markdown
from jarvis.reports.ranking import recommendations
from jarvis.reports.rough import rough_markdown
from jarvis.text.format import milliseconds
from tests.reports.conftest import Analyzed
from tests.reports.markdown import finding, section, with_findings
from tests.worded import Worded, worded


@pytest.fixture(scope="module")
def fair(busy: Analyzed) -> str:
    return busy.text("standalone_analysis_fair.md")


@pytest.fixture(scope="module")
def rough(busy: Analyzed) -> str:
    return busy.text("standalone_analysis_rough.md")


def findings(busy: Analyzed) -> list[Worded]:
    found = [f for result in busy.run.results.values() for f in worded(result.findings)]
    assert len(found) > 5
    return found


def test_both_reports_stand_in_the_output_folder(busy: Analyzed) -> None:
    names = {path.name for path in busy.root.glob("standalone_analysis_*.md")}
    assert names == {"standalone_analysis_fair.md", "standalone_analysis_rough.md"}


def test_the_report_for_auditors_has_the_whole_timeline(busy: Analyzed, rough: str) -> None:
    times = busy.run.manifest.totals
    for name, time_ms, share in (
        ("Computation", times.compute_time_ms, times.compute_pct),
        ("Exposed communication", times.exposed_comm_time_ms, times.exposed_comm_pct),
        ("Exposed copies", times.exposed_memcpy_time_ms, times.exposed_memcpy_pct),
        ("Idle", times.idle_time_ms, times.idle_pct),
    ):
        row = re.search(rf"^\| {name} \| ([\d.]+) \| ([\d.]+)% \|$", rough, re.MULTILINE)
        assert row is not None, name
        assert float(row[1]) == pytest.approx(time_ms, rel=0.01)
        assert float(row[2]) == pytest.approx(share, abs=0.06)


def test_the_steps_of_the_process_are_reported_with_their_commands(rough: str) -> None:
    process = section(rough, "Analysis Process Summary")
    steps = re.findall(r"^### Step ([\d-]+): (.*)$", process, re.MULTILINE)
    assert [number for number, _ in steps] == ["1", "2", "3-5", "6", "7"]
    assert "jarvis report trace.json" in process
    assert "jarvis analyze trace.json" in process
    assert "Exposed communication" in process
    assert "The calculation of each saving and each priority:" in process


def test_raw_tables_and_call_paths_are_there(busy: Analyzed, rough: str) -> None:
    raw = section(rough, "Raw Data Exploration")
    assert "### gpu_timeline" in raw
    assert "### ops_summary" in raw
    for result in busy.run.results.values():
        if result.tier == "compute" and result.row_count:
            assert f"### Operations: {result.title}" in raw
    tree = section(rough, "Tree Analysis")
    assert "nn.Module: Block_0 (module)" in tree
    assert "=> aten::mm ((4096, 4096), (4096, 4096))" in tree


@pytest.mark.parametrize(("compute_ms", "is_said"), [(9.6, False), (9.4, True)])
def test_below_95_percent_of_compute_the_rest_comes_first(
    busy: Analyzed, compute_ms: float, is_said: bool
) -> None:
    parts = dict.fromkeys(PARTS, 0) | {"compute_ns": int(1e6 * compute_ms)}
    parts |= {"idle_between_ns": int(1e7) - parts["compute_ns"], "dur_ns": int(1e7)}
    steps = busy.run.table("steps").head(1).with_columns(**{n: pl.lit(t) for n, t in parts.items()})
    run = with_findings(
        busy.run.with_tables({"steps": steps}),
        finding("cpu_idle", saved_ms=0.1, time_pool=IDLE_POOL),
    )
    summary = section(fair_markdown(run, busy.root), "Executive Summary")
    assert ("address idle time before single kernels" in summary) is is_said


def test_the_metrics_of_the_summary(busy: Analyzed, fair: str) -> None:
    rows = dict(re.findall(r"^\| ([\w /]+) \| (.+) \|$", section(fair, "Executive Summary"), re.M))
    account = account_of(busy.run)
    assert account is not None
    shares = account.rows()["percent"]
    assert rows["Total Compute Time"].startswith("6.80 ms in")
    assert f"{shares[0]:.1f}% computing" in rows["GPU Utilization"]
    assert f"{sum(shares[3:]):.1f}% idle" in rows["GPU Utilization"]
    assert f"{shares[1]:.1f}% exposed communication" in rows["GPU Utilization"]
    of_compute, _, more = rows["Top Bottleneck Category"].partition("; ")
    assert of_compute == "GEMM (58.8% of compute)"
    assert more == f"idle time takes more ({sum(shares[3:]):.1f}% of the recording)"
    assert rows["Flash Attention Usage"] == "No (no attention in the trace)"


def test_the_table_of_top_operations(busy: Analyzed, fair: str) -> None:
    summary = section(fair, "Executive Summary")
    assert "### Top Operations (most GPU time, where to optimize kernels)" in summary
    assert "| Rank | Operation | Category | Time (ms) | % of Total Compute |" in summary
    assert "| 1 | `aten::mm` | GEMM | 4.00 | 58.8% |" in summary
    assert "| 2 | `aten::convolution` | Convolution | 1.60 | 23.5% |" in summary


def test_every_finding_has_both_paths_and_says_counts_or_times(busy: Analyzed) -> None:
    for found in findings(busy):
        assert found.algorithmic, found.title
        assert found.kernel, found.title
        assert found.algorithmic != found.kernel, found.title
        assert re.search(r"\d", found.issue), found.title
        assert found.evidence, found.title


def test_findings_of_operators_say_calls_efficiency_shape_kernel_and_tile(busy: Analyzed) -> None:
    (product,) = (f for f in findings(busy) if f.title == "Low efficiency: `aten::mm`")
    evidence = product.evidence
    assert evidence["Calls"] == 2
    assert evidence["GPU time (ms)"] == pytest.approx(4.0)
    assert evidence["Efficiency (% of roofline)"] == pytest.approx(9.707, abs=0.001)
    assert evidence["FLOPs/byte of the heaviest call"] == pytest.approx(1365.33, abs=0.01)
    assert evidence["Heaviest call"] == "[4096,4096] bf16, [4096,4096] bf16"
    assert evidence["Main kernel"] == "`Cijk_Alik_Bljk_BBS_BH_MT256x128x64`"
    assert evidence["Tile"] == "256x128x64"
    assert evidence["Called from"] == "Block"
    assert [reference.operation_count for reference in product.operations] == [2]


def test_rates_are_compared_with_the_peak_that_bounds_them(busy: Analyzed) -> None:
    by_title = {f.title: f.evidence for f in findings(busy)}
    product, addition = (
        by_title["Low efficiency: `aten::mm`"],
        by_title["Low efficiency: `aten::add`"],
    )
    # 2 * 4096^3 FLOPs in 2 ms; three tensors of 33.6 MB in 0.4 ms
    assert product["Achieved (TFLOP/s)"] == pytest.approx(68.719, abs=0.001)
    assert product["Peak (TFLOP/s)"] == 708.0
    assert addition["Achieved (TB/s)"] == pytest.approx(3 * 2 * 4096**2 / 0.4e-3 / 1e12)
    assert addition["Peak (TB/s)"] == 5.3


def test_findings_of_all_analyses_are_ranked_together_and_in_every_file(
    busy: Analyzed, fair: str
) -> None:
    ranked = recommendations(busy.run)
    gains = [round(r.finding.impact.gain_ms, 3) for r in ranked if r.finding.impact]
    assert gains == sorted(gains, reverse=True)
    assert len({r.finding.category for r in ranked}) > 3
    for each in ranked:
        key, tier = each.finding.category, each.result.tier
        own = busy.text(str(RunPaths(busy.root).findings(key, tier).relative_to(busy.root)))
        assert each.title in own
    labels = re.findall(r"^\| \[?(P\d+)\b", section(fair, "Recommendations"), re.M)
    assert labels == [each.label for each in ranked][: len(labels)]
    assert len(labels) > 5


def test_a_card_names_its_impact_and_its_details(busy: Analyzed, fair: str) -> None:
    cards = re.split(r"^### ", section(fair, "Recommendations"), flags=re.MULTILINE)[1:]
    (first,) = (card for card in cards if "): Low efficiency: `aten::mm`\n" in card)
    number = int(re.findall(r" P(\d+) ", first)[0])
    gain = details_of(busy.run)[number - 1].finding.impact
    assert gain is not None
    assert gain.step_ms is not None
    high = milliseconds(gain.step_ms.high)
    about = f"{milliseconds(gain.step_ms.mid)} ({gain.gain_pct:.1f}% of the recording)"
    assert f"- **Impact**: {about}, at most {high} →" in first
    assert "[evidence](category_findings/gemm_findings.md)" in first
    own = busy.text("category_findings/gemm_findings.md")
    assert "- **Operation:** `aten::mm` (2 calls)" in own
    assert f"(range {gain.saved_ms.low:.2f} to {gain.saved_ms.high:.2f} ms" in own
    basis = section(fair, "Recommendations").split("\n### ")[0]
    assert "Ordered by the step time that they save" in basis


def test_findings_files_have_the_evidence(busy: Analyzed) -> None:
    for each in details_of(busy.run):
        if each.finding.has_agent_card:
            path = RunPaths(busy.root).findings(
                each.finding.category, each.recommendation.result.tier
            )
            assert each.evidence in path.read_text(encoding="utf-8")


def test_kernels_can_be_compared_between_shapes(busy: Analyzed) -> None:
    part = busy.text("category_findings/convolution_findings.md")
    assert "| 1 | `igemm_fwd_gtcx3_nhwc_bf16` | 1 | 0.500 ms | 62.5% |" in part
    assert "| 1 | `batched_transpose_32x16_half` | 1 | 0.300 ms | 37.5% |" in part


def test_the_appendix_names_platform_peaks_memory_and_packages(fair: str) -> None:
    appendix = section(fair, "Appendix")
    assert "- MI300X\n" in appendix
    assert "- Peak HBM BW: 5.30 TB/s\n" in appendix
    assert "- Peak MAF: 708 TFLOP/s matrix_bf16" in appendix
    assert "- Memory: 192 GB HBM3\n" in appendix
    assert "`replay_packages/aten_mm_replay_package.zip`" in appendix


def test_icons_of_the_priorities() -> None:
    assert [priority.icon for priority in Priority] == ["🔴", "🟡", "🟢", "⚪"]


def test_copies_from_the_host_are_judged_as_copies_and_not_as_slow_operators(
    busy: Analyzed,
) -> None:
    (row,) = (
        r
        for r in busy.run.table("operations").to_dicts()
        if r["name"] == "aten::copy_" and "HtoD" in r["kernels"][0]["name"]
    )
    assert row["pct_roofline"] is None
    about = [f for f in findings(busy) if "aten::copy_" in f.title or "H2D" in f.title]
    assert [f.title for f in about] == ["12 copies H2D"]


def test_time_without_a_perf_model_is_no_finding(busy: Analyzed, fair: str) -> None:
    (read,) = (
        r["name"]
        for r in busy.run.table("operations").to_dicts()
        if r["kernel_time_us"] and not r["has_perf_model"] and r["name"] != "aten::copy_"
    )
    assert not any(read in f.title for f in findings(busy))
    assert read not in section(fair, "What Is Not Known")  # it only copies to the host
    assert f"`{read}`" in section(rough_markdown(busy.run), "TraceLens Gaps")


def test_notes_of_the_products_count_quantized_and_unmodelled_rows(busy: Analyzed) -> None:
    notes = section(busy.text("category_findings/gemm_findings.md"), "Additional Notes")
    assert "- Quantized count: 0" in notes
    assert "- Missing perf model count: 0" in notes
    overview = section(busy.text("category_findings/gemm_findings.md"), "Overview")
    assert "58.8% of compute" in overview
    assert "Average efficiency: 9.7% of the roofline" in overview
