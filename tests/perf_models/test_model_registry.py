import json
from dataclasses import replace
from pathlib import Path

import pytest

from jarvis.core.errors import RegistrationError
from jarvis.perf_models import (
    BUILTIN,
    OpCost,
    Registry,
    all_models,
    categorize,
    find_model,
    op_category,
    perf_model,
    registered_category,
)


def test_each_op_of_the_table_has_its_category(reference_root: Path) -> None:
    table = json.loads((reference_root / "specs" / "op-table.json").read_text())
    assert len(table) == 292
    wrong = {
        entry["op"]: (registered_category(entry["op"]), entry["category"])
        for entry in table
        if registered_category(entry["op"]) != entry["category"]
    }
    assert not wrong


def fft(name: str = "vendor::fft", category: str = "FFT_fwd") -> Registry:
    """A registry with one model of no FLOPs."""
    registry = Registry()
    registry.perf_model(name, category=category)(lambda op: OpCost(0, 0))
    return registry


def test_every_formula_is_stated() -> None:
    for model in all_models():
        assert model.cost.__doc__, model.name
        assert any(word in model.cost.__doc__.lower() for word in ("flops", "bytes")), model.name


def test_a_name_is_registered_once() -> None:
    registry = fft()
    with pytest.raises(RegistrationError, match="vendor::fft is registered twice"):
        registry.perf_model("vendor::fft", category="FFT")(lambda op: OpCost(0, 0))
    registry.categorize("FFT", "vendor::ifft")
    with pytest.raises(RegistrationError, match="vendor::ifft is registered twice"):
        registry.categorize("FFT", "vendor::ifft")


def test_a_family_must_be_able_to_name_a_sheet() -> None:
    with pytest.raises(RegistrationError, match="'a/b' can name no sheet"):
        fft(category="a/b")


def test_the_built_in_registry_takes_nothing_more() -> None:
    with pytest.raises(RegistrationError, match=r"register\(registry\)"):
        perf_model("vendor::fft", category="FFT")
    with pytest.raises(RegistrationError, match=r"register\(registry\)"):
        categorize("FFT", "vendor::fft")


def test_an_extended_registry_knows_both_and_leaves_them_as_they_are() -> None:
    own = fft()
    own.categorize("FFT", "vendor::ifft")
    both = BUILTIN.extended_with(own)
    assert both.op_category("vendor::fft") == "FFT_fwd"
    assert both.op_category("vendor::ifft") == "FFT"
    assert both.find_model("aten::mm") is find_model("aten::mm")
    assert both.op_category("FusedRoPEFuncBackward") == "RoPE_bwd"
    assert find_model("vendor::fft") is None
    assert own.find_model("aten::mm") is None
    with pytest.raises(RegistrationError):
        both.categorize("FFT", "vendor::other")


def test_the_extension_goes_before_what_is_built_in() -> None:
    own = fft("FusedRoPEFuncBackward")
    own.perf_model("triton_*", category="mine")(lambda op: OpCost(1, 1))
    own.categorize("MINE", "aten::mm", "record_*")
    own.perf_model("vendor::conv*", category="CONV")(lambda op: OpCost(1, 1))
    both = BUILTIN.extended_with(own)
    assert both.op_category("vendor::conv3d") == "CONV"
    # A built-in entry gives this name a category without a model.
    assert both.op_category("FusedRoPEFuncBackward") == "FFT_fwd"
    assert both.find_model("triton_poi_fused_add_0") is own.find_model("triton_x")
    assert both.op_category("record_param_comms") == "MINE"
    assert both.op_category("aten::mm") == "MINE"
    assert both.find_model("aten::mm") is find_model("aten::mm")


def test_names_match_by_prefix_where_no_exact_name_is_registered() -> None:
    fused = find_model("triton_poi_fused_add_0")
    assert fused is not None
    assert fused is not find_model("triton_red_fused_sum_0")
    assert fused.cost is find_model("triton_red_fused_sum_0").cost  # type: ignore[union-attr]
    assert find_model("triton_mm") is None
    assert find_model("aten::linear") is None


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("aten::mm", "GEMM"),
        ("triton_mm", "triton"),
        ("triton_poi_fused_add_0", "triton"),
        ("record_param_comms", "record_param_comms"),
        ("aiter::fused_dynamic_mxfp4_quant_moe_sort_hip", "MoE_aux"),
        ("aten::_softmax", None),
        ("aten::linear", None),
        ("my_triton_op", None),
    ],
)
def test_the_category_that_a_name_tells(name: str, category: str | None) -> None:
    assert op_category(name) == category


def test_a_model_makes_rows_with_a_category_or_as_an_extension() -> None:
    (with_category,) = fft().all_models()
    (without,) = fft(category="").all_models()
    assert with_category.makes_row
    assert not without.makes_row
    assert replace(without, is_extension=True).makes_row


def test_exact_values_take_the_place_of_the_sheets() -> None:
    cost = OpCost(2, 8, exact_flops=0, exact_bytes=6)
    assert (cost.exact().flops, cost.exact().bytes) == (0, 6)
    plain = OpCost(2, None)
    assert (plain.exact().flops, plain.exact().bytes) == (2, None)
