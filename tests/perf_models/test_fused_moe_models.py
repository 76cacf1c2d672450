"""Two tokens of width 8, each through two of four gated experts of inner width 4.

Three of the four experts are reached: 4 (1 - (1/2)^2). One projection takes 2 * 2 * 8 * 4 * 2 =
256 flops; one matrix of the three experts has 3 * 4 * 8 = 96 elements.
"""

from collections.abc import Callable
from typing import Any

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError
from jarvis.perf_report import PerfReport
from tests.builders import trace

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"
PER_OP = "vllm::outplace_fused_experts"

DIMS = [(2, 8), (4, 8, 8), (4, 8, 4), (2, 2), (2, 2)]
TYPES = [BF16, BF16, BF16, "float", "int"]
FLOPS = 3 * 256 + 2 * 8 * 3
IN_OUT = 2 * 8 * 2 * 2
WEIGHTS = 3 * 96


@pytest.mark.parametrize(
    "name",
    [
        "vllm::inplace_fused_experts",
        PER_OP,
        "sglang::inplace_fused_experts",
        "sglang::outplace_fused_experts",
        "vllm::rocm_aiter_fused_moe",
        "aiter::fused_moe_",
    ],
)
def test_experts_in_one_operator(price: Price, name: str) -> None:
    cost = price(name, DIMS, TYPES)
    assert (cost.flops, cost.bytes) == (FLOPS, IN_OUT + WEIGHTS * 2)
    assert cost.compute == "matrix_bf16"
    assert cost.params == {"M": 2, "K": 8, "N": 4, "E": 4, "topk": 2, "gated": True}


@pytest.mark.parametrize("biases", [[], [(4, 8)]])
def test_experts_with_the_choices_first(price: Price, biases: list[tuple[int, ...]]) -> None:
    dims = [(2, 8), (2, 2), (2, 2), (4, 8, 8), *biases, (4, 8, 4), (4, 8), ((8,), (8,))]
    types = [BF16, "int", "float", *[BF16] * (len(dims) - 4), "TensorList"]
    assert price("trtllm::fused_moe", dims, types).flops == FLOPS


@pytest.mark.parametrize(
    ("weights", "packed", "size", "compute"),
    [(FP8, 1, 1, "matrix_fp8"), ("unsigned char", 2, 0.5, ""), ("signed char", 1, 1, "")],
)
def test_weights_of_lower_precision(
    price: Price, weights: str, packed: int, size: float, compute: str
) -> None:
    dims = [(2, 8), (4, 8, 8 // packed), (4, 8, 4 // packed), (2, 2), (2, 2)]
    cost = price(PER_OP, dims, [BF16, weights, weights, "float", "int"])
    assert (cost.flops, cost.bytes) == (FLOPS, IN_OUT + WEIGHTS * size)
    assert cost.compute == compute


def test_experts_of_other_gpus_take_their_share(price: Price) -> None:
    cost = price("aiter::fused_moe_", [*DIMS, (8,)], [*TYPES, "int"])
    assert cost.flops == 3 * 256 / 2 + 2 * 8  # one row for each token, times its weight
    assert cost.bytes == IN_OUT + 3 * 4 * (1 - (6 / 8) ** 2) * 32 * 2


def test_an_int_vector_of_another_length_is_no_map_of_experts(price: Price) -> None:
    assert price("aiter::fused_moe_", [*DIMS, (2,)], [*TYPES, "int"]).flops == FLOPS
    assert price("aiter::fused_moe_", [*DIMS, (8,)], [*TYPES, "float"]).flops == FLOPS


@pytest.mark.parametrize(
    ("up", "down", "choices"),
    [
        ((4, 3, 64), (4, 8, 4), (2, 2)),  # in tiles
        ((4, 8, 8), (4, 4, 8), (2, 2)),  # transposed
        ((3, 8, 8), (4, 8, 4), (2, 2)),
        ((8, 8), (8, 4), (2, 2)),
        ((4, 8, 8), (4, 8, 4), (2,)),
        ((4, 8, 8), (4, 8, 4), (2, 5)),
    ],
)
def test_weights_that_do_not_tell_the_widths_are_refused(
    price: Price, up: tuple[int, ...], down: tuple[int, ...], choices: tuple[int, ...]
) -> None:
    with pytest.raises(UnexpectedArgumentsError):
        price(PER_OP, [(2, 8), up, down, choices, choices], TYPES)


def _report(*children: tuple[str, list[Any]]) -> PerfReport:
    """Two products launched by the operator itself, with other operators between them."""
    builder = trace()
    options: dict[str, Any] = {"types": TYPES}
    builder.op(PER_OP, [list(shape) for shape in DIMS], **options)
    builder.launches("fused_moe_kernel", us=10)
    for name, dims in children:
        builder.child(name, dims).launches("activation", us=1).up()
    builder.launches("fused_moe_kernel", us=20)
    return PerfReport(builder.read(), None, strict=True)


def test_the_operator_is_priced_where_it_is_the_row() -> None:
    row = _report().operations.row(0, named=True)
    assert (row["name"], row["flops"], row["has_perf_model"]) == (PER_OP, FLOPS, True)


def test_its_products_are_priced_where_a_modelled_operator_is_inside() -> None:
    rows = _report(("_C::silu_and_mul", [[4, 4], [4, 8]])).operations.sort("kernel_time_us")
    assert rows["name"].to_list() == [
        "_C::silu_and_mul",
        f"{PER_OP}->fused_moe_kernel (Synthetic Op)",
    ]
    product = rows.row(1, named=True)
    assert product["operation_count"] == 2
    assert product["flops"] == 3 * 256 / 2
    between = (2 * 8 + 4 * 8) + (4 * 4 + 4 * 8)  # read and written: up, then down
    assert product["bytes"] == (between + WEIGHTS) * 2 / 2
    assert product["kernel_time_us"] == 30
