"""Matrix multiplication: Y[M,N] = A[M,K] @ B[K,N], batched B times where the op has a batch dim.

Products of 8- and 4-bit operands are in ``gemm_low_precision``, those of groups of rows in
``grouped_gemm``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    dtype,
    optional_tensor,
    tensor,
    text,
    total_bytes,
)
from jarvis.perf_models.dtypes import HALF_PRECISION_BYTES, bytes_per_element, compute_spec
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

Sizes = tuple[float | None, float | None, float | None]

_TENSILE_LAYOUT = re.compile(r"C[a-z]{3}_A[a-z]{3}_B[a-z]{3}")


def kernel_transposes(kernel_names: Iterable[str]) -> tuple[bool | None, bool | None] | None:
    """Return (A transposed, B transposed) from the first kernel name that encodes them."""
    for name in kernel_names:
        if _TENSILE_LAYOUT.search(name):
            a = {"_Ailk_": False, "_Alik_": True}
            b = {"_Bljk_": False, "_Bjlk_": True}
            return (
                next((value for mark, value in a.items() if mark in name), None),
                next((value for mark, value in b.items() if mark in name), None),
            )
        if name.startswith("nvjet"):
            layout = name.rsplit("_", 1)[-1]
            return layout[:1] == "T", layout[1:2] == "T"
    return None


def gemm_cost(
    op: OpSignature,
    mnk: tuple[int, int, int],
    operands: tuple[Tensor, Tensor],
    sizes: Sizes,
    *,
    bias: bool = False,
    bias_size: float | None = None,
    batch: int | None = None,
    spec: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> OpCost:
    """Return the cost for M, N, K: FLOPs 2MNK (+ MN for a bias), bytes A + B + Y (+ N for a bias).

    Args:
        sizes: bytes per element of A, B and Y.
        batch: number of products.
        spec: peak; default: the matrix peak of A's dtype.
        extra: more params.
    """
    m, n, k = mnk
    a, b = operands
    parts = [(m * k, sizes[0]), (k * n, sizes[1]), (m * n, sizes[2])]
    if bias:
        parts.append((n, bias_size))
    moved = total_bytes(*parts)
    times = 1 if batch is None else batch
    params: dict[str, Any] = {} if batch is None else {"B": batch}
    params |= {
        "M": m,
        "N": n,
        "K": k,
        "bias": bias,
        "stride_A": a.strides,
        "stride_B": b.strides,
        "dtype_A_B": (a.dtype, b.dtype),
    }
    params |= extra or {}
    params.setdefault("B", 1)
    if (transposes := kernel_transposes(op.kernel_names)) is not None:
        params["transpose"] = transposes
    return OpCost(
        flops=times * (2 * m * n * k + (m * n if bias else 0)),
        bytes=None if moved is None else times * moved,
        compute=compute_spec("matrix", a.dtype) if spec is None else spec,
        params=params,
    )


def matrix(t: Tensor, rank: int = 2) -> tuple[int, ...]:
    """Return the shape of a tensor of dimension ``rank``; UnexpectedArgumentsError otherwise."""
    if len(t.shape) != rank:
        raise UnexpectedArgumentsError(f"A {rank}-d operand was expected, found shape {t.shape}.")
    return t.shape


def _with_real_bias(cost: OpCost, bias: Tensor, counted: int) -> OpCost:
    """Return the cost with ``exact_bytes`` for the bias's actual size, not ``counted`` elements."""
    if cost.bytes is None or bias.size is None:
        return cost
    real = cost.bytes + (bias.numel - counted) * bias.size
    return replace(cost, exact_bytes=real)


@perf_model("aten::mm", category="GEMM", needs_kernels=True)
def mm(op: OpSignature) -> OpCost:
    """Return the cost of A[M,K] @ B[K,N]: FLOPs 2MNK; bytes (MK + KN + MN) of A's dtype."""
    a, b = tensor(op, 0), tensor(op, 1)
    (m, k), (_, n) = matrix(a), matrix(b)
    return gemm_cost(op, (m, n, k), (a, b), (a.size,) * 3)


@perf_model("aten::addmm", category="GEMM", needs_kernels=True)
def addmm(op: OpSignature) -> OpCost:
    """Return the cost of Y = bias + A @ B.

    FLOPs 2MNK + MN; bytes (MK + KN + MN + N) of A's dtype. The bias may be a full matrix:
    ``exact_bytes`` counts its actual size.
    """
    a, b = tensor(op, 1), tensor(op, 2)
    (m, k), (_, n) = matrix(a), matrix(b)
    cost = gemm_cost(op, (m, n, k), (a, b), (a.size,) * 3, bias=True, bias_size=a.size)
    return _with_real_bias(cost, tensor(op, 0), counted=n)


