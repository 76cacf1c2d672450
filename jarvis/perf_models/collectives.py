"""Custom collectives (not PyTorch's own): bytes that one GPU reads and writes."""

from jarvis.perf_models.arguments import Tensor, optional_tensor, tensor, total_bytes
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)


def _moved(x: Tensor, elements: int) -> OpCost:
    return OpCost(
        flops=0,
        bytes=total_bytes((elements, x.size)),
        params={"op_shape": x.shape, "dtype": x.dtype},
    )


@perf_model(
    "_C_custom_ar::all_reduce",
    "_C_custom_ar::qr_all_reduce",
    "sgl_kernel::all_reduce_reg",
    "sgl_kernel::qr_all_reduce",
    category="CustomCollective",
)
def all_reduce(op: OpSignature) -> OpCost:
    """Return the cost of an all-reduce of x at 1: FLOPs 0; bytes 2x."""
    x = tensor(op, 1)
    return _moved(x, 2 * x.numel)


@perf_model("aiter::reduce_scatter", "aiter::all_gather_reg", category="CustomCollective")
def scatter_or_gather(op: OpSignature) -> OpCost:
    """Return the cost of input and output at 1, 2: FLOPs 0; bytes both, of the input's dtype."""
    x, out = tensor(op, 1), tensor(op, 2)
    return _moved(x, x.numel + out.numel)


@perf_model("sglang::reg_all_gather_into_tensor", category="CustomCollective")
def gather_into_tensor(op: OpSignature) -> OpCost:
    """Return the cost of output and input at 0, 1: FLOPs 0; bytes both, of the output's dtype."""
    out, x = tensor(op, 0), tensor(op, 1)
    return _moved(out, out.numel + x.numel)


def _reduce_and_norm_cost(op: OpSignature, x: Tensor, weight: Tensor) -> OpCost:
    """Return the cost of a fused all-reduce, residual add and RMS norm.

    FLOPs n to add the residual + (n/c)(2c + 2) + 2n; bytes 4n + c.
    """
    if len(weight.shape) != 1:
        raise UnexpectedArgumentsError(f"{op.name} reads a weight vector, found {weight.shape}.")
    n, c = x.numel, weight.numel
    return OpCost(
        flops=n + n // c * (2 * c + 2) + 2 * n,
        bytes=total_bytes((4 * n + c, x.size)),
        params={"op_shape": x.shape, "dtype": x.dtype, "num_channels": c},
    )


@perf_model("aiter::fused_allreduce_rmsnorm", category="CustomCollective")
def all_reduce_and_rms_norm(op: OpSignature) -> OpCost:
    """Return the cost of x of n elements at 2, weight of c at 6, or at 5 in later releases.

    FLOPs 3n + (n/c)(2c + 2); bytes 4n + c of x's dtype.
    """
    last = optional_tensor(op, 6)
    weight = last if len(last.shape) == 1 else tensor(op, 5)
    return _reduce_and_norm_cost(op, tensor(op, 2), weight)


@perf_model("aiter::fused_allreduce_rmsnorm_", category="CustomCollective")
def all_reduce_and_rms_norm_in_place(op: OpSignature) -> OpCost:
    """Return the cost of x of n elements at 0, weight of c at 2.

    FLOPs 3n + (n/c)(2c + 2); bytes 4n + c of x's dtype.
    """
    return _reduce_and_norm_cost(op, tensor(op, 0), tensor(op, 2))


categorize(
    "CustomCollective",
    *(
        f"aiter::allgather_lastdim<std::bfloat16_t, {ranks}>(aiter::RankData*, "
        "aiter::RankSignals, aiter::Signal*, std::bfloat16_t*, int, int, int) (Synthetic Op)"
        for ranks in (2, 4)
    ),
)
categorize("record_param_comms", "record_param_comms*")
