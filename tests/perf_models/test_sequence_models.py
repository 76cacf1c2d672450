from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"
CAT = "aiter::fused_qk_rope_cat_and_cache_mla"
CONCAT = "aiter::fused_qk_rope_concat_and_cache_mla"
LATENT = [(4, 2, 8), (4, 2, 4), (4, 1, 8), (4, 1, 4), (10, 1, 12), (4, 2, 12)]


@pytest.mark.parametrize(
    ("name", "dims", "elements"),
    [
        ("FusedRoPEFunc", [(4, 2, 8)], 64),
        (
            "aiter::rope_cached_positions_2c_fwd_impl",
            [(4, 2, 8), (4, 1, 8), (4, 2, 8), (4, 1, 8)],
            96,
        ),
        ("sgl_kernel::rotary_embedding", [(4,), (4, 16), (4, 8), (), (100, 6)], 4 * 3 * 6),
        ("sgl_kernel::rotary_embedding", [(4,), (4, 16), (), (), (100, 6)], 4 * 2 * 6),
    ],
)
def test_rope_turns_each_element(
    price: Price, name: str, dims: list[tuple[int, ...]], elements: int
) -> None:
    cost = price(name, dims, BF16, {3: "8"})
    assert (cost.flops, cost.bytes, cost.compute) == (3 * elements, 4 * elements, "vector_bf16")


def test_a_head_is_as_wide_as_the_query_where_nothing_tells_it(price: Price) -> None:
    dims = [(4,), (4, 2, 8), (4, 1, 8), (), (100, 6)]
    assert price("sgl_kernel::rotary_embedding", dims, BF16).flops == 3 * 4 * 3 * 6


@pytest.mark.parametrize(
    ("name", "query_out_bytes"), [(CAT, 4 * 2 * 12 * 2), (CONCAT, 4 * 2 * 12 * 1)]
)
def test_rope_into_a_cache(price: Price, name: str, query_out_bytes: int) -> None:
    cost = price(name, LATENT, [BF16, BF16, BF16, BF16, FP8, FP8])
    assert cost.flops == 3 * 4 * 3 * 4
    assert cost.bytes == 4 * 3 * 12 * 2 + query_out_bytes + 4 * 1 * 12 * 1
    assert cost.compute == "vector_bf16"


def test_a_query_without_heads_is_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="heads"):
        price(CONCAT, [(4, 8), *LATENT[1:]], BF16)


def test_causal_convolution(price: Price) -> None:
    name = "DaoAILab::_causal_conv1d_fwd_cpp"
    cost = price(name, [(2, 4, 8), (4, 3), (4,)], BF16)
    assert cost.flops == 2 * 64 * 3
    assert cost.bytes == (2 * 64 + 12 + 4) * 2
    assert cost.compute == "matrix_bf16"
    assert price(name, [(2, 4, 8), (4, 3), ()], BF16).bytes == (2 * 64 + 12) * 2
    with pytest.raises(UnexpectedArgumentsError):
        price(name, [(2, 4), (4, 3)], BF16)


def test_mamba(price: Price) -> None:
    """B, T = 1, 4; two heads of 2, one group, state 3, chunks of 2, convolution of 10 by 4."""
    dims = [(1, 4, 16), (10, 4), (10,), (2,), (2,), (2,)]
    types = [BF16, BF16, BF16, "float", "float", "float"]
    values = {6: "2", 15: "2", 16: "1"}
    for backward in (False, True):
        cost = price("MambaSplitConv1dScanCombinedFn", dims, types, values, backward=backward)
        assert cost.flops == 320 + 48 + 64 + 192
        assert cost.bytes == (64 + 40 + 10 + 16) * 2 + 3 * 2 * 4
        assert cost.compute == "matrix_bf16"
        assert (cost.params["N"], cost.params["chunk_size"]) == (3, 2)


@pytest.mark.parametrize("width", [10, 17])
def test_a_width_that_leaves_no_whole_state_is_refused(price: Price, width: int) -> None:
    dims = [(1, 4, width), (10, 4), (10,), (2,), (2,), (2,)]
    with pytest.raises(UnexpectedArgumentsError, match="no whole state"):
        price("MambaSplitConv1dScanCombinedFn", dims, BF16, {6: "2", 15: "2", 16: "1"})


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
