from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FLASH = "aten::_scaled_dot_product_flash_attention"
EFFICIENT = "aten::_scaled_dot_product_efficient_attention"
# Two batches of 3 query heads and 3 key heads, 10 rows, head dim 4.
Q = (2, 3, 10, 4)
ELEMENTS = 2 * 3 * 10 * 4
PRODUCT = 2 * 3 * 2 * 10 * 10  # B H 2 N N: one product per head dim
ROWS_FIRST = (2, 10, 3, 4)
# Two batches of 3 heads, 10 rows, head dim 4: as (B,H,N,d), and as (B,N,H,d).
BHND, BNHD = (2, 3, 10, 4), (2, 10, 3, 4)
KERNEL_PRODUCT = 2 * (2 * 3) * 10 * 10 * 4
LSE = (2, 3, 10)


def test_sdpa_flash(price: Price) -> None:
    cost = price(FLASH, [Q, Q, Q], BF16, {3: "0.", 4: "False"})
    assert cost.flops == PRODUCT * (4 + 4)
    assert cost.bytes == 4 * ELEMENTS * 2
    assert cost.exact_bytes == cost.bytes
    assert cost.compute == "matrix_bf16"
    assert cost.params == {
        "B": 2,
        "N_Q": 10,
        "H_Q": 3,
        "N_KV": 10,
        "H_KV": 3,
        "d_h_qk": 4,
        "d_h_v": 4,
        "dropout": 0.0,
        "causal": False,
        "flash_impl": True,
        "dtype_A_B": (BF16, BF16),
    }


def test_causal_attention_is_half(price: Price) -> None:
    cost = price(FLASH, [Q, Q, Q], BF16, {3: "0.1", 4: "True"})
    assert cost.flops == PRODUCT * (4 + 4) / 2
    assert (cost.params["dropout"], cost.params["causal"]) == (0.1, True)


def test_causal_triangle_ends_at_the_last_key(price: Price) -> None:
    key = (2, 3, 40, 4)
    cost = price(FLASH, [Q, key, key], BF16, {4: "True"})
    visible_pairs = 10 * 40 - 10 * 10 / 2
    assert cost.flops == pytest.approx(2 * 3 * 2 * visible_pairs * (4 + 4), rel=1e-12)


def test_causal_rows_before_the_first_key_see_nothing(price: Price) -> None:
    key = (2, 3, 5, 4)
    cost = price(FLASH, [Q, key, key], BF16, {4: "True"})
    assert cost.flops == pytest.approx(2 * 3 * 2 * (5 * 5 / 2) * (4 + 4), rel=1e-12)


def test_attention_over_nothing_costs_nothing(price: Price) -> None:
    empty = (2, 3, 0, 4)
    assert price(FLASH, [empty, empty, empty], BF16, {4: "True"}).flops == 0


def test_exact_bytes_have_the_real_element_size(price: Price) -> None:
    cost = price(EFFICIENT, [Q, Q, Q, (), (), (), ()], "float", {5: "0.", 6: "False"})
    assert cost.bytes == 4 * ELEMENTS * 2
    assert cost.exact_bytes == 4 * ELEMENTS * 4
    assert price(EFFICIENT, [Q, Q, Q], "QInt8").exact_bytes is None


def test_backward_of_flash_computes_the_scores_again(price: Price) -> None:
    flash = price(FLASH, [Q, Q, Q], BF16, backward=True)
    plain = price(EFFICIENT, [Q, Q, Q], BF16, {6: "False"}, backward=True)
    assert flash.flops == 5 * PRODUCT * 4
    assert plain.flops == 4 * PRODUCT * 4
    assert flash.bytes == (2 * 3 + 1) * ELEMENTS * 2
    assert plain.params["flash_impl"] is False


def test_grouped_heads(price: Price) -> None:
    q, kv = (1, 6, 10, 4), (1, 2, 10, 4)
    forward = price(FLASH, [q, kv, kv], BF16)
    assert forward.flops == 6 * 2 * 10 * 10 * 8
    assert forward.bytes == (2 * 6 * 10 * 4 + 2 * 2 * 10 * 4) * 2
    backward = price(FLASH, [q, kv, kv], BF16, backward=True)
    head_sums = 10 * 4 * 2 + 10 * 4 * 2  # dV and dK of two more heads each
    assert backward.flops == 5 * (6 * 2 * 10 * 10) * 4 + head_sums


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ((1, 3, 10, 4), (1, 3, 10, 4)),
        ((2, 3, 10, 8), (2, 3, 10, 4)),
        ((2, 3, 10, 4), (2, 1, 10, 4)),
        ((2, 3, 10, 4), (2, 3, 9, 4)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    price: Price, key: tuple[int, ...], value: tuple[int, ...]
) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="differ"):
        price(FLASH, [Q, key, value], BF16)


