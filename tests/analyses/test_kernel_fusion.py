"""Kernel fusion: what a chain takes, what one kernel would take, and what the findings say."""

import json
from pathlib import Path

import pytest

from jarvis import savings
from jarvis.analyses.chain_context import PART_OF_CHAIN
from jarvis.analyses.operations import KERNEL_FLOOR_US
from jarvis.findings import Priority, Status, shown_evidence
from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.text.messages import to_text
from tests.builders import TraceBuilder, trace
from tests.worded import Worded, worded

TB_PER_S = 5.3
"""Bandwidth of the MI300X in ``hardware.toml``."""

ROWS, WIDTH = 8192, 1024
X, ROW = [ROWS, WIDTH], [ROWS, 1]
HALF = "c10::BFloat16"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"
STEPS = (
    ("copy_", [X, X, []], ["float", HALF, "Scalar"], 20),
    ("pow", [X, []], ["float", "Scalar"], 18),
    ("mean", [X, [], []], ["float", "ScalarList", "Scalar"], 8),
    ("add", [ROW, [], []], ["float", "double", "Scalar"], 2),
    ("rsqrt", [ROW], ["float"], 2),
    ("mul", [X, ROW], ["float", "float"], 18),
    ("copy_", [X, X, []], [HALF, "float", "Scalar"], 15),
    ("mul", [[WIDTH], X], [HALF, HALF], 17),
)


def norm(built: TraceBuilder, factor: float = 1.0) -> None:
    for name, dims, types, us in STEPS:
        built.child(f"aten::{name}", dims, types=types).launches(ELEMENTWISE, us=us * factor).up()


def layers(
    count: int, device: str = "AMD Instinct MI300X", us_of_gemm: float = 100
) -> TraceBuilder:
    """Layers of a product and a norm, each next norm slower by a tenth."""
    built = trace(device)
    built.python("run.py(1): main")
    for layer in range(count):
        built.python(f"nn.Module: Layer_{layer}")
        built.child("aten::mm", [[ROWS, WIDTH], [WIDTH, WIDTH]])
        built.launches("Cijk_gemm", us=us_of_gemm).up()
        built.python(f"nn.Module: RMSNorm_{layer}").python("model.py(218): forward")
        norm(built, 1 + layer / 10)
        built.up(3)
    return built


def analyzed(built: TraceBuilder, folder: Path) -> Run:
    return analyze(built.write(folder / "trace.json"), output_dir=folder / "run")


