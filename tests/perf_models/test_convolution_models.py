from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, OpSignature, UnexpectedArgumentsError
from jarvis.perf_models.convolution import convolution

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
MOVES = {3: "[1, 1]", 4: "[1, 1]", 5: "[1, 1]", 6: "False", 7: "[0, 0]", 8: "1"}
X, W, OUT = 2 * 3 * 8 * 8, 16 * 3 * 3 * 3, 2 * 16 * 8 * 8
TAPS = 3 * 3 * 3


def dims(*tensors: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [*tensors, *[()] * (9 - len(tensors))]


def test_convolution(price: Price) -> None:
    cost = price("aten::convolution", dims((2, 3, 8, 8), (16, 3, 3, 3)), BF16, MOVES)
    assert cost.flops == 2 * TAPS * OUT
    assert cost.bytes == (X + W + OUT) * 2
    assert cost.compute == "matrix_bf16"
    assert (cost.exact().flops, cost.exact().bytes) == (cost.flops, cost.bytes)
    assert cost.params == {
        "convNd": "conv2d",
        "input_shape": (2, 3, 8, 8),
        "filter_shape": (16, 3, 3, 3),
        "dtype_input_weight": (BF16, BF16),
        "input_stride": None,
        "weight_stride": None,
        "bias": False,
        "stride": (1, 1),
        "padding": (1, 1),
        "dilation": (1, 1),
        "transposed_conv": False,
        "output_padding": (0, 0),
        "groups": 1,
    }


def test_bias_is_seen_among_nine_arguments(price: Price) -> None:
    cost = price("aten::convolution", dims((2, 3, 8, 8), (16, 3, 3, 3), (16,)), BF16, MOVES)
    assert cost.params["bias"] is True
    assert cost.flops == 2 * TAPS * OUT + OUT
    assert cost.bytes == (X + W + OUT + 16) * 2


def test_stride_and_dilation_shrink_the_output(price: Price) -> None:
    moves = MOVES | {3: "[2]", 4: "[0]", 5: "[2]"}
    cost = price("aten::convolution", dims((1, 1, 9, 9), (1, 1, 3, 3)), BF16, moves)
    assert cost.params["stride"] == cost.params["dilation"] == (2, 2)
    assert cost.flops == 2 * 9 * (3 * 3)  # (9 - 4 - 1) // 2 + 1 = 3


@pytest.mark.parametrize(
    ("stride", "padding", "shown"),
    [
        ("[2, 2]", "[1, 1]", ((2, 2), (1, 1))),
        ("(2,2)", "(1, 1)", ((2, 2), (1, 1))),
        ("(2,)", "[1]", ((2, 2), (1, 1))),
        ("2", "1", ((2, 2), (1, 1))),
        ("[2, 1]", "(0, 1)", ((2, 1), (0, 1))),
    ],
)
def test_every_spelling_of_the_arguments(
    price: Price, stride: str, padding: str, shown: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    moves = MOVES | {3: stride, 4: padding}
    params = price("aten::convolution", dims((2, 3, 8, 8), (16, 3, 3, 3)), BF16, moves).params
    assert (params["stride"], params["padding"]) == shown


@pytest.mark.parametrize(
    ("moves", "reason"),
    [
        (MOVES | {3: ""}, "without its stride"),
        (MOVES | {3: "[]"}, "without its stride"),
        (MOVES | {4: "'same'"}, r"Argument 4 .* as \"'same'\", not as whole numbers"),
        (MOVES | {3: "[2, x]"}, "Argument 3 .*, not as whole numbers"),
        (MOVES | {3: "[2, 2"}, "Argument 3 .*, not as whole numbers"),
        (MOVES | {3: "[2, 2, 2]"}, "whole numbers for 2 dims"),
        (MOVES | {6: "maybe"}, "Argument 6 .*, not as true or false"),
        (MOVES | {8: "many"}, "Argument 8 .*, not as whole numbers"),
        (None, "without its stride"),
    ],
)
def test_an_argument_that_cannot_be_read_leaves_the_cost_unknown(
    price: Price, moves: dict[int, str] | None, reason: str
) -> None:
    with pytest.raises(UnexpectedArgumentsError, match=reason):
        price("aten::convolution", dims((2, 3, 8, 8), (16, 3, 3, 3)), BF16, moves)


def test_a_trace_without_values_leaves_the_cost_unknown() -> None:
    shapes = tuple(dims((2, 3, 8, 8), (16, 3, 3, 3)))
    call = OpSignature("aten::convolution", shapes, (BF16, BF16, *[""] * 7))
    with pytest.raises(UnexpectedArgumentsError, match="without the values of its arguments"):
        convolution(call)


def test_grouped_convolution_reads_the_group_from_the_filter(price: Price) -> None:
    cost = price("aten::convolution", dims((1, 8, 4, 4), (8, 1, 3, 3)), BF16, MOVES | {8: "8"})
    assert cost.flops == 2 * 9 * (8 * 4 * 4)


def test_transposed_convolution_applies_its_taps_to_the_input(price: Price) -> None:
    moves = MOVES | {3: "[2, 2]", 6: "True", 7: "[1, 1]", 8: "2"}
    cost = price("aten::convolution", dims((1, 4, 5, 5), (4, 3, 3, 3), (6,)), BF16, moves)
    side = (5 - 1) * 2 - 2 * 1 + (3 - 1) + 1 + 1
    x, w = 4 * 25, 4 * 3 * 9
    assert cost.flops == 2 * (3 * 9) * x + 3 * side**2
    assert cost.bytes == (x + w + 3 * side**2 + 3) * 2
    assert cost.exact_flops == 2 * (3 * 9) * x + 6 * side**2
    assert cost.exact_bytes == (x + w + 6 * side**2 + 6) * 2


def test_mixed_dtypes_and_other_ranks_are_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="mixes"):
        price("aten::convolution", dims((2, 3, 8, 8), (16, 3, 3, 3)), [BF16, "float"] + [""] * 7)
    with pytest.raises(UnexpectedArgumentsError, match="spatial"):
        price("aten::convolution", dims((2, 3), (16, 3)), BF16)


BACKWARD_MOVES = {index + 1: value for index, value in MOVES.items()}


def backward_dims(*tensors: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [*tensors, *[()] * (11 - len(tensors))]


@pytest.mark.parametrize(
    ("mask", "input_grads", "weight_grads", "bias_grads"),
    [
        ("[True, True, False]", 1, 1, 0),
        ("[False, True, False]", 0, 1, 0),
        ("[True, True, True]", 1, 1, 1),
        ("(True,True,False)", 1, 1, 0),
    ],
)
def test_backward_honours_the_mask_in_its_exact_cost(
    price: Price, mask: str, input_grads: int, weight_grads: int, bias_grads: int
) -> None:
    shapes = backward_dims((2, 16, 8, 8), (2, 3, 8, 8), (16, 3, 3, 3))
    cost = price("aten::convolution_backward", shapes, BF16, BACKWARD_MOVES | {10: mask})
    product = 2 * TAPS * OUT
    assert cost.flops == 2 * product
    assert cost.bytes == 2 * (X + W + OUT) * 2
    assert cost.exact_flops == product * (input_grads + weight_grads) + OUT * bias_grads
    moved = (X + W + OUT) * (input_grads + weight_grads) + (OUT + 16) * bias_grads
    assert cost.exact_bytes == moved * 2
    assert cost.params["bias"] == []


def test_backward_without_a_mask_is_unknown(price: Price) -> None:
    shapes = backward_dims((2, 16, 8, 8), (2, 3, 8, 8), (16, 3, 3, 3))
    with pytest.raises(UnexpectedArgumentsError, match="without its output mask"):
        price("aten::convolution_backward", shapes, BF16, BACKWARD_MOVES)


def test_backward_of_a_transposed_convolution(price: Price) -> None:
    moves = BACKWARD_MOVES | {4: "[2, 2]", 7: "True", 8: "[1, 1]", 10: "[True, True, False]"}
    shapes = backward_dims((1, 3, 10, 10), (1, 4, 5, 5), (4, 3, 3, 3))
    cost = price("aten::convolution_backward", shapes, BF16, moves)
    x, w, out = 4 * 25, 4 * 3 * 9, 3 * 100
    assert cost.flops == 2 * x * (3 * 9) + 2 * w * 1 * 25
    assert cost.bytes == 2 * (x + w + out) * 2


def test_backward_of_the_forward_call(price: Price) -> None:
    shapes = dims((2, 3, 8, 8), (16, 3, 3, 3), (16,))
    cost = price("aten::convolution", shapes, BF16, MOVES, backward=True)
    assert cost.flops == 2 * (2 * TAPS * OUT) + OUT
    assert cost.bytes == 2 * (X + W + OUT) * 2 + OUT + 16  # the sheets add elements to bytes
    assert cost.exact_flops == cost.flops
    assert cost.exact_bytes == (2 * (X + W + OUT) + OUT + 16) * 2
    assert price("aten::convolution", shapes, "bool", MOVES, backward=True).bytes is None


def test_fused_bias(price: Price) -> None:
    shapes = [(2, 3, 8, 8), (16, 3, 3, 3), (1, 16, 1, 1)]
    cost = price("ConvBiasReLU_", shapes, BF16, {3: "1", 4: "1"})
    assert cost.flops == 2 * TAPS * OUT + OUT
    assert cost.bytes == (X + W + OUT + 16) * 2
    plain = price("ConvBias_", shapes, BF16, {3: "1", 4: "0"})
    assert plain.flops == (2 * TAPS + 1) * (2 * 16 * 6 * 6)
    with pytest.raises(UnexpectedArgumentsError, match="without its stride"):
        price("ConvBias_", shapes, BF16)
    backward = price("ConvBias_", shapes, BF16, {3: "1", 4: "1"}, backward=True)
    assert backward.flops == 2 * (2 * TAPS * OUT) + OUT
