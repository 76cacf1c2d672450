from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16, FP8 = "c10::BFloat16", "c10::Float8_e4m3fn"
SCALAR = "Scalar"
A, B = 6 * 8, 4 * 8 * 10


@pytest.mark.parametrize(
    ("a", "b", "flops", "elements"),
    [
        # Rows of 4 experts behind each other; a weight for each.
        ((6, 8), (4, 8, 10), 2 * 6 * 8 * 10, 6 * 8 + 4 * 8 * 10 + 6 * 10),
        # Columns of 4 groups behind each other.
        ((4, 6, 8), (8, 10), 2 * 6 * 8 * 10, 4 * 6 * 8 + 8 * 10 + 6 * 10),
        # The gradient of the weights: 4 groups along K.
        ((6, 8), (8, 10), 2 * 6 * 8 * 10, 6 * 8 + 8 * 10 + 4 * 6 * 10),
        # All stacked.
        ((4, 6, 8), (4, 8, 10), 4 * 2 * 6 * 8 * 10, 4 * (6 * 8 + 8 * 10 + 6 * 10)),
    ],
)
def test_grouped(
    price: Price, a: tuple[int, ...], b: tuple[int, ...], flops: int, elements: int
) -> None:
    cost = price("aten::_grouped_mm", [a, b, (4,), (), ()], [BF16, BF16, "int", "", ""])
    assert (cost.flops, cost.bytes) == (flops, elements * 2)
    assert cost.compute == "matrix_bf16"
    assert cost.params["G"] == 4


def test_grouped_with_an_output_dtype(price: Price) -> None:
    types = [BF16, BF16, "int", "", SCALAR]
    cost = price("aten::_grouped_mm", [(6, 8), (4, 8, 10), (4,), (), ()], types, {4: "6"})
    assert cost.bytes == (A + B) * 2 + 60 * 4
    with pytest.raises(UnexpectedArgumentsError, match="no product"):
        price("aten::_grouped_mm", [(8,), (8, 10), (4,)], BF16)


def test_grouped_of_scaled_operands(price: Price) -> None:
    dims = [(6, 8), (4, 8, 10), (6,), (4, 10), (4,), (), (), (), ()]
    types = [FP8, FP8, "float", "float", "int", "", "", "", SCALAR]
    cost = price("aten::_scaled_grouped_mm", dims, types)
    assert cost.flops == 2 * 6 * 8 * 10
    assert cost.bytes == A + B + (6 + 40) * 4 + 60 * 2
    assert cost.compute == "matrix_fp8"


def test_int_mm(price: Price) -> None:
    cost = price("aten::_int_mm", [(6, 8), (8, 10)], "signed char")
    assert (cost.flops, cost.bytes) == (2 * 6 * 8 * 10, 48 + 80 + 60 * 4)
    assert cost.compute == "matrix_int8"


def test_addmm_with_activation(price: Price) -> None:
    dims = [(10,), (6, 8), (8, 10), (), (), ()]
    cost = price("aten::_addmm_activation", dims, [BF16, BF16, BF16, SCALAR, SCALAR, SCALAR])
    assert (cost.flops, cost.bytes) == (2 * 6 * 8 * 10 + 60, (10 + 48 + 80 + 60) * 2)


def test_products_by_vectors(price: Price) -> None:
    mv = price("aten::mv", [(6, 8), (8,)])
    assert (mv.flops, mv.bytes, mv.compute) == (96, (48 + 8 + 6) * 4, "vector_fp32")
    dims, types = [(6,), (6, 8), (8,), (), ()], ["float", "float", "float", SCALAR, SCALAR]
    alone = price("aten::addmv_", dims, types, {3: "0", 4: "1"})
    assert (alone.flops, alone.bytes) == (96, (48 + 8 + 6) * 4)
    added = price("aten::addmv_", dims, types, {3: "1", 4: "1"})
    assert (added.flops, added.bytes) == (96 + 6, (48 + 8 + 12) * 4)
    dot = price("aten::dot", [(8,), (8,)])
    assert (dot.flops, dot.bytes) == (16, 17 * 4)


def test_products_of_packed_weights(price: Price) -> None:
    types = [BF16, "signed char", BF16]
    int8 = price("aten::_weight_int8pack_mm", [(6, 8), (10, 8), (10,)], types)
    assert (int8.flops, int8.bytes) == (2 * 6 * 8 * 10, 48 * 2 + 80 + 10 * 2 + 60 * 2)
    # K = 128, N = 8: 1024 weights of half a byte, with a scale and a zero for each 32.
    dims = [(6, 128), (1, 1, 32, 4), (), (4, 8, 2)]
    int4 = price("aten::_weight_int4pack_mm", dims, [BF16, "int", SCALAR, BF16], {2: "32"})
    assert (int4.flops, int4.bytes) == (2 * 6 * 8 * 128, 768 * 2 + 512 + 64 * 2 + 48 * 2)
    assert int4.compute == "matrix_bf16"
