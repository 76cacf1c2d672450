"""Softmax and its logarithm over one dim, forward and backward."""

from jarvis.perf_models.arguments import Tensor, flag, layout_params, tensor, text, total_bytes
from jarvis.perf_models.dtypes import SCALAR_TYPE_BYTES, compute_spec
from jarvis.perf_models.element_flops import element_flops
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model

_BACKWARD_FLOPS = {"_softmax_backward_data": 4, "_log_softmax_backward_data": 7}


def _cost(x: Tensor, flops: float, read: int, out_size: int | None) -> OpCost:
    """``read`` elements of the dtype of x, one written for each of its own."""
    return OpCost(
        flops=flops,
        bytes=total_bytes((read, x.real_size), (x.numel, out_size)),
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x),
    )


@perf_model("aten::_softmax", "aten::_log_softmax")
def softmax(op: OpSignature) -> OpCost:
    """Maximum, difference, exponential, sum, quotient: flops 5n; bytes n read, n written.

    The function of a fused softmax counts as one operation each, the logarithm of the sum is per
    row. Argument 2 asks for a float32 result of a half precision input.
    """
    x = tensor(op, 0)
    return _cost(x, element_flops(op.name) * x.numel, x.numel, 4 if flag(op, 2) else x.real_size)


@perf_model(
    *(f"aten::{name}" for name in _BACKWARD_FLOPS),
)
def softmax_backward(op: OpSignature) -> OpCost:
    """Gradient, output: y (g - sum(g y)), flops 4n; of the logarithm g - exp(y) sum(g), flops 7n.

    Bytes 2n read, n written in the input's dtype (argument 3).
    """
    grad, output = tensor(op, 0), tensor(op, 1)
    flops = _BACKWARD_FLOPS[op.name.removeprefix("aten::")] * output.numel
    out_size = SCALAR_TYPE_BYTES.get(text(op, 3), output.real_size)
    return _cost(output, flops, grad.numel + output.numel, out_size)
