"""Attention in inference engines, over a paged cache of keys and values.

The arguments give heads and widths; the number of queries and keys is in the annotation of the
step that encloses the call. For Q (N_Q, H_Q, d_qk) and K (N_KV, H_KV, d_v), with the sums c over
requests in their context phase and g over those in their generation phase:

flops H_Q (2 c_sqsk - c_sqsq) d + H_Q 2 g_sqsk d, where d = d_qk + d_v;
bytes (c_sq + g_sq)(H_Q + H_KV) d of Q's dtype + (c_sk - c_sq + g_sk - g_sq) H_KV d of the cache's.
"""

from dataclasses import dataclass, replace
from typing import Any

from jarvis.perf_models.arguments import dtype, integer, optional_tensor, tensor, total_bytes
from jarvis.perf_models.dtypes import HALF_PRECISION_BYTES, bytes_per_element, compute_spec
from jarvis.perf_models.registry import (
    NoModelForCallError,
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)
from jarvis.perf_models.step_annotation import Phase, parse

CATEGORY = "InferenceAttention"
LATENT_WIDTH = 512  # width of the values in a cache of compressed keys and values
SLIDING_WINDOW = 128
DENSE_STRIDE, SPARSE_STRIDE = 128, 4  # tokens per compressed key
MANY_HEADS, MANY_INDEXED, FEW_INDEXED = 64, 1024, 512
DELTA_RULE_FLOPS = 7  # per entry of a head's state and token: decay, read, update, output


@dataclass(frozen=True, slots=True)
class Paged:
    """One call: rows and heads, widths, dtypes, and the sums of both phases."""

    n_q: int
    h_q: int
    n_kv: int
    h_kv: int
    d_qk: int
    d_v: int
    query_dtype: str
    cache_dtype: str | None
    query_size: int
    cache_size: int
    context: Phase
    generation: Phase

    def windowed(self, window: int) -> "Paged":
        """Return the call with generating requests limited to ``window`` keys; 0: no limit."""
        if window <= 0:
            return self
        max_keys = self.generation.queries * window
        keys, pairs = min(self.generation.keys, max_keys), min(self.generation.pairs, max_keys)
        return replace(self, generation=replace(self.generation, keys=keys, pairs=pairs))

    def cost(self) -> OpCost:
        """Return the cost by the formulas of the module."""
        width = self.d_qk + self.d_v
        rows = (self.context.queries + self.generation.queries) * (self.h_q + self.h_kv) * width
        return OpCost(
            flops=2 * self.h_q * self._pairs * width,
            bytes=rows * self.query_size + self._past * self.h_kv * width * self.cache_size,
            compute=compute_spec("matrix", self.query_dtype),
            params=self.params(),
        )

    def latent_cost(self, max_keys: int | None = None) -> OpCost:
        """Return the cost; ``exact_*`` read a cache row once, for both its keys and its values.

        Args:
            max_keys: maximum number of keys per query.
        """
        queries = self.context.queries + self.generation.queries
        pairs, past = self._pairs, self._past
        if max_keys is not None:
            pairs, past = min(pairs, queries * max_keys), min(past, queries * max_keys)
        rows = queries * (self.h_q * (self.d_qk + self.d_v) + self.h_kv * self.d_qk)
        return replace(
            self.cost(),
            exact_flops=2 * self.h_q * pairs * (self.d_qk + self.d_v),
            exact_bytes=rows * self.query_size + past * self.h_kv * self.d_qk * self.cache_size,
        )

    def params(self) -> dict[str, Any]:
        """Return the params under the names that the sheets use."""
        params: dict[str, Any] = {
            "B": 1,
            "N_Q": self.n_q,
            "H_Q": self.h_q,
            "H_V": self.h_kv,
            "H_K": self.h_kv,
            "N_KV": self.n_kv,
            "H_KV": self.h_kv,
            "d_h_qk": self.d_qk,
            "d_h_v": self.d_v,
            "dropout": 0.0,
            "causal": False,
            "flash_impl": True,
        }
        for mark, phase in (("c", self.context), ("g", self.generation)):
            params |= {
                f"{mark}_sq": phase.queries,
                f"{mark}_sk": phase.keys,
                f"{mark}_sqsq": phase.queries_squared,
                f"{mark}_sqsk": phase.pairs,
            }
        params["dtype_Q"] = self.query_dtype
        if self.cache_dtype is not None:
            params["dtype_KV"] = self.cache_dtype
        return params

    @property
    def _pairs(self) -> float:
        """Number of (query, visible key) pairs; a new query sees half of the new keys."""
        return self.context.pairs - self.context.queries_squared / 2 + self.generation.pairs

    @property
    def _past(self) -> int:
        """Keys that were in the cache before the step."""
        new = self.context.queries + self.generation.queries
        return self.context.keys + self.generation.keys - new


