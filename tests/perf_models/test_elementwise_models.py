from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"


@pytest.mark.parametrize("name", ["aten::silu", "aten::neg", "aten::clamp_min_", "aten::sigmoid"])
def test_unary(price: Price, name: str) -> None:
    cost = price(name, [(8, 4), ()], [BF16, "Scalar"], strides=[(4, 1), ()])
    assert cost.flops == 32
    assert cost.bytes == 32 * 2 + 32 * 2
    assert cost.compute == "vector_bf16"
    assert cost.params == {
        "op_shape": (8, 4),
        "dtype_in_out": (BF16, None),
        "stride_input": (4, 1),
        "stride_output": None,
    }
    assert (cost.exact().flops, cost.exact().bytes) == (cost.flops, cost.bytes)


def test_unary_with_an_output_tensor(price: Price) -> None:
    cost = price("aten::sigmoid", [(8, 4), (8, 4)], [BF16, "float"], strides=[(4, 1), (1, 8)])
    assert cost.bytes == 32 * 2 + 32 * 4
    assert cost.params["dtype_in_out"] == (BF16, "float")
    assert cost.params["stride_output"] == (1, 8)


def test_exact_bytes_of_unary_ops_read_a_second_tensor(price: Price) -> None:
    power = price("aten::pow", [(8, 4), (8, 4)], ["float", "float"])
    assert (power.bytes, power.exact_bytes) == (2 * 32 * 4, 3 * 32 * 4)
    of_two = price("aten::pow", [(), (8, 4)], ["Scalar", "float"])
    assert (of_two.exact_flops, of_two.exact_bytes) == (32, 2 * 32 * 4)
    limited = price("aten::clamp_min", [(8, 4), (), (8, 4)], [BF16, "Scalar", BF16])
    assert limited.exact_bytes == 2 * 32 * 2


def test_a_copy_computes_nothing(price: Price) -> None:
    cost = price("aten::copy_", [(8, 4), (4,), ()], ["float", BF16, "Scalar"])
    assert cost.flops == 32
    assert cost.bytes == 32 * 4 + 32 * 2
    assert cost.exact_flops == 0
    assert cost.exact_bytes == 32 * 4 + 4 * 2


def test_a_copy_of_bools_has_exact_bytes(price: Price) -> None:
    cost = price("aten::copy_", [(8, 4), (8, 4)], "bool")
    assert (cost.bytes, cost.exact_bytes) == (None, 64)


def test_replication_pad(price: Price) -> None:
    cost = price("aten::replication_pad2d", [(2, 3, 8, 8), ()], "float", {1: "[1, 2, 3, 4]"})
    out = 2 * 3 * (8 + 3 + 4) * (8 + 1 + 2)
    assert cost.flops == out
    assert cost.bytes == (2 * 3 * 64 + out) * 4
    assert cost.exact_flops == 0
    with pytest.raises(UnexpectedArgumentsError, match="paddings"):
        price("aten::replication_pad2d", [(2, 3, 8, 8), ()])


def test_upsample_nearest(price: Price) -> None:
    cost = price("aten::upsample_nearest2d", [(2, 3, 8, 8), ()], "float", {1: "[16, 24]"})
    out = 2 * 3 * 16 * 24
    assert cost.flops == out
    assert cost.bytes == (2 * 3 * 64 + out) * 4
    assert cost.exact_flops == 0
    with pytest.raises(UnexpectedArgumentsError, match="output size"):
        price("aten::upsample_nearest2d", [(2, 3, 8, 8), ()])


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("aiter::silu_and_mul", 5),
        ("_C::silu_and_mul", 5),
        ("sgl_kernel::silu_and_mul", 5),
        ("aiter::gelu_and_mul", 8),
        ("aiter::gelu_tanh_and_mul", 10),
    ],
)
def test_gated_activation(price: Price, name: str, flops: int) -> None:
    cost = price(name, [(8, 4), (8, 8)], [FP8, BF16])
    assert cost.flops == flops * 32
    assert cost.bytes == 64 * 2 + 32
    assert cost.compute == "vector_bf16"


def test_binary(price: Price) -> None:
    cost = price("aten::add", [(8, 4), (4,), ()], [BF16, "float", "Scalar"])
    assert cost.flops == 32
    assert cost.bytes == 32 * 2 + 4 * 4 + 32 * 4  # the output is as wide as the wider operand
    assert cost.compute == "vector_bf16"
    assert cost.params == {
        "shape_in1": (8, 4),
        "shape_in2": (4,),
        "dtype_in1_in2_out": (BF16, "float", None),
        "stride_input1": None,
        "stride_input2": None,
        "stride_output": None,
    }


def test_binary_with_a_scalar(price: Price) -> None:
    cost = price("aten::mul", [(8, 4), ()], [BF16, "Scalar"])
    assert cost.bytes == 32 * 2 + 4 + 32 * 2


