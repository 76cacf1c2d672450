from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

SCALAR = "Scalar"
BF16 = "c10::BFloat16"


@pytest.mark.parametrize(
    ("weight", "reduction", "moved"),
    [
        ("", "1", 6 * 4 + 2 * 4 + 6 * 8),
        ("", "0", 6 * 4 + 6 * 4 + 6 * 8),
        ("float", "1", 6 * 4 + 2 * 4 + 6 * 8 + 6 * 4),
    ],
)
def test_negative_log_likelihood(price: Price, weight: str, reduction: str, moved: int) -> None:
    dims = [(6, 10), (6,), (10,) if weight else (), (), ()]
    types = ["float", "long int", weight, SCALAR, SCALAR]
    cost = price("aten::nll_loss_forward", dims, types, {3: reduction, 4: "-100"})
    assert (cost.flops, cost.bytes) == (2 * 6, moved)


def test_negative_log_likelihood_of_images(price: Price) -> None:
    types = ["float", "long int", "", SCALAR, SCALAR]
    cost = price("aten::nll_loss2d_forward", [(2, 3, 4, 4), (2, 4, 4), (), (), ()], types, {3: "1"})
    assert (cost.flops, cost.bytes) == (2 * 32, 32 * 4 + 2 * 4 + 32 * 8)


def test_negative_log_likelihood_backward_writes_all_classes(price: Price) -> None:
    dims = [(), (6, 10), (6,), (), (), (), ()]
    types = ["float", "float", "long int", "", SCALAR, SCALAR, "float"]
    cost = price("aten::nll_loss_backward", dims, types, {4: "1"})
    assert (cost.flops, cost.bytes) == (6, 4 + 60 * 4 + 6 * 8)


@pytest.mark.parametrize(("name", "flops"), [("mse_loss", 2), ("smooth_l1_loss", 5)])
def test_distance(price: Price, name: str, flops: int) -> None:
    dims, types = [(4, 10), (4, 10), ()], ["float", "float", SCALAR]
    summed = price(f"aten::{name}", dims, types, {2: "1"})
    assert (summed.flops, summed.bytes) == (flops * 40, (40 + 40 + 1) * 4)
    assert price(f"aten::{name}", dims, types, {2: "0"}).bytes == 3 * 40 * 4


def test_binary_cross_entropy_has_a_weight(price: Price) -> None:
    dims, types = [(4, 10), (4, 10), (), ()], ["float", "float", "", SCALAR]
    cost = price("aten::binary_cross_entropy", dims, types, {3: "0"})
    assert (cost.flops, cost.bytes) == (14 * 40, 3 * 40 * 4)
    weighted = price("aten::binary_cross_entropy", [(4, 10)] * 3 + [()], ["float"] * 3 + [SCALAR])
    assert weighted.bytes == (3 * 40 + 1) * 4


@pytest.mark.parametrize(("name", "flops"), [("mse_loss_backward", 3), ("huber_loss_backward", 4)])
def test_distance_backward(price: Price, name: str, flops: int) -> None:
    types = ["c10::BFloat16"] * 3 + [SCALAR]
    cost = price(f"aten::{name}", [(), (4, 10), (4, 10), ()], types, {3: "1"})
    assert (cost.flops, cost.bytes) == (flops * 40, (1 + 3 * 40) * 2)


def test_binary_cross_entropy_backward(price: Price) -> None:
    types = ["float", "float", "float", "", SCALAR]
    cost = price("aten::binary_cross_entropy_backward", [(4,), (4,), (4,), (), ()], types)
    assert (cost.flops, cost.bytes) == (6 * 4, 4 * 4 * 4)


def test_cross_entropy(price: Price) -> None:
    cost = price("CrossEntropyFunction", [(4, 10)], BF16)
    assert (cost.flops, cost.bytes) == (5 * 4 * 10, 40 * 2 + 12 * 4)
    assert (cost.exact().flops, cost.exact().bytes) == (cost.flops, cost.bytes)
    assert cost.compute == "vector_bf16"


def test_cross_entropy_of_sequences_has_a_row_for_each_token(price: Price) -> None:
    cost = price("CrossEntropyFunction", [(2, 4, 10)], BF16)
    assert (cost.flops, cost.bytes) == (5 * 2 * 10, 80 * 2 + 12 * 2)
    assert (cost.exact_flops, cost.exact_bytes) == (5 * 8 * 10, 80 * 2 + 12 * 8)


def test_cross_entropy_without_logits_is_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="without logits"):
        price("CrossEntropyFunction", [()], BF16)