def findings(run: Run) -> list[Worded]:
    assert run.results["kernel_fusion"].status is Status.OK
    return worded(run.results["kernel_fusion"].findings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return analyzed(layers(4), tmp_path_factory.mktemp("fusion"))


def test_the_finding_names_kernels_instances_and_the_real_sum(run: Run) -> None:
    (finding,) = findings(run)
    assert finding.title == "Unfused chain: `RMSNorm`, 8 kernels, 4 instances"
    total_ms = sum(us for *_, us in STEPS) * (1.0 + 1.1 + 1.2 + 1.3) / 1000
    assert finding.evidence["GPU time (ms)"] == pytest.approx(total_ms)
    assert "`aten::rsqrt`" in finding.issue
    assert finding.priority is Priority.CRITICAL  # most of the step


def test_the_saving_is_the_time_without_that_of_a_fused_kernel(run: Run) -> None:
    (finding,) = findings(run)
    assert finding.impact is not None
    moved = 4 * (ROWS * WIDTH * 2 + WIDTH * 2 + ROWS * WIDTH * 2)
    total_ms = sum(us for *_, us in STEPS) * 4.6 / 1000
    roofline_ms = moved / TB_PER_S / 1e9
    assert finding.impact.saved_ms.high == pytest.approx(total_ms - roofline_ms, rel=0.02)
    assert finding.impact.saved_ms.mid == pytest.approx(total_ms - roofline_ms / 0.8, rel=0.02)
    assert 0 < finding.impact.saved_ms.low <= finding.impact.saved_ms.mid


def test_confidence_says_its_reasons(run: Run) -> None:
    text = str(findings(run)[0].evidence["Confidence"])
    assert text.startswith("high: it is all that the module does; each operator takes the")


def test_both_paths_are_specific(run: Run) -> None:
    (finding,) = findings(run)
    assert "`torch.nn.functional.rms_norm`" in finding.algorithmic
    assert f"[{ROWS},{WIDTH}]" in finding.kernel
    assert finding.verify is not None
    assert "4 kernels must replace the 32" in finding.verify


def test_savings_are_not_added_to_those_of_the_kernels_inside(run: Run) -> None:
    chain = findings(run)[0].finding
    inside = run.results["elementwise"].findings
    assert inside
    every = savings.disjoint_findings([chain, *inside])
    assert chain in every
    uids = set(chain.shared_uids)
    assert not any(uids & {row.uid for row in f.operations} for f in every if f is not chain)


def test_findings_of_the_kernels_inside_stay_and_name_the_chain(run: Run) -> None:
    texts = [shown_evidence(f).get(PART_OF_CHAIN, "") for f in run.results["elementwise"].findings]
    assert any("`RMSNorm` (8 kernels, 4 instances, 0.460 ms in all)" in str(t) for t in texts)


def test_the_normalization_category_without_operators_names_the_chain(run: Run) -> None:
    result = run.results["batchnorm"]
    assert result.status is Status.NO_DATA
    assert to_text(result.notes[0]).startswith("`RMSNorm` (8 kernels, 4 instances")


def attention_layers(count: int) -> TraceBuilder:
    """Layers of a norm, projections and attention, then a norm in front of a product."""
    built = trace("AMD Instinct MI300X").python("run.py(1): main")
    for layer in range(count):
        built.python(f"nn.Module: Layer_{layer}").python("model.py(5): forward")
        for part in ("Attention", "MLP"):
            built.python(f"nn.Module: RMSNorm_{layer}").python("model.py(218): forward")
            norm(built, 1 if part == "Attention" else 2)
            built.up(2).python(f"nn.Module: {part}_{layer}").python("model.py(9): forward")
            built.child("aten::mm", [[ROWS, WIDTH], [WIDTH, WIDTH]])
            built.launches("Cijk_gemm", us=100).up()
            if part == "Attention":
                heads = [8, 16, 1024, 64]
                built.child("aten::_scaled_dot_product_flash_attention", [heads] * 3)
                built.launches("attn_fwd", us=100).up()
            built.up(2)
        built.up(2)
    return built


def test_attention_names_the_chain_whose_result_it_reads(tmp_path: Path) -> None:
    (note,) = analyzed(attention_layers(3), tmp_path).results["sdpa_fwd"].notes
    assert to_text(note).startswith(
        "`RMSNorm` (8 kernels, 6 instances, 0.900 ms in all) produces the input"
    )
    assert "of attention in 3 of its instances (0.300 ms)" in to_text(note)


def test_a_chain_in_front_of_a_product_is_none_of_attention(run: Run) -> None:
    assert run.results["sdpa_fwd"].notes == ()


def test_the_metrics_count_what_is_too_small_for_a_finding(tmp_path: Path) -> None:
    run = analyzed(layers(1, us_of_gemm=20_000), tmp_path)
    assert findings(run) == []
    text = (tmp_path / "run" / "category_data" / "kernel_fusion_metrics.json").read_text()
    metrics = json.loads(text)
    assert (metrics["candidate_count"], metrics["estimated_count"]) == (1, 0)
    (candidate,) = metrics["candidates"]
    assert (candidate["base_name"], candidate["instance_count"]) == ("RMSNorm", 1)


def test_the_metrics_have_the_keys_that_other_tools_read(run: Run) -> None:
    metrics = run.results["kernel_fusion"].metrics
    (estimate,) = metrics["impact_estimates"]  # type: ignore[misc]
    assert estimate["type"] == "kernel_fusion"  # type: ignore[index, call-overload]
    assert estimate["kernel_count"] == estimate["modeled_kernel_count"] == 8  # type: ignore[index, call-overload]
    assert metrics["high_confidence_kernel_map"] == {ELEMENTWISE: "RMSNorm"}
    assert metrics["peak_hbm_bw_tbs"] == TB_PER_S


def test_without_known_hardware_a_chain_has_its_time_and_no_saving(tmp_path: Path) -> None:
    (finding,) = findings(analyzed(layers(4, "Unknown GPU"), tmp_path))
    assert finding.impact is None
    assert finding.evidence["Instances"] == 4
    assert "hardware is not known" in (finding.caveat or "")


def test_many_tiny_kernels_gain_no_more_than_launches_allow(tmp_path: Path) -> None:
    built = trace("AMD Instinct MI300X").python("run.py(1): main")
    small = [64, 8]
    for _ in range(100):
        built.python("nn.Module: Tiny_0")
        for name in ("exp", "mul", "neg"):
            built.child(f"aten::{name}", [small, small]).launches(ELEMENTWISE, us=3).up()
        built.up()
    (finding,) = findings(analyzed(built, tmp_path))
    assert finding.impact is not None
    assert finding.impact.saved_ms.high == pytest.approx((9 - KERNEL_FLOOR_US) * 100 / 1000)
    assert finding.impact.saved_ms.mid == pytest.approx((9 - 3) * 100 / 1000)


def test_a_sum_that_is_normalized_is_still_written(tmp_path: Path) -> None:
    built = trace("AMD Instinct MI300X")
    for _ in range(10):
        built.op("aten::mm", [[ROWS, WIDTH], [WIDTH, WIDTH]]).launches("Cijk_gemm", us=60)
        built.op("aten::add", [X, X, []]).launches(ELEMENTWISE, us=40)
        built.op("aten::layer_norm", [X, [], [WIDTH], [WIDTH], [], []])
        built.launches("vectorized_layer_norm_kernel", us=40)
    (finding,) = findings(analyzed(built, tmp_path))
    moved_mb = 10 * (2 * ROWS * WIDTH + ROWS * WIDTH + 2 * WIDTH + ROWS * WIDTH) * 2 / 1e6
    assert finding.evidence["Memory traffic when fused, all instances (MB)"] == pytest.approx(
        moved_mb
    )
    assert finding.capture is not None  # no module is named


def test_a_kernel_counts_once_whatever_shapes_the_instances_have(tmp_path: Path) -> None:
    built = trace("AMD Instinct MI300X").python("run.py(1): main")
    for index in range(60):
        shape = [4096, 4096 if index % 2 else 2048]
        built.python(f"nn.Module: Scale_{index}")
        for name in ("exp", "neg"):
            built.child(f"aten::{name}", [shape]).launches(ELEMENTWISE, us=90).up()
        built.up()
    metrics = analyzed(built, tmp_path).results["kernel_fusion"].metrics
    (estimate,) = metrics["impact_estimates"]  # type: ignore[misc]
    assert estimate["kernel_count"] == estimate["modeled_kernel_count"] == 2  # type: ignore[index, call-overload]
