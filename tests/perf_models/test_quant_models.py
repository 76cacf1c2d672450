from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"


def test_quantize_fp8(price: Price) -> None:
    cost = price("primus_turbo::quantize_fp8_tensorwise", [(8, 4)], BF16)
    assert (cost.flops, cost.bytes) == (32, 32 * 2 + 32)


def test_quantize_mxfp4_dual(price: Price) -> None:
    cost = price("primus::quantize_mxfp4_dual", [(33, 65)], BF16)
    assert cost.flops == 33 * 65
    assert cost.bytes == 33 * 65 * 2 + 2 * 1073 + 33 * 3 + 65 * 2
    with pytest.raises(UnexpectedArgumentsError, match="matrix"):
        price("primus::quantize_mxfp4_dual", [(2, 3, 4)], BF16)


def test_sampling(price: Price) -> None:
    dims = [(8,), (8, 100), (8, 100)]
    cost = price("aiter::mixed_sample_outer_exponential", dims, ["int", BF16, "float"])
    assert cost.flops == 2 * 800
    assert cost.bytes == 800 * 2 + 800 * 4 + 4 * 8


def test_dynamic_quant(price: Price) -> None:
    dims = [(8, 64), (8, 64), (8, 1)]
    cost = price("aiter::dynamic_per_token_scaled_quant", dims, [FP8, BF16, "float"])
    assert cost.flops == 2.59375 * 512
    assert cost.bytes == 512 + 512 * 2 + 8 * 4
    assert cost.compute == "vector_bf16"
    with pytest.raises(UnexpectedArgumentsError, match="unknown dtype"):
        price("aiter::dynamic_per_tensor_quant", dims, [FP8, "bool", "float"])


@pytest.mark.parametrize(("group", "groups"), [("64", 4), ("", 2), ("512", 1)])
def test_per_token_group_quant(price: Price, group: str, groups: int) -> None:
    cost = price("vllm::triton_per_token_group_quant_fp8", [(8, 256), ()], BF16, {1: group})
    assert cost.flops == 6 * 8 * 256
    assert cost.bytes == 8 * 256 * 2 + 8 * 256 + 8 * groups * 4


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("sglang_profiler::fused_mxfp4_quant_fused_flatten_mxfp4_quant", 0),
        ("sglang_profiler::quant_dynamic_mxfp4_quant", 0),
        ("aiter::dynamic_per_group_scaled_quant_fp4", 1),
        ("aiter::fused_dynamic_mx_quant_moe_sort_hip", 2),
        ("aiter::fused_dynamic_mxfp4_quant_moe_sort_hip", 2),
    ],
)
def test_mxfp4_quant(price: Price, name: str, position: int) -> None:
    cost = price(name, [(1,)] * position + [(8, 33)], BF16)
    n = 8 * 33
    assert cost.flops == 2 * n
    assert cost.bytes == n * 2 + 0.5 * n + n // 32
