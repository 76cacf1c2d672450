from collections.abc import Callable
from typing import Any

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16, FP8 = "c10::BFloat16", "c10::Float8_e4m3fn"
TWO_LISTS = [((5, 4), (3, 4)), ((4, 3), (4, 3))]
SCALAR = "Scalar"
A, B = 6 * 8, 4 * 8 * 10


@pytest.mark.parametrize("dims", [[(8, 4), (2, 4, 3)], [(8, 4), (2, 3, 4)], TWO_LISTS])
def test_grouped_gemm(price: Price, dims: list[Any]) -> None:
    cost = price("primus_turbo::grouped_gemm", dims, BF16)
    assert cost.flops == 2 * 8 * 4 * 3
    assert cost.bytes == (8 * 4 + 2 * 4 * 3 + 8 * 3) * 2
    assert cost.compute == "matrix_bf16"
    assert cost.params == {"M": 8, "K": 4, "N": 3, "G": 2, "bpe_in": 2, "bpe_out": 2}


def test_the_output_has_the_dtype_of_the_weights(price: Price) -> None:
    dims = [(8, 4), (2, 4, 3)]
    cost = price("primus_turbo::grouped_gemm_impl", dims, ["c10::Float8_e4m3fn", BF16])
    assert cost.bytes == 8 * 4 + 2 * 4 * 3 + 8 * 3 * 2


@pytest.mark.parametrize(
    "dims",
    [
        [(8, 5), (2, 4, 3)],
        [((5, 4), (3, 4)), ((4, 3), (4, 2))],
        [((5, 4), (3, 4)), ((4, 3), (5, 3))],
        [(8, 4), ()],
    ],
)
def test_what_cannot_be_multiplied_is_refused(price: Price, dims: list[Any]) -> None:
    with pytest.raises(UnexpectedArgumentsError):
        price("primus_turbo::grouped_gemm", dims, BF16)


def test_the_gradient_of_the_weights(price: Price) -> None:
    cost = price("primus_turbo::grouped_gemm_variable_k", [(8, 4), (8, 3), (2,)], BF16)
    assert cost.flops == 2 * 8 * 4 * 3
    assert cost.bytes == (8 * 4 + 4 * 3 + 8 * 3) * 2
    assert cost.exact_bytes == (8 * 4 + 8 * 3 + 2 * 4 * 3) * 2
    assert cost.params["group_pairs"] == (((8, 4), (4, 3)),)


def test_pairs_of_different_inner_width(price: Price) -> None:
    dims = [((4, 5), (4, 3)), ((5, 3), (3, 3))]
    cost = price("primus_turbo::grouped_gemm_variable_k_impl", dims, BF16)
    assert cost.flops == 2 * 4 * 5 * 3 + 2 * 4 * 3 * 3
    assert cost.bytes == (4 * 5 + 5 * 3 + 4 * 3 + 4 * 3 + 3 * 3 + 4 * 3) * 2
    assert cost.exact_bytes is None
    assert (cost.params["K"], cost.params["G"]) == (8, 2)


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
