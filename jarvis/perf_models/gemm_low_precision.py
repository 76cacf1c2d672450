"""Matrix multiplication of 8- and 4-bit operands, most of them with scales."""

from dataclasses import replace
from math import ceil
from typing import Any

from jarvis.perf_models.arguments import (
    Tensor,
    flag,
    optional_tensor,
    requested_size,
    tensor,
    total_bytes,
)
from jarvis.perf_models.dtypes import (
    HALF_PRECISION_BYTES,
    MX_BLOCK,
    PACKED_FP4_BYTES,
    bytes_per_element,
    compute_spec,
)
from jarvis.perf_models.gemm import gemm_cost, matrix, product_cost
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model

INT32_BYTES = 4


def _low_precision_output(input_size: int | None) -> int | None:
    return HALF_PRECISION_BYTES if input_size == 1 else input_size


@perf_model("aten::_scaled_mm", "trtllm::cublas_scaled_mm", category="GEMM", needs_kernels=True)
def scaled_mm(op: OpSignature) -> OpCost:
    """Return the cost of A @ B with scales.

    FLOPs 2MNK (+ MN); bytes A, B, bias of A's dtype, Y 2 B if A is 1 B. The bias is the vector of
    length N among arguments 2 and 4 (its position changed between torch releases). ``exact_bytes``
    adds the scales and writes Y in the requested output dtype.
    """
    a, b = tensor(op, 0), tensor(op, 1)
    (m, k), (_, n) = matrix(a), matrix(b)
    bias = any(optional_tensor(op, i).shape == (n,) for i in (2, 4))
    out = _low_precision_output(a.size)
    cost = gemm_cost(
        op,
        (m, n, k),
        (a, b),
        (a.size, a.size, out),
        bias=bias,
        bias_size=bytes_per_element(a.dtype),
    )
    others = [t for i in range(2, len(op.input_dims)) if (t := tensor(op, i)).real_size is not None]
    real_out = requested_size(op, 3, requested_size(op, 6, out))
    exact = total_bytes(
        (m * k, a.size),
        (k * n, b.size),
        (m * n, real_out),
        *((t.numel, t.real_size) for t in others),
    )
    return replace(cost, exact_bytes=exact)


@perf_model("bitsandbytes::int8_linear_matmul", category="GEMM", needs_kernels=True)
def int8_linear_matmul(op: OpSignature) -> OpCost:
    """Return the cost of Y[M,N] = A[..,K] @ W[N,K]^T.

    FLOPs 2MNK; bytes MK + NK + 2MN; ``exact_bytes``: Y is int32.
    """
    a, w = tensor(op, 0), tensor(op, 1)
    n, k = matrix(w)
    m = a.numel // k
    cost = gemm_cost(op, (m, n, k), (a, w), (a.size, a.size, _low_precision_output(a.size)))
    exact = total_bytes((m * k, a.size), (k * n, w.size), (m * n, INT32_BYTES))
    return replace(cost, exact_bytes=exact)


@perf_model("vllm::gemm_with_dynamic_quant", category="GEMM", needs_kernels=True)
def gemm_with_dynamic_quant(op: OpSignature) -> OpCost:
    """Return the cost of Y[M,N] = A[M,K] @ W[N,K]^T, the first two matrices.

    FLOPs 2MNK; bytes (MK + NK + MN).
    """
    matrices = [i for i, dims in enumerate(op.input_dims) if len(dims) == 2][:2]
    a, w = (tensor(op, i) for i in matrices)
    (m, k), (n, _) = a.shape, w.shape
    size = bytes_per_element(op.input_types[0])
    return gemm_cost(op, (m, n, k), (a, w), (size,) * 3)


def _transposable(op: OpSignature) -> tuple[tuple[int, int, int], tuple[Tensor, Tensor]]:
    """Return (M, N, K), (A, B) of arguments 0 and 2, with transA, transB, transC at 5, 6, 7."""
    a, b = tensor(op, 0), tensor(op, 2)
    trans_a, trans_b = flag(op, 5), flag(op, 6)
    if flag(op, 7):
        a, b, trans_a, trans_b = b, a, not trans_b, not trans_a
    rows, cols = matrix(a)
    m, k = (cols, rows) if trans_a else (rows, cols)
    b_rows, b_cols = matrix(b)
    return (m, b_rows if trans_b else b_cols, k), (a, b)


