from collections.abc import Callable

import pytest

from jarvis.perf_models import NoModelForCallError, OpCost
from jarvis.perf_models.triton import fused_ops

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"


def test_pointwise_kernel(price: Price) -> None:
    dims = [(8, 4), (4,), (8, 4), ()]
    cost = price("triton_poi_fused_add_mul_0", dims, [BF16, BF16, "float", "Scalar"], {3: "32"})
    assert cost.flops == (1 + 1) * 32
    assert cost.bytes == 32 * 2 + 4 * 2 + 32 * 4
    assert cost.compute == "vector_bf16"
    assert cost.params == {"fused_ops": "aten.add, aten.mul", "xnumel": 32, "rnumel": 1}


@pytest.mark.parametrize("kind", ["red", "per"])
def test_reduction_kernel(price: Price, kind: str) -> None:
    dims = [(8, 4), (8,), (), ()]
    types = ["float", "float", "Scalar", "Scalar"]
    cost = price(f"triton_{kind}_fused_exp_sum_3", dims, types, {2: "8", 3: "4"})
    assert cost.flops == (4 + 1) * 8 * 4
    assert cost.bytes == (32 + 8) * 4
    assert (cost.params["xnumel"], cost.params["rnumel"]) == (8, 4)


def test_reduction_of_everything_has_one_extent(price: Price) -> None:
    cost = price("triton_red_fused_sum_0", [(32,), ()], ["float", "Scalar"], {1: "32"})
    assert (cost.params["xnumel"], cost.params["rnumel"]) == (32, 1)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float", 4), ("long int", 8), ("int", 4), ("bool", 1), ("double", 8)]
)
def test_every_dtype_of_the_profiler_is_counted(price: Price, dtype: str, size: int) -> None:
    cost = price("triton_poi_fused_full_0", [(32,), ()], [dtype, "Scalar"], {1: "32"})
    assert cost.bytes == 32 * size
    assert cost.flops == 0  # a fill computes nothing


def test_the_peak_is_that_of_the_first_floating_tensor(price: Price) -> None:
    types = ["long int", BF16, "Scalar"]
    cost = price("triton_poi_fused_embedding_0", [(4,), (4, 8), ()], types, {2: "32"})
    assert cost.compute == "vector_bf16"


def test_an_unknown_dtype_leaves_the_bytes_open(price: Price) -> None:
    cost = price("triton_poi_fused_add_0", [(32,), ()], ["QInt8", "Scalar"], {1: "32"})
    assert (cost.flops, cost.bytes, cost.compute) == (32, None, "")


def test_a_name_of_unknown_ops_leaves_the_flops_open(price: Price) -> None:
    cost = price("triton_poi_fused_frobnicate_0", [(32,), ()], ["float", "Scalar"], {1: "32"})
    assert (cost.flops, cost.bytes) == (None, 128)
    assert cost.params["fused_ops"] == ""


@pytest.mark.parametrize(
    ("dims", "concrete"),
    [([], {}), ([(32,), ()], {1: ""}), ([(32,), ()], {1: "0.5"}), ([(), ()], {1: "32"})],
)
def test_a_call_without_tensors_or_extents_is_not_modelled(
    price: Price, dims: list[tuple[int, ...]], concrete: dict[int, str]
) -> None:
    with pytest.raises(NoModelForCallError):
        price("triton_poi_fused_add_0", dims, "float", concrete)


def test_exact_flops_count_what_the_sheets_leave_out(price: Price) -> None:
    cost = price("triton_poi_fused_add_cos_where_0", [(32,), ()], ["float", "Scalar"], {1: "32"})
    assert (cost.flops, cost.exact_flops) == (32, (1 + 4) * 32)
    assert cost.exact_bytes == cost.bytes == 2 * 128


def test_exact_flops_count_all_extents(price: Price) -> None:
    dims, types = [(8, 4), (8, 4), (), ()], ["float", "float", "Scalar", "Scalar"]
    cost = price("triton_poi_fused_add_0", dims, types, {2: "8", 3: "4"})
    assert (cost.flops, cost.exact_flops) == (4, 32)
    # 5 is a size of a dynamic shape: no tensor has 5 x 8 x 4 elements.
    dims, types = [(8, 4), (), (), ()], ["float", *["Scalar"] * 3]
    dynamic = price("triton_poi_fused_add_0", dims, types, {1: "5", 2: "8", 3: "4"})
    assert dynamic.exact_flops == 32