def test_another_rank_is_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="BHND"):
        price(FLASH, [(10, 3, 4)] * 3, BF16)


def test_flash_attention_shows_its_strides(price: Price) -> None:
    strides = [(120, 12, 4, 1)] * 3
    cost = price(
        "flash_attn::_flash_attn_forward", [ROWS_FIRST] * 3, BF16, {3: "0.", 5: "True"}, strides
    )
    assert cost.flops == PRODUCT * 8 / 2
    assert cost.params["q_stride"] == cost.params["v_stride"] == (120, 12, 4, 1)
    with pytest.raises(UnexpectedArgumentsError, match="strides"):
        price("FlashAttnFunc", [ROWS_FIRST] * 3, BF16)


@pytest.mark.parametrize(
    ("name", "concrete", "first"),
    [
        ("aiter::_flash_attn_forward", {3: "0.", 5: "true"}, 0),
        ("aiter::mha_fwd", {3: "0.", 5: "True"}, 0),
        ("aiter::fmha_v3_fwd", {3: "0.", 5: "True"}, 0),
        ("flash_attn_3::fwd", {24: "True"}, 0),
        ("aiter::wrapper_fmha_v3_fwd", {4: "0.", 6: "True"}, 1),
    ],
)
def test_forward_ops_that_name_no_dtype(
    price: Price, name: str, concrete: dict[int, str], first: int
) -> None:
    cost = price(name, [()] * first + [ROWS_FIRST] * 3, BF16, concrete)
    assert cost.flops == PRODUCT * 8 / 2
    assert cost.bytes == 4 * ELEMENTS * 2
    assert cost.compute == ""
    assert "dtype_A_B" not in cost.params


@pytest.mark.parametrize(
    ("name", "concrete"),
    [
        ("aiter::wrapper_fmha_v3_bwd", {7: "0.", 9: "False"}),
        ("aiter::mha_bwd", {6: "0.", 8: "False"}),
        ("aiter::_flash_attn_backward", {10: "0.", 12: "False"}),
        ("flash_attn::_flash_attn_backward", {8: "0.", 10: "False"}),
    ],
)
def test_backward_ops_take_the_output_gradient_first(
    price: Price, name: str, concrete: dict[int, str]
) -> None:
    cost = price(name, [ROWS_FIRST] * 4, BF16, concrete)
    assert cost.flops == 5 * PRODUCT * 4
    assert cost.bytes == 7 * ELEMENTS * 2


def test_flash_backward_is_causal_unless_recorded_and_counts_the_real_size(price: Price) -> None:
    cost = price("flash_attn::_flash_attn_backward", [ROWS_FIRST] * 4, "float")
    assert cost.params["causal"] is True
    assert cost.flops == 5 * PRODUCT * 4 / 2
    assert cost.bytes == 7 * ELEMENTS * 4
    unknown = price("flash_attn::_flash_attn_backward", [ROWS_FIRST] * 4, "QInt8")
    assert unknown.bytes is None


def test_backward_with_grouped_heads(price: Price) -> None:
    gradient, query, key = (1, 10, 6, 4), (1, 10, 6, 4), (1, 10, 2, 4)
    cost = price("aiter::_flash_attn_backward", [gradient, query, key, key], BF16)
    head_sums = 10 * (4 + 4) * 2
    assert cost.flops == 5 * (6 * 2 * 10 * 10) * 4 + head_sums
    assert cost.bytes == (3 * 10 * 6 * 4 + 4 * 10 * 2 * 4) * 2


def test_packed_sequences(price: Price) -> None:
    # Three sequences of 12 rows in all, the longest 6: two others of 3 each.
    rows, lengths = (12, 3, 4), (4,)
    cost = price(
        "flash_attn::_flash_attn_varlen_forward",
        [rows, rows, rows, lengths, lengths],
        BF16,
        {5: "6", 6: "6", 7: "0.", 9: "False"},
    )
    assert cost.flops == 3 * 2 * (6 * 6 + 2 * 3 * 3) * 8
    assert cost.bytes == 4 * 12 * 3 * 4 * 2
    assert cost.params["B"] == 1


