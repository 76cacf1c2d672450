from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError, all_models
from jarvis.perf_models.elementwise import element_flops

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
SCALAR = "Scalar"
FP8 = "c10::Float8_e4m3fn"


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("aten::abs", 1),
        ("aten::relu_", 1),
        ("aten::leaky_relu", 2),
        ("aten::sqrt", 2),
        ("aten::tanh", 4),
        ("aten::exp", 4),
        ("aten::cos", 4),
        ("aten::silu_", 4),
        ("aten::hardswish", 5),
        ("aten::elu", 6),
        ("aten::gelu", 8),
        ("aten::softplus", 8),
        ("aten::log_sigmoid_forward", 10),
        ("aten::mish", 13),
    ],
)
def test_unary(price: Price, name: str, flops: int) -> None:
    cost = price(name, [(8, 4), ()], [BF16, SCALAR])
    assert cost.flops == flops * 32
    assert cost.bytes == 32 * 2 + 32 * 2
    assert cost.compute == "vector_bf16"
    assert cost.params["op_shape"] == (8, 4)


def test_an_output_argument_gives_the_dtype_that_is_written(price: Price) -> None:
    assert price("aten::exp", [(8, 4), (8, 4)], [BF16, "float"]).bytes == 32 * 2 + 32 * 4
    hardtanh = price("aten::hardtanh", [(8,), (), (), (8,)], ["float", SCALAR, SCALAR, "float"])
    assert (hardtanh.flops, hardtanh.bytes) == (2 * 8, 2 * 8 * 4)


@pytest.mark.parametrize(
    ("dims", "types", "moved"),
    [
        ([(8, 4), (4,), ()], [BF16, "float", SCALAR], 32 * 2 + 4 * 4 + 32 * 4),
        ([(8, 4), (), ()], [BF16, SCALAR, SCALAR], 32 * 2 + 32 * 2),
        ([(8, 4), (), ()], [BF16, "double", SCALAR], 32 * 2 + 8 + 32 * 2),  # a 0-d tensor
        ([(), (8, 4), ()], ["long int", "float", SCALAR], 8 + 32 * 4 + 32 * 4),
        ([(8, 4), (8, 4), ()], ["long int", BF16, SCALAR], 32 * 8 + 32 * 2 + 32 * 2),
        ([(8, 1), (1, 4), ()], ["float", "float", SCALAR], 8 * 4 + 4 * 4 + 32 * 4),
    ],
)
def test_binary(price: Price, dims: Sequence[Any], types: Sequence[str], moved: int) -> None:
    cost = price("aten::sub", dims, types)
    assert (cost.flops, cost.bytes) == (32, moved)


def test_binary_in_place_writes_its_first_argument(price: Price) -> None:
    cost = price("aten::sub_", [(8, 4), (8, 4), ()], [BF16, "float", SCALAR])
    assert cost.bytes == 32 * 2 + 32 * 4 + 32 * 2


def test_integers_have_no_flops(price: Price) -> None:
    cost = price("aten::sub", [(8, 4), (8, 4)], "long int")
    assert (cost.flops, cost.bytes, cost.compute) == (0, 3 * 32 * 8, "")


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("aten::tanh_backward", 3),
        ("aten::hardswish_backward", 5),
        ("aten::silu_backward", 9),
        ("aten::gelu_backward", 16),
        ("aten::mish_backward", 22),
    ],
)
def test_activation_backward(price: Price, name: str, flops: int) -> None:
    cost = price(name, [(8, 4), (8, 4), ()], [BF16, BF16, ""])
    assert (cost.flops, cost.bytes) == (flops * 32, 3 * 32 * 2)


def test_elu_backward_has_its_input_last(price: Price) -> None:
    types = ["float", SCALAR, SCALAR, SCALAR, SCALAR, "float"]
    cost = price("aten::elu_backward", [(8, 4), (), (), (), (), (8, 4)], types)
    assert (cost.flops, cost.bytes) == (6 * 32, 3 * 32 * 4)


def test_gated_linear_unit(price: Price) -> None:
    forward = price("aten::glu", [(8, 4), ()], [BF16, SCALAR])
    assert (forward.flops, forward.bytes) == (5 * 16, (32 + 16) * 2)
    backward = price("aten::glu_backward", [(8, 2), (8, 4), ()], [BF16, BF16, SCALAR])
    assert (backward.flops, backward.bytes) == (9 * 16, (16 + 32 + 32) * 2)


def test_prelu(price: Price) -> None:
    forward = price("aten::_prelu_kernel", [(2, 3, 4), (1, 3, 1)])
    assert (forward.flops, forward.bytes) == (2 * 24, (24 + 3 + 24) * 4)
    backward = price("aten::_prelu_kernel_backward", [(2, 3, 4), (2, 3, 4), (1, 3, 1)])
    assert (backward.flops, backward.bytes) == (2 * 24, (4 * 24 + 3) * 4)


