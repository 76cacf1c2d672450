"""MoE: types, the balance as a hypothesis, the assumption of even routing."""

import re

import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.checks import above_peak, low_efficiency, opportunity
from jarvis.findings import Priority
from tests.analyses.rows import category, operation
from tests.worded import Worded, worded

PARAMS = {"M": 64, "K": 4096, "N": 1536, "E": 128, "topk": 8, "gated": True}


def moe(pct: float | None = 20.0, **values) -> dict:
    row = {
        "time_us": 2000.0,
        "pct_roofline": pct,
        "bound": "memory",
        "params": PARAMS,
        "op_category": "MoE_fused",
    }
    return operation(values.pop("name", "vllm::fused_experts"), **(row | values))


def found(row: dict, **values) -> Worded | None:
    data = category("moe_fused", row, **values)
    findings = [*low_efficiency(data), *opportunity(data)]
    assert len(findings) <= 1
    return Worded(findings[0]) if findings else None


@pytest.mark.parametrize(
    ("name", "op_category", "moe_type"),
    [
        ("pseudo_op::moe_aiter_fused_1stage", "MoE_fused", "fused"),
        ("vllm::gated_experts", "MoE_fused", "fused"),
        ("aiter::ck_moe_stage1", "MoE_unfused", "unfused"),
        ("sglang::fused_moe_kernel_stage", "MoE_unfused", "unfused"),
        ("aiter::moe_sorting_fwd", "MoE_aux", "routing"),
        ("aiter::moe_quant_helper", "MoE_aux", "aux"),
        ("TokenPermuteMaskMap", "MoE_comm_fwd", "routing"),
        ("mylib::moe_topk_softmax", "other", "routing"),
        ("mylib::fused_moe", "other", "fused"),
        ("mylib::unfused_moe", "other", "expert"),
        ("mylib::moe_gemm", "other", "expert"),
    ],
)
def test_types(name: str, op_category: str, moe_type: str) -> None:
    row = moe(name=name, op_category=op_category)
    assert category("moe_fused", row).operations["moe_type"][0] == moe_type


def test_metrics_by_type() -> None:
    rows = [moe(), moe(name="aiter::moe_sorting_fwd", op_category="MoE_aux", time_us=500.0)]
    metrics = load_analyses()["moe_fused"].measure(category("moe_fused", *rows))
    assert metrics["rows_by_type"] == {"fused": 1, "routing": 1}
    assert metrics["time_ms_by_type"] == {"fused": 2.0, "routing": 0.5}


@pytest.mark.parametrize(
    ("pct", "hypothesis"),
    [
        (29.0, "or the kernel"),
        (30.0, "check the balance"),
        (49.0, "check the balance"),
        (50.0, None),
    ],
)
def test_a_low_efficiency_may_come_from_the_balance(pct: float, hypothesis: str | None) -> None:
    output = found(moe(pct), top={1}).hypothesis
    assert (hypothesis in output) if hypothesis else output is None


def test_from_half_of_the_roofline_on_little_is_left() -> None:
    below, usual = found(moe(49.0), top={1}), found(moe(51.0), top={1})
    assert "where 50-80% is expected" in below.issue
    assert "within the 50-80%" in usual.issue
    assert below.priority is Priority.HIGH
    assert usual.priority is Priority.MEDIUM


def test_memory_bound_experts_rest_on_even_routing() -> None:
    finding = found(moe())
    assert "64 tokens, 8 of 128 experts each" in finding.issue
    assert "spread evenly" in finding.caveat
    assert "128 experts" in finding.capture
    computing = found(moe(bound="compute"))
    assert "evenly" not in (computing.caveat or "")


def test_stages_of_their_own_are_to_be_fused() -> None:
    row = moe(name="aiter::ck_moe_stage1", op_category="MoE_unfused")
    finding = found(row)
    assert finding.title.endswith("(unfused)")
    assert "fused operator for all stages" in finding.algorithmic
    assert "evenly" in finding.caveat
    assert "fused operator" not in found(moe()).algorithmic


def test_routing_has_no_hypothesis_about_the_experts() -> None:
    finding = found(moe(name="aiter::moe_sorting_fwd", op_category="MoE_aux"))
    assert finding.hypothesis is None
    assert "routing operator" in finding.algorithmic


@pytest.mark.parametrize("bound", ["compute", "memory"])
@pytest.mark.parametrize("op_category", ["MoE_fused", "MoE_unfused", "MoE_aux"])
def test_no_advice_asks_for_a_narrower_type(bound: str, op_category: str) -> None:
    row = moe(bound=bound, op_category=op_category, input_types="('c10::Float4_e2m1fn_x2',)")
    finding = found(row)
    text = f"{finding.issue} {finding.algorithmic} {finding.kernel} {finding.caveat}"
    assert not re.search(r"narrower|quantiz|fp8|int4|fp4 ", text, re.IGNORECASE)


def test_an_analytic_efficiency_above_the_peak_is_in_doubt() -> None:
    row = moe(904.0)
    (finding,) = worded(above_peak(category("moe_fused", row)))
    assert "904.0%" in finding.issue
    assert found(row) is None
