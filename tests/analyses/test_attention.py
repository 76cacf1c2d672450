"""Attention: bands by length and phase, heads, copies around it, its cache."""

from dataclasses import replace

import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.attention_copies import contiguous_copies
from jarvis.analyses.attention_shapes import cache_writes
from jarvis.analyses.checks import low_efficiency, opportunity
from jarvis.findings import Priority
from tests.analyses.rows import category, operation, operations
from tests.worded import Worded, worded

FLASH = "aten::_scaled_dot_product_flash_attention"
QKV = "((16, 16, 559, 64), (16, 16, 559, 64), (16, 16, 559, 64), ())"
ATTENTION = ["Model_0", "Layer_0", "Attention_0"]


def attention(n_q: int = 559, n_kv: int = 559, heads_kv: int = 16, head_dim: int = 64, **values):
    params = {"B": 16, "N_Q": n_q, "H_Q": 16, "N_KV": n_kv, "H_KV": heads_kv}
    params |= {"d_h_qk": head_dim, "causal": True, **values.pop("params", {})}
    row = {"time_us": 1000.0, "params": params, "input_dims": QKV, "module_path": ATTENTION}
    return operation(values.pop("name", FLASH), **(row | values))


def rated(pct_of_peak: float, **values) -> dict:
    """A compute-bound call at this share of the compute peak of 708 TFLOP/s."""
    flops = pct_of_peak / 100 * 708e12 * 1e-3
    peak = {"bound": "compute", "pct_roofline": pct_of_peak, "flops": flops, "peak_tflops": 708.0}
    return attention(**(peak | values))


def found(row: dict, **values) -> Worded | None:
    data = category("sdpa_fwd", row, **values)
    findings = [*low_efficiency(data), *opportunity(data)]
    assert len(findings) <= 1
    return Worded(findings[0]) if findings else None


def column(name: str, row: dict) -> object:
    return category("sdpa_fwd", row).operations[name][0]


def metrics(*rows: dict) -> dict:
    return load_analyses()["sdpa_fwd"].measure(category("sdpa_fwd", *rows))


@pytest.mark.parametrize(
    ("row", "pattern"),
    [
        (attention(511, 511), "N under 512"),
        (attention(512, 512), "N 512-1023"),
        (attention(1023, 1023), "N 512-1023"),
        (attention(1024, 1024), "N 1024-2047"),
        (attention(2048, 2048), "N 2048-4095"),
        (attention(4096, 4096), "N from 4096"),
        (attention(400, 700), "N 512-1023"),
        (attention(1, 4096), None),
        (attention(512, 4096), None),
        (attention(513, 4096), "N from 4096"),
        (attention(512, 512, op_category="SDPA_bwd"), "backward"),
        (operation(FLASH, time_us=1.0), None),
    ],
)
def test_pattern_of_a_length(row: dict, pattern: str | None) -> None:
    assert column("pattern", row) == pattern


@pytest.mark.parametrize(
    ("name", "op_category", "is_state_space"),
    [
        ("DaoAILab::_causal_conv1d_fwd_cpp", "SSM_fwd", True),
        ("MambaSplitConv1dScanCombinedFnBackward", "SSM_bwd", True),
        ("vllm::gdn_attention_core", "InferenceAttention", True),
        ("vllm::causal_conv1d_update", "other", True),
        ("vllm::unified_attention_with_output", "InferenceAttention", False),
        (FLASH, "SDPA_bwd", False),
    ],
)
def test_layers_with_a_state_get_no_advice_on_keys(
    name: str, op_category: str, is_state_space: bool
) -> None:
    row = {"time_us": 1000.0, "bound": "memory", "pct_roofline": 20.0}
    finding = found(operation(name, op_category=op_category, **row))
    assert finding is not None
    assert (finding.title.endswith("(state space)")) is is_state_space
    assert ("updates a state" in finding.issue) is is_state_space


@pytest.mark.parametrize(
    ("n", "below", "within", "above"),
    [(200, 4, 10, 16), (512, 7, 8, 16), (1024, 19, 30, 41), (2048, 39, 50, 61), (4096, 49, 60, 71)],
)
def test_each_length_has_a_band_of_its_own(n: int, below: int, within: int, above: int) -> None:
    low = found(rated(below, n_q=n, n_kv=n), top={1})
    assert "of the compute peak" in low.issue
    assert "is expected" in low.issue
    usual = found(rated(within, n_q=n, n_kv=n), top={1})
    assert "that such calls usually reach" in usual.issue
    assert usual.caveat
    assert found(rated(above, n_q=n, n_kv=n), top={1}) is None, "better than usual"


