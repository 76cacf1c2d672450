"""Grouped matrix multiplication: each group of rows has its own weight matrix."""

from math import prod
from typing import Any

from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    dtype,
    optional_tensor,
    requested_size,
    tensor,
    total_bytes,
)
from jarvis.perf_models.dtypes import (
    HALF_PRECISION_BYTES,
    bytes_per_element,
    compute_spec,
)
from jarvis.perf_models.gemm import product_cost
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

Pair = tuple[Shape, Shape]
"""Shapes (rows, inner) and (inner, columns) of one product."""


def _is_list(shape: Any) -> bool:
    return bool(shape) and all(isinstance(entry, (tuple, list)) for entry in shape)


def _pairs(op: OpSignature) -> list[Pair]:
    """Return the shapes of the products of two lists of matrices."""
    first, second = (tuple(op.input_dims[i]) for i in range(2))
    if not (_is_list(first) and _is_list(second)):
        raise UnexpectedArgumentsError(f"{op.name} multiplies neither {first} by {second}.")
    pairs = [(tuple(a), tuple(b)) for a, b in zip(first, second, strict=True)]
    if any(len(a) != 2 or len(b) != 2 or a[1] != b[0] for a, b in pairs):
        raise UnexpectedArgumentsError(f"{op.name} has groups that cannot be multiplied: {pairs}.")
    return pairs


def _sizes(op: OpSignature) -> tuple[int | None, int | None]:
    """Return bytes per element of the operands and of the output, which has the weight's dtype."""
    return bytes_per_element(dtype(op, 0)), bytes_per_element(dtype(op, 1))


def _extents(op: OpSignature) -> tuple[int, int, int, int]:
    """Return M, K, N, G of rows (M,K) by weights (G,K,N) or (G,N,K), or of two matrix lists."""
    rows, weights = op.input_dims[0], op.input_dims[1]
    if not _is_list(rows) and len(rows) == 2 and len(weights) == 3 and rows[1] in weights[1:]:
        m, k = rows
        groups, first, second = weights
        return m, k, second if first == k else first, groups
    pairs = _pairs(op)
    if len({(b[0], b[1]) for _, b in pairs}) != 1:
        raise UnexpectedArgumentsError(f"{op.name} has weights of several shapes: {pairs}.")
    k, n = pairs[0][1]
    return sum(a[0] for a, _ in pairs), k, n, len(pairs)


@perf_model(
    "primus_turbo::grouped_gemm",
    "primus_turbo::grouped_gemm_impl",
    "primus_turbo_cpp_extension::grouped_gemm",
    "primus_turbo_cpp_extension::ck_grouped_gemm",
    category="GroupedGEMM_fwd",
    backward_category="GroupedGEMM_bwd",
)
def grouped_gemm(op: OpSignature) -> OpCost:
    """Return the cost of M rows of K, each by the (K,N) weight of its group, G weights.

    FLOPs 2MKN; bytes (MK + GKN) of the rows' dtype + MN of the weights' dtype.
    """
    m, k, n, groups = _extents(op)
    size, out_size = _sizes(op)
    return OpCost(
        flops=2 * m * k * n,
        bytes=total_bytes((m * k + groups * k * n, size), (m * n, out_size)),
        compute=compute_spec("matrix", dtype(op, 0)),
        params={"M": m, "K": k, "N": n, "G": groups, "bpe_in": size, "bpe_out": out_size},
    )


@perf_model(
    "primus_turbo::grouped_gemm_variable_k",
    "primus_turbo::grouped_gemm_variable_k_impl",
    "primus_turbo_cpp_extension::grouped_gemm_variable_k",
    "primus_turbo_cpp_extension::ck_grouped_gemm_variable_k",
    category="GroupedGEMM_fwd",
    backward_category="GroupedGEMM_bwd",
)
def grouped_gemm_variable_k(op: OpSignature) -> OpCost:
    """Return the cost of the weight gradient: rows (M,K) and (M,N), summed within each group.

    FLOPs 2MKN; bytes (MK + KN) of the rows' dtype + MN of the second's, summed over pairs for two
    lists. ``exact_bytes`` reads both operands and writes (K,N) for each group of argument 2 (its
    lengths).
    """
    rows, other = op.input_dims[0], op.input_dims[1]
    size, out_size = _sizes(op)
    exact = None
    if not _is_list(rows) and len(rows) == len(other) == 2 and rows[0] == other[0]:
        (m, k), (_, n) = rows, other
        pairs: list[Pair] = [((m, k), (k, n))]
        lengths = optional_tensor(op, 2).shape
        if len(lengths) == 1:
            exact = total_bytes((m * (k + n), size), (lengths[0] * k * n, out_size))
    else:
        pairs = _pairs(op)
    products = [(a[0], a[1], b[1]) for a, b in pairs]
    operands = sum(m * k + k * n for m, k, n in products)
    outputs = sum(m * n for m, _, n in products)
    return OpCost(
        flops=sum(2 * m * k * n for m, k, n in products),
        bytes=total_bytes((operands, size), (outputs, out_size)),
        compute=compute_spec("matrix", dtype(op, 0)),
        params={
            "M": products[0][0],
            "K": sum(k for _, k, _ in products),
            "N": products[0][2],
            "G": len(products),
            "bpe_in": size,
            "bpe_out": out_size,
            "group_pairs": tuple(pairs),
        },
        exact_bytes=exact,
    )


def _groups(a: Tensor, b: Tensor, offsets: Tensor) -> tuple[int, Shape, Shape]:
    """Return the number of groups, (M, N, K) of all products as one, and the shape of the output.

    Operands are stacked (3-d), or concatenated along M, N or K (2-d) and split by offsets.
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
    return product_cost((m, n, k), 2 * m * n * k, moved, compute_spec("matrix", a.dtype), groups)


@perf_model("aten::_grouped_mm")
def grouped_mm(op: OpSignature) -> OpCost:
    """Return the cost of G products, stacked or split along M, N or K by offsets.

    FLOPs 2MNK; bytes A + B + Y. M, N, K are those of the whole operands, G times as much if both
    are stacked. Rows after the last offset count too, because offset values are not recorded.
    """
    a = tensor(op, 0)
    return _grouped(op, 2, requested_size(op, 4, a.real_size))


@perf_model("aten::_scaled_grouped_mm")
def scaled_grouped_mm(op: OpSignature) -> OpCost:
    """Return the cost of a grouped product of scaled 8-bit operands.

    FLOPs 2MNK; bytes A + B + both scales + Y. Y has the dtype of argument 7, else half precision.
    """
    out_size = requested_size(op, 7, HALF_PRECISION_BYTES)
    return _grouped(op, 4, out_size, tensor(op, 2), tensor(op, 3))
