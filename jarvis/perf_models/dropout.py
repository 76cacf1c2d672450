"""Dropout: a random mask times the input. Drawing the random numbers is not counted."""

from jarvis.perf_models.arguments import Tensor, layout_params, tensor, total_bytes
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model

MASK_BYTES = 1


def _cost(x: Tensor) -> OpCost:
    """Two operations per element; x and its result in its dtype, one byte of mask."""
    return OpCost(
        flops=2 * x.numel,
        bytes=total_bytes((2 * x.numel, x.real_size), (x.numel, MASK_BYTES)),
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x),
    )


@perf_model("aten::native_dropout", "aten::_fused_dropout")
def dropout(op: OpSignature) -> OpCost:
    """Compare with p and scale: flops 2n; bytes n read, n and n bytes of mask written."""
    return _cost(tensor(op, 0))


@perf_model("aten::native_dropout_backward", "aten::_masked_scale")
def dropout_backward(op: OpSignature) -> OpCost:
    """Gradient times mask times scale: flops 2n; bytes n and n bytes of mask read, n written."""
    return _cost(tensor(op, 0))
