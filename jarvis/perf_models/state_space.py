"""State space layers: causal convolution and chunked scan."""

from jarvis.perf_models.arguments import integer, optional_tensor, tensor
from jarvis.perf_models.dtypes import HALF_PRECISION_BYTES, compute_spec
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)


@perf_model("DaoAILab::_causal_conv1d_fwd_cpp", category="SSM_fwd")
def causal_conv1d(op: OpSignature) -> OpCost:
    """Return the cost of x (B,C,L), filter (C,k).

    FLOPs 2BCLk; bytes 2BCL + Ck (+ C for a bias) of x's dtype.
    """
    x, taps = tensor(op, 0), tensor(op, 1)
    if len(x.shape) != 3 or len(taps.shape) != 2:
        raise UnexpectedArgumentsError(f"{op.name} reads (B,C,L) and (C,k), found {x.shape}.")
    (batch, channels, length), width = x.shape, taps.shape[1]
    bias = optional_tensor(op, 2).given
    size = x.size or HALF_PRECISION_BYTES
    return OpCost(
        flops=2 * x.numel * width,
        bytes=(2 * x.numel + channels * width + (channels if bias else 0)) * size,
        compute=compute_spec("matrix", x.dtype),
        params={"B": batch, "C": channels, "L": length, "width": width, "bias": bias},
    )


def _state_space_dual(op: OpSignature) -> OpCost:
    x, taps = tensor(op, 0), tensor(op, 1)
    if len(x.shape) != 3:
        raise UnexpectedArgumentsError(f"{op.name} reads (B,T,width), found {x.shape}.")
    batch, length, width = x.shape
    channels, filter_width = taps.shape
    per_head = [tensor(op, index) for index in (3, 4, 5)]
    heads = per_head[0].shape[0]
    chunk, head_dim, groups = integer(op, 6, 128), integer(op, 15, 64), integer(op, 16, 1)
    state, rest = divmod(width - 2 * heads * head_dim - heads, 2 * groups)
    if rest or state <= 0:
        raise UnexpectedArgumentsError(
            f"{op.name}: the width {width} does not fit a whole state size."
        )
    tokens = batch * length
    flops = (
        2 * tokens * channels * filter_width
        + 2 * tokens * groups * chunk * state
        + 2 * tokens * heads * chunk * head_dim
        + 4 * tokens * heads * state * head_dim
    )
    size = x.size or HALF_PRECISION_BYTES
    elements = tokens * width + channels * filter_width + channels + tokens * heads * head_dim
    moved = elements * size + sum(heads * (t.size or HALF_PRECISION_BYTES) for t in per_head)
    params = {
        "B": batch,
        "T": length,
        "H": heads,
        "P": head_dim,
        "G": groups,
        "N": state,
        "chunk_size": chunk,
        "conv_channels": channels,
        "conv_width": filter_width,
    }
    return OpCost(flops, moved, compute_spec("matrix", x.dtype), params)


@perf_model(
    "MambaSplitConv1dScanCombinedFn",
    category="SSM_fwd",
    backward=_state_space_dual,
    backward_category="SSM_bwd",
)
def mamba(op: OpSignature) -> OpCost:
    """Return the cost of convolution and chunked scan of x (B,T,2HP + 2GN + H).

    H heads of P, G groups, state N. With filter (Cc,d) and chunks of C:
    FLOPs 2BT Cc d + 2BTGCN + 2BTHCP + 4BTHNP;
    bytes x, filter, its bias, three vectors of H, output BTHP.
    The backward pass has the same cost.
    """
    return _state_space_dual(op)


categorize("SSM_bwd", "DaoAILab::_causal_conv1d_bwd_cpp", "MambaSplitConv1dScanCombinedFnBackward")
