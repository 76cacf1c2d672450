"""Two tokens of width 8, each through two of four experts of inner width 4.

Three of the four experts are reached: 4 (1 - (1/2)^2). One projection takes 2 * 2 * 8 * 4 * 2 =
256 flops; one matrix of the three experts has 3 * 4 * 8 = 96 elements.
"""

from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"
FP4 = "c10::Float4_e2m1fn_x2"

TOKENS = (2, 8)
CHOICES = (2, 2)
UP, DOWN = (4, 8, 8), (4, 8, 4)
UP_PACKED, DOWN_PACKED = (4, 8, 4), (4, 8, 2)
INNER = (2, 2, 4)
PROJECTION = 256
WEIGHTS = 96


def test_experts_in_one_kernel(price: Price) -> None:
    dims = [TOKENS, UP, DOWN, CHOICES]
    cost = price("pseudo_op::moe_aiter_fused_1stage", dims, [BF16, FP8, FP8, "int"])
    assert cost.flops == 3 * PROJECTION + 2 * 8 * 3
    assert cost.bytes == 16 * 2 + 3 * WEIGHTS + 16 * 2
    assert cost.compute == "matrix_bf16"
    assert cost.params == {"M": 2, "K": 8, "N": 4, "E": 4, "topk": 2, "gated": True}


def test_two_values_in_a_byte(price: Price) -> None:
    dims = [TOKENS, UP_PACKED, DOWN_PACKED, CHOICES]
    cost = price("pseudo_op::moe_aiter_fused_1stage", dims, [BF16, FP4, FP4, "int"])
    assert cost.flops == 3 * PROJECTION + 2 * 8 * 3
    assert cost.bytes == 16 * 2 + 3 * WEIGHTS / 2 + 16 * 2


def test_experts_without_a_gate_have_one_way_up(price: Price) -> None:
    dims = [TOKENS, (4, 4, 8), DOWN, CHOICES]
    cost = price("pseudo_op::moe_aiter_fused_1stage", dims, [BF16, FP8, FP8, "int"])
    assert cost.params["gated"] is False
    assert cost.flops == 2 * PROJECTION + 2 * 8 * 3
    assert cost.bytes == 16 * 2 + 2 * WEIGHTS + 16 * 2


@pytest.mark.parametrize("name", ["aiter::fmoe_g1u1", "aiter::fmoe_fp8_blockscale_g1u1"])
def test_low_precision_experts_in_one_kernel(price: Price, name: str) -> None:
    dims = [TOKENS, TOKENS, UP, DOWN]
    cost = price(name, dims, [BF16, FP8, FP8, FP8], {8: "2"})
    assert cost.flops == 3 * PROJECTION + 2 * 8 * 3
    assert cost.bytes == 16 + 3 * WEIGHTS + 16 * 2
    assert cost.compute == "matrix_fp8"
    with pytest.raises(UnexpectedArgumentsError, match="experts per token"):
        price(name, dims, [BF16, FP8, FP8, FP8])


@pytest.mark.parametrize(
    ("name", "dims", "types", "compute"),
    [
        ("aiter::moe_cktile2stages_gemm1_ck", [TOKENS, UP, INNER], [BF16, FP8, BF16], "bf16"),
        (
            "aiter::ck_moe_stage1",
            [TOKENS, UP, DOWN, (), (), (), INNER],
            [BF16, FP8, FP8, "", "", "", BF16],
            "bf16",
        ),
        (
            "pseudo_op::moe_flydsl_stage1",
            [TOKENS, UP, DOWN, CHOICES],
            [BF16, FP8, FP8, "int"],
            "fp8",
        ),
    ],
)
def test_first_stage(
    price: Price, name: str, dims: list[tuple[int, ...]], types: list[str], compute: str
) -> None:
    cost = price(name, dims, types)
    assert cost.flops == 2 * PROJECTION
    assert cost.bytes == 16 * 2 + 2 * WEIGHTS + 16 * 2
    assert cost.compute == f"matrix_{compute}"


@pytest.mark.parametrize(
    ("name", "dims", "types", "compute"),
    [
        ("aiter::moe_cktile2stages_gemm2_ck", [INNER, DOWN, TOKENS], [BF16, FP8, BF16], "bf16"),
        ("aiter::ck_moe_stage2", [INNER, UP, DOWN], [BF16, FP8, FP8], "bf16"),
        (
            "pseudo_op::moe_flydsl_stage2",
            [TOKENS, UP, DOWN, CHOICES],
            [BF16, FP8, FP8, "int"],
            "fp8",
        ),
    ],
)
def test_second_stage(
    price: Price, name: str, dims: list[tuple[int, ...]], types: list[str], compute: str
) -> None:
    cost = price(name, dims, types)
    assert cost.flops == PROJECTION
    assert cost.bytes == 16 * 2 + WEIGHTS + 16 * 2
    assert cost.compute == f"matrix_{compute}"


