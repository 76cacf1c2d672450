"""Shapes that a call reads and writes, and whether one call's result fits another's operands.

A trace does not identify tensors. Equal shapes of a result and of the next operand are evidence of
data flow, not proof.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from jarvis.core.dtypes import element_bytes
from jarvis.perf_report.literals import parsed

Shape = tuple[int, ...]

_COPY = "aten::copy_"
_CONCATENATION = ("aten::cat", "aten::stack")
_KEEPS_FIRST = ("norm", "softmax", "dropout")
_REDUCTIONS = ("mean", "sum", "amax", "amin", "max", "min", "var", "std", "prod", "norm", "all")


@dataclass(frozen=True)
class OperandTensor:
    """One operand; ``bytes`` is None if its dtype is not recorded."""

    shape: Shape
    bytes: int | None


@dataclass(frozen=True)
class Traffic:
    """Operands of a call, and the possible shapes of its result, most likely first.

    ``typed`` are the operands that determine the result's dtype, which is the widest of theirs.
    """

    reads: tuple[OperandTensor, ...]
    results: tuple[Shape, ...]
    typed: tuple[OperandTensor, ...]

    @property
    def written(self) -> int | None:
        """Bytes of the result; None if its shape or dtype is not known."""
        sizes = [t.bytes // prod(t.shape) for t in self.typed if t.bytes is not None]
        return prod(self.results[0]) * max(sizes) if self.results and sizes else None


@lru_cache(maxsize=4096)
def traffic(name: str, input_dims: str, input_types: str | None) -> Traffic:
    """Return the operands with more than one element, and the result shapes, of a call.

    The arguments are JSON text.
    """
    tensors = tuple(_tensors(parsed(input_dims), parsed(input_types)))
    shapes = [tensor.shape for tensor in tensors]
    if name == _COPY:
        return Traffic(tensors[1:2], tuple(shapes[:1]), tensors[:1])
    return Traffic(tensors, tuple(_results(name, shapes)), tensors)


def _results(name: str, shapes: list[Shape]) -> list[Shape]:
    if not shapes:
        return []
    if name in _CONCATENATION:
        return _concatenated(shapes)
    base = base_name(name)
    if any(base == word or base.startswith(f"{word}_") for word in _REDUCTIONS):
        return _reduced(shapes[0])
    if any(word in base for word in _KEEPS_FIRST):
        return [shapes[0]]
    result = _broadcast(shapes)
    return [] if result is None else [result]


def base_name(name: str) -> str:
    """Return an operator's name without namespace and underscores: ``add`` for ``aten::add_``."""
    return name.rpartition("::")[2].strip("_")


def flows(earlier: Traffic, later: Traffic) -> bool:
    """Return whether an operand of ``later`` has the shape of the result of ``earlier``."""
    return any(tensor.shape in earlier.results for tensor in later.reads)


def takes(earlier: Traffic, later: Traffic) -> bool:
    """Return whether an operand of ``later`` may be a view of the result of ``earlier``."""
    result = earlier.results[0] if earlier.results else ()
    return bool(result) and any(is_view(tensor.shape, result) for tensor in later.reads)


def is_view(shape: Shape, whole: Shape) -> bool:
    """Return whether two shapes have the same number of elements and the same row length."""
    return shape[-1] == whole[-1] and prod(shape) == prod(whole)


def is_related(one: Traffic, other: Traffic) -> bool:
    """Return whether two calls have tensors of equal shape, or one a part or a repetition of the
    other: sufficient evidence for calls in one module or function."""
    ours = [tensor.shape for tensor in one.reads] + list(one.results)
    theirs = [tensor.shape for tensor in other.reads] + list(other.results)
    return any(_fits(a, b) for a in ours for b in theirs)


def is_part(part: Shape, whole: Shape) -> bool:
    """Return whether ``part`` is ``whole`` cut along one dimension."""
    if len(part) != len(whole):
        return False
    cut = [(p, w) for p, w in zip(part, whole, strict=True) if p != w]
    return len(cut) == 1 and cut[0][0] > 1 and cut[0][1] % cut[0][0] == 0


def _tensors(dims: Any, types: Any) -> Iterator[OperandTensor]:
    for i, shape in enumerate(dims):
        kind = types[i] if i < len(types) else ""
        inner = shape if shape and isinstance(shape[0], tuple) else (shape,)
        for one in inner:
            if one and prod(one) > 1:
                size = element_bytes(_dtype(kind))
                yield OperandTensor(one, None if size is None else prod(one) * size)


def _dtype(kind: Any) -> str:
    """Return the dtype of an argument; for a list of tensors the first of their dtypes."""
    name = kind[0] if isinstance(kind, tuple) and kind else kind
    return str(name)


def _broadcast(shapes: list[Shape]) -> Shape | None:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    fits = all(
        size in (1, whole) for shape in padded for size, whole in zip(shape, result, strict=True)
    )
    return result if fits else None


def _concatenated(shapes: list[Shape]) -> list[Shape]:
    first = shapes[0]
    return [
        (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])
        for axis in range(len(first))
        if all(
            len(shape) == len(first)
            and shape[:axis] == first[:axis]
            and shape[axis + 1 :] == first[axis + 1 :]
            for shape in shapes
        )
    ][::-1]


def _reduced(shape: Shape) -> list[Shape]:
    """Return the shapes after a reduction along one dimension (last first), kept or dropped."""
    axes = range(len(shape) - 1, -1, -1)
    kept = [tuple(1 if i == axis else size for i, size in enumerate(shape)) for axis in axes]
    dropped = [shape[:axis] + shape[axis + 1 :] for axis in axes]
    return kept + dropped


def _fits(a: Shape, b: Shape) -> bool:
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    whole = all(x == y or 1 in (x, y) for x, y in zip(left, right, strict=True))
    return whole or is_part(a, b) or is_part(b, a)
