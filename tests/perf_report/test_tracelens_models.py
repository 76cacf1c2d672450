import json
from dataclasses import replace
from pathlib import Path

from jarvis.perf_models import (
    BUILTIN,
    OpCost,
    Registry,
    all_models,
    find_model,
    registered_category,
)
from jarvis.tracelens.models import (
    ONE_SHEET_FAMILIES,
    TRACELENS_MODELS,
    is_in_tracelens,
    sheet_families,
)


def fft() -> Registry:
    """A registry with a model that TraceLens lacks."""
    registry = Registry()
    registry.perf_model("vendor::fft", category="FFT_fwd")(lambda op: OpCost(0, 0))
    return registry


def test_models_are_those_of_the_table(reference_root: Path) -> None:
    """Family, category and backward category too, but for what has no arguments to price by."""
    table = json.loads((reference_root / "specs" / "op-table.json").read_text())
    # The reference has a model for these that never gives a figure of its own.
    priced_by_the_forward = {"ConvBias_Backward", "ConvBiasReLU_Backward"}
    never_implemented = {
        f"aten::{library}instance_norm_backward" for library in ("", "native_", "miopen_", "cudnn_")
    }
    expected = {
        entry["op"]: (entry["family"], entry["model_category"], entry["bwd_category"])
        for entry in table
        if entry["model"] and entry["op"] not in priced_by_the_forward | never_implemented
    }
    assert len(expected) == 245 - 6
    found = {
        model.name: (model.sheet, model.category, model.backward_category)
        for model in all_models()
        if is_in_tracelens(model) and model.sheet
    }
    assert found == expected
    for name in priced_by_the_forward:
        forward = find_model(name.replace("_Backward", "_"))
        assert forward is not None
        assert forward.backward is not None


def test_families_come_in_the_order_of_the_report() -> None:
    assert sheet_families() == [
        "GEMM",
        "SDPA",
        "CONV",
        "InferenceAttention",
        "BinaryElementwise",
        "GroupedGEMM",
        "MoE_comm",
        "SSM",
        "RoPE",
        "CrossEntropy",
        "UnaryElementwise",
        "MoE_fused",
        "MoE_unfused",
        "MoE_aux",
        "RMSNorm",
        "elementwise",
        "GroupQuant",
        "FusedRoPE",
        "CustomCollective",
        "mHC",
        "Normalization",
        "Reduce",
    ]
    assert set(sheet_families()) >= ONE_SHEET_FAMILIES


def test_an_unknown_family_comes_last() -> None:
    assert sheet_families(BUILTIN.extended_with(fft()))[-1] == "FFT"
    assert "FFT" not in sheet_families()


def test_jarvis_has_more_models_than_tracelens() -> None:
    beyond = {model.name for model in all_models() if not is_in_tracelens(model)}
    assert beyond >= {"aten::_softmax", "aten::gelu", "aten::embedding", "aten::index_select"}


def test_the_models_of_tracelens_are_those_with_a_category() -> None:
    """Any other would change which rows its sheets have, or their categories."""
    assert {model.name for model in all_models() if model.category} == TRACELENS_MODELS
    assert [m.name for m in all_models() if m.sheet and not m.category] == []


def test_a_model_of_an_extension_is_used_beside_those_of_tracelens() -> None:
    (model,) = fft().all_models()
    assert not is_in_tracelens(model)
    assert is_in_tracelens(replace(model, is_extension=True))


def test_models_beyond_tracelens_keep_the_categories_of_the_table(reference_root: Path) -> None:
    table = json.loads((reference_root / "specs" / "op-table.json").read_text())
    categories = {entry["op"]: entry["category"] for entry in table}
    for model in all_models():
        if not is_in_tracelens(model):
            assert registered_category(model.name) == categories.get(model.name), model.name