def test_routed_experts_take_their_inner_width_from_the_outer(price: Price) -> None:
    dims, carried = [TOKENS, (2, 4)], {2: "experts_per_token=2", 3: "gated=True"}
    kernels = ["_matmul_ogs_bf16_mxfp4_swiglu"]
    up = price("pseudo_op::moe_triton_unfused_up", dims, BF16, carried, kernels=kernels)
    assert up.flops == 2 * (2 * 2 * 8 * 8 * 2)
    assert up.bytes == 16 * 2 + 2 * (3 * 8 * 8) / 2 + 32 * 2
    down = price("pseudo_op::moe_triton_unfused_down", dims, BF16, carried, kernels=kernels)
    assert down.flops == 2 * 2 * 8 * 8 * 2
    assert down.bytes == 32 * 2 + (3 * 8 * 8) / 2 + 16 * 2


@pytest.mark.parametrize(
    ("kernels", "moved"),
    [(["ogs_fp8"], 16 * 2 + 2 * 3 * 64 + 32 * 2), (["ogs_bf16"], None), ([], None)],
)
def test_the_kernel_tells_the_width_of_routed_weights(
    price: Price, kernels: list[str], moved: int | None
) -> None:
    carried = {2: "experts_per_token=2", 3: "gated=True"}
    name = "pseudo_op::moe_triton_unfused_up"
    assert price(name, [TOKENS, (2, 4)], BF16, carried, kernels=kernels).bytes == moved


def test_a_pseudo_op_without_its_values_is_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="was recorded without"):
        price("pseudo_op::moe_triton_unfused_up", [TOKENS, (2, 4)], BF16)


def test_four_bit_experts(price: Price) -> None:
    dims, carried = [TOKENS, (4, 8, 4), (4, 8, 2)], {3: "experts_per_token=2", 4: "gated=True"}
    up = price("pseudo_op::moe_gptq_awq_up", dims, BF16, carried)
    assert (up.flops, up.bytes) == (2 * PROJECTION, 16 * 2 + 2 * WEIGHTS / 2 + 16 * 2)
    down = price("pseudo_op::moe_gptq_awq_down", dims, BF16, carried)
    assert (down.flops, down.bytes) == (PROJECTION, 16 * 2 + WEIGHTS / 2 + 16 * 2)


def test_chosen_rows(price: Price) -> None:
    name = "sglang_profiler::fused_moe_triton_kernels_invoke_fused_moe_kernel"
    dims = [TOKENS, (4, 4, 8), (), INNER, (), (), (), (), CHOICES]
    types = [BF16, FP8, "", BF16, "", "", "", "", "int"]
    cost = price(name, dims, types)
    assert cost.flops == 2 * 4 * 4 * 8
    assert cost.bytes == 4 * 8 * 2 + 3 * 4 * 8 + 4 * 4 * 2
    assert cost.compute == "matrix_fp8"


def test_choosing_experts_touches_every_operand(price: Price) -> None:
    dims = [(2, 4), (4,), (2, 2), (2, 2), ()]
    cost = price("aiter::biased_grouped_topk_hip", dims, [BF16, "float", "float", "int", "Scalar"])
    assert cost.flops == 8
    assert cost.bytes == 8 * 2 + 4 * 4 + 4 * 4 + 4 * 4
    assert cost.compute == "vector_bf16"


def test_sorting_counts_what_has_a_known_dtype(price: Price) -> None:
    known = price("aiter::moe_sorting_fwd", [(2, 2), (9,), ((3, 3),)], ["int", "bool", ""])
    assert (known.flops, known.bytes) == (9, 4 * 4)
    assert price("aiter::mxfp4_moe_sort_hip", [(2, 2)], "bool").bytes is None
    with pytest.raises(UnexpectedArgumentsError, match="without a tensor"):
        price("aiter::moe_sorting_fwd", [()], "")


def test_append_shared_experts(price: Price) -> None:
    name = "sglang_profiler::fused_moe_triton_kernels_fused_append_shared_experts"
    cost = price(name, [(2, 2), (2, 2)], ["int", "float"])
    assert (cost.flops, cost.bytes) == (4, 2 * (4 * 4 + 4 * 4))


def test_topk_softplus(price: Price) -> None:
    dims = [(2, 2), (2, 2), (2, 4), (4,)]
    cost = price("aiter::topk_softplus", dims, ["float", "int", BF16, "float"])
    assert cost.flops == 6 * 8
    assert cost.bytes == 8 * 2 + 4 * 4 + 8 * 2 * 2
    with pytest.raises(UnexpectedArgumentsError, match="matrix of scores"):
        price("aiter::topk_softplus", [(2, 2), (2, 2), (4,)], BF16)


@pytest.mark.parametrize("name", ["MoEDispatch", "MoECombine"])
@pytest.mark.parametrize("backward", [False, True])
def test_exchange_of_tokens(price: Price, name: str, backward: bool) -> None:
    cost = price(name, [(4, 8)], BF16, backward=backward)
    assert (cost.flops, cost.bytes, cost.compute) == (0, 64, "")


@pytest.mark.parametrize("per_token", [0, 5])
def test_a_token_goes_through_some_of_the_experts(price: Price, per_token: int) -> None:
    dims = [TOKENS, UP, DOWN, (2, per_token)]
    with pytest.raises(UnexpectedArgumentsError, match="of 4 experts"):
        price("pseudo_op::moe_aiter_fused_1stage", dims, BF16)
