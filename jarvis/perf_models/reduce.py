"""Reductions and scans over dims, and softmax.

A reduction in the sheets has one FLOP per input element; the input is read and the output written
once.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    broadcast,
    dtype,
    flag,
    integers,
    optional_tensor,
    requested_size,
    tensor,
    text,
    total_bytes,
    vector_cost,
)
from jarvis.perf_models.dtypes import INDEX_BYTES, compute_spec, is_floating
from jarvis.perf_models.elementwise import element_flops
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model

_DIMS_AT = {"norm": 2, "linalg_norm": 2}  # other ops: argument 1
_SCANS = ("cumsum", "cumprod")
_EXTREMA = ("max", "min")
_SOFTMAX_BACKWARD_FLOPS = {"_softmax_backward_data": 4, "_log_softmax_backward_data": 7}


@dataclass(frozen=True, slots=True)
class Reduction:
    """Input elements, output elements, and the second tensor of an elementwise max or min."""

    kind: str
    x: Tensor
    outputs: int
    elements: int
    other: Tensor | None = None
    writes_indices: bool = False

    def cost(self) -> OpCost:
        """Return the cost: FLOPs n; bytes n + outputs of the input's dtype."""
        plain = OpCost(
            flops=self.elements,
            bytes=total_bytes((self.elements, self.x.size), (self.outputs, self.x.size)),
            compute=compute_spec("vector", self.x.dtype),
            params=self.params(),
        )
        if self.other is not None:
            operands = total_bytes(
                (self.elements + self.outputs, self.x.real_size),
                (self.other.numel, self.other.real_size),
            )
            return replace(plain, exact_flops=self.outputs, exact_bytes=operands)
        if self.writes_indices and plain.bytes is not None:
            return replace(plain, exact_bytes=plain.bytes + self.outputs * INDEX_BYTES)
        return plain

    def params(self) -> dict[str, Any]:
        """Return the params under the names that the sheets use."""
        kinds = ("mean", "max", "min", "norm")
        return {
            "num_input_elems": self.elements,
            "num_output_elems": self.outputs,
            "dtype_in_out": (self.x.dtype, None),
            "reduce_type": next((kind for kind in kinds if kind in self.kind), "sum"),
        }


def _dims(op: OpSignature, kind: str) -> Shape:
    """Return the reduced dims; ``()`` means all of them, as in the ops."""
    index = _DIMS_AT.get(kind, 1)
    if (dims := integers(op, index)) is not None:
        return dims
    if kind in _EXTREMA and dtype(op, index) == "Scalar" and text(op, index):
        return (int(text(op, index)),)
    return ()


def _reduction(op: OpSignature) -> Reduction:
    kind = op.name.removeprefix("aten::")
    if not op.input_dims:
        return Reduction(kind, Tensor(), outputs=0, elements=0)
    x = tensor(op, 0)
    if kind in _SCANS:
        return Reduction(kind, x, outputs=x.numel, elements=x.numel)
    other = optional_tensor(op, 1)
    if kind in _EXTREMA and other.given:
        outputs = prod(broadcast(x.shape, other.shape))
        return Reduction(kind, x, outputs, x.numel, other=other)
    dims = _dims(op, kind)
    outputs = _outputs(x.shape, dims)
    return Reduction(kind, x, outputs, x.numel, writes_indices=kind in _EXTREMA and bool(dims))


def _outputs(shape: Shape, dims: Shape) -> int:
    """Return the number of elements after reducing ``dims``; ``()`` means all of them."""
    reduced = {dim % len(shape) for dim in dims} if shape else set()
    return prod(n for i, n in enumerate(shape) if i not in reduced) if reduced else 1


def _backward(op: OpSignature) -> OpCost:
    """Return the cost of the backward pass: FLOPs n; bytes as in the forward pass.

    The output's gradient is read and the input's written.
    """
    call = _reduction(op)
    return replace(call, other=None, writes_indices=False).cost()


@perf_model(
    "aten::sum",
    "aten::mean",
    "aten::max",
    "aten::min",
    "aten::norm",
    "aten::linalg_norm",
    "aten::std",
    "aten::var",
    "aten::logsumexp",
    "aten::cumsum",
    "aten::cumprod",
    "aten::amin",
    "aten::amax",
    category="reduce",
    sheet="Reduce",
    backward=_backward,
)
def reduction(op: OpSignature) -> OpCost:
    """Return the cost of a reduction.

    FLOPs n; bytes n read + outputs written, of the input's dtype. A scan writes n, a reduction the
    product of the remaining dims (1 if it names none). The two-tensor form of max and min is
    elementwise, and their form with a dim writes indices: ``exact_flops`` and ``exact_bytes`` count
    those.
    """
    return _reduction(op).cost()


@dataclass(frozen=True, slots=True)
class _OtherReduction:
    """A reduction that the sheets do not list: position of its dims, and its results.

    ``outputs`` counts the results of the input's dtype, ``other_bytes`` those of another type.
    """

    dims_at: int = 1
    flops_per_element: int = 1
    outputs: int = 1
    other_bytes: int = 0