@perf_model("aten::bmm", category="GEMM", needs_kernels=True)
def bmm(op: OpSignature) -> OpCost:
    """Return the cost of B products [M,K] @ [K,N].

    FLOPs 2BMNK; bytes B(MK + KN + MN) of A's dtype.
    """
    a, b = tensor(op, 0), tensor(op, 1)
    (batch, m, k), (_, _, n) = matrix(a, 3), matrix(b, 3)
    return gemm_cost(op, (m, n, k), (a, b), (a.size,) * 3, batch=batch)


@perf_model("aten::baddbmm", category="GEMM", needs_kernels=True)
def baddbmm(op: OpSignature) -> OpCost:
    """Return the cost of B products plus bias.

    FLOPs B(2MNK + MN); bytes B(MK + KN + MN + N) of A's dtype. ``exact_bytes`` counts the actual
    size of the added tensor.
    """
    a, b = tensor(op, 1), tensor(op, 2)
    (batch, m, k), (_, _, n) = matrix(a, 3), matrix(b, 3)
    cost = gemm_cost(op, (m, n, k), (a, b), (a.size,) * 3, bias=True, bias_size=a.size, batch=batch)
    return _with_real_bias(cost, tensor(op, 0), counted=batch * n)


@perf_model("tex_ts::te_gemm_ts", category="GEMM", needs_kernels=True)
def te_gemm_ts(op: OpSignature) -> OpCost:
    """Return the cost of A with transA, B with transB.

    FLOPs 2MNK (+ MN); bytes of A, B, Y, bias in their own dtypes.
    """
    a, b = tensor(op, 0), tensor(op, 5)
    rows, cols = matrix(a)
    m, k = (rows, cols) if text(op, 4) == "1" else (cols, rows)
    b_rows, b_cols = matrix(b)
    n = b_cols if text(op, 9) == "1" else b_rows
    sizes = (a.size, b.size, tensor(op, 10).size)
    bias = text(op, 14) != ""
    bias_size = optional_tensor(op, 18).size
    return gemm_cost(op, (m, n, k), (a, b), sizes, bias=bias, bias_size=bias_size)


@perf_model(
    "_Linear_yfwd_mm",
    "_LinearBackward_xgrad_mm",
    "_LinearBackward_wgrad_mm",
    "_LayerNormLinear_yfwd_mm",
    "_LayerNormLinearBackward_xgrad_mm",
    "_LayerNormLinearBackward_wgrad_mm",
    category="GEMM",
    needs_kernels=True,
)
def linear_module_mm(op: OpSignature) -> OpCost:
    """Return the cost of the products inside a fused linear layer.

    FLOPs 2MNK; bytes MK + KN of A's dtype, 2 MN.
    """
    a, b = tensor(op, 0), tensor(op, 1)
    if a.dtype != b.dtype:
        raise UnexpectedArgumentsError(f"{op.name} multiplies {a.dtype} by {b.dtype}.")
    (m, k), (_, n) = matrix(a), matrix(b)
    return gemm_cost(op, (m, n, k), (a, b), (a.size, a.size, HALF_PRECISION_BYTES))


def _linear(
    op: OpSignature,
    out_size: int | None,
    out_dtype: str,
    bias: Tensor | None = None,
    bias_size: int | None = None,
) -> OpCost:
    """Return the cost of A[M,K] @ W[N,K]^T (+ bias); ``out_dtype`` is only a parameter."""
    a, w = tensor(op, 0), tensor(op, 1)
    (m, k), (n, _) = matrix(a), matrix(w)
    has_bias = bias is not None and bias.given
    sizes = (a.size, w.size, out_size)
    cost = gemm_cost(op, (m, n, k), (a, w), sizes, bias=has_bias, bias_size=bias_size)
    params = {
        "B": 1,
        "M": m,
        "N": n,
        "K": k,
        "bias": has_bias,
        "dtype_A_B": (a.dtype, w.dtype, out_dtype),
        "transpose": (True, False),
    }
    return replace(cost, params=params)