def _phases(op: OpSignature) -> tuple[Phase, Phase]:
    """Return the sums in the annotation; NoModelForCallError for a step without queries."""
    step = parse(op.annotation)
    if step is None or step.context is None or step.generation is None:
        reason = (
            f"the annotation of the step ({op.annotation}) does not contain"
            if op.annotation
            else "no step annotation around the call gives"
        )
        raise UnexpectedArgumentsError(
            f"{op.name} needs the lengths of its requests, which {reason}. "
            "Enable detailed annotations in the engine."
        )
    if not step.tokens:
        raise NoModelForCallError(f"{op.name} ran in a step without queries.")
    return step.context, step.generation


def _paged(
    op: OpSignature,
    *,
    query: int = 0,
    key: int = 1,
    value: int | None = None,
    width: int | None = None,
) -> Paged:
    """Read Q and K at their positions; d_v is that of V at ``value``, or ``width``, or K's."""
    q, k = tensor(op, query), tensor(op, key)
    if len(q.shape) != 3 or len(k.shape) < 3:
        raise UnexpectedArgumentsError(
            f"{op.name} reads queries (N,H,d) and keys (..,N,H,d), found {q.shape}, {k.shape}."
        )
    n_kv, h_kv, d_v = k.shape[-3:]
    if value is not None:
        d_v = tensor(op, value).shape[-1]
    elif width is not None:
        d_v = width
    size = bytes_per_element(dtype(op, 0)) or HALF_PRECISION_BYTES
    context, generation = _phases(op)
    return Paged(
        n_q=q.shape[0],
        h_q=q.shape[1],
        d_qk=q.shape[2],
        n_kv=n_kv,
        h_kv=h_kv,
        d_v=d_v,
        query_dtype=q.dtype,
        cache_dtype=k.dtype,
        query_size=size,
        cache_size=bytes_per_element(dtype(op, 1)) or size,
        context=context,
        generation=generation,
    )


@perf_model(
    "vllm::unified_attention_with_output",
    "aiter::mha_varlen_fwd",
    category=CATEGORY,
    needs_annotation=True,
)
def attention(op: OpSignature) -> OpCost:
    """Return the cost of Q, K at 0, 1, d_v as K's width.

    FLOPs and bytes by the formulas of the module.
    """
    return _paged(op).cost()


@perf_model(
    "aiter::fmha_v3_varlen_fwd",
    "aiter::mha_batch_prefill",
    "pseudo_mla_prefill_fwd",
    category=CATEGORY,
    needs_annotation=True,
)
def attention_with_values(op: OpSignature) -> OpCost:
    """Return the cost of Q, K, V at 0, 1, 2.

    FLOPs and bytes by the formulas of the module.
    """
    return _paged(op, value=2).cost()


@perf_model("pseudo_mla_decode_fwd", category=CATEGORY, needs_annotation=True)
def latent_decode(op: OpSignature) -> OpCost:
    """Return the cost of Q, cache at 0, 1, values as wide as the cache's rows.

    FLOPs and bytes by the formulas of the module. ``exact_bytes`` reads a row of the cache once,
    since keys and values share it.
    """
    return _paged(op).latent_cost()


@perf_model(
    "sglang_profiler::tilelang_kernel_tilelang_sparse_fwd", category=CATEGORY, needs_annotation=True
)
def latent_sparse(op: OpSignature) -> OpCost:
    """Return the cost of Q, cache, indices (.,.,k) at 0 .. 2, d_v at 4.

    FLOPs and bytes by the formulas of the module. ``exact_*`` count at most k keys per query and
    read a row of the cache once.
    """
    call = _paged(op, width=integer(op, 4, LATENT_WIDTH))
    indices = optional_tensor(op, 2)
    return call.latent_cost(indices.shape[-1] if indices.given else None)


