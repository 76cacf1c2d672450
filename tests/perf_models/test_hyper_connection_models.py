"""Two tokens, four streams of width 8; the projection has 24 outputs."""

from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
STREAMS, LAYER = (2, 4, 8), (2, 8)
GATES, MIX = (2, 4, 1), (2, 4, 4)
PROJECTED, SQUARES, PROJECTION = (1, 2, 24), (1, 2), (24, 32)


def test_post(price: Price) -> None:
    dims = [STREAMS, LAYER, STREAMS, GATES, MIX]
    cost = price("aiter::mhc_post", dims, [BF16, BF16, BF16, "float", "float"])
    assert cost.flops == 2 * 2 * 4 * 8 * 5
    assert cost.bytes == (64 + 16 + 64) * 2 + (8 + 32) * 4
    assert cost.compute == "vector_bf16"
    assert cost.params == {"M": 2, "n": 4, "C": 8}


def test_pre_gemm(price: Price) -> None:
    dims = [PROJECTED, SQUARES, (2, 32), PROJECTION]
    cost = price("aiter::mhc_pre_gemm_sqrsum", dims, ["float", "float", BF16, "float"])
    assert cost.flops == 2 * 2 * 24 * 32
    assert cost.bytes == 48 * 4 + 2 * 4 + 64 * 2 + 768 * 4
    assert cost.compute == "matrix_bf16"


def test_pre_fused_with_normalization(price: Price) -> None:
    dims = [GATES, MIX, LAYER, PROJECTED, SQUARES, (3,), (24,), STREAMS, (8,)]
    types = ["float", "float", BF16, "float", "float", "float", "float", BF16, BF16]
    cost = price("aiter::mhc_pre_big_fuse_rmsnorm", dims, types, {14: "10"})
    assert cost.flops == 128 + (2 * 18 + 32) + 4 * 10 * 2 * 16
    assert cost.bytes == 8 * 4 + 32 * 4 + 16 * 2 + 48 * 4 + 2 * 4 + 3 * 4 + 24 * 4 + 64 * 2 + 8 * 2
    assert cost.compute == "vector_bf16"
    unsaid = price("aiter::mhc_pre_big_fuse_rmsnorm", dims, types)
    assert unsaid.params["sinkhorn_repeat"] == 20


def test_post_with_the_next_pre_gemm(price: Price) -> None:
    dims = [PROJECTED, SQUARES, STREAMS, LAYER, STREAMS, GATES, MIX, PROJECTION]
    types = ["float", "float", BF16, BF16, BF16, "float", "float", "float"]
    cost = price("aiter::mhc_fused_post_pre_gemm_sqrsum", dims, types)
    assert cost.flops == 640 + 2 * 2 * 24 * 32
    assert cost.bytes == 192 + 8 + 128 + 32 + 128 + 32 + 128 + 3072
    assert cost.compute == "matrix_bf16"


def test_streams_of_another_rank_are_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="Streams"):
        price("aiter::mhc_post", [STREAMS, LAYER, LAYER, GATES, MIX], BF16)
