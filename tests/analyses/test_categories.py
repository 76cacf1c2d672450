"""The other categories: types, patterns and metrics."""

import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.checks import low_efficiency
from tests.analyses.rows import category, operation


def column(key: str, name: str, row: dict) -> object:
    return category(key, row).operations[name][0]


def metrics(key: str, *rows: dict) -> dict:
    return load_analyses()[key].measure(category(key, *rows))


def attention(n_q: int, n_kv: int, heads_kv: int = 16, **values) -> dict:
    params = {"N_Q": n_q, "N_KV": n_kv, "H_Q": 16, "H_KV": heads_kv, "d_h_qk": 64}
    name = values.pop("name", "aten::_scaled_dot_product_flash_attention")
    return operation(name, time_us=1000.0, params=params, **values)


@pytest.mark.parametrize(
    ("row", "pattern"),
    [
        (attention(512, 512), "short sequence"),
        (attention(1024, 1024), None),
        (attention(1, 4096), None),
    ],
)
def test_attention_over_short_sequences(row: dict, pattern: str | None) -> None:
    assert column("sdpa_fwd", "pattern", row) == pattern


def test_low_efficiency_of_short_attention_says_what_to_expect() -> None:
    data = category("sdpa_fwd", attention(512, 512, pct_roofline=10.0, bound="memory"))
    (finding,) = low_efficiency(data)
    assert "512 queries" in finding.issue
    assert "8-15%" in finding.issue
    assert finding.caveat


def test_attention_kinds() -> None:
    assert column("sdpa_fwd", "attention_pattern", attention(512, 512, heads_kv=4)) == "GQA"
    assert column("sdpa_fwd", "attention_pattern", attention(512, 512)) == "MHA"
    counted = metrics(
        "sdpa_fwd",
        attention(512, 512),
        operation("x", time_us=1.0, kernels=[("void paged_attention_v2<1>", 1.0)]),
        operation("aten::attention", time_us=1.0),
    )
    assert counted["flash_attention_count"] == 1
    assert counted["paged_attention_count"] == 1
    assert counted["flash_attention_detected"] is True


def test_softmax_stands_in_reduce_with_advice_of_its_own() -> None:
    row = operation("aten::_softmax", time_us=1000.0, pct_roofline=20.0, bound="memory")
    (finding,) = low_efficiency(category("reduce", row))
    assert "scaled_dot_product_attention" in finding.algorithmic
    assert metrics("reduce", row)["softmax_count"] == 1


@pytest.mark.parametrize(
    ("key", "name", "column_name", "expected"),
    [
        ("reduce", "aten::amax", "reduce_type", "max"),
        ("reduce", "aten::cumprod", "reduce_type", "other"),
        ("triton", "triton_poi_fused_add_0", "kernel_type", "pointwise"),
        ("triton", "triton_per_fused_sum_0", "kernel_type", "persistent reduction"),
        ("triton", "my_triton_kernel", "kernel_type", "other"),
        ("moe_fused", "aiter::moe_sorting_fwd", "moe_type", "routing"),
        ("moe_fused", "pseudo_op::moe_aiter_fused_1stage", "moe_type", "fused"),
        ("moe_fused", "aiter::ck_moe_stage1", "moe_type", "expert"),
        ("batchnorm", "aten::native_batch_norm_backward", "norm_type", "batch_norm"),
        ("batchnorm", "aten::layer_norm", "norm_type", "layer_norm"),
        ("batchnorm", "aiter::rmsnorm", "norm_type", "rms_norm"),
        ("batchnorm", "aten::some_norm", "norm_type", "other_norm"),
        ("other", "aten::index_select", "sub_category", "indexing"),
        ("other", "aten::cat", "sub_category", "concatenation"),
        ("other", "aten::max_pool2d", "sub_category", "miscellaneous"),
    ],
)
def test_types(key: str, name: str, column_name: str, expected: str) -> None:
    row = operation(name, time_us=10.0, op_category="MoE_unfused" if key == "moe_fused" else "x")
    assert column(key, column_name, row) == expected


@pytest.mark.parametrize("key", [k for k, a in load_analyses().items() if a.claim])
@pytest.mark.parametrize("bound", ["compute", "memory"])
def test_every_category_words_both_bounds(key: str, bound: str) -> None:
    row = operation("aten::thing", time_us=2000.0, pct_roofline=10.0, bound=bound)
    (finding,) = low_efficiency(category(key, row))
    for text in (finding.issue, finding.algorithmic, finding.kernel, finding.verify):
        assert text
        assert "{" not in text
        assert "None" not in text


@pytest.mark.parametrize("key", [k for k, a in load_analyses().items() if a.claim])
def test_details_describe_columns_that_exist(key: str) -> None:
    analysis = load_analyses()[key]
    rows = category(key, operation("aten::thing", time_us=1.0)).operations
    for detail in analysis.details:
        assert detail.name in rows.columns
        assert rows.schema[detail.name] == detail.dtype, detail.name


@pytest.mark.parametrize("key", [k for k, a in load_analyses().items() if a.claim])
def test_panels_name_columns_that_exist(key: str) -> None:
    rows = category(key, operation("aten::thing", time_us=1.0)).operations
    for panel in load_analyses()[key].panels:
        assert {panel.x, panel.y, panel.color} - {None} <= set(rows.columns)