def test_binary_with_an_output_tensor(price: Price) -> None:
    shapes = [(8, 4), (8, 4), (8, 4)]
    cost = price("aten::div", shapes, [BF16, BF16, "float"], strides=[(4, 1), (4, 1), (1, 8)])
    assert cost.bytes == 32 * (2 + 2 + 4)
    assert cost.params["dtype_in1_in2_out"] == (BF16, BF16, "float")
    assert cost.params["stride_output"] == (1, 8)


@pytest.mark.parametrize(
    ("types", "flops", "moved"),
    [
        ((BF16, "bool"), 32, 32 * 2 + 32 + 32 * 2),
        (("bool", "float"), 32, 32 + 32 * 4 + 32 * 4),
        (("long int", "int"), 0, 32 * 8 + 32 * 4 + 32 * 8),
        (("int", BF16), 32, 32 * 4 + 32 * 2 + 32 * 2),
    ],
)
def test_exact_values_of_mixed_dtypes(
    price: Price, types: tuple[str, str], flops: int, moved: int
) -> None:
    cost = price("aten::mul", [(8, 4), (8, 4)], types)
    assert (cost.exact_flops, cost.exact_bytes) == (flops, moved)


def test_exact_bytes_hold_no_scalar(price: Price) -> None:
    cost = price("aten::mul", [(8, 4), ()], [BF16, "Scalar"])
    assert (cost.bytes, cost.exact_bytes) == (2 * 64 + 4, 2 * 64)
    numbers = price("aten::mul", [(), ()], ["Scalar", "Scalar"])
    assert (numbers.flops, numbers.exact_bytes) == (1, None)


def test_binary_of_an_unknown_dtype_or_clashing_shapes(price: Price) -> None:
    assert price("aten::add", [(8,), (8,)], "bool").bytes is None
    with pytest.raises(UnexpectedArgumentsError, match="broadcast"):
        price("aten::add", [(8,), (3,)])


def test_quantize_fp8(price: Price) -> None:
    cost = price("primus_turbo::quantize_fp8_tensorwise", [(8, 4)], BF16)
    assert (cost.flops, cost.bytes) == (32, 32 * 2 + 32)


def test_quantize_mxfp4_dual(price: Price) -> None:
    cost = price("primus::quantize_mxfp4_dual", [(33, 65)], BF16)
    assert cost.flops == 33 * 65
    assert cost.bytes == 33 * 65 * 2 + 2 * 1073 + 33 * 3 + 65 * 2
    with pytest.raises(UnexpectedArgumentsError, match="matrix"):
        price("primus::quantize_mxfp4_dual", [(2, 3, 4)], BF16)


def test_sampling(price: Price) -> None:
    dims = [(8,), (8, 100), (8, 100)]
    cost = price("aiter::mixed_sample_outer_exponential", dims, ["int", BF16, "float"])
    assert cost.flops == 2 * 800
    assert cost.bytes == 800 * 2 + 800 * 4 + 4 * 8


def test_dynamic_quant(price: Price) -> None:
    dims = [(8, 64), (8, 64), (8, 1)]
    cost = price("aiter::dynamic_per_token_scaled_quant", dims, [FP8, BF16, "float"])
    assert cost.flops == 2.59375 * 512
    assert cost.bytes == 512 + 512 * 2 + 8 * 4
    assert cost.compute == "vector_bf16"
    with pytest.raises(UnexpectedArgumentsError, match="unknown dtype"):
        price("aiter::dynamic_per_tensor_quant", dims, [FP8, "bool", "float"])


@pytest.mark.parametrize(("group", "groups"), [("64", 4), ("", 2), ("512", 1)])
def test_per_token_group_quant(price: Price, group: str, groups: int) -> None:
    cost = price("vllm::triton_per_token_group_quant_fp8", [(8, 256), ()], BF16, {1: group})
    assert cost.flops == 6 * 8 * 256
    assert cost.bytes == 8 * 256 * 2 + 8 * 256 + 8 * groups * 4


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("sglang_profiler::fused_mxfp4_quant_fused_flatten_mxfp4_quant", 0),
        ("sglang_profiler::quant_dynamic_mxfp4_quant", 0),
        ("aiter::dynamic_per_group_scaled_quant_fp4", 1),
        ("aiter::fused_dynamic_mx_quant_moe_sort_hip", 2),
        ("aiter::fused_dynamic_mxfp4_quant_moe_sort_hip", 2),
    ],
)
def test_mxfp4_quant(price: Price, name: str, position: int) -> None:
    cost = price(name, [(1,)] * position + [(8, 33)], BF16)
    n = 8 * 33
    assert cost.flops == 2 * n
    assert cost.bytes == n * 2 + 0.5 * n + n // 32
