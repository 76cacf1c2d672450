from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
SCALAR = "Scalar"


@pytest.mark.parametrize("name", ["aten::_softmax", "aten::_log_softmax"])
def test_softmax(price: Price, name: str) -> None:
    cost = price(name, [(8, 4), (), ()], [BF16, SCALAR, SCALAR], {1: "-1", 2: "False"})
    assert (cost.flops, cost.bytes) == (5 * 32, 2 * 32 * 2)
    assert cost.compute == "vector_bf16"
    wide = price(name, [(8, 4), (), ()], ["c10::Half", "", ""], {2: "True"})
    assert wide.bytes == 32 * 2 + 32 * 4


@pytest.mark.parametrize(
    ("name", "flops"),
    [("aten::_softmax_backward_data", 4), ("aten::_log_softmax_backward_data", 7)],
)
def test_softmax_backward(price: Price, name: str, flops: int) -> None:
    dims, types = [(8, 4), (8, 4), (), ()], ["float", "float", SCALAR, SCALAR]
    cost = price(name, dims, types, {2: "1", 3: "6"})
    assert (cost.flops, cost.bytes) == (flops * 32, 3 * 32 * 4)
    narrow = price(name, dims, types, {2: "1", 3: "15"})  # the gradient in bfloat16
    assert narrow.bytes == 2 * 32 * 4 + 32 * 2


def test_dropout(price: Price) -> None:
    forward = price("aten::native_dropout", [(8, 4), (), ()], [BF16, SCALAR, SCALAR])
    assert (forward.flops, forward.bytes) == (2 * 32, 32 * 2 + 32 * 2 + 32)
    types = [BF16, "bool", SCALAR]
    backward = price("aten::native_dropout_backward", [(8, 4), (8, 4), ()], types)
    assert (backward.flops, backward.bytes) == (2 * 32, 32 * 2 + 32 + 32 * 2)
