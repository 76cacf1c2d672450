"""Reductions and scans: one flop per input element, input read and output written once."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    broadcast,
    dtype,
    integers,
    optional_tensor,
    tensor,
    text,
    total_bytes,
)
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model

INDEX_BYTES = 8  # max and min along a dim write an int64 index beside each value

_DIMS_AT = {"norm": 2, "linalg_norm": 2}  # the other ops have their dims at argument 1
_SCANS = ("cumsum", "cumprod")
_EXTREMA = ("max", "min")


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
        """Flops n; bytes n + outputs of the input's dtype."""
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
        """The parameters as the sheets name them."""
        kinds = ("mean", "max", "min", "norm")
        return {
            "num_input_elems": self.elements,
            "num_output_elems": self.outputs,
            "dtype_in_out": (self.x.dtype, None),
            "reduce_type": next((kind for kind in kinds if kind in self.kind), "sum"),
        }


def _dims(op: OpSignature, kind: str) -> Shape:
    """The reduced dims; ``()`` means all of them, as the ops themselves take it."""
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
    rank = len(x.shape)
    reduced = {dim % rank for dim in dims} if rank else set()
    outputs = prod(n for i, n in enumerate(x.shape) if i not in reduced) if reduced else 1
    return Reduction(kind, x, outputs, x.numel, writes_indices=kind in _EXTREMA and bool(dims))


def _backward(op: OpSignature) -> OpCost:
    """Flops n; the output's gradient is read and the input's written: the bytes of the forward."""
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
    """Flops n; bytes n read + outputs written, of the input's dtype.

    A scan writes n, a reduction the product of the dims that it keeps (1 if it names none). The
    two-tensor form of max and min works elementwise, and their form with a dim writes indices:
    ``exact_flops`` and ``exact_bytes`` count those.
    """
    return _reduction(op).cost()
