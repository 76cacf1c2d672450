"""Unfused attention as a finding of the attention category, with or without fused attention."""

import re
from pathlib import Path

import pytest

from jarvis.analyses.unfused_attention import unfused_attention
from jarvis.findings import Status
from jarvis.perf_report import PerfReport
from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.text.messages import to_text
from tests.analyses.rows import system
from tests.builders import TraceBuilder, trace
from tests.perf_report.test_attention_groups import (
    SOFTMAX,
    add,
    fused,
    layers,
    no_product_after,
    no_softmax,
)
from tests.worded import Worded, worded

GROUP_MS = 3 * (100 + 10 + 20 + 30 + 5 + 90) / 1000


def analyzed(built: TraceBuilder, folder: Path, device: str = "AMD Instinct MI300X") -> Run:
    built.header["deviceProperties"][0]["name"] = device
    return analyze(built.write(folder / "trace.json"), output_dir=folder / "run")


def findings(run: Run) -> list[Worded]:
    found = worded(run.results["sdpa_fwd"].findings)
    return [f for f in found if f.check == "unfused_attention"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attention")


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return analyzed(layers(3), folder)


def test_the_category_has_a_result_without_any_fused_operator(run: Run) -> None:
    result = run.results["sdpa_fwd"]
    assert (result.status, result.row_count) == (Status.OK, 0)
    assert len(findings(run)) == 1
    assert result.notes == ()


def test_the_report_for_stakeholders_has_a_card_for_it(run: Run, folder: Path) -> None:
    text = (folder / "run" / "standalone_analysis_fair.md").read_text(encoding="utf-8")
    found = re.search(
        r"^### \S+ (P\d+) \(.*\): Unfused attention in `SelfAttention`, 3 calls", text, re.M
    )
    assert found is not None
    assert f"| [{found[1]}](#-{found[1].lower()}-" in text


def test_the_finding_speaks_of_the_whole_group(run: Run) -> None:
    (finding,) = findings(run)
    assert finding.title == "Unfused attention in `SelfAttention`, 3 calls"
    assert finding.evidence["GPU time (ms)"] == pytest.approx(GROUP_MS)
    assert finding.evidence["Shape"] == (
        "batch 2 of 4 heads, 128 queries, 128 keys, head dimension 64, bf16"
    )
    assert set(finding.shared_uids) <= set(run.table("operations")["uid"])


def test_fused_attention_saves_what_three_to_ten_times_as_fast_saves(run: Run) -> None:
    (finding,) = findings(run)
    assert finding.impact is not None
    assert finding.impact.method == "heuristic"
    assert finding.impact.saved_ms.low == pytest.approx(GROUP_MS * 2 / 3)
    assert finding.impact.saved_ms.high == pytest.approx(GROUP_MS * 9 / 10)
    assert finding.impact.saved_ms.low <= finding.impact.saved_ms.mid
    assert finding.impact.saved_ms.mid <= finding.impact.saved_ms.high


def test_both_paths_are_named(run: Run) -> None:
    (finding,) = findings(run)
    assert "scaled_dot_product_attention" in finding.algorithmic
    assert "10 to 30%" in finding.kernel
    assert "`aten::bmm` of [8,128,64] bf16, [8,64,128] bf16" in finding.kernel


def test_products_of_one_shape_around_it_have_advice_of_their_own(run: Run) -> None:
    projections = [
        finding
        for finding in worded(run.results["gemm"].findings)
        if {row.name for row in finding.operations} <= {"aten::addmm", "aten::mm"}
    ]
    assert len(projections) == 2
    for texts in ({f.algorithmic for f in projections}, {f.kernel for f in projections}):
        assert len(texts) == 2


def test_without_known_hardware_the_middle_has_no_model(tmp_path: Path) -> None:
    (finding,) = findings(analyzed(layers(3), tmp_path, "Unknown GPU"))
    assert finding.impact is not None
    assert finding.impact.saved_ms.mid == pytest.approx(GROUP_MS * (1 - 30**-0.5))
    assert "not modeled" in (finding.caveat or "")


def test_two_groups_of_one_module_have_two_names() -> None:
    built = layers(2)
    built.python("nn.Module: SelfAttention_2")
    add(built, "bmm", [[2, 64, 32], [2, 32, 64]], 100, "Cijk_scores")
    add(built, "_softmax", [[2, 64, 64], [], []], 90, SOFTMAX)
    add(built, "bmm", [[2, 64, 64], [2, 64, 32]], 100, "Cijk_values")
    report = PerfReport(built.read(), None)
    names = ("operations", "attention_groups", "attention_steps")
    data = system("sdpa_fwd", report.totals, tables={name: report.table(name) for name in names})
    first, second = [to_text(finding.title) for finding in unfused_attention(data)]
    assert first.startswith("Unfused attention in `SelfAttention` (batch 2 of 4 heads, 128 queries")
    assert second.startswith(
        "Unfused attention in `SelfAttention` (batch times heads 2, 64 queries"
    )


@pytest.mark.parametrize("near_miss", [fused, no_product_after, no_softmax])
def test_near_misses_give_no_finding(near_miss: object, tmp_path: Path) -> None:
    built = trace().python("run.py(1): main")
    near_miss(built)  # type: ignore[operator]
    assert findings(analyzed(built, tmp_path)) == []