@perf_model(
    "sglang_profiler::attention_paged_attention_ragged", category=CATEGORY, needs_annotation=True
)
def ragged(op: OpSignature) -> OpCost:
    """Return the cost of Q, K, V at 2, 3, 4.

    FLOPs and bytes by the formulas of the module; the cache is counted in Q's dtype, and N_KV is
    the number of keys of the step. ``exact_bytes`` counts the cache in its own dtype.
    """
    call = _paged(op, query=2, key=3, value=4)
    call = replace(
        call,
        n_kv=call.context.keys + call.generation.keys,
        cache_size=call.query_size,
        cache_dtype=None,
    )
    own_size = bytes_per_element(dtype(op, 3)) or call.query_size
    return replace(call.cost(), exact_bytes=replace(call, cache_size=own_size).cost().bytes)


@perf_model("aiter::pa_decode_gluon", category=CATEGORY, needs_annotation=True)
def windowed_decode(op: OpSignature) -> OpCost:
    """Return the cost of output of Q's shape, cache (.,H_KV,..) at 2, window at 19.

    Generation phase only. FLOPs and bytes by the formulas of the module; with a window W, g_sk and
    g_sqsk are at most g_sq W.
    """
    out, cache = tensor(op, 0), tensor(op, 2)
    if len(out.shape) != 3 or len(cache.shape) < 2:
        raise UnexpectedArgumentsError(f"{op.name} reads (N,H,d), found {out.shape}.")
    _, generation = _phases(op)
    size = out.size or HALF_PRECISION_BYTES
    call = Paged(
        n_q=out.shape[0],
        h_q=out.shape[1],
        n_kv=cache.shape[0],
        h_kv=cache.shape[1],
        d_qk=out.shape[2],
        d_v=out.shape[2],
        query_dtype=out.dtype,
        cache_dtype=cache.dtype,
        query_size=size,
        cache_size=cache.size or size,
        context=Phase(),
        generation=generation,
    )
    return call.windowed(integer(op, 19, 0)).cost()


def _compressed_cost(op: OpSignature, pairs: int) -> OpCost:
    """Return the cost of queries (N,H,d) with ``pairs`` rows in all, which hold keys and values.

    FLOPs pairs H 4d; bytes 2NHd of Q's dtype + pairs d of the cache's.
    """
    q = tensor(op, 0)
    if len(q.shape) != 3:
        raise UnexpectedArgumentsError(f"{op.name} reads queries (N,H,d), found {q.shape}.")
    rows, heads, width = q.shape
    cache_size = bytes_per_element(dtype(op, 1)) or q.size
    return OpCost(
        flops=pairs * heads * 4 * width,
        bytes=total_bytes((2 * q.numel, q.size), (pairs * width, cache_size)),
        compute=compute_spec("matrix", q.dtype),
        params={"N_Q": rows, "H_Q": heads, "d_h_qk": width, "d_h_v": width, "pairs": pairs},
    )


@perf_model("aiter::pa_sparse_prefill_opus_fwd", category=CATEGORY)
def sparse_prefill(op: OpSignature) -> OpCost:
    """Return the cost of Q, cache at 0, 1; row indices at 2 (past) and 5 (new), P in all.

    FLOPs P H_Q 4d; bytes 2 N_Q H_Q d of Q's dtype + Pd of the cache's.
    """
    return _compressed_cost(op, tensor(op, 2).shape[0] + tensor(op, 5).shape[0])


def _generation(op: OpSignature) -> tuple[int, Phase]:
    """Return the pairs within the sliding window, and the sums of the generation phase."""
    _, generation = _phases(op)
    return min(generation.pairs, generation.queries * SLIDING_WINDOW), generation


@perf_model("pseudo_v4_paged_decode_swa", category=CATEGORY, needs_annotation=True)
def sliding_decode(op: OpSignature) -> OpCost:
    """Return the cost of P = the last 128 keys of each query.

    FLOPs P H_Q 4d; bytes 2 N_Q H_Q d + Pd.
    """
    return _compressed_cost(op, _generation(op)[0])