def test_exact_bytes_hold_no_more_of_a_table_than_is_touched(price: Price) -> None:
    dims, types = [(4,), (1000, 8), (4, 8), ()], ["long int", BF16, BF16, "Scalar"]
    cost = price("triton_poi_fused_embedding_0", dims, types, {3: "32"})
    assert cost.bytes == 4 * 8 + 8000 * 2 + 32 * 2
    assert cost.exact_bytes == 4 * 8 + 32 * 2 + 32 * 2


N, C, TOKENS = (8, 4), (4,), (2, 4, 4)


@pytest.mark.parametrize(
    ("name", "dims", "sizes", "passes"),
    [
        # Without an output among the arguments, the first is updated.
        ("poi_fused_relu_0", [N], [32], 64),
        ("poi_fused_add_relu_0", [N, C], [32], 64 + 4),
        ("poi_fused__unsafe_view_mul_silu_2", [TOKENS, N], [32], 96),
        ("poi_fused__unsafe_view_add_3", [TOKENS, TOKENS, N], [32], 128),
        ("poi_fused_silu_backward_0", [N, N], [32], 96),
        ("per_fused_add_native_layer_norm_0", [N, N, C, C], [8, 4], 96 + 8),
        # With one, or where one may be, every argument counts once.
        ("poi_fused_relu_0", [N, N], [32], 64),
        ("poi_fused_add_relu_0", [N, C, N], [32], 64 + 4),
        ("poi_fused__unsafe_view_view_add_3", [TOKENS, TOKENS, N], [32], 96),
        ("poi_fused_silu_backward_0", [N, N, N], [32], 96),
        ("per_fused_sum_0", [N, (8,)], [8, 4], 32 + 8),
        ("red_fused_mul_sum_0", [N, C, ()], [1, 32], 32 + 4),
        # A kernel that generates values, or whose parts are unknown, may only write.
        ("poi_fused_zeros_0", [N], [32], 32),
        ("poi_fused_arange_mul_0", [N], [32], 32),
        ("poi_fused_frobnicate_0", [N], [32], 32),
        ("poi_fused_index_put_0", [N, C], [32], 32 + 4),
    ],
)
def test_a_tensor_updated_in_place_is_read_and_written(
    price: Price, name: str, dims: list[tuple[int, ...]], sizes: list[int], passes: int
) -> None:
    types = ["float"] * len(dims) + ["Scalar"] * len(sizes)
    values = {len(dims) + index: str(size) for index, size in enumerate(sizes)}
    cost = price(f"triton_{name}", dims + [()] * len(sizes), types, values)
    assert cost.exact_bytes == cost.bytes == passes * 4


def test_a_saved_mask_is_an_output(price: Price) -> None:
    types = ["float", "bool", "Scalar"]
    cost = price("triton_poi_fused_gelu_gelu_backward_0", [N, N, ()], types, {2: "32"})
    assert cost.exact_bytes == 32 * 4 + 32


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("triton_poi_fused_add_0", ["add"]),
        ("triton_poi_fused__unsafe_view_mul_silu_2", ["_unsafe_view", "mul", "silu"]),
        ("triton_poi_fused_native_layer_norm_12", ["native_layer_norm"]),
        ("triton_per_fused__softmax__to_copy_mul_7", ["_softmax", "_to_copy", "mul"]),
        ("triton_poi_fused_add__softmax_0", ["add", "_softmax"]),
        ("triton_poi_fused_add_relu_threshold_backward_1", ["add", "relu", "threshold_backward"]),
        ("triton_poi_fused_add_frobnicate_1", []),
        ("triton_poi_fused_0", []),
        ("triton_mm", []),
        ("triton_tem_fused_mm_0", []),
    ],
)
def test_fused_names_are_split_into_known_ops(name: str, ops: list[str]) -> None:
    assert fused_ops(name) == ops
