"""Ten new tokens on a context of 30, and two requests that generate on contexts of 50 together."""

from collections.abc import Callable

import pytest

from jarvis.perf_models import NoModelForCallError, OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"
FP8 = "c10::Float8_e4m3fn"
GENERATION = "generation_2(sq2sk50sqsq2sqsk50)"
NOTHING = "(sq0sk0sqsq0sqsk0)"
MIXED = f"execute_3_context_1(sq10sk30sqsq100sqsk300)_{GENERATION}"
DECODE = f"execute_2_context_0{NOTHING}_{GENERATION}"
LONG = f"execute_2_context_0{NOTHING}_generation_2(sq2sk2000sqsq2sqsk2000)"

Q, K = (12, 4, 8), (12, 2, 8)
PAIRS = 300 - 50 + 50  # a new token sees half of the new ones
PAST = (30 - 10) + (50 - 2)

GLUON = "aiter::pa_decode_gluon"
RAGGED = "sglang_profiler::attention_paged_attention_ragged"
SPARSE = "sglang_profiler::tilelang_kernel_tilelang_sparse_fwd"
GDN = "vllm::gdn_attention_core"


@pytest.mark.parametrize("name", ["vllm::unified_attention_with_output", "aiter::mha_varlen_fwd"])
def test_attention_on_a_cache(price: Price, name: str) -> None:
    cost = price(name, [Q, K, K], BF16, annotation=MIXED)
    assert cost.flops == 2 * 4 * PAIRS * 16
    assert cost.bytes == 12 * (4 + 2) * 16 * 2 + PAST * 2 * 16 * 2
    assert cost.compute == "matrix_bf16"
    assert cost.params == {
        "B": 1,
        "N_Q": 12,
        "H_Q": 4,
        "H_V": 2,
        "H_K": 2,
        "N_KV": 12,
        "H_KV": 2,
        "d_h_qk": 8,
        "d_h_v": 8,
        "dropout": 0.0,
        "causal": False,
        "flash_impl": True,
        "c_sq": 10,
        "c_sk": 30,
        "c_sqsq": 100,
        "c_sqsk": 300,
        "g_sq": 2,
        "g_sk": 50,
        "g_sqsq": 2,
        "g_sqsk": 50,
        "dtype_Q": BF16,
        "dtype_KV": BF16,
    }


def test_the_cache_has_a_dtype_of_its_own(price: Price) -> None:
    types = [BF16, FP8, FP8]
    cost = price("vllm::unified_attention_with_output", [Q, K, K], types, annotation=MIXED)
    assert cost.bytes == 12 * 6 * 16 * 2 + PAST * 2 * 16


@pytest.mark.parametrize(
    "name", ["aiter::fmha_v3_varlen_fwd", "aiter::mha_batch_prefill", "pseudo_mla_prefill_fwd"]
)
def test_values_of_another_width(price: Price, name: str) -> None:
    cost = price(name, [Q, K, (12, 2, 4)], BF16, annotation=MIXED)
    assert cost.flops == 2 * 4 * PAIRS * 12
    assert cost.bytes == 12 * 6 * 12 * 2 + PAST * 2 * 12 * 2


def test_keys_and_values_in_one_row(price: Price) -> None:
    cost = price("pseudo_mla_decode_fwd", [(2, 4, 8), (100, 1, 1, 8)], BF16, annotation=DECODE)
    assert cost.flops == cost.exact_flops == 2 * 4 * 50 * 16
    assert cost.bytes == 2 * 5 * 16 * 2 + 48 * 16 * 2
    assert cost.exact_bytes == 2 * (4 * 16 + 8) * 2 + 48 * 8 * 2


def test_sparse_attention_looks_at_the_listed_keys(price: Price) -> None:
    dims = [(2, 4, 8), (100, 1, 8), (2, 1, 10)]
    cost = price(SPARSE, dims, BF16, {4: "4"}, annotation=DECODE)
    assert cost.flops == 2 * 4 * 50 * 12
    assert cost.exact_flops == 2 * 4 * 20 * 12
    assert cost.bytes == 2 * 5 * 12 * 2 + 48 * 12 * 2
    assert cost.exact_bytes == 2 * (4 * 12 + 8) * 2 + 20 * 8 * 2


def test_sparse_attention_without_a_list_looks_at_all(price: Price) -> None:
    cost = price(SPARSE, [(2, 4, 8), (100, 1, 8)], BF16, annotation=DECODE)
    assert cost.params["d_h_v"] == 512
    assert cost.exact_flops == cost.flops == 2 * 4 * 50 * 520


def test_ragged_attention_counts_the_cache_like_the_query(price: Price) -> None:
    pages = (10, 16, 2, 8)
    types = [BF16, "float", BF16, FP8, FP8]
    cost = price(RAGGED, [(2, 4, 8), (9,), (2, 4, 8), pages, pages], types, annotation=DECODE)
    assert cost.flops == 2 * 4 * 50 * 16
    assert cost.bytes == 2 * 6 * 16 * 2 + 48 * 2 * 16 * 2


