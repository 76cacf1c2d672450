"""Rotary embedding: pairs of values are rotated by an angle that depends on the position."""

from dataclasses import replace

from jarvis.perf_models.arguments import Tensor, integer, optional_tensor, tensor, total_bytes
from jarvis.perf_models.dtypes import HALF_PRECISION_BYTES, compute_spec
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)

ROPE_FLOPS = 3  # per element: two products and a sum


def _rotated(x: Tensor, elements: int) -> OpCost:
    """Return the cost of rotating n elements.

    FLOPs 3n; bytes 2n of x's dtype (2 bytes if it is unknown).
    """
    return OpCost(
        flops=ROPE_FLOPS * elements,
        bytes=2 * elements * (x.size or HALF_PRECISION_BYTES),
        compute=compute_spec("vector", x.dtype),
        params={"num_elems": elements, "dtype": x.dtype},
    )


@perf_model("FusedRoPEFunc", category="RoPE_fwd")
def fused_rope(op: OpSignature) -> OpCost:
    """Return the cost of x of n elements: FLOPs 3n; bytes 2n."""
    x = tensor(op, 0)
    return _rotated(x, x.numel)


@perf_model("aiter::rope_cached_positions_2c_fwd_impl", category="RoPE_fwd")
def rope_of_two(op: OpSignature) -> OpCost:
    """Return the cost of inputs x, y at 2, 3, n elements together: FLOPs 3n; bytes 2n."""
    x, y = tensor(op, 2), tensor(op, 3)
    return _rotated(x, x.numel + y.numel)


@perf_model("sgl_kernel::rotary_embedding", category="RoPE_fwd")
def rotary_embedding(op: OpSignature) -> OpCost:
    """Return the cost of positions (T), query and key (T, heads x d or heads, d).

    d at 3, cache (., r) at 4. Of each head r values are rotated, n = T (query heads + key heads) r:
    FLOPs 3n; bytes 2n. ``exact_bytes`` has the positions and their rows of the cache too.
    """
    positions, query, key = tensor(op, 0), tensor(op, 1), optional_tensor(op, 2)
    cache, head_size = tensor(op, 4), integer(op, 3, query.shape[-1])
    heads = (query.numel + (key.numel if key.given else 0)) // head_size
    elements = heads * cache.shape[1]
    cost = replace(_rotated(query, elements), params={"num_elements": elements})
    looked_up = total_bytes(
        (positions.numel, positions.real_size),
        (positions.numel * cache.shape[1], cache.real_size),
    )
    exact = None if looked_up is None or cost.bytes is None else cost.bytes + looked_up
    return replace(cost, exact_bytes=exact)


@perf_model("_C::rotary_embedding")
def rotary_embedding_in_place(op: OpSignature) -> OpCost:
    """Return the cost of ``sgl_kernel::rotary_embedding``, whose arguments it has.

    FLOPs 3n; bytes 2n, the positions and their rows of the cache.
    """
    return rotary_embedding(op).exact()


def _with_cache(op: OpSignature, key_heads: int, query_out: Tensor) -> OpCost:
    """Return the cost of rotating the last P of L + P values per head.

    The query and the cache (argument 4) are written.
    """
    query, cache = tensor(op, 0), optional_tensor(op, 4)
    if len(query.shape) != 3:
        raise UnexpectedArgumentsError(f"{op.name} reads (T, heads, L), found {query.shape}.")
    tokens, heads, latent = query.shape
    width = latent + tensor(op, 1).shape[2]
    turned = width - latent
    moved = total_bytes(
        (tokens * (heads + key_heads) * width, query.size),
        (tokens * heads * width, query_out.size),
        (tokens * key_heads * width, cache.size or query.size),
    )
    params = {"T": tokens, "QH": heads, "KH": key_heads, "L": latent, "P": turned}
    flops = ROPE_FLOPS * tokens * (heads + key_heads) * turned
    return OpCost(flops, moved, compute_spec("vector", query.dtype), params)


@perf_model("aiter::fused_qk_rope_cat_and_cache_mla", category="RoPE_fwd", sheet="FusedRoPE")
def rope_and_cache(op: OpSignature) -> OpCost:
    """Return the cost of query (T,Q,L) and (T,Q,P), key (T,H,L) and (T,H,P), cache at 0 .. 4.

    FLOPs 3T(Q + H)P; bytes T(Q + H)(L + P) read, TQ(L + P) and, of the cache's dtype, TH(L + P)
    written.
    """
    return _with_cache(op, tensor(op, 2).shape[1], tensor(op, 0))


@perf_model("aiter::fused_qk_rope_concat_and_cache_mla", category="RoPE_fwd", sheet="FusedRoPE")
def rope_concat_and_cache(op: OpSignature) -> OpCost:
    """Return the cost of query (T,Q,L) and (T,Q,P), one key head, cache at 4, query output at 5.

    FLOPs 3T(Q + 1)P; bytes T(Q + 1)(L + P) read, TQ(L + P) of the output's and T(L + P) of the
    cache's dtype written.
    """
    return _with_cache(op, 1, tensor(op, 5))


_V4_ATTENTION = "aiter::v4_attention_with_output->{} (Synthetic Op)"

categorize("RoPE_bwd", "FusedRoPEFuncBackward")
categorize(
    "FusedRoPE",
    "aiter::unified_attention_with_output_base->_fused_qk_rope_reshape_and_cache_kernel"
    " (Synthetic Op)",
    *(
        _V4_ATTENTION.format(kernel)
        for kernel in (
            "_inverse_rope_gptj_kernel",
            "qk_norm_rope_H32_D512_RD64_flydsl",
            "qk_norm_rope_H64_D512_RD64_flydsl",
            "hca_norm_rope_scatter_D512_RD64_R128_KB1_rmsbf16_flydsl",
        )
    ),
)
