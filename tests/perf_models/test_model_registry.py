import json
from pathlib import Path

import pytest

from jarvis.errors import RegistrationError
from jarvis.perf_models import (
    ONE_SHEET_FAMILIES,
    OpCost,
    all_models,
    categorize,
    find_model,
    op_category,
    perf_model,
    registered_category,
    registry,
    sheet_families,
)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the registry that the test may add to."""
    monkeypatch.setattr(registry, "_models", dict(registry._models))
    monkeypatch.setattr(registry, "_categories", dict(registry._categories))


def test_each_op_of_the_table_has_its_category(reference_root: Path) -> None:
    table = json.loads((reference_root / "specs" / "op-table.json").read_text())
    assert len(table) == 292
    wrong = {
        entry["op"]: (registered_category(entry["op"]), entry["category"])
        for entry in table
        if registered_category(entry["op"]) != entry["category"]
    }
    assert not wrong


def test_models_have_the_family_and_backward_category_of_the_table(reference_root: Path) -> None:
    table = json.loads((reference_root / "specs" / "op-table.json").read_text())
    entries = {entry["op"]: entry for entry in table}
    models = [model for model in all_models() if model.tracelens and model.sheet]
    assert len(models) > 150
    for model in models:
        entry = entries[model.name]
        assert model.sheet == entry["family"], model.name
        assert model.category == entry["model_category"], model.name
        assert model.backward_category == entry["bwd_category"], model.name


def test_every_family_without_a_later_formula_is_modelled(reference_root: Path) -> None:
    table = json.loads((reference_root / "specs" / "op-table.json").read_text())
    later = {
        *("GroupedGEMM", "InferenceAttention", "MoE_comm", "SSM", "RoPE", "CrossEntropy"),
        *("MoE_fused", "MoE_unfused", "MoE_aux", "FusedRoPE", "CustomCollective", "mHC"),
    }
    # Given the forward call only at run time, or not covered by TraceLens either.
    unpriced = {"ConvBias_Backward", "ConvBiasReLU_Backward"}
    for entry in table:
        if entry["model"] and entry["family"] not in later and entry["op"] not in unpriced:
            instance = "instance_norm_backward" in entry["op"]
            assert (find_model(entry["op"]) is None) == instance, entry["op"]


def test_families_come_in_the_order_of_the_report() -> None:
    assert sheet_families() == [
        "GEMM",
        "SDPA",
        "CONV",
        "BinaryElementwise",
        "UnaryElementwise",
        "RMSNorm",
        "elementwise",
        "GroupQuant",
        "Normalization",
        "Reduce",
    ]
    assert set(sheet_families()) >= ONE_SHEET_FAMILIES


def test_an_unknown_family_comes_last(own_registry: None) -> None:
    perf_model("vendor::fft", category="FFT_fwd")(lambda op: OpCost(0, 0))
    assert sheet_families()[-1] == "FFT"


def test_every_formula_is_stated() -> None:
    for model in all_models():
        assert model.cost.__doc__, model.name
        assert any(word in model.cost.__doc__.lower() for word in ("flops", "bytes")), model.name


def test_a_name_is_registered_once(own_registry: None) -> None:
    with pytest.raises(RegistrationError, match="aten::mm"):
        perf_model("aten::mm", category="GEMM")(lambda op: OpCost(0, 0))
    with pytest.raises(RegistrationError, match="FusedRoPEFuncBackward"):
        categorize("GEMM", "FusedRoPEFuncBackward")


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


def test_models_beyond_tracelens_can_be_left_out() -> None:
    beyond = {model.name for model in all_models() if not model.tracelens}
    assert beyond >= {"aten::_softmax", "aten::gelu", "aten::embedding", "aten::index_select"}
    for name in beyond:
        assert find_model(name) is not None
        assert find_model(name, tracelens_only=True) is None
    assert find_model("aten::mm", tracelens_only=True) is find_model("aten::mm")


def test_models_beyond_tracelens_change_neither_categories_nor_sheets(reference_root: Path) -> None:
    table = json.loads((reference_root / "specs" / "op-table.json").read_text())
    categories = {entry["op"]: entry["category"] for entry in table}
    for model in all_models():
        if not model.tracelens:
            assert registered_category(model.name) == categories.get(model.name), model.name
            assert model.sheet == "", model.name


def test_exact_values_take_the_place_of_the_sheets() -> None:
    cost = OpCost(2, 8, exact_flops=0, exact_bytes=6)
    assert (cost.exact().flops, cost.exact().bytes) == (0, 6)
    plain = OpCost(2, None)
    assert (plain.exact().flops, plain.exact().bytes) == (2, None)
