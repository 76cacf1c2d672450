"""Other: kinds by name, by kernel and by call site; what belongs elsewhere."""

import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.checks import low_efficiency
from jarvis.analyses.compute.other import miscategorised
from jarvis.findings import Priority
from tests.analyses.rows import category, operation
from tests.worded import worded


def column(name: str, row: dict) -> object:
    return category("other", row).operations[name][0]


def other(name: str, **values) -> dict:
    row = {"time_us": 1000.0, "pct_roofline": 20.0, "bound": "memory"}
    return operation(name, **(row | values))


@pytest.mark.parametrize(
    ("name", "sub_category"),
    [
        ("c10d::allreduce_", "communication"),
        ("vllm::all_reduce", "communication"),
        ("_C_custom_ar::cross_device_reduce", "communication"),
        ("hipGraphLaunch->void store_kvcache<2048l>", "graph"),
        ("hipGraphLaunch->void gather_kernel", "graph"),
        ("aten::index_select", "indexing"),
        ("aten::embedding", "embedding"),
        ("aten::embedding_dense_backward", "embedding"),
        ("EmbeddingBagBackward0", "embedding"),
        ("aten::_embedding_bag", "embedding"),
        ("SplitLookupFunction_Dense_Op", "embedding"),
        ("fbgemm::split_embedding_codegen_lookup_sgd_function", "embedding"),
        ("sgl_kernel::rotary_embedding", "fused rotary embedding"),
        ("aten::split_with_sizes", "concatenation"),
        ("aten::property_of", "miscellaneous"),
        ("custom::splitter", "miscellaneous"),
        ("custom::reindexed", "miscellaneous"),
        ("custom::spooler", "miscellaneous"),
        ("aten::gather", "indexing"),
        ("aten::cat", "concatenation"),
        ("aten::max_pool2d_with_indices_backward", "pooling"),
        ("aten::concatenation_free", "miscellaneous"),
        ("aten::cumsum", "miscellaneous"),
    ],
)
def test_kind_by_name(name: str, sub_category: str) -> None:
    assert column("sub_category", other(name)) == sub_category


def test_counts_of_kinds() -> None:
    rows = [other("c10d::allreduce_"), other("xGraphLaunch->k"), other("aten::cat"), other("a::b")]
    found = load_analyses()["other"].measure(category("other", *rows))
    assert found["communication_count"] == 1
    assert found["graph_count"] == 1
    assert found["miscellaneous_count"] == 1
    assert found["concatenation"] == {"rows": 1, "time_ms": 1.0}


@pytest.mark.parametrize(
    ("values", "looks_like"),
    [
        ({"kernels": [("Cijk_Alik_Bljk_MT64x64x64", 1.0)]}, "GEMM"),
        ({"kernels": [("void my_rmsnorm_kernel<float>", 1.0)]}, "Normalization"),
        ({"kernels": [("fmha_fwd_d128", 1.0)]}, "Attention"),
        ({"kernels": [("volta_sgemm_128x64_tn", 1.0)]}, "GEMM"),
        ({"kernels": [("void fbgemm_gpu::permute_kernel<float>", 1.0)]}, None),
        ({"kernels": [("triton_poi_fused_flash_attn_layer_norm_0", 1.0)]}, None),
        ({"kernels": [("void rotary_embedding_kernel<c10::BFloat16>", 1.0)]}, "rotary embedding"),
        ({"kernels": [("reshape_and_cache_flash", 1.0)]}, "cache write"),
        ({"entry_point": "models/qwen.py(61): rotate_half"}, "rotary embedding"),
        ({"module_path": ["Model_0", "RotaryEmbedding_0"]}, "rotary embedding"),
        ({"entry_point": "models/qwen.py(61): property_of"}, None),
        ({}, None),
    ],
)
def test_what_an_operator_really_is(values: dict, looks_like: str | None) -> None:
    assert column("looks_like", other("aten::cat", **values)) == looks_like


def test_a_rotary_embedding_is_recognized_by_its_call_site() -> None:
    row = other(
        "aten::cat",
        count=48,
        entry_point="models/qwen.py(61): rotate_half",
        input_dims="(((16, 16, 559, 32), (16, 16, 559, 32)), ())",
        input_types="('TensorList', 'Scalar')",
    )
    (finding,) = worded(low_efficiency(category("other", row)))
    assert finding.title.endswith("(rotary embedding)")
    assert "`models/qwen.py(61): rotate_half`" in finding.algorithmic
    assert "48 calls" in finding.algorithmic
    assert finding.kernel.startswith("Tune the copy alone, as the saving here assumes: compare")
    (plain,) = worded(low_efficiency(category("other", other("aten::cat"))))
    assert plain.title.endswith("`aten::cat` (concatenation)")
    assert "rotary" not in plain.algorithmic


def test_looking_up_an_index_is_a_matter_of_memory() -> None:
    (finding,) = worded(low_efficiency(category("other", other("aten::index_select", count=3))))
    assert "the roofline is that of memory" in finding.issue
    assert "real indices" in finding.kernel
    assert "repeated indices" in finding.caveat


GEMM_KERNEL = [("Cijk_Alik_Bljk_MT64x64x64", 1000.0)]


def test_an_operator_that_belongs_to_another_category() -> None:
    row = other("mylib::fused_linear", kernels=GEMM_KERNEL, count=5)
    (finding,) = worded(miscategorised(category("other", row)))
    assert finding.title == "Looks like GEMM: `mylib::fused_linear`"
    assert finding.priority is Priority.LOW
    assert finding.impact is None
    assert "1.00 ms (10.0% of compute)" in finding.issue
    assert "`Cijk_Alik_Bljk_MT64x64x64`" in finding.hypothesis
    assert "extension" in finding.kernel


@pytest.mark.parametrize(
    "row",
    [
        other("mylib::fused_linear", kernels=GEMM_KERNEL, time_us=99.0),
        other("mylib::fused_linear", kernels=[("my_kernel", 1000.0)]),
        other("xGraphLaunch->Cijk_Alik", kernels=GEMM_KERNEL),
        other("aten::cat", kernels=GEMM_KERNEL),
        other("mylib::rope", kernels=[("rotary_embedding_kernel", 1000.0)]),
    ],
    ids=["1% of compute", "a name that says nothing", "a graph", "a known kind", "no category"],
)
def test_near_misses_of_another_category(row: dict) -> None:
    assert not list(miscategorised(category("other", row)))
