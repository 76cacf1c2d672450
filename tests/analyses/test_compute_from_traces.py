"""From a trace to the findings of compute categories, through report, claims and runner."""

import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.runner import run_analyses, split_operations
from jarvis.findings import AnalysisResult
from jarvis.hardware import load_hardware
from jarvis.perf_report import PerfReport
from tests.builders import TraceBuilder, trace
from tests.worded import Worded, worded

MI300X = load_hardware().get("MI300X")
GEMM_KERNEL = "Cijk_Alik_Bljk_BBS_BH_MT256x128x64_MI16x16x1"
COPY_KERNEL = "void at::native::elementwise_kernel_copy<4>"


def analyzed(built: TraceBuilder, key: str) -> AnalysisResult:
    report = PerfReport(built.read(), MI300X)
    analyses = {key: load_analyses()[key]}
    slices = split_operations(report, load_analyses())
    return run_analyses(report, analyses, slices, compute_units=304)[key].result


def named(result: AnalysisResult, check: str) -> Worded | None:
    return next((f for f in worded(result.findings) if f.check == check), None)


def bmm(batch: int, us: float) -> TraceBuilder:
    built = trace("AMD Instinct MI300X").op("aten::bmm", [[batch, 8, 64], [batch, 64, 8]])
    return built.launches(GEMM_KERNEL, us=us)


def test_tiny_batched_products_far_from_their_roofline() -> None:
    # 37632 products move 81 MB: 15.2 µs at 5.3 TB/s
    result = analyzed(bmm(37632, us=13_710), "gemm")
    finding = named(result, "low_efficiency")
    assert finding.title.endswith("(tiny batched)")
    assert "37632 products of M=8, N=8, K=64" in finding.issue
    assert "tile 256x128x64" in finding.kernel
    assert "times its roofline time" in finding.hypothesis
    near_miss = named(analyzed(bmm(999, us=300), "gemm"), "low_efficiency")
    assert "tiny batched" not in near_miss.title


def test_a_product_at_its_peak_has_nothing_to_fix() -> None:
    # 2 * 4096^3 flops at 708 TFLOP/s are 194 µs
    def product(us: float) -> AnalysisResult:
        built = trace("AMD Instinct MI300X").op("aten::mm", [[4096, 4096], [4096, 4096]])
        return analyzed(built.launches(GEMM_KERNEL, us=us), "gemm")

    (finding,) = worded(product(220).findings)
    assert finding.check == "nothing_to_fix"
    assert "88.2% of the roofline" in finding.issue
    assert not named(product(300), "nothing_to_fix")


def attention(module_of_copies: str = "Attention_0", us_of_copies: float = 40) -> TraceBuilder:
    """A layer that makes query, key and value contiguous before attention."""
    qkv = [[16, 16, 559, 64]] * 3
    built = trace("AMD Instinct MI300X").python("nn.Module: Layer_0")
    built.python(f"nn.Module: {module_of_copies}")
    for _ in range(3):
        built.child("aten::copy_", [qkv[0], qkv[0], []]).launches(COPY_KERNEL, us=us_of_copies).up()
    if module_of_copies != "Attention_0":
        built.up().python("nn.Module: Attention_0")
    built.child(
        "aten::_scaled_dot_product_flash_attention",
        [*qkv, [], [], [], []],
        concrete=["", "", "", "0.", "True", "False", "0.125"],
    )
    return built.launches("attn_fwd", us=160)


def test_copies_in_the_module_of_an_attention_call() -> None:
    result = analyzed(attention(), "sdpa_fwd")
    finding = named(result, "contiguous_copies")
    assert finding.impact.saved_ms.high == pytest.approx(0.12)
    assert "3 copies of [16,16,559,64]" in finding.issue
    assert len(finding.shared_uids) == 1
    assert named(result, "low_efficiency").title.endswith("(N 512-1023)")
    elsewhere = analyzed(attention(module_of_copies="Mlp_0"), "sdpa_fwd")
    assert not named(elsewhere, "contiguous_copies")
    assert not named(analyzed(attention(us_of_copies=4), "sdpa_fwd"), "contiguous_copies")


def test_work_of_an_unknown_operator_is_found_by_its_kernel() -> None:
    def unknown(kernel: str) -> AnalysisResult:
        built = trace("AMD Instinct MI300X").op("mylib::project", [[64, 64], [64, 64]])
        return analyzed(built.launches(kernel, us=100.0), "other")

    title = named(unknown("my_softmax_kernel"), "miscategorised").title
    assert title.startswith("Looks like Reduce")
    assert not named(unknown("my_kernel"), "miscategorised")