_OTHER_REDUCTIONS = {
    "argmax": _OtherReduction(outputs=0, other_bytes=INDEX_BYTES),
    "argmin": _OtherReduction(outputs=0, other_bytes=INDEX_BYTES),
    "count_nonzero": _OtherReduction(outputs=0, other_bytes=INDEX_BYTES),
    "any": _OtherReduction(outputs=0, other_bytes=1),
    "all": _OtherReduction(outputs=0, other_bytes=1),
    "prod": _OtherReduction(),
    "nansum": _OtherReduction(flops_per_element=2),  # compare, add
    "linalg_vector_norm": _OtherReduction(dims_at=2, flops_per_element=2),  # square, add
    "aminmax": _OtherReduction(flops_per_element=2, outputs=2),
    "var_mean": _OtherReduction(flops_per_element=4, outputs=2),  # difference, square, two sums
    "std_mean": _OtherReduction(flops_per_element=4, outputs=2),
}


@perf_model(*(f"aten::{name}" for name in _OTHER_REDUCTIONS))
def other_reduction(op: OpSignature) -> OpCost:
    """Return the cost of a reduction that the sheets leave out.

    FLOPs n (2n: norm, nansum, aminmax; 4n: var_mean, std_mean), 0 for integers and bools; bytes n
    read, results written: bools for ``any`` and ``all``, int64 for ``argmax``, ``argmin`` and
    ``count_nonzero``.
    """
    x, kind = tensor(op, 0), _OTHER_REDUCTIONS[op.name.removeprefix("aten::")]
    outputs = _outputs(x.shape, _named_dims(op, kind.dims_at))
    return _computed(
        x,
        kind.flops_per_element,
        (kind.outputs * outputs, x.real_size),
        (outputs, kind.other_bytes),
    )


def _named_dims(op: OpSignature, index: int) -> Shape:
    """Return a list of dims or a single one; a bool at ``index`` is another argument."""
    if (dims := integers(op, index)) is not None:
        return dims
    value = text(op, index)
    return (int(value),) if value.lstrip("-").isdigit() else ()


@perf_model("aten::_cummax_helper", "aten::_cummin_helper")
def scan_with_indices(op: OpSignature) -> OpCost:
    """Return the cost of a scan: FLOPs n; bytes n read, n values and n int64 indices written."""
    x = tensor(op, 0)
    return _computed(x, 1, (x.numel, x.real_size), (x.numel, INDEX_BYTES))


@perf_model("aten::_logcumsumexp")
def logarithmic_scan(op: OpSignature) -> OpCost:
    """Return the cost of an exponential, a logarithm, a maximum and a sum per element.

    FLOPs 10n; bytes n read, n written.
    """
    x = tensor(op, 0)
    return _computed(x, 10, (x.numel, x.real_size))


def _computed(x: Tensor, flops_per_element: int, *written: tuple[float, float | None]) -> OpCost:
    flops = flops_per_element * x.numel if is_floating(x.dtype) else 0
    return vector_cost(x, flops, total_bytes((x.numel, x.real_size), *written))


def _softmax_cost(x: Tensor, flops: float, read: int, out_size: int | None) -> OpCost:
    """Return the cost of ``read`` elements of the dtype of x, and one written per element of x."""
    return vector_cost(x, flops, total_bytes((read, x.real_size), (x.numel, out_size)))


@perf_model("aten::_softmax", "aten::_log_softmax")
def softmax(op: OpSignature) -> OpCost:
    """Return the cost of maximum, difference, exponential, sum, quotient.

    FLOPs 5n; bytes n read, n written. Each function in a fused softmax counts as one operation; the
    logarithm of the sum is per row. Argument 2 requests a float32 result of a half precision input.
    """
    x = tensor(op, 0)
    return _softmax_cost(
        x, element_flops(op.name) * x.numel, x.numel, 4 if flag(op, 2) else x.real_size
    )


@perf_model("aten::softmax", "aten::log_softmax")
def softmax_of_caller(op: OpSignature) -> OpCost:
    """Return the cost of ``aten::_softmax``, for traces that lack its call.

    FLOPs 5n; bytes n read, n written. Argument 2 is the dtype of the result.
    """
    x = tensor(op, 0)
    flops = element_flops(op.name.replace("aten::", "aten::_"))
    out_size = requested_size(op, 2, x.real_size)
    return _softmax_cost(x, flops * x.numel, x.numel, out_size)


@perf_model(*(f"aten::{name}" for name in _SOFTMAX_BACKWARD_FLOPS))
def softmax_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, output.

    y (g - sum(g y)): FLOPs 4n; of the logarithm g - exp(y) sum(g): FLOPs 7n. Bytes 2n read, n
    written in the input's dtype (argument 3).
    """
    grad, output = tensor(op, 0), tensor(op, 1)
    flops = _SOFTMAX_BACKWARD_FLOPS[op.name.removeprefix("aten::")] * output.numel
    out_size = requested_size(op, 3, output.real_size)
    return _softmax_cost(output, flops, grad.numel + output.numel, out_size)
