"""Hyper-connections (mHC): n residual streams of width C, mixed in every layer.

Per token, a product with the streams gives n input gates, n output gates and an n x n mixing
matrix, which Sinkhorn iterations make doubly stochastic.
"""

from jarvis.perf_models.arguments import Tensor, integer, tensor, total_bytes
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

SINKHORN_ITERATIONS = 20
SINKHORN_FLOPS = 4  # per entry of the mix: a sum and a quotient, along rows and along columns


def _streams(t: Tensor) -> tuple[int, int, int]:
    """Return tokens M, streams n, width C."""
    if len(t.shape) != 3:
        raise UnexpectedArgumentsError(f"Streams (M,n,C) were expected, found {t.shape}.")
    return t.shape[0], t.shape[1], t.shape[2]


def _operand_bytes(op: OpSignature, count: int) -> float | None:
    """Return the bytes of arguments 0 .. count - 1, each read or written once."""
    operands = [tensor(op, index) for index in range(count)]
    return total_bytes(*((t.numel, t.size) for t in operands))


def _mixing_flops(tokens: int, streams: int, width: int) -> int:
    """Return the FLOPs of mixing the streams and adding the layer's output to each: 2MnC(n + 1)."""
    return 2 * tokens * streams * width * (streams + 1)


@perf_model("aiter::mhc_post", category="mHC")
def post(op: OpSignature) -> OpCost:
    """Return the cost of out (M,n,C), layer output (M,C), streams (M,n,C), gates, mix at 0 .. 4.

    FLOPs 2MnC(n + 1); bytes of the five operands.
    """
    streams = tensor(op, 2)
    m, n, c = _streams(streams)
    params = {"M": m, "n": n, "C": c}
    compute = compute_spec("vector", streams.dtype)
    return OpCost(_mixing_flops(m, n, c), _operand_bytes(op, 5), compute, params)


@perf_model("aiter::mhc_pre_gemm_sqrsum", category="mHC")
def pre_gemm(op: OpSignature) -> OpCost:
    """Return the cost of out, sums of squares, streams (M,K), projection (h,K) at 0 .. 3.

    FLOPs 2MhK; bytes of the four operands.
    """
    streams, projection = tensor(op, 2), tensor(op, 3)
    m, (outputs, k) = streams.shape[0], projection.shape
    params = {"M": m, "hc_mult3": outputs, "K": k}
    compute = compute_spec("matrix", streams.dtype)
    return OpCost(2 * m * outputs * k, _operand_bytes(op, 4), compute, params)


@perf_model("aiter::mhc_pre_big_fuse_rmsnorm", category="mHC")
def pre_fused(op: OpSignature) -> OpCost:
    """Return the cost of the fused pre-layer kernel.

    Arguments: gates, mix, out (M,C), projections, sums of squares, scale, base, streams (M,n,C),
    weight; Sinkhorn iterations s at 14. FLOPs 2MnC to collapse the streams + M(2C + 2) + 2MC to
    normalize + 4sMn^2; bytes of the nine operands.
    """
    streams = tensor(op, 7)
    m, n, c = _streams(streams)
    iterations = integer(op, 14, SINKHORN_ITERATIONS)
    collapse, normalize = 2 * m * n * c, m * (2 * c + 2) + 2 * m * c
    return OpCost(
        flops=collapse + normalize + SINKHORN_FLOPS * iterations * m * n * n,
        bytes=_operand_bytes(op, 9),
        compute=compute_spec("vector", streams.dtype),
        params={"M": m, "n": n, "C": c, "sinkhorn_repeat": iterations},
    )


@perf_model("aiter::mhc_fused_post_pre_gemm_sqrsum", category="mHC")
def post_and_pre_gemm(op: OpSignature) -> OpCost:
    """Return the cost of the fused post-layer mix and pre-layer product.

    Arguments: projections, sums of squares, next streams, layer output, streams, gates, mix,
    projection (h,nC) at 7. FLOPs 2MnC(n + 1) + 2MhnC; bytes of the eight operands.
    """
    streams, projection = tensor(op, 4), tensor(op, 7)
    m, n, c = _streams(streams)
    outputs = projection.shape[0]
    return OpCost(
        flops=_mixing_flops(m, n, c) + 2 * m * outputs * n * c,
        bytes=_operand_bytes(op, 8),
        compute=compute_spec("matrix", streams.dtype),
        params={"M": m, "n": n, "C": c, "hc_mult3": outputs},
    )
