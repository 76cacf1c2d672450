"""Four products of 2 B H N N d in a backward, and Q K^T again: five."""

from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"

# Two batches of 3 heads, 10 rows, head dim 4: as (B,H,N,d), and as (B,N,H,d).
BHND, BNHD = (2, 3, 10, 4), (2, 10, 3, 4)
ELEMENTS = 240
PRODUCT = 2 * (2 * 3) * 10 * 10 * 4

LSE = (2, 3, 10)


def test_flash_forward(price: Price) -> None:
    dims = [BNHD, BNHD, BNHD, *[()] * 12]
    cost = price("aten::_flash_attention_forward", dims, BF16, {5: "10", 6: "10", 8: "False"})
    assert (cost.flops, cost.bytes) == (2 * PRODUCT, 4 * ELEMENTS * 2)
    assert cost.compute == "matrix_bf16"
    causal = price("aten::_flash_attention_forward", dims, "float", {7: "0.5", 8: "True"})
    assert (causal.flops, causal.bytes) == (PRODUCT, 4 * ELEMENTS * 4)
    assert causal.params["dropout"] == 0.5


def test_flash_forward_of_packed_sequences(price: Price) -> None:
    # Three sequences in 20 rows, the longest of 10: the others have 5 each.
    x = (20, 3, 4)
    dims = [x, x, x, (4,), (4,), *[()] * 10]
    types = [BF16, BF16, BF16, "int", "int", *[""] * 10]
    cost = price("aten::_flash_attention_forward", dims, types, {5: "10", 6: "10", 8: "False"})
    assert cost.flops == 3 * 2 * (10 * 10 + 2 * 5 * 5) * (4 + 4)
    assert cost.bytes == 4 * ELEMENTS * 2


def test_flash_backward(price: Price) -> None:
    dims = [BNHD, BNHD, BNHD, BNHD, BNHD, LSE, *[()] * 11]
    cost = price("aten::_flash_attention_backward", dims, BF16, {10: "0.", 11: "False"})
    assert (cost.flops, cost.bytes) == (5 * PRODUCT, 7 * ELEMENTS * 2)
    x = (20, 3, 4)
    packed = [x, x, x, x, x, (3, 20), (4,), (4,), *[()] * 9]
    cost = price("aten::_flash_attention_backward", packed, BF16, {8: "10", 9: "10", 11: "True"})
    assert cost.flops == 5 * 3 * 2 * (10 * 10 + 2 * 5 * 5) * 4 / 2


@pytest.mark.parametrize(("mask", "share"), [("0", 1), ("1", 0.5), ("2", 0.5)])
def test_efficient_attention(price: Price, mask: str, share: float) -> None:
    dims = [BNHD, BNHD, BNHD, *[()] * 11]
    forward = price("aten::_efficient_attention_forward", dims, BF16, {8: "0.", 9: mask})
    assert (forward.flops, forward.bytes) == (2 * PRODUCT * share, 4 * ELEMENTS * 2)
    dims = [BNHD, BNHD, BNHD, BNHD, (), BNHD, (), (), (), (), LSE, *[()] * 9]
    backward = price("aten::_efficient_attention_backward", dims, BF16, {11: "0.", 14: mask})
    assert (backward.flops, backward.bytes) == (5 * PRODUCT * share, 7 * ELEMENTS * 2)


def test_efficient_attention_of_packed_sequences(price: Price) -> None:
    x = (1, 20, 3, 4)
    dims = [x, x, x, (), (4,), (4,), *[()] * 8]
    concrete = {6: "10", 7: "10", 8: "0.", 9: "0"}
    cost = price("aten::_efficient_attention_forward", dims, BF16, concrete)
    assert cost.flops == 3 * 2 * (10 * 10 + 2 * 5 * 5) * (4 + 4)
    dims = [x, x, x, x, (), x, (4,), (4,), (), (), LSE, *[()] * 9]
    cost = price("aten::_efficient_attention_backward", dims, BF16, {8: "10", 9: "10", 14: "0"})
    assert cost.flops == 5 * 3 * 2 * (10 * 10 + 2 * 5 * 5) * 4


def test_cudnn_forward(price: Price) -> None:
    dims = [BHND, BHND, BHND, *[()] * 10]
    cost = price("aten::_cudnn_attention_forward", dims, BF16, {9: "0.", 10: "True"})
    assert (cost.flops, cost.bytes) == (PRODUCT, 4 * ELEMENTS * 2)


@pytest.mark.parametrize(
    ("name", "causal_at"),
    [
        ("aten::_scaled_dot_product_flash_attention_backward", 11),
        ("aten::_scaled_dot_product_efficient_attention_backward", 11),
        ("aten::_scaled_dot_product_cudnn_attention_backward", 14),
        ("aten::_cudnn_attention_backward", 14),
    ],
)
def test_backward_by_name(price: Price, name: str, causal_at: int) -> None:
    dims = [BHND, BHND, BHND, BHND, BHND, LSE, *[()] * 10]
    full = price(name, dims, BF16, {causal_at: "False"})
    assert (full.flops, full.bytes) == (5 * PRODUCT, 7 * ELEMENTS * 2)
    assert price(name, dims, BF16, {causal_at: "True"}).flops == 5 * PRODUCT / 2
    with pytest.raises(UnexpectedArgumentsError, match="BHND"):
        price(name, [(10, 4)] * 4, BF16)


def test_a_backward_priced_by_its_forward_computes_the_scores_again(price: Price) -> None:
    dims = [BHND, BHND, BHND, (), (), (), ()]
    name = "aten::_scaled_dot_product_efficient_attention"
    cost = price(name, dims, BF16, {6: "False"}, backward=True)
    assert (cost.flops, cost.exact_flops) == (4 * PRODUCT, 5 * PRODUCT)