def test_a_usual_efficiency_lowers_the_priority_one_step() -> None:
    below = found(rated(7.9, n_q=512, n_kv=512), top={1})
    usual = found(rated(8.1, n_q=512, n_kv=512), top={1})
    assert below.priority is Priority.HIGH
    assert usual.priority is Priority.MEDIUM
    assert "512 queries" in usual.issue


def test_the_band_is_a_share_of_the_compute_peak_also_where_memory_decides() -> None:
    # 9% of the compute peak, 19% of the memory roofline
    row = rated(9.0, n_q=559, n_kv=559, bound="memory", pct_roofline=19.0, bytes=1e9)
    issue = found(row).issue
    assert "19.0% of the memory roofline" in issue
    assert "within the 8-15% of the compute peak (here 9.0%)" in issue


def test_no_band_where_memory_keeps_the_calls_below_it() -> None:
    # at full bandwidth these calls would reach 6% of the compute peak
    row = rated(2.4, n_q=559, n_kv=559, bound="memory", pct_roofline=39.0, bytes=1e9)
    assert "is expected" not in found(row).issue


def test_heads() -> None:
    shared = rated(7.0, heads_kv=4)
    assert column("attention_pattern", shared) == "GQA"
    assert column("gqa_ratio", shared) == 4
    assert "4 query heads share each of 4 heads of keys and values" in found(shared).issue
    plain = rated(7.0)
    assert column("attention_pattern", plain) == "MHA"
    assert "share each" not in found(plain).issue
    assert "head dimension 256 is above 128" in found(rated(7.0, head_dim=256)).issue
    assert "head dimension" not in found(rated(7.0, head_dim=128)).issue


def test_the_backward_pass_has_its_caveat_and_no_band() -> None:
    finding = found(rated(12.0, op_category="SDPA_bwd"))
    assert finding.title.endswith("(backward)")
    assert "less than its forward pass" in finding.caveat
    assert "expected" not in finding.issue


def test_a_fused_attention_has_no_advice_to_fuse() -> None:
    decoding = attention(1, 4096, pct_roofline=9.0, bound="memory")
    for row in (rated(7.0), rated(30.0, n_q=4096, n_kv=4096), decoding):
        finding = found(row)
        assert "fuse" not in f"{finding.algorithmic} {finding.kernel}".lower()


def paged(context: int, generated: int, **values) -> dict:
    sums = {"c_sq": context, "g_sq": generated}
    return attention(name="vllm::unified_attention", params=sums, **values)


@pytest.mark.parametrize(
    ("context", "generated", "pattern", "profile"),
    [
        (81, 19, "prefill heavy", "prefill_heavy"),
        (80, 20, "mixed prefill and decode", "mixed"),
        (20, 80, "mixed prefill and decode", "mixed"),
        (19, 81, "decode heavy", "decode_heavy"),
    ],
)
def test_phases_of_paged_attention(
    context: int, generated: int, pattern: str, profile: str
) -> None:
    row = paged(context, generated, count=3)
    assert column("pattern", row) == pattern
    assert metrics(row)["workload_profile"] == {
        "total_ctx_tokens": 3 * context,
        "total_gen_tokens": 3 * generated,
        "ctx_ratio": context / 100,
        "profile_type": profile,
    }


def test_the_workload_weighs_tokens_not_rows() -> None:
    profile = metrics(paged(900, 0), paged(0, 50), paged(0, 50))["workload_profile"]
    assert profile["ctx_ratio"] == pytest.approx(0.9)


def test_kernels_of_paged_attention() -> None:
    kernels = [
        ("reshape_and_cache_flash_kernel", 40.0),
        ("_fwd_kernel", 460.0),
        ("kernel_paged_attention_2d", 500.0),
    ]
    shares = metrics(paged(10, 90, kernels=kernels))["kernel_breakdown_avg"]
    assert shares == {
        "avg_reshape_cache_percent": pytest.approx(4.0),
        "avg_fwd_kernel_percent": pytest.approx(46.0),
        "avg_paged_attention_percent": pytest.approx(50.0),
    }
    assert "kernel_breakdown_avg" not in metrics(attention())


