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


@pytest.mark.parametrize("tokens", [(4,), (2, 2)])
def test_positions_and_their_rows_of_the_cache_are_read(
    price: Price, tokens: tuple[int, ...]
) -> None:
    dims = [tokens, (*tokens, 16), (*tokens, 8), (), (100, 6)]
    types = ["long int", BF16, BF16, "Scalar", BF16]
    looked_up = 4 * 8 + 4 * 6 * 2
    sheet = price("sgl_kernel::rotary_embedding", dims, types, {3: "8"})
    assert (sheet.bytes, sheet.exact_bytes) == (2 * 72 * 2, 2 * 72 * 2 + looked_up)
    in_place = price("_C::rotary_embedding", dims, types, {3: "8"})
    assert (in_place.flops, in_place.bytes) == (3 * 72, 2 * 72 * 2 + looked_up)


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
