"""Pooling, interpolation and padding of images and volumes: (N, C, spatial...)."""

from dataclasses import replace
from math import prod

from jarvis.perf_models.arguments import (
    Tensor,
    flag,
    integers,
    layout_params,
    per_dim,
    tensor,
    total_bytes,
    vector_cost,
)
from jarvis.perf_models.dtypes import INDEX_BYTES
from jarvis.perf_models.registry import (
    NoModelForCallError,
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

_TAPS = {
    "nearest": 1,
    "linear1d": 2,
    "bilinear2d": 4,
    "trilinear3d": 8,
    "bicubic2d": 16,
}
"""Input elements per output element of an interpolation."""


def _cost(x: Tensor, flops: float, elements: int, indices: int = 0) -> OpCost:
    """Return the cost of ``elements`` of the dtype of x and ``indices`` read or written."""
    return vector_cost(x, flops, total_bytes((elements, x.real_size), (indices, INDEX_BYTES)))


def _windows(op: OpSignature, x: Tensor, spatial: int, dilated: bool) -> tuple[int, int]:
    """Return the number of windows in a pooling of x, and of elements in each.

    The arguments are kernel, stride, padding, (dilation,) ceil mode from 1 on. In ceil mode the
    last window may extend past the edge, but not start there.
    """
    kernel = per_dim(op, 1, spatial, "kernel size")
    stride = per_dim(op, 2, spatial, "stride", kernel)
    padding = per_dim(op, 3, spatial, "padding", (0,))
    dilation = per_dim(op, 4, spatial, "dilation", (1,)) if dilated else (1,) * spatial
    up = flag(op, 5 if dilated else 4)
    windows = prod(x.shape[:-spatial])
    for extent, k, s, p, d in zip(
        x.shape[-spatial:], kernel, stride, padding, dilation, strict=True
    ):
        room = extent + 2 * p - d * (k - 1) - 1
        count = (room + (s - 1 if up else 0)) // s + 1
        windows *= count - 1 if up and (count - 1) * s >= extent + p else count
    return windows, prod(kernel)


def _spatial(op: OpSignature) -> int:
    """Return the number of spatial dims in an op's name, such as ``avg_pool2d``."""
    return int(op.name[op.name.index("d", op.name.index("pool")) - 1])


@perf_model(
    "aten::max_pool2d_with_indices",
    "aten::max_pool3d_with_indices",
)
def max_pool(op: OpSignature) -> OpCost:
    """Return the cost of a max pooling.

    FLOPs: a comparison per element of each window; bytes in read, out and indices written.
    """
    x = tensor(op, 0)
    windows, taps = _windows(op, x, _spatial(op), dilated=True)
    return _cost(x, windows * taps, x.numel + windows, windows)


@perf_model("aten::avg_pool2d", "aten::avg_pool3d")
def average_pool(op: OpSignature) -> OpCost:
    """Return the cost of an average pooling.

    FLOPs: an addition per element of each window; bytes in read, out written.
    """
    x = tensor(op, 0)
    windows, taps = _windows(op, x, _spatial(op), dilated=False)
    return _cost(x, windows * taps, x.numel + windows)


def _adaptive_outputs(op: OpSignature, x: Tensor) -> int:
    size = integers(op, 1)
    if not size:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its output size.")
    return prod(x.shape[: -len(size)]) * prod(size)


@perf_model("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d")
def adaptive_average_pool(op: OpSignature) -> OpCost:
    """Return the cost of an adaptive average pooling.

    FLOPs: an addition per input and a division per output element; bytes in + out.
    """
    x = tensor(op, 0)
    outputs = _adaptive_outputs(op, x)
    return _cost(x, x.numel + outputs, x.numel + outputs)


@perf_model("aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d")
def adaptive_max_pool(op: OpSignature) -> OpCost:
    """Return the cost of an adaptive max pooling.

    FLOPs: a comparison per input element; bytes in read, out and indices written.
    """
    x = tensor(op, 0)
    outputs = _adaptive_outputs(op, x)
    return _cost(x, x.numel, x.numel + outputs, outputs)


@perf_model(
    "aten::max_pool2d_with_indices_backward",
    "aten::max_pool3d_with_indices_backward",
    "aten::adaptive_max_pool2d_backward",
    "aten::adaptive_max_pool3d_backward",
)
def max_pool_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient [g], input.

    FLOPs g additions; bytes g and g indices read, the input written.
    """
    grad, x = tensor(op, 0), tensor(op, 1)
    return _cost(x, grad.numel, grad.numel + x.numel, grad.numel)


@perf_model(
    "aten::avg_pool2d_backward",
    "aten::avg_pool3d_backward",
    "aten::_adaptive_avg_pool2d_backward",
    "aten::_adaptive_avg_pool3d_backward",
)
def average_pool_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient [g], input [n].

    FLOPs g divisions + n additions; bytes g read, n written.
    """
    grad, x = tensor(op, 0), tensor(op, 1)
    return _cost(x, grad.numel + x.numel, grad.numel + x.numel)


def _taps(op: OpSignature) -> int:
    return next(taps for mode, taps in _TAPS.items() if mode in op.name)


@perf_model(
    "aten::upsample_linear1d",
    "aten::upsample_bilinear2d",
    "aten::upsample_trilinear3d",
    "aten::upsample_bicubic2d",
    *(f"aten::_upsample_nearest_exact{dims}d" for dims in (1, 2, 3)),
)
def interpolation(op: OpSignature) -> OpCost:
    """Return the cost of t products and t - 1 sums per output element, t = 2, 4, 8, 16.

    FLOPs (2t - 1) out (nearest: t = 1, a copy, 0); bytes in read, out written. The weights are not
    counted. The outer call by scale factors has no model: it calls the form with a size.
    """
    x, taps = tensor(op, 0), _taps(op)
    size = integers(op, 1)
    if not size:
        raise NoModelForCallError(f"{op.name} was recorded without its output size.")
    outputs = prod(x.shape[:2]) * prod(size)
    return _cost(x, (2 * taps - 1) * outputs if taps > 1 else 0, x.numel + outputs)


@perf_model(
    "aten::upsample_linear1d_backward",
    "aten::upsample_bilinear2d_backward",
    "aten::upsample_trilinear3d_backward",
    "aten::upsample_bicubic2d_backward",
    *(f"aten::upsample_nearest{dims}d_backward" for dims in (1, 2, 3)),
    *(f"aten::_upsample_nearest_exact{dims}d_backward" for dims in (1, 2, 3)),
)
def interpolation_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient [g], input size at argument 2.

    FLOPs 2tg (nearest: g); bytes g read, in written.
    """
    grad, taps = tensor(op, 0), _taps(op)
    size = integers(op, 2)
    if not size:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its input size.")
    return _cost(grad, 2 * taps * grad.numel if taps > 1 else grad.numel, grad.numel + prod(size))


def _padded(op: OpSignature, x: Tensor) -> int:
    """Return the elements of x with the paddings at argument 1, innermost dim first."""
    pads = integers(op, 1)
    if not pads:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its paddings.")
    shape = list(x.shape)
    for i in range(len(pads) // 2):
        shape[-1 - i] += pads[2 * i] + pads[2 * i + 1]
    return prod(shape)


@perf_model(*(f"aten::reflection_pad{dims}d" for dims in (1, 2, 3)))
def reflection_pad(op: OpSignature) -> OpCost:
    """Return the cost of pads, innermost dim first: FLOPs 0; bytes in read, out written."""
    x = tensor(op, 0)
    return _cost(x, 0, x.numel + _padded(op, x))


@perf_model(
    *(
        f"aten::{kind}_pad{d}d_backward"
        for kind in ("reflection", "replication")
        for d in (1, 2, 3)
    ),
)
def pad_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient [g], input [n]: FLOPs g additions; bytes g read, n written."""
    grad, x = tensor(op, 0), tensor(op, 1)
    return _cost(x, grad.numel, grad.numel + x.numel)


def _resized(x: Tensor, elements: int) -> OpCost:
    moved = total_bytes((x.numel, x.size), (elements, x.size))
    return replace(vector_cost(x, elements, moved), exact_flops=0)


@perf_model(
    "aten::replication_pad1d",
    "aten::replication_pad2d",
    "aten::replication_pad3d",
    category="elementwise",
    sheet="UnaryElementwise",
)
def replication_pad(op: OpSignature) -> OpCost:
    """Return the cost of pads, innermost dim first.

    FLOPs prod(out); bytes in + out; ``exact_flops`` is 0.
    """
    x = tensor(op, 0)
    return _resized(x, _padded(op, x))


@perf_model(
    "aten::upsample_nearest1d",
    "aten::upsample_nearest2d",
    "aten::upsample_nearest3d",
    category="elementwise",
    sheet="UnaryElementwise",
)
def upsample_nearest(op: OpSignature) -> OpCost:
    """Return the cost of output (N, C, *size).

    FLOPs prod(out); bytes in + out; ``exact_flops`` is 0.
    """
    x = tensor(op, 0)
    size = integers(op, 1)
    if not size:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its output size.")
    out = Tensor((*x.shape[:2], *size), x.dtype)
    params = layout_params(x, out) | {
        "op_shape": out.shape,
        "input_shape": x.shape,
        "output_shape": out.shape,
    }
    return replace(_resized(x, out.numel), params=params)