def test_one_packed_sequence_is_the_longest(price: Price) -> None:
    rows, lengths = (12, 3, 4), (2,)
    cost = price(
        "flash_attn::_flash_attn_varlen_forward",
        [rows, rows, rows, lengths, lengths],
        BF16,
        {5: "12", 6: "12", 9: "True"},
    )
    assert cost.flops == 3 * 2 * 12 * 12 * 8 / 2


def test_packed_backward(price: Price) -> None:
    rows, lengths = (12, 3, 4), (4,)
    dims = [rows] * 4 + [()] * 5 + [lengths, lengths]
    concrete = {11: "6", 12: "6", 13: "0.", 15: "False"}
    cost = price("flash_attn::_flash_attn_varlen_backward", dims, BF16, concrete)
    assert cost.flops == 5 * 3 * 2 * (6 * 6 + 2 * 3 * 3) * 4
    assert cost.bytes == 7 * 12 * 3 * 4 * 2


def test_evoformer_folds_its_sequences_into_the_batch(price: Price) -> None:
    cost = price("EvoformerAttention", [(2, 5, 10, 3, 4)] * 3, BF16)
    assert cost.params["B"] == 10
    assert cost.params["dtype_A_B"] == (BF16,)
    assert cost.flops == 10 * 3 * 2 * 10 * 10 * 8
    assert cost.compute == "matrix_bf16"
    with pytest.raises(UnexpectedArgumentsError, match="5-d"):
        price("EvoformerAttention", [(2, 10, 3, 4)] * 3, BF16)


def test_flash_forward(price: Price) -> None:
    dims = [BNHD, BNHD, BNHD, *[()] * 12]
    cost = price("aten::_flash_attention_forward", dims, BF16, {5: "10", 6: "10", 8: "False"})
    assert (cost.flops, cost.bytes) == (2 * KERNEL_PRODUCT, 4 * ELEMENTS * 2)
    assert cost.compute == "matrix_bf16"
    causal = price("aten::_flash_attention_forward", dims, "float", {7: "0.5", 8: "True"})
    assert (causal.flops, causal.bytes) == (KERNEL_PRODUCT, 4 * ELEMENTS * 4)
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
    assert (cost.flops, cost.bytes) == (5 * KERNEL_PRODUCT, 7 * ELEMENTS * 2)
    x = (20, 3, 4)
    packed = [x, x, x, x, x, (3, 20), (4,), (4,), *[()] * 9]
    cost = price("aten::_flash_attention_backward", packed, BF16, {8: "10", 9: "10", 11: "True"})
    assert cost.flops == 5 * 3 * 2 * (10 * 10 + 2 * 5 * 5) * 4 / 2


@pytest.mark.parametrize(("mask", "share"), [("0", 1), ("1", 0.5), ("2", 0.5)])
def test_efficient_attention(price: Price, mask: str, share: float) -> None:
    dims = [BNHD, BNHD, BNHD, *[()] * 11]
    forward = price("aten::_efficient_attention_forward", dims, BF16, {8: "0.", 9: mask})
    assert (forward.flops, forward.bytes) == (2 * KERNEL_PRODUCT * share, 4 * ELEMENTS * 2)
    dims = [BNHD, BNHD, BNHD, BNHD, (), BNHD, (), (), (), (), LSE, *[()] * 9]
    backward = price("aten::_efficient_attention_backward", dims, BF16, {11: "0.", 14: mask})
    assert (backward.flops, backward.bytes) == (5 * KERNEL_PRODUCT * share, 7 * ELEMENTS * 2)


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
    assert (cost.flops, cost.bytes) == (KERNEL_PRODUCT, 4 * ELEMENTS * 2)


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
    assert (full.flops, full.bytes) == (5 * KERNEL_PRODUCT, 7 * ELEMENTS * 2)
    assert price(name, dims, BF16, {causal_at: "True"}).flops == 5 * KERNEL_PRODUCT / 2
    with pytest.raises(UnexpectedArgumentsError, match="BHND"):
        price(name, [(10, 4)] * 4, BF16)


def test_a_backward_priced_by_its_forward_computes_the_scores_again(price: Price) -> None:
    dims = [BHND, BHND, BHND, (), (), (), ()]
    name = "aten::_scaled_dot_product_efficient_attention"
    cost = price(name, dims, BF16, {6: "False"}, backward=True)
    assert (cost.flops, cost.exact_flops) == (4 * KERNEL_PRODUCT, 5 * KERNEL_PRODUCT)
