"""Read the arguments of an op signature: tensors, lists of tensors, values in text form.

The profiler records the shapes of the tensors of a list, up to 30 of them, but not their dtype:
that is read from the kernel names.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from jarvis.core.dtypes import element_bytes, scalar_type_bytes
from jarvis.perf_models.dtypes import bytes_per_element, compute_spec
from jarvis.perf_models.registry import (
    NoModelForCallError,
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
)
from jarvis.text.format import cut

Shape = tuple[int, ...]

TENSOR_LIST = "TensorList"

_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")
_COPIED = re.compile(r"CatArrayBatchedCopy\w{0,80}<([\w:]+)")
_APPLY = "multi_tensor_apply_kernel<"
_FUNCTOR = re.compile(r"Functor<([A-Za-z][\w:]*)(?:, ([A-Za-z][\w:]*))?")
_NO_TENSOR = frozenset({"", "Scalar", "ScalarList", TENSOR_LIST, "GenericList"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument: shape in elements, dtype name, strides in elements (None: not recorded).

    A Python scalar is a tensor of shape ``()``, which has one element; so is an absent argument,
    whose dtype is ``""``.
    """

    shape: Shape = ()
    dtype: str = ""
    strides: Shape | None = None

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def stored(self) -> int:
        """Number of elements in memory: a dim of stride 0 repeats the same ones."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.numel
        steps = zip(self.shape, self.strides, strict=True)
        return prod(extent for extent, step in steps if step or not extent)

    @property
    def size(self) -> int | None:
        """Bytes per element as the report sheets count them, None for an unknown dtype."""
        return bytes_per_element(self.dtype)

    @property
    def real_size(self) -> int | None:
        """Actual bytes per element, None for an unknown dtype."""
        return element_bytes(self.dtype)

    @property
    def given(self) -> bool:
        """Whether the argument is a tensor with at least one dimension."""
        return bool(self.shape)


def tensor(op: OpSignature, index: int) -> Tensor:
    """Return argument ``index`` as a tensor.

    Raises:
        UnexpectedArgumentsError: the argument is not recorded, or is a list of tensors.
    """
    if index >= len(op.input_dims):
        raise UnexpectedArgumentsError(
            f"{op.name} was recorded with {len(op.input_dims)} arguments; its formula reads "
            f"argument {index}. Record with record_shapes=True, or add a formula for this form."
        )
    shape = op.input_dims[index] or ()
    if any(isinstance(extent, (tuple, list)) for extent in shape):
        raise UnexpectedArgumentsError(
            f"Argument {index} of {op.name} is a list of tensors; its formula expects one tensor."
        )
    return Tensor(tuple(shape), dtype(op, index), strides(op, index))


def optional_tensor(op: OpSignature, index: int) -> Tensor:
    """Return argument ``index`` as a tensor; without shape and dtype if it is not recorded."""
    return tensor(op, index) if index < len(op.input_dims) else Tensor()


def tensors_at(op: OpSignature, positions: Iterable[int]) -> Iterator[Tensor]:
    """Yield the arguments at ``positions`` that are tensors, not numbers, lists or absent."""
    for index in positions:
        if index < len(op.input_types) and op.input_types[index] not in _NO_TENSOR:
            yield optional_tensor(op, index)


def dtype(op: OpSignature, index: int) -> str:
    """Return the dtype name of argument ``index``, ``""`` if it is not recorded."""
    return op.input_types[index] if index < len(op.input_types) else ""


def strides(op: OpSignature, index: int) -> Shape | None:
    """Return the strides of argument ``index``, None if they are not recorded."""
    if index >= len(op.input_strides) or op.input_strides[index] is None:
        return None
    return tuple(op.input_strides[index])


def text(op: OpSignature, index: int) -> str:
    """Return argument ``index`` as the profiler wrote it, ``""`` if it is absent or a tensor.

    Raises:
        UnexpectedArgumentsError: the trace has no values of arguments.
    """
    if not op.concrete_inputs:
        raise UnexpectedArgumentsError(
            f"{op.name} was recorded without the values of its arguments, which its formula reads."
        )
    value = op.concrete_inputs[index] if index < len(op.concrete_inputs) else ""
    return "" if value is None or value == "None" else str(value).strip()


def flag(op: OpSignature, index: int) -> bool:
    """Return a bool argument, False if it is absent."""
    return _flag(op, index, text(op, index) or "False")


def integer(op: OpSignature, index: int, default: int) -> int:
    """Return an int argument, ``default`` if it is absent."""
    value = text(op, index)
    return _integer(op, index, value) if value else default


def _flag(op: OpSignature, index: int, value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0"):
        raise _unreadable(op, index, "true or false")
    return value.lower() in ("true", "1")


def _integer(op: OpSignature, index: int, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise _unreadable(op, index, "whole numbers") from None


def _unreadable(op: OpSignature, index: int, meant: str) -> UnexpectedArgumentsError:
    return UnexpectedArgumentsError(
        f"Argument {index} of {op.name} was recorded as {cut(text(op, index))!r}, not as {meant}."
    )


def requested_size(op: OpSignature, index: int, default: int | None) -> int | None:
    """Return the bytes per element of a ``dtype=`` argument, ``default`` if it is absent."""
    size = scalar_type_bytes(text(op, index))
    return default if size is None else size


def integers(op: OpSignature, index: int) -> Shape | None:
    """Return a list of ints such as ``"[1, 2]"`` or ``"(1,2)"``, None if absent or not a list."""
    items = _items(op, index)
    return None if items is None else tuple(_integer(op, index, item) for item in items)


def flags(op: OpSignature, index: int) -> list[bool] | None:
    """Return a list of bools such as ``"[True, False]"``, None if absent or not a list."""
    items = _items(op, index)
    return None if items is None else [_flag(op, index, item) for item in items]


def per_dim(
    op: OpSignature, index: int, dims: int, meaning: str, default: Shape | None = None
) -> Shape:
    """Return one int per spatial dim; a single one applies to all dims.

    Args:
        meaning: what the argument is, for the error.
        default: values if the argument is absent or an empty list.

    Raises:
        UnexpectedArgumentsError: the argument is absent without default, or not one int per dim.
    """
    values = integers(op, index)
    if values is None and (value := text(op, index)):
        values = (_integer(op, index, value),)
    if not (values := values or default):
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its {meaning}.")
    if len(values) not in (1, dims):
        raise _unreadable(op, index, f"whole numbers for {dims} dims")
    return values * dims if len(values) == 1 else values


def _items(op: OpSignature, index: int) -> list[str] | None:
    value = text(op, index)
    if value[:1] + value[-1:] not in ("[]", "()"):
        return None
    return [item.strip() for item in value[1:-1].split(",") if item.strip()]


def total_bytes(*parts: tuple[float, float | None]) -> float | None:
    """Return the sum over (elements, bytes per element), None if any size is unknown."""
    total: float = 0
    for elements, size in parts:
        if size is None:
            return None
        total += elements * size
    return total


def broadcast(first: Shape, second: Shape) -> Shape:
    """Return the broadcast of two shapes.

    Raises:
        UnexpectedArgumentsError: the shapes cannot be broadcast.
    """
    rank = max(len(first), len(second))
    pairs = zip(
        (1,) * (rank - len(first)) + first, (1,) * (rank - len(second)) + second, strict=True
    )
    extents = []
    for a, b in pairs:
        if a != b and 1 not in (a, b):
            raise UnexpectedArgumentsError(f"Shapes {first} and {second} cannot be broadcast.")
        extents.append(b if a == 1 else a)
    return tuple(extents)


def layout_params(tensor_in: Tensor, tensor_out: Tensor | None = None) -> dict[str, Any]:
    """Return the params that elementwise ops and normalizations share."""
    return {
        "op_shape": tensor_in.shape,
        "dtype_in_out": (tensor_in.dtype, tensor_out.dtype if tensor_out else None),
        "stride_input": tensor_in.strides,
        "stride_output": tensor_out.strides if tensor_out else None,
    }


def vector_cost(x: Tensor, flops: float, moved: float | None) -> OpCost:
    """Return a cost on the vector units in the dtype of x, with the layout of x as params."""
    return OpCost(flops, moved, compute_spec("vector", x.dtype), layout_params(x))


def is_tensor_list(op: OpSignature, index: int) -> bool:
    """Return whether argument ``index`` is a list of tensors."""
    return index < len(op.input_types) and op.input_types[index] == TENSOR_LIST


def list_shapes(op: OpSignature, index: int) -> tuple[Shape, ...]:
    """Return the tensor shapes of list argument ``index``; ``()`` for an empty or too long list."""
    return (
        tuple(tuple(shape) for shape in op.input_dims[index]) if is_tensor_list(op, index) else ()
    )


def list_numel(op: OpSignature, index: int) -> int:
    """Return the number of elements of all tensors of list argument ``index``.

    Raises:
        NoModelForCallError: no shapes are recorded.
    """
    shapes = list_shapes(op, index)
    if not shapes:
        raise NoModelForCallError(f"{op.name} was recorded without the shapes of its tensors.")
    return sum(prod(shape) for shape in shapes)


def copied_size(op: OpSignature) -> int | None:
    """Return the bytes per element from the kernel names of a concatenation, None if not named."""
    for kernel in op.kernel_names:
        if (opaque := _OPAQUE.search(kernel)) is not None:
            return int(opaque[1])
        if (copied := _COPIED.search(kernel)) is not None:
            return element_bytes(copied[1])
    return None


def functor_dtypes(op: OpSignature) -> tuple[str, ...]:
    """Return the dtypes named by the first multi-tensor kernel: of the result, then of a source."""
    for kernel in op.kernel_names:
        _, _, applied = kernel.partition(_APPLY)
        if (functor := _FUNCTOR.search(applied)) is not None:
            return tuple(name for name in functor.groups() if name)
    return ()


def functor_size(op: OpSignature) -> int | None:
    """Return the bytes per element from the names of multi-tensor kernels, None if not named."""
    return element_bytes(next(iter(functor_dtypes(op)), ""))


def functor_compute(op: OpSignature) -> str:
    """Return the peak for the dtype in the names of multi-tensor kernels."""
    return compute_spec("vector", next(iter(functor_dtypes(op)), None))