@pytest.mark.parametrize(("window", "seen"), [("0", 50), ("10", 20), ("1000", 50)])
def test_a_window_bounds_what_generation_sees(price: Price, window: str, seen: int) -> None:
    dims = [(2, 4, 8), (2, 4, 8), (10, 2, 4, 16, 2)]
    cost = price(GLUON, dims, [BF16, BF16, FP8], {19: window}, annotation=MIXED)
    assert cost.flops == 2 * 4 * seen * 16
    assert cost.bytes == 2 * 6 * 16 * 2 + (seen - 2) * 2 * 16


def test_sparse_prefill_needs_no_annotation(price: Price) -> None:
    dims = [(2, 4, 8), (99, 8), (10,), (3,), (2, 8), (6,)]
    types = [BF16, FP8, "int", "int", BF16, "int"]
    cost = price("aiter::pa_sparse_prefill_opus_fwd", dims, types)
    assert cost.flops == 16 * 4 * 2 * (8 + 8)
    assert cost.bytes == 2 * 64 * 2 + 16 * 8
    assert cost.compute == "matrix_bf16"


@pytest.mark.parametrize(
    ("name", "heads", "pairs"),
    [
        ("pseudo_v4_paged_decode_swa", 4, 2 * 128),
        ("pseudo_v4_paged_decode_csa", 4, 2 * 128 + 500),
        ("pseudo_v4_paged_decode_hca", 4, 2 * 128 + 15),
    ],
)
def test_decode_on_compressed_keys(price: Price, name: str, heads: int, pairs: int) -> None:
    cost = price(name, [(2, heads, 8), (99, 8)], BF16, annotation=LONG)
    assert cost.flops == pairs * heads * 2 * (8 + 8)
    assert cost.bytes == 2 * 2 * heads * 8 * 2 + pairs * 8 * 2


@pytest.mark.parametrize(("heads", "indexed"), [(64, 512), (128, 1024)])
def test_no_more_keys_than_the_index_gives(price: Price, heads: int, indexed: int) -> None:
    step = f"execute_1_context_0{NOTHING}_generation_1(sq1sk9000sqsq1sqsk9000)"
    cost = price("pseudo_v4_paged_decode_csa", [(1, heads, 8), (99, 8)], BF16, annotation=step)
    assert cost.params["pairs"] == 128 + indexed


@pytest.mark.parametrize("name", [GDN, "aiter::linear_attention_with_output_base"])
@pytest.mark.parametrize("step", [MIXED, "execute_context_1(10)_generation_2(2)"])
def test_gated_delta_rule(price: Price, name: str, step: str) -> None:
    cost = price(name, [(12, 48), (12, 4), (12, 4), (12, 4, 8)], BF16, annotation=step)
    assert cost.flops == 7 * 12 * 4 * 4 * 8
    assert cost.bytes == 12 * 4 * (4 + 2 * 8 + 2) * 2
    assert (cost.params["d_k"], cost.params["H_K"]) == (4, 2)


def test_store_cache_reads_and_writes_keys_and_values(price: Price) -> None:
    cost = price("sglang::store_cache", [(4, 2, 8), (4, 2, 8)], BF16)
    assert (cost.flops, cost.bytes) == (0, 4 * 64 * 2)


@pytest.mark.parametrize(
    "annotation", [None, "NA", "execute_context_1(10)_generation_2(2)", "execute_diffusion_1_8x8"]
)
def test_attention_needs_the_lengths_of_its_requests(price: Price, annotation: str | None) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="lengths of its requests"):
        price("vllm::unified_attention_with_output", [Q, K, K], BF16, annotation=annotation)


def test_a_step_without_queries_is_not_modelled(price: Price) -> None:
    empty = f"execute_0_context_0{NOTHING}_generation_0{NOTHING}"
    with pytest.raises(NoModelForCallError):
        price("vllm::unified_attention_with_output", [Q, K, K], BF16, annotation=empty)
    with pytest.raises(NoModelForCallError):
        price(GDN, [(12, 48), (12, 4), (12, 4), (12, 4, 8)], BF16, annotation="NA")


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("vllm::unified_attention_with_output", [(12, 32), K, K]),
        ("pseudo_v4_paged_decode_swa", [(2, 32), (99, 8)]),
        (GLUON, [(2, 32), (2, 32), (10, 2)]),
    ],
)
def test_queries_without_heads_are_refused(
    price: Price, name: str, dims: list[tuple[int, ...]]
) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="reads"):
        price(name, dims, BF16, annotation=DECODE)


def test_a_mixed_projection_without_keys_is_refused(price: Price) -> None:
    with pytest.raises(UnexpectedArgumentsError, match="too narrow"):
        price(GDN, [(12, 32), (12, 4), (12, 4), (12, 4, 8)], BF16, annotation=MIXED)