@perf_model("pseudo_v4_paged_decode_csa", category=CATEGORY, needs_annotation=True)
def sparse_decode(op: OpSignature) -> OpCost:
    """Return the cost of P = the last 128 keys and the best compressed keys (4 tokens each).

    At most 1024 compressed keys, 512 if a GPU holds up to 64 heads. FLOPs P H_Q 4d; bytes
    2 N_Q H_Q d + Pd.
    """
    recent, generation = _generation(op)
    indexed = MANY_INDEXED if tensor(op, 0).shape[1] > MANY_HEADS else FEW_INDEXED
    best = min(generation.pairs // SPARSE_STRIDE, generation.queries * indexed)
    return _compressed_cost(op, recent + best)


@perf_model("pseudo_v4_paged_decode_hca", category=CATEGORY, needs_annotation=True)
def dense_decode(op: OpSignature) -> OpCost:
    """Return the cost of P = the last 128 keys and all compressed keys (128 tokens each).

    FLOPs P H_Q 4d; bytes 2 N_Q H_Q d + Pd.
    """
    recent, generation = _generation(op)
    return _compressed_cost(op, recent + generation.pairs // DENSE_STRIDE)


@perf_model(
    "vllm::gdn_attention_core",
    "aiter::linear_attention_with_output_base",
    category=CATEGORY,
    needs_annotation=True,
)
def gated_delta_rule(op: OpSignature) -> OpCost:
    """Return the cost of mixed QKV (.,w), gates (.,H) at 0, 1, output (.,.,d_v) at 3.

    H/2 heads of K. For the t tokens of the step:
    FLOPs 7 t H d_k d_v; bytes 2 t H (d_k + 2 d_v + 2).
    """
    step = parse(op.annotation)
    if step is None or not step.tokens:
        raise NoModelForCallError(
            f"{op.name} needs the number of tokens of its step, which its annotation "
            f"({op.annotation or 'none'}) does not contain."
        )
    mixed = tensor(op, 0)
    heads, d_v = tensor(op, 1).shape[1], tensor(op, 3).shape[2]
    key_heads = heads // 2
    d_k = (mixed.shape[1] - heads * d_v) // 2 // key_heads
    if d_k <= 0:
        raise UnexpectedArgumentsError(
            f"{op.name}: {mixed.shape} is too narrow for queries and keys."
        )
    return OpCost(
        flops=DELTA_RULE_FLOPS * step.tokens * heads * d_k * d_v,
        bytes=step.tokens * heads * (d_k + 2 * d_v + 2) * HALF_PRECISION_BYTES,
        compute=compute_spec("matrix", mixed.dtype),
        params={"tokens": step.tokens, "H_V": heads, "H_K": key_heads, "d_k": d_k, "d_v": d_v},
    )


@perf_model("sglang::store_cache", category=CATEGORY)
def store_cache(op: OpSignature) -> OpCost:
    """Return the cost of keys at 0 and values of the same size.

    FLOPs 0; bytes both read and written, 4n of K's dtype.
    """
    keys = tensor(op, 0)
    return OpCost(
        flops=0,
        bytes=4 * keys.numel * (keys.size or HALF_PRECISION_BYTES),
        compute=compute_spec("vector", keys.dtype),
        params={"op_shape": keys.shape, "nelems": keys.numel, "dtype": keys.dtype},
    )


categorize(
    CATEGORY,
    "_C_cache_ops::reshape_and_cache_flash",
    "_C_cache_ops::concat_and_cache_mla",
    "hipModuleLaunchKernel->kv_indices_generate_kernel (Synthetic Op)",
    "aiter::get_mla_metadata_v1",
    "aiter::indexer_score_topk",
    *(
        f"aiter::v4_attention_with_output->{kernel} (Synthetic Op)"
        for kernel in (
            "_update_compressor_states_kernel",
            "_swa_write_kernel",
            "fused_compress_attn_D512_RD64_R4_OVL_SS8_KB32_rmsbf16_pf_flydsl",
            "fused_compress_attn_D128_RD64_R4_OVL_SS8_KB32_Q_ue8m0_psh_rmsbf16_pf_flydsl",
            "hca_compress_forward_D512_R128_NW4_SL256_S128_flydsl",
            "hca_compress_forward_D512_R128_NW8_SL128_S128_flydsl",
        )
    ),
)
