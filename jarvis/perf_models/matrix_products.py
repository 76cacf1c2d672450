"""Products that the framework has beside the plain ones: grouped, by vectors, of packed weights."""

from math import prod

from jarvis.perf_models.arguments import Shape, Tensor, optional_tensor, tensor, text, total_bytes
from jarvis.perf_models.dtypes import HALF_PRECISION_BYTES, SCALAR_TYPE_BYTES, compute_spec
from jarvis.perf_models.gemm import matrix
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

INT32_BYTES = 4


def _cost(
    mnk: Shape, flops: float, moved: float | None, compute: str, groups: int | None = None
) -> OpCost:
    m, n, k = mnk
    grouped = {} if groups is None else {"G": groups}
    return OpCost(flops, moved, compute, params=grouped | {"M": m, "N": n, "K": k})


def _groups(a: Tensor, b: Tensor, offsets: Tensor) -> tuple[int, Shape, Shape]:
    """Groups, (M, N, K) of all products taken as one, and the shape of the output.

    Operands are stacked (3-d), or lie behind each other along M, N or K (2-d), divided by offsets.
    """
    ranks = (len(a.shape), len(b.shape))
    if ranks == (2, 2):
        (m, k), (_, n) = a.shape, b.shape
        groups = offsets.numel
        return groups, (m, n, k), (groups, m, n)
    if ranks == (2, 3):
        (m, k), (groups, _, n) = a.shape, b.shape
        return groups, (m, n, k), (m, n)
    if ranks == (3, 2):
        (groups, m, k), (_, n) = a.shape, b.shape
        return groups, (m, n, k), (m, n)
    if ranks == (3, 3):
        (groups, m, k), (_, _, n) = a.shape, b.shape
        return groups, (groups * m, n, k), (groups, m, n)
    raise UnexpectedArgumentsError(f"Groups of shapes {a.shape} and {b.shape} have no product.")


def _grouped(op: OpSignature, offsets: int, out_size: int | None, *read: Tensor) -> OpCost:
    a, b = tensor(op, 0), tensor(op, 1)
    groups, (m, n, k), out = _groups(a, b, optional_tensor(op, offsets))
    parts = [(t.numel, t.real_size) for t in (a, b, *read)]
    moved = total_bytes(*parts, (prod(out), out_size))
    return _cost((m, n, k), 2 * m * n * k, moved, compute_spec("matrix", a.dtype), groups)


@perf_model("aten::_grouped_mm")
def grouped_mm(op: OpSignature) -> OpCost:
    """G products, stacked or divided along M, N or K by offsets; flops 2MNK; bytes A + B + Y.

    M, N, K are those of the undivided operands, G times as much where both are stacked. Rows
    behind the last offset count too: what the offsets are is not recorded.
    """
    a = tensor(op, 0)
    return _grouped(op, 2, SCALAR_TYPE_BYTES.get(text(op, 4), a.real_size))


@perf_model("aten::_scaled_grouped_mm")
def scaled_grouped_mm(op: OpSignature) -> OpCost:
    """As the grouped product, of scaled 8-bit operands; bytes A + B + both scales + Y.

    Y has the dtype of argument 7, else half precision.
    """
    out_size = SCALAR_TYPE_BYTES.get(text(op, 7), HALF_PRECISION_BYTES)
    return _grouped(op, 4, out_size, tensor(op, 2), tensor(op, 3))


@perf_model("aten::_int_mm")
def int_mm(op: OpSignature) -> OpCost:
    """8-bit A[M,K] @ B[K,N]; flops 2MNK (integer operations); bytes MK + KN + 4MN."""
    a, b = tensor(op, 0), tensor(op, 1)
    (m, k), (_, n) = matrix(a), matrix(b)
    moved = total_bytes((m * k, a.real_size), (k * n, b.real_size), (m * n, INT32_BYTES))
    return _cost((m, n, k), 2 * m * n * k, moved, "matrix_int8")


@perf_model("aten::_addmm_activation")
def addmm_activation(op: OpSignature) -> OpCost:
    """activation(bias + A @ B); flops 2MNK + MN; bytes bias + MK + KN + MN of A's dtype.

    The activation is part of the epilogue and is not counted.
    """
    bias, a, b = (tensor(op, index) for index in range(3))
    (m, k), (_, n) = matrix(a), matrix(b)
    moved = total_bytes((bias.numel + m * k + k * n + m * n, a.real_size))
    return _cost((m, n, k), 2 * m * n * k + m * n, moved, compute_spec("matrix", a.dtype))


@perf_model("aten::mv")
def matrix_vector(op: OpSignature) -> OpCost:
    """A[M,K] @ x[K]; flops 2MK; bytes MK + K + M of A's dtype."""
    m, k = matrix(tensor(op, 0))
    return _by_vector(tensor(op, 0), m, k, added=0)


@perf_model("aten::addmv", "aten::addmv_")
def add_matrix_vector(op: OpSignature) -> OpCost:
    """b y + a (A[M,K] @ x[K]); flops 2MK + M; bytes MK + K + 2M (b = 0: 2MK, MK + K + M)."""
    m, k = matrix(tensor(op, 1))
    return _by_vector(tensor(op, 1), m, k, added=0 if text(op, 3) in ("0", "0.") else m)


def _by_vector(a: Tensor, m: int, k: int, added: int) -> OpCost:
    moved = total_bytes((m * k + k + m + added, a.real_size))
    return _cost((m, 1, k), 2 * m * k + added, moved, compute_spec("vector", a.dtype))


@perf_model("aten::dot", "aten::vdot")
def dot(op: OpSignature) -> OpCost:
    """Two vectors of K; flops 2K; bytes 2K + 1 of their dtype."""
    x = tensor(op, 0)
    moved = total_bytes((2 * x.numel + 1, x.real_size))
    return _cost((1, 1, x.numel), 2 * x.numel, moved, compute_spec("vector", x.dtype))


@perf_model("aten::_weight_int8pack_mm")
def int8_weight_mm(op: OpSignature) -> OpCost:
    """A[M,K] @ W[N,K]^T of 8-bit weights; flops 2MNK; bytes A + W + scales + MN of A's dtype."""
    a, w, scales = (tensor(op, index) for index in range(3))
    return _packed_weight(a, w, scales, n=w.shape[0])


@perf_model("aten::_weight_int4pack_mm")
def int4_weight_mm(op: OpSignature) -> OpCost:
    """A[M,K] @ packed 4-bit W; N from the scales (K/g,N,2); flops 2MNK; bytes A + W + scales + Y.

    Y is MN of A's dtype.
    """
    a, w, scales = tensor(op, 0), tensor(op, 1), tensor(op, 3)
    return _packed_weight(a, w, scales, n=scales.shape[1])


def _packed_weight(a: Tensor, w: Tensor, scales: Tensor, n: int) -> OpCost:
    """The product is computed in the precision of A."""
    m, k = matrix(a)
    parts = [(t.numel, t.real_size) for t in (a, w, scales)]
    moved = total_bytes(*parts, (m * n, a.real_size))
    return _cost((m, n, k), 2 * m * n * k, moved, compute_spec("matrix", a.dtype))