@perf_model("vllm::rocm_unquantized_gemm", category="GEMM", needs_kernels=True)
def unquantized(op: OpSignature) -> OpCost:
    """Return the cost of A[M,K] @ W[N,K]^T (+ bias).

    FLOPs 2MNK (+ MN); Y and bias of the bias's dtype, else W's.
    """
    bias = optional_tensor(op, 2)
    out = bias.size if bias.given else tensor(op, 1).size
    return _linear(op, out, dtype(op, 2), bias, out)


@perf_model("aiter::gemm_a16w16", category="GEMM", needs_kernels=True)
def a16w16(op: OpSignature) -> OpCost:
    """Return the cost of A[M,K] @ W[N,K]^T (+ bias): FLOPs 2MNK (+ MN); Y and bias of A's dtype."""
    a = tensor(op, 0)
    return _linear(op, a.size, a.dtype, optional_tensor(op, 2), a.size)


@perf_model(
    "aiter::gemm_a16w16_atomic_",
    "sglang_profiler::gemm_kernels_flydsl_hgemm",
    category="GEMM",
    needs_kernels=True,
)
def a16w16_atomic(op: OpSignature) -> OpCost:
    """Return the cost of A[M,K] @ W[N,K]^T.

    FLOPs 2MNK; Y of argument 3's dtype, 2 bytes if that is not recorded.
    """
    recorded = dtype(op, 3)
    if len(op.input_types) <= 3:
        return _linear(op, HALF_PRECISION_BYTES, "c10::BFloat16")
    return _linear(op, bytes_per_element(recorded), recorded or "c10::BFloat16")


@perf_model("aiter::_gemm_a16w16_asm", category="GEMM", needs_kernels=True)
def a16w16_asm(op: OpSignature) -> OpCost:
    """Return the cost of A[M,K] @ W[N,K]^T: FLOPs 2MNK; Y of argument 2's dtype, A's if unknown."""
    out, a = optional_tensor(op, 2), tensor(op, 0)
    return _linear(op, out.size or a.size, out.dtype if out.size else a.dtype)


def product_cost(
    mnk: Shape, flops: float, moved: float | None, compute: str, groups: int | None = None
) -> OpCost:
    """Return a cost with M, N, K and, if given, the number of groups as params."""
    m, n, k = mnk
    grouped = {} if groups is None else {"G": groups}
    return OpCost(flops, moved, compute, params=grouped | {"M": m, "N": n, "K": k})


@perf_model("aten::_addmm_activation")
def addmm_activation(op: OpSignature) -> OpCost:
    """Return the cost of activation(bias + A @ B).

    FLOPs 2MNK + MN; bytes bias + MK + KN + MN of A's dtype. The activation is part of the epilogue
    and is not counted.
    """
    bias, a, b = (tensor(op, index) for index in range(3))
    (m, k), (_, n) = matrix(a), matrix(b)
    moved = total_bytes((bias.numel + m * k + k * n + m * n, a.real_size))
    return product_cost((m, n, k), 2 * m * n * k + m * n, moved, compute_spec("matrix", a.dtype))


@perf_model("aten::mv")
def matrix_vector(op: OpSignature) -> OpCost:
    """Return the cost of A[M,K] @ x[K]: FLOPs 2MK; bytes MK + K + M of A's dtype."""
    m, k = matrix(tensor(op, 0))
    return _by_vector(tensor(op, 0), m, k, added=0)


@perf_model("aten::addmv", "aten::addmv_")
def add_matrix_vector(op: OpSignature) -> OpCost:
    """Return the cost of b y + a (A[M,K] @ x[K]).

    FLOPs 2MK + M; bytes MK + K + 2M (b = 0: 2MK, MK + K + M).
    """
    m, k = matrix(tensor(op, 1))
    return _by_vector(tensor(op, 1), m, k, added=0 if text(op, 3) in ("0", "0.") else m)


def _by_vector(a: Tensor, m: int, k: int, added: int) -> OpCost:
    moved = total_bytes((m * k + k + m + added, a.real_size))
    return product_cost((m, 1, k), 2 * m * k + added, moved, compute_spec("vector", a.dtype))


@perf_model("aten::dot", "aten::vdot")
def dot(op: OpSignature) -> OpCost:
    """Return the cost of a dot product of two vectors of K.

    FLOPs 2K; bytes 2K + 1 of their dtype.
    """
    x = tensor(op, 0)
    moved = total_bytes((2 * x.numel + 1, x.real_size))
    return product_cost((1, 1, x.numel), 2 * x.numel, moved, compute_spec("vector", x.dtype))
