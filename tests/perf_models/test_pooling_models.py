from collections.abc import Callable

import pytest

from jarvis.perf_models import NoModelForCallError, OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
X = (2, 3, 8, 8)
N = 2 * 3 * 64


@pytest.mark.parametrize(
    ("concrete", "windows", "taps"),
    [
        ({1: "[3, 3]", 2: "[2, 2]", 3: "[1, 1]", 4: "[1, 1]", 5: "False"}, 6 * 16, 9),
        ({1: "[2, 2]", 2: "[]", 3: "[0, 0]", 4: "[1, 1]", 5: "False"}, 6 * 16, 4),
        ({1: "[3, 3]", 2: "[2, 2]", 3: "[0, 0]", 4: "[1, 1]", 5: "False"}, 6 * 9, 9),
        ({1: "[3, 3]", 2: "[2, 2]", 3: "[0, 0]", 4: "[1, 1]", 5: "True"}, 6 * 16, 9),
        # A fourth window would begin in the padding behind the edge.
        ({1: "[1, 1]", 2: "[3, 3]", 3: "[1, 1]", 4: "[1, 1]", 5: "True"}, 6 * 9, 1),
        ({1: "[3]", 2: "[1]", 3: "[0]", 4: "[2]", 5: "False"}, 6 * 16, 9),
    ],
)
def test_max_pool(price: Price, concrete: dict[int, str], windows: int, taps: int) -> None:
    cost = price("aten::max_pool2d_with_indices", [X, *[()] * 5], BF16, concrete)
    assert cost.flops == windows * taps
    assert cost.bytes == (N + windows) * 2 + windows * 8
    assert cost.compute == "vector_bf16"


def test_average_pool(price: Price) -> None:
    concrete = {1: "[2, 2]", 2: "[]", 3: "[0, 0]", 4: "False"}
    cost = price("aten::avg_pool2d", [X, *[()] * 6], "float", concrete)
    assert (cost.flops, cost.bytes) == (6 * 16 * 4, (N + 6 * 16) * 4)
    with pytest.raises(UnexpectedArgumentsError, match="kernel size"):
        price("aten::avg_pool2d", [X, *[()] * 6])


def test_adaptive_pools(price: Price) -> None:
    average = price("aten::_adaptive_avg_pool2d", [X, ()], "float", {1: "[3, 3]"})
    assert (average.flops, average.bytes) == (N + 54, (N + 54) * 4)
    largest = price("aten::adaptive_max_pool2d", [X, ()], "float", {1: "[3, 3]"})
    assert (largest.flops, largest.bytes) == (N, (N + 54) * 4 + 54 * 8)
    with pytest.raises(UnexpectedArgumentsError, match="output size"):
        price("aten::adaptive_max_pool2d", [X, ()])


def test_pools_backward(price: Price) -> None:
    dims, types = [(2, 3, 4, 4), X, *[()] * 5, (2, 3, 4, 4)], [BF16, BF16, *[""] * 5, "long int"]
    largest = price("aten::max_pool2d_with_indices_backward", dims, types)
    assert (largest.flops, largest.bytes) == (96, (96 + N) * 2 + 96 * 8)
    average = price("aten::avg_pool2d_backward", dims[:7], types[:7])
    assert (average.flops, average.bytes) == (96 + N, (96 + N) * 2)


@pytest.mark.parametrize(
    ("name", "x", "size", "outputs", "flops"),
    [
        ("upsample_linear1d", (2, 3, 8), "[16]", 96, 3),
        ("upsample_bilinear2d", X, "[16, 16]", 6 * 256, 7),
        ("upsample_trilinear3d", (1, 2, 4, 4, 4), "[8, 8, 8]", 1024, 15),
        ("upsample_bicubic2d", X, "[5, 5]", 6 * 25, 31),
        ("_upsample_nearest_exact2d", X, "[16, 16]", 6 * 256, 0),
    ],
)
def test_interpolation(
    price: Price, name: str, x: tuple[int, ...], size: str, outputs: int, flops: int
) -> None:
    inputs = {3: 48, 4: N, 5: 128}[len(x)]
    cost = price(f"aten::{name}", [x, (), ()], "float", {1: size})
    assert (cost.flops, cost.bytes) == (flops * outputs, (inputs + outputs) * 4)
    with pytest.raises(NoModelForCallError, match="output size"):
        price(f"aten::{name}", [x, (), ()])


@pytest.mark.parametrize(
    ("name", "flops"), [("upsample_bilinear2d_backward", 8), ("upsample_nearest2d_backward", 1)]
)
def test_interpolation_backward(price: Price, name: str, flops: int) -> None:
    concrete = {1: "[16, 16]", 2: "[2, 3, 8, 8]"}
    cost = price(f"aten::{name}", [(2, 3, 16, 16), (), ()], "float", concrete)
    assert (cost.flops, cost.bytes) == (flops * 1536, (1536 + N) * 4)
    with pytest.raises(UnexpectedArgumentsError, match="input size"):
        price(f"aten::{name}", [(2, 3, 16, 16), (), ()])


def test_padding(price: Price) -> None:
    pad = price("aten::reflection_pad2d", [X, ()], "float", {1: "[1, 2, 3, 4]"})
    out = 6 * (8 + 3 + 4) * (8 + 1 + 2)
    assert (pad.flops, pad.bytes) == (0, (N + out) * 4)
    backward = price("aten::replication_pad2d_backward", [(2, 3, 15, 11), X, ()])
    assert (backward.flops, backward.bytes) == (out, (out + N) * 4)
    with pytest.raises(UnexpectedArgumentsError, match="paddings"):
        price("aten::reflection_pad2d", [X, ()])


def test_replication_pad(price: Price) -> None:
    cost = price("aten::replication_pad2d", [(2, 3, 8, 8), ()], "float", {1: "[1, 2, 3, 4]"})
    out = 2 * 3 * (8 + 3 + 4) * (8 + 1 + 2)
    assert cost.flops == out
    assert cost.bytes == (2 * 3 * 64 + out) * 4
    assert cost.exact_flops == 0
    with pytest.raises(UnexpectedArgumentsError, match="paddings"):
        price("aten::replication_pad2d", [(2, 3, 8, 8), ()])


def test_upsample_nearest(price: Price) -> None:
    strides = [(192, 64, 8, 1), ()]
    shapes = [(2, 3, 8, 8), ()]
    cost = price("aten::upsample_nearest2d", shapes, "float", {1: "[16, 24]"}, strides)
    out = 2 * 3 * 16 * 24
    assert cost.flops == out
    assert cost.bytes == (2 * 3 * 64 + out) * 4
    assert cost.exact_flops == 0
    assert list(cost.params.items()) == [
        ("op_shape", (2, 3, 16, 24)),
        ("dtype_in_out", ("float", "float")),
        ("stride_input", (192, 64, 8, 1)),
        ("stride_output", None),
        ("input_shape", (2, 3, 8, 8)),
        ("output_shape", (2, 3, 16, 24)),
    ]
    pad = price("aten::replication_pad2d", shapes, "float", {1: "[1, 2, 3, 4]"})
    assert "output_shape" not in pad.params
    with pytest.raises(UnexpectedArgumentsError, match="output size"):
        price("aten::upsample_nearest2d", [(2, 3, 8, 8), ()])