def test_counts() -> None:
    counted = metrics(
        attention(heads_kv=4),
        operation("x", time_us=1.0, kernels=[("void paged_attention_v2<1>", 1.0)]),
        operation("aten::attention", time_us=1.0),
    )
    assert counted["flash_attention_count"] == 1
    assert counted["paged_attention_count"] == 1
    assert counted["flash_attention_detected"] is True
    assert counted["has_perf_model_count"] == 0
    assert counted["grouped_heads_count"] == 1
    assert counted["large_head_dim_count"] == 0


@pytest.mark.parametrize(("cache_us", "is_found"), [(101.0, True), (100.0, False)])
def test_writing_the_cache(cache_us: float, is_found: bool) -> None:
    kernels = [("kernel_paged_attention_2d", 1000 - cache_us), ("reshape_and_cache", cache_us)]
    row = attention(name="vllm::unified_attention", kernels=kernels)
    findings = worded(cache_writes(category("sdpa_fwd", row)))
    assert bool(findings) == is_found
    for finding in findings:
        assert "0.101 ms (10.1%)" in finding.issue
        # what exceeds the usual 5% of 1 ms
        assert finding.impact.saved_ms.high == pytest.approx(0.051)


def copies(shape: tuple[int, ...], count: int, time_us: float, **values) -> dict:
    row = {"input_dims": f"({shape}, {shape}, ())", "module_path": ATTENTION}
    name = values.pop("name", "aten::copy_")
    return operation(name, time_us=time_us, count=count, **(row | values))


def around(*others: dict) -> list[Worded]:
    """Texts of findings on 24 calls of attention in 1 ms beside these operations."""
    call = attention(count=24)
    tables = {"operations": operations(call, *others)}
    return worded(contiguous_copies(replace(category("sdpa_fwd", call), tables=tables)))


HEADS_FIRST, TOKENS_FIRST = (16, 16, 559, 64), (16, 559, 16, 64)


def test_copies_around_attention_are_added_up() -> None:
    (finding,) = around(copies(HEADS_FIRST, 72, 700.0), copies(TOKENS_FIRST, 24, 200.0))
    assert finding.impact.saved_ms.high == pytest.approx(0.9)
    assert finding.impact.saved_ms.low == 0
    assert finding.shared_uids == (2, 3)
    assert not finding.operations, "the time of attention itself stays with its own finding"
    assert "72 copies of [16,16,559,64]" in finding.issue
    assert "4 per call" in finding.issue
    assert finding.priority is Priority.HIGH


@pytest.mark.parametrize(
    "other",
    [
        copies(HEADS_FIRST, 24, 99.0),
        copies((16, 16, 559, 32), 24, 900.0),
        copies(HEADS_FIRST, 24, 900.0, module_path=["Model_0", "Layer_0", "MLP_0"]),
        copies(HEADS_FIRST, 24, 900.0, name="aten::mul"),
        copies(HEADS_FIRST, 97, 900.0),
    ],
    ids=["9.9%", "another shape", "another module", "no copy", "more than four per call"],
)
def test_near_misses_of_copies_around_attention(other: dict) -> None:
    assert not around(other)


def test_copy_kernels_inside_the_call_count_too() -> None:
    kernels = [("flash_fwd_kernel", 800.0), ("at::native::direct_copy_kernel", 200.0)]
    (finding,) = worded(contiguous_copies(category("sdpa_fwd", attention(kernels=kernels))))
    assert "0.200 ms" in finding.issue
    assert [reference.uid for reference in finding.operations] == [1]
    assert finding.impact.saved_ms.high == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("causal", "n_kv", "is_advised"),
    [(False, 4096, True), (True, 4096, False), (False, 4097, False)],
)
def test_causal_attention_has_the_advice_to_pass_it(
    causal: bool, n_kv: int, is_advised: bool
) -> None:
    card = found(rated(30.0, n_q=4096, n_kv=n_kv, params={"causal": causal}))
    assert ("If the attention is causal" in card.algorithmic) is is_advised