@perf_model(
    "primus_turbo_cpp_extension::hipblaslt_gemm_fp8",
    "primus_turbo::hipblaslt_gemm_fp8",
    category="GEMM",
    needs_kernels=True,
)
def transposable_fp8(op: OpSignature) -> OpCost:
    """Return the cost of an fp8 GEMM with transpose flags.

    FLOPs 2MNK; bytes A, B of their dtypes, Y 2 B if A is 1 B.
    """
    mnk, (a, b) = _transposable(op)
    extra = {"dtype_scaleA": tensor(op, 1).dtype, "dtype_scaleB": tensor(op, 3).dtype}
    out = _low_precision_output(tensor(op, 0).size)
    return gemm_cost(op, mnk, (a, b), (a.size, b.size, out), extra=extra)


def _mx_fp4(
    op: OpSignature,
    mn_packed_k: tuple[int, int, int],
    operands: tuple[Tensor, Tensor],
    scales: tuple[Tensor, Tensor],
) -> OpCost:
    """Return the cost of an MX-fp4 product, where K is twice the packed K.

    Bytes (M + N)(K/2) + a scale per 32 of K and row + 2MN.
    """
    m, n, packed_k = mn_packed_k
    (a, b), (scale_a, scale_b) = operands, scales
    blocks = ceil(2 * packed_k / MX_BLOCK)
    cost = gemm_cost(op, (m, n, 2 * packed_k), operands, (None, None, None))
    moved = total_bytes(
        (m * packed_k, a.size),
        (n * packed_k, b.size),
        (m * blocks, scale_a.size or 1),
        (n * blocks, scale_b.size or 1),
        (m * n, HALF_PRECISION_BYTES),
    )
    return replace(cost, bytes=moved)


@perf_model(
    "primus_turbo_cpp_extension::hipblaslt_gemm_fp4",
    "primus_turbo::hipblaslt_gemm_fp4",
    category="GEMM",
    needs_kernels=True,
)
def transposable_fp4(op: OpSignature) -> OpCost:
    """Return the cost of an MX-fp4 GEMM with transpose flags.

    FLOPs 2MNK, K unpacked; bytes packed A, B, scales, 2MN.
    """
    mnk, operands = _transposable(op)
    return _mx_fp4(op, mnk, operands, (tensor(op, 1), tensor(op, 3)))


@perf_model("aiter::gemm_a4w4", "aiter::_gemm_a4w4_asm", category="GEMM", needs_kernels=True)
def a4w4(op: OpSignature) -> OpCost:
    """Return the cost of MX-fp4 A[M,K/2] @ W[N,K/2]^T.

    FLOPs 2MNK; bytes packed A, W, their scales, 2MN.
    """
    a, w = tensor(op, 0), tensor(op, 1)
    (m, packed_k), (n, _) = matrix(a), matrix(w)
    return _mx_fp4(op, (m, n, packed_k), (a, w), (tensor(op, 2), tensor(op, 3)))


@perf_model(
    "sglang_profiler::fp8_utils_gemm_a8w8_blockscale",
    "sglang_profiler::gemm_a8w8_blockscale_gemm_a8w8_blockscale",
    "vllm::rocm_aiter_triton_gemm_a8w8_blockscale",
    "aiter::gemm_a8w8_blockscale_ck",
    "aiter::gemm_a8w8_blockscale_cktile",
    "aiter::gemm_a8w8_blockscale_bpreshuffle_ck",
    "aiter::gemm_a8w8_blockscale_bpreshuffle_cktile",
    "aiter::flatmm_a8w8_blockscale_asm",
    "aiter::gfx950_a8w8_blockscale_asm",
    "aiter::gemm_a8w8_ck",
    "aiter::gemm_a8w8_bpreshuffle_ck",
    "aiter::gemm_a8w8_bpreshuffle",
    "vllm::_rocm_aiter_preshuffled_per_token_w8a8_gemm",
    "aiter::_gemm_a8w8_blockscale_bpreshuffle_asm",
    category="GEMM",
    needs_kernels=True,
)
def a8w8(op: OpSignature) -> OpCost:
    """Return the cost of 8-bit A[M,K] @ W[N,K]^T: FLOPs 2MNK; bytes MK, NK of their dtypes, 2MN.

    If scales are recorded, the params block_k and block_n are the extents that share one scale.
    """
    a, w = tensor(op, 0), tensor(op, 1)
    (m, k), (n, _) = matrix(a), matrix(w)
    extra: dict[str, Any] = {}
    if len(op.input_dims) > 3:
        scale_a, scale_w = tensor(op, 2), tensor(op, 3)
        if scale_a.given and scale_w.given:
            extra |= {
                "block_k": ceil(k / scale_a.shape[-1]),
                "block_n": ceil(n / scale_w.shape[0]),
                "scale_dtype": scale_a.dtype,
            }
    extra["output_shape"] = (m, n)
    return gemm_cost(op, (m, n, k), (a, w), (a.size, w.size, HALF_PRECISION_BYTES), extra=extra)


