"""Shapes without data: what the profiler records about the arguments of an operator."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

from jarvis.core.dtypes import element_bytes

BF16, FP32, INT64 = "c10::BFloat16", "float", "long int"


@dataclass(frozen=True, slots=True)
class SampleTensor:
    """A tensor as the profiler records it; contiguous unless strides (in elements) are given."""

    shape: tuple[int, ...]
    dtype: str = BF16
    strides: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        if len(self.strides) != len(self.shape):
            strides = tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
            object.__setattr__(self, "strides", strides)

    @property
    def numel(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        size = element_bytes(self.dtype)
        assert size is not None
        return self.numel * size

    def view(self, *shape: int) -> "SampleTensor":
        """Return a contiguous tensor of another shape and the same dtype."""
        return SampleTensor(shape, self.dtype)

    def swap(self, first: int, second: int) -> "SampleTensor":
        """Return a view with two dimensions exchanged."""
        order = list(range(len(self.shape)))
        order[first], order[second] = order[second], order[first]
        return SampleTensor(
            tuple(self.shape[i] for i in order), self.dtype, tuple(self.strides[i] for i in order)
        )


@dataclass(frozen=True, slots=True)
class TensorList:
    """A list argument; the profiler records the shapes of a collective's list, not of a foreach
    op's."""

    tensors: tuple[SampleTensor, ...] = ()


@lru_cache(maxsize=100_000, typed=True)
def recorded(*inputs: Any) -> dict[str, Any]:
    """Return the argument fields of a ``cpu_op`` event for its inputs; callers must not change
    them.

    A Tensor gives shape, dtype and strides; a number, bool or text a Scalar; a tuple a ScalarList;
    None an absent argument.
    """
    columns = [_argument(value) for value in inputs]
    keys = ("Concrete Inputs", "Input type", "Input Strides", "Input Dims")
    return {key: [column[i] for column in columns] for i, key in enumerate(keys)}


def _argument(value: Any) -> tuple[str, str, list[Any], list[Any]]:
    if value is None:
        return "", "", [], []
    if isinstance(value, SampleTensor):
        return "", value.dtype, list(value.strides), list(value.shape)
    if isinstance(value, TensorList):
        strides = [list(tensor.strides) for tensor in value.tensors]
        return "", "TensorList", strides, [list(tensor.shape) for tensor in value.tensors]
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]", "ScalarList", [], []
    return f"{value:.17g}" if isinstance(value, float) else str(value), "Scalar", [], []
