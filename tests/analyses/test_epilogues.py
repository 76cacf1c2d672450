"""What the findings on epilogues of matrix products say, and what they would save."""

from pathlib import Path
from typing import Any

import pytest

from jarvis import savings
from jarvis.analyses.chain_context import PART_OF_CHAIN
from jarvis.analyses.chains import OVERLAP_PART
from jarvis.pipeline import analyze
from jarvis.run import Run
from tests.builders import TraceBuilder, trace
from tests.worded import Worded, worded

MI300X_TB_PER_S = 5.3
TARGET = 0.8
ROWS, K, N = 8192, 1024, 4096
RESULT = [ROWS, N]
RESULT_MS = ROWS * N * 2 / MI300X_TB_PER_S / 1e9
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"
STEPS_MS = (4 * 60 / 1000, 4 * 90 / 1000)


def layers(us_of_gemm: float = 100, device: str = "AMD Instinct MI300X") -> TraceBuilder:
    """Four gated layers: an activation behind one product, a gate behind another."""
    built = trace(device).python("run.py(1): main")
    for number in range(4):
        built.python(f"nn.Module: GatedMLP_{number}")
        for name, dims, us in (("silu", [RESULT], 60), ("mul", [RESULT, RESULT], 90)):
            built.child("aten::mm", [[ROWS, K], [K, N]]).launches("Cijk_wide", us=us_of_gemm).up()
            built.child(f"aten::{name}", dims).launches(ELEMENTWISE, us=us).up()
        built.child("aten::mm", [[ROWS, N], [N, K]]).launches("Cijk_narrow", us=us_of_gemm).up()
        built.up()
    return built


def analyzed(built: TraceBuilder, folder: Path) -> Run:
    return analyze(built.write(folder / "trace.json"), output_dir=folder / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return analyzed(layers(), tmp_path_factory.mktemp("epilogues"))


def findings(run: Run) -> dict[str, Worded]:
    found = worded(run.results["kernel_fusion"].findings)
    return {f.title.split("`")[1]: f for f in found if f.check == "gemm_epilogue"}


def test_each_epilogue_names_its_product_and_its_module(run: Run) -> None:
    assert set(findings(run)) == {"aten::silu", "aten::mul"}
    silu = findings(run)["aten::silu"]
    assert (
        silu.title == "Unfused epilogue: `aten::silu` after `aten::mm` in `GatedMLP`, 4 instances"
    )
    assert "4 kernels, 0.240 ms in all" in silu.issue
    assert "in addition to 0.400 ms of the products" in silu.issue


def test_all_time_is_saved_where_nothing_else_is_read(run: Run) -> None:
    (time_ms, _), silu = STEPS_MS, findings(run)["aten::silu"].impact
    assert silu is not None
    low = time_ms * (1 - OVERLAP_PART)
    ends = silu.saved_ms.low, silu.saved_ms.mid, silu.saved_ms.high
    assert ends == pytest.approx((low, (low + time_ms) / 2, time_ms))


def test_the_other_factor_must_still_be_read(run: Run) -> None:
    (_, time_ms), mul = STEPS_MS, findings(run)["aten::mul"].impact
    assert mul is not None
    assert mul.saved_ms.high == pytest.approx(time_ms)
    assert mul.saved_ms.mid == pytest.approx(time_ms - 4 * RESULT_MS / TARGET)
    assert mul.saved_ms.low == pytest.approx(time_ms * 2 / 3 * (1 - OVERLAP_PART))


def test_both_paths_are_specific(run: Run) -> None:
    silu, mul = findings(run)["aten::silu"], findings(run)["aten::mul"]
    assert "fused activation" in silu.algorithmic
    assert "other factor of `aten::mul`" in mul.algorithmic
    assert f"[{ROWS},{K}] bf16, [{K},{N}] bf16 (now `Cijk_wide`)" in silu.kernel


def test_the_confidence_says_whether_anything_else_is_read(run: Run) -> None:
    confidence = {name: str(f.evidence["Confidence"]) for name, f in findings(run).items()}
    assert confidence["aten::silu"].startswith("high:")
    assert confidence["aten::mul"].startswith("medium:")


def test_savings_are_not_added_to_those_of_the_same_elementwise_rows(run: Run) -> None:
    inside = run.results["elementwise"].findings
    assert any(PART_OF_CHAIN in finding.evidence for finding in inside)
    epilogues = [each.finding for each in findings(run).values()]
    every = savings.disjoint_findings([*epilogues, *inside])
    assert every == sorted(every, key=lambda f: -f.impact.saved_ms.mid if f.impact else 0)
    taken = [uid for f in every for uid in (*f.shared_uids, *(o.uid for o in f.operations))]
    assert len(taken) == len(set(taken))


def test_the_products_themselves_may_save_on_top(run: Run) -> None:
    products = {row.uid for f in run.results["gemm"].findings for row in f.operations}
    assert products
    assert not products & {uid for f in findings(run).values() for uid in f.shared_uids}


def test_the_metrics_tell_the_two_kinds_apart(run: Run) -> None:
    estimates: Any = run.results["kernel_fusion"].metrics["impact_estimates"]
    assert {estimate["fusion_type"] for estimate in estimates} == {"matrix_compute"}


def test_a_small_share_of_the_time_is_no_finding(tmp_path: Path) -> None:
    run = analyzed(layers(us_of_gemm=10_000), tmp_path)
    assert findings(run) == {}
    assert run.table("fusion_chains").height == 2


def test_without_known_hardware_there_is_time_but_no_saving(tmp_path: Path) -> None:
    silu = findings(analyzed(layers(device="Unknown GPU"), tmp_path))["aten::silu"]
    assert silu.impact is None
    assert "hardware is not known" in (silu.caveat or "")
