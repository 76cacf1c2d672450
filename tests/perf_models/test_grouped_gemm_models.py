from collections.abc import Callable
from typing import Any

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
TWO_LISTS = [((5, 4), (3, 4)), ((4, 3), (4, 3))]


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