@perf_model("aiter::batched_gemm_a16wfp4_", category="GEMM", needs_kernels=True)
def batched_a16wfp4(op: OpSignature) -> OpCost:
    """Return the cost of B products A[M,K] @ W[N,K/2]^T.

    FLOPs 2BMNK; bytes B(MK of A's dtype + NK/2 + 2MN).
    """
    a, w = tensor(op, 0), tensor(op, 1)
    (batch, m, k), (_, n, _) = matrix(a, 3), matrix(w, 3)
    sizes = (a.size, PACKED_FP4_BYTES, HALF_PRECISION_BYTES)
    spec = compute_spec("matrix", "fp4")
    return gemm_cost(op, (m, n, k), (a, w), sizes, batch=batch, spec=spec)


@perf_model(
    "sglang_profiler::batched_gemm_a8w8_a_per_token_group_prequant_w_per_batched_tensor_quant_"
    "batched_gemm_a8w8_a_per_token_group_prequant_w_per_batched_tensor_quant",
    category="GEMM",
    needs_kernels=True,
)
def batched_a8w8(op: OpSignature) -> OpCost:
    """Return the cost of B products A[M,K] @ W[N,K]^T.

    FLOPs 2BMNK; bytes B(MK, NK of their dtypes + 2MN). A is (B, M, K) or (M, B, K); the peak is
    that of W's dtype.
    """
    a, w = tensor(op, 0), tensor(op, 1)
    batch, n, k = matrix(w, 3)
    first, second, _ = matrix(a, 3)
    m = second if first == batch else first
    sizes = (a.size, w.size, HALF_PRECISION_BYTES)
    spec = compute_spec("matrix", w.dtype)
    return gemm_cost(op, (m, n, k), (a, w), sizes, batch=batch, spec=spec)


@perf_model("aiter::gemm_afp4wfp4_", category="GEMM", needs_kernels=True)
def afp4wfp4(op: OpSignature) -> OpCost:
    """Return the cost of fp4 A[M,K/2] @ W[N,K/2]^T: FLOPs 2MNK; bytes MK/2 + NK/2 + 2MN."""
    a, w = tensor(op, 0), tensor(op, 1)
    (m, packed_k), (n, _) = matrix(a), matrix(w)
    sizes = (PACKED_FP4_BYTES, PACKED_FP4_BYTES, HALF_PRECISION_BYTES)
    return gemm_cost(op, (m, n, 2 * packed_k), (a, w), sizes, spec=compute_spec("matrix", "fp4"))


@perf_model("aten::_int_mm")
def int_mm(op: OpSignature) -> OpCost:
    """Return the cost of 8-bit A[M,K] @ B[K,N].

    FLOPs 2MNK (integer operations); bytes MK + KN + 4MN.
    """
    a, b = tensor(op, 0), tensor(op, 1)
    (m, k), (_, n) = matrix(a), matrix(b)
    moved = total_bytes((m * k, a.real_size), (k * n, b.real_size), (m * n, INT32_BYTES))
    return product_cost((m, n, k), 2 * m * n * k, moved, "matrix_int8")


@perf_model("aten::_weight_int8pack_mm")
def int8_weight_mm(op: OpSignature) -> OpCost:
    """Return the cost of A[M,K] @ W[N,K]^T of 8-bit weights.

    FLOPs 2MNK; bytes A + W + scales + MN of A's dtype.
    """
    a, w, scales = (tensor(op, index) for index in range(3))
    return _packed_weight(a, w, scales, n=w.shape[0])


@perf_model("aten::_weight_int4pack_mm")
def int4_weight_mm(op: OpSignature) -> OpCost:
    """Return the cost of A[M,K] @ packed 4-bit W; N from the scales (K/g,N,2).

    FLOPs 2MNK; bytes A + W + scales + MN of A's dtype.
    """
    a, w, scales = tensor(op, 0), tensor(op, 1), tensor(op, 3)
    return _packed_weight(a, w, scales, n=scales.shape[1])


def _packed_weight(a: Tensor, w: Tensor, scales: Tensor, n: int) -> OpCost:
    """Return the cost of a product computed in the precision of A."""
    m, k = matrix(a)
    parts = [(t.numel, t.real_size) for t in (a, w, scales)]
    moved = total_bytes(*parts, (m * n, a.real_size))
    return product_cost((m, n, k), 2 * m * n * k, moved, compute_spec("matrix", a.dtype))