@pytest.mark.parametrize(
    ("name", "dims", "types", "flops", "moved"),
    [
        ("aten::addcmul_", [(8,), (8,), (8,), ()], ["float"] * 3 + [SCALAR], 24, 4 * 8 * 4),
        ("aten::addcdiv", [(8,), (8,), (8,), ()], ["float"] * 3 + [SCALAR], 24, 4 * 8 * 4),
        ("aten::lerp", [(8,), (8,), ()], ["float", "float", SCALAR], 24, 3 * 8 * 4),
        ("aten::lerp_", [(8,), (8,), (8,)], ["float"] * 3, 24, 4 * 8 * 4),
        ("aten::clamp", [(8,), (), ()], ["float", SCALAR, SCALAR], 16, 2 * 8 * 4),
        ("aten::clamp", [(8,), (8,), ()], ["float", "float", ""], 16, 3 * 8 * 4),
        ("aten::where", [(8,), (8,), (8,)], ["bool", BF16, BF16], 0, 8 + 3 * 8 * 2),
        ("aten::where", [(8,), (), (8,)], ["bool", SCALAR, "long int"], 0, 8 + 2 * 8 * 8),
        ("aten::masked_fill_", [(4, 8), (8,), ()], [BF16, "bool", SCALAR], 0, 2 * 64 + 8),
    ],
)
def test_ternary(
    price: Price, name: str, dims: Sequence[Any], types: Sequence[str], flops: int, moved: int
) -> None:
    cost = price(name, dims, types)
    assert (cost.flops, cost.bytes) == (flops, moved)


def test_predicates_write_bools(price: Price) -> None:
    cost = price("aten::gt", [(8, 4), (4,)])
    assert (cost.flops, cost.bytes) == (32, 32 * 4 + 4 * 4 + 32)
    integers = price("aten::eq", [(8, 4), ()], ["long int", SCALAR])
    assert (integers.flops, integers.bytes) == (0, 32 * 8 + 32)
    in_place = price("aten::eq_", [(8, 4), ()], ["float", SCALAR])
    assert in_place.bytes == 2 * 32 * 4
    resized = price("aten::logical_not", [(8, 4), (0,)], "bool")  # an output that is still empty
    assert (resized.flops, resized.bytes) == (0, 32 + 32)


def test_bitwise(price: Price) -> None:
    cost = price("aten::bitwise_and", [(8, 4), (8, 4)], "bool")
    assert (cost.flops, cost.bytes) == (0, 3 * 32)
    assert price("aten::bitwise_not", [(8, 4)], "bool").bytes == 2 * 32


@pytest.mark.parametrize("name", ["aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_"])
def test_writes(price: Price, name: str) -> None:
    cost = price(name, [(8, 4), ()], [BF16, SCALAR])
    assert (cost.flops, cost.bytes) == (0, 32 * 2)


def test_a_value_that_is_a_tensor_is_read(price: Price) -> None:
    assert price("aten::fill_", [(8, 4), ()], [BF16, "float"]).bytes == 32 * 2 + 4
    assert price("aten::bernoulli_", [(8, 4), (8, 4)], ["bool", "float"]).bytes == 32 + 32 * 4


def test_what_cannot_be_priced(price: Price) -> None:
    assert price("aten::sub", [(8,), (8,)], "QInt8").bytes is None
    with pytest.raises(UnexpectedArgumentsError, match="without a tensor"):
        price("aten::sub", [(), ()], [SCALAR, SCALAR])
    with pytest.raises(UnexpectedArgumentsError, match="broadcast"):
        price("aten::sub", [(8,), (3,)])


def test_every_elementwise_op_is_in_the_table() -> None:
    counted = {"unary", "binary", "ternary", "predicate", "unary_predicate", "activation_backward"}
    models = [m for m in all_models() if m.cost.__module__ == "jarvis.perf_models.elementwise"]
    assert len(models) > 100
    for model in models:
        if getattr(model.cost, "__name__", "") in counted:
            assert element_flops(model.name) >= 0, model.name


@pytest.mark.parametrize("name", ["aten::silu", "aten::neg", "aten::clamp_min_", "aten::sigmoid"])
def test_unary_of_the_sheets(price: Price, name: str) -> None:
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


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("aiter::silu_and_mul", 5),
        ("_C::silu_and_mul", 5),
        ("sgl_kernel::silu_and_mul", 5),
        ("aiter::gelu_and_mul", 8),
        ("_C::gelu_and_mul", 8),
        ("sgl_kernel::gelu_tanh_and_mul", 10),
        ("aiter::gelu_tanh_and_mul", 10),
    ],
)
def test_gated_activation(price: Price, name: str, flops: int) -> None:
    cost = price(name, [(8, 4), (8, 8)], [FP8, BF16])
    assert cost.flops == flops * 32
    assert cost.bytes == 64 * 2 + 32
    assert cost.compute == "vector_bf16"


def test_binary_of_the_sheets(price: Price) -> None:
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


def test_dropout(price: Price) -> None:
    forward = price("aten::native_dropout", [(8, 4), (), ()], [BF16, SCALAR, SCALAR])
    assert (forward.flops, forward.bytes) == (2 * 32, 32 * 2 + 32 * 2 + 32)
    types = [BF16, "bool", SCALAR]
    backward = price("aten::native_dropout_backward", [(8, 4), (8, 4), ()], types)
    assert (backward.flops, backward.bytes) == (2 * 32, 32 * 2 + 32 + 32 * 2)


@pytest.mark.parametrize(
    ("strides", "read"), [((0, 1), 4), ((4, 1), 32), ((1, 8), 32), (None, 32), ((), 32)]
)
def test_an_expanded_operand_is_read_as_far_as_it_is_stored(
    price: Price, strides: tuple[int, ...] | None, read: int
) -> None:
    shapes = [(8, 4), (8, 4)]
    cost = price("aten::mul", shapes, "float", strides=[(4, 1), strides])
    assert (cost.bytes, cost.exact_bytes) == (3 * 32 * 4, (2 * 32 + read) * 4)
    cost = price("aten::sub", shapes, "float", strides=[(4, 1), strides])
    assert cost.bytes == (2 * 32 + read) * 4
    cost = price("aten::copy_", shapes, "float", strides=[(4, 1), strides])
    assert cost.exact_bytes == (32 + read) * 4
