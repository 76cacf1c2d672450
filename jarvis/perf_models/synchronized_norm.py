"""Batch normalization whose statistics are shared by several ranks: its local kernels.

n elements in c channels. Statistics are float32 for half precision inputs.
"""

from jarvis.perf_models.arguments import Tensor, layout_params, optional_tensor, tensor, total_bytes
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model

_STATISTICS_BYTES = 4


def _cost(x: Tensor, flops_per_element: int, tensors: int, vectors: float | None) -> OpCost:
    """``tensors`` as large as x are moved, and ``vectors`` bytes of values per channel."""
    moved = total_bytes((tensors * x.numel, x.real_size))
    return OpCost(
        flops=flops_per_element * x.numel,
        bytes=None if moved is None or vectors is None else moved + vectors,
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x) | {"num_channels": x.shape[1]},
    )


def _given(op: OpSignature, *indices: int) -> float | None:
    """Bytes of the arguments ``indices`` that are given."""
    found = (optional_tensor(op, index) for index in indices)
    return total_bytes(*((t.numel, t.real_size) for t in found if t.given))


@perf_model("aten::batch_norm_stats")
def statistics(op: OpSignature) -> OpCost:
    """Mean and variance: difference, square and two sums: flops 4n; bytes n read, 2c written."""
    x = tensor(op, 0)
    return _cost(x, 4, 1, 2 * x.shape[1] * _STATISTICS_BYTES)


@perf_model("aten::batch_norm_elemt")
def normalize(op: OpSignature) -> OpCost:
    """(x - mean) invstd w + b: flops 4n; bytes n and the vectors read, n written."""
    return _cost(tensor(op, 0), 4, 2, _given(op, 1, 2, 3, 4))


@perf_model("aten::batch_norm_backward_reduce")
def backward_sums(op: OpSignature) -> OpCost:
    """Gradient, input: sums of g and of g (x - mean): flops 4n; bytes 2n and vectors read.

    Written are four vectors of c: both sums, the gradients of weight and bias.
    """
    x, vectors = tensor(op, 1), _given(op, 2, 3, 4)
    written = 4 * x.shape[1] * _STATISTICS_BYTES
    return _cost(x, 4, 2, None if vectors is None else vectors + written)


@perf_model("aten::batch_norm_backward_elemt")
def backward_of_input(op: OpSignature) -> OpCost:
    """Gradient, input: (g - m_g - (x - mean) f) s: flops 5n; bytes 2n and vectors read, n written.

    The factors of each channel are not counted.
    """
    return _cost(tensor(op, 1), 5, 3, _given(op, 2, 3, 4, 5, 6))
