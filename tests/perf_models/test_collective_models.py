from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FLOPS = 32 + 4 * (2 * 8 + 2) + 2 * 32
BYTES = (4 * 32 + 8) * 2


@pytest.mark.parametrize(
    "name",
    [
        "_C_custom_ar::all_reduce",
        "_C_custom_ar::qr_all_reduce",
        "sgl_kernel::all_reduce_reg",
        "sgl_kernel::qr_all_reduce",
    ],
)
def test_all_reduce_reads_and_writes(price: Price, name: str) -> None:
    cost = price(name, [(), (4, 8), (4, 8)], BF16)
    assert (cost.flops, cost.bytes, cost.compute) == (0, 2 * 32 * 2, "")


@pytest.mark.parametrize("name", ["aiter::reduce_scatter", "aiter::all_gather_reg"])
def test_scatter_and_gather_move_input_and_output(price: Price, name: str) -> None:
    cost = price(name, [(), (4, 8), (2, 8)], BF16)
    assert (cost.flops, cost.bytes) == (0, (32 + 16) * 2)


def test_gather_into_a_tensor(price: Price) -> None:
    cost = price("sglang::reg_all_gather_into_tensor", [(8, 8), (4, 8)], BF16)
    assert (cost.flops, cost.bytes) == (0, (64 + 32) * 2)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aiter::fused_allreduce_rmsnorm", [(), (4, 8), (4, 8), (4, 8), (4, 8), (4, 8), (8,)]),
        ("aiter::fused_allreduce_rmsnorm", [(), (4, 8), (4, 8), (4, 8), (4, 8), (8,), ()]),
        ("aiter::fused_allreduce_rmsnorm_", [(4, 8), (4, 8), (8,)]),
    ],
)
def test_all_reduce_with_normalization(
    price: Price, name: str, dims: list[tuple[int, ...]]
) -> None:
    cost = price(name, dims, BF16)
    assert (cost.flops, cost.bytes, cost.compute) == (FLOPS, BYTES, "")
    assert cost.params["num_channels"] == 8


def test_a_weight_that_is_no_vector_is_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="weight vector"):
        price("aiter::fused_allreduce_rmsnorm_", [(4, 8), (4, 8), (4, 8)], BF16)
