"""Reading the arguments of an op signature: tensors, lists of tensors, values in text form.

The profiler records the shapes of the tensors of a list, up to 30 of them, but no dtype: the names
of the kernels tell it.
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
    def size(self) -> int | None:
        """Bytes per element as the sheets count them."""
        return bytes_per_element(self.dtype)

    @property
    def real_size(self) -> int | None:
        """Bytes per element as they are."""
        return element_bytes(self.dtype)

    @property
    def given(self) -> bool:
        """Whether the argument is a tensor with at least one dimension."""
        return bool(self.shape)


def tensor(op: OpSignature, index: int) -> Tensor:
    """Argument ``index`` as a tensor; UnexpectedArgumentsError if it is not recorded or a list."""
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
    """Argument ``index`` as a tensor; a tensor without shape and dtype if it is not recorded."""
    return tensor(op, index) if index < len(op.input_dims) else Tensor()


def tensors_at(op: OpSignature, positions: Iterable[int]) -> Iterator[Tensor]:
    """The arguments that are tensors; numbers, lists and absent ones are not."""
    for index in positions:
        if index < len(op.input_types) and op.input_types[index] not in _NO_TENSOR:
            yield optional_tensor(op, index)


def dtype(op: OpSignature, index: int) -> str:
    """Dtype name of argument ``index``, ``""`` if it is not recorded."""
    return op.input_types[index] if index < len(op.input_types) else ""


def strides(op: OpSignature, index: int) -> Shape | None:
    """Strides of argument ``index``, None if they are not recorded."""
    if index >= len(op.input_strides) or op.input_strides[index] is None:
        return None
    return tuple(op.input_strides[index])


def text(op: OpSignature, index: int) -> str:
    """Value of argument ``index`` as the profiler wrote it, ``""`` if absent or a tensor."""
    value = op.concrete_inputs[index] if index < len(op.concrete_inputs) else ""
    return "" if value is None or value == "None" else str(value).strip()


def flag(op: OpSignature, index: int) -> bool:
    """A bool argument; absent is False."""
    return text(op, index).lower() in ("true", "1")


def integer(op: OpSignature, index: int, default: int) -> int:
    """An int argument."""
    value = text(op, index)
    return int(value) if value else default


def requested_size(op: OpSignature, index: int, default: int | None) -> int | None:
    """Bytes per element that an argument ``dtype=`` asks for; ``default`` where it is absent."""
    size = scalar_type_bytes(text(op, index))
    return default if size is None else size


def integers(op: OpSignature, index: int) -> Shape | None:
    """A list-of-int argument, ``"[1, 2]"``; None where it is absent or no list."""
    items = _items(op, index)
    return None if items is None else tuple(int(item) for item in items)


def flags(op: OpSignature, index: int) -> list[bool] | None:
    """A list-of-bool argument, ``"[True, False]"``; None where it is absent or no list."""
    items = _items(op, index)
    return None if items is None else [item.lower() == "true" for item in items]


def _items(op: OpSignature, index: int) -> list[str] | None:
    value = text(op, index)
    if not (value.startswith("[") and value.endswith("]")):
        return None
    return [item.strip() for item in value[1:-1].split(",") if item.strip()]


def total_bytes(*parts: tuple[float, float | None]) -> float | None:
    """Sum of (elements, bytes per element); None if the size of any part is not known."""
    total: float = 0
    for elements, size in parts:
        if size is None:
            return None
        total += elements * size
    return total


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape of an elementwise op over two shapes; UnexpectedArgumentsError if they clash."""
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
    """The params that elementwise ops and normalizations share."""
    return {
        "op_shape": tensor_in.shape,
        "dtype_in_out": (tensor_in.dtype, tensor_out.dtype if tensor_out else None),
        "stride_input": tensor_in.strides,
        "stride_output": tensor_out.strides if tensor_out else None,
    }


def vector_cost(x: Tensor, flops: float, moved: float | None) -> OpCost:
    """A cost on the vector units in the dtype of x, with the layout of x as parameters."""
    return OpCost(flops, moved, compute_spec("vector", x.dtype), layout_params(x))


def is_tensor_list(op: OpSignature, index: int) -> bool:
    """Whether argument ``index`` is a list of tensors."""
    return index < len(op.input_types) and op.input_types[index] == TENSOR_LIST


def list_shapes(op: OpSignature, index: int) -> tuple[Shape, ...]:
    """Shapes of the tensors of argument ``index``; ``()`` for an empty or a too long list."""
    return (
        tuple(tuple(shape) for shape in op.input_dims[index]) if is_tensor_list(op, index) else ()
    )


def list_numel(op: OpSignature, index: int) -> int:
    """Elements of all tensors of argument ``index``; NoModelForCallError if none are recorded."""
    found = list_shapes(op, index)
    if not found:
        raise NoModelForCallError(f"{op.name} was recorded without the shapes of its tensors.")
    return sum(prod(shape) for shape in found)


def copied_size(op: OpSignature) -> int | None:
    """Bytes per element that the kernels of a concatenation name."""
    for kernel in op.kernel_names:
        if (opaque := _OPAQUE.search(kernel)) is not None:
            return int(opaque[1])
        if (copied := _COPIED.search(kernel)) is not None:
            return element_bytes(copied[1])
    return None


def functor_dtypes(op: OpSignature) -> tuple[str, ...]:
    """The types that the first kernel over lists of tensors names: of the result, of a source."""
    for kernel in op.kernel_names:
        _, _, applied = kernel.partition(_APPLY)
        if (functor := _FUNCTOR.search(applied)) is not None:
            return tuple(name for name in functor.groups() if name)
    return ()


def functor_size(op: OpSignature) -> int | None:
    """Bytes per element that the kernels over lists of tensors name."""
    return element_bytes(next(iter(functor_dtypes(op)), ""))


def functor_compute(op: OpSignature) -> str:
    """The peak for the type that the kernels over lists of tensors name."""
    return compute_spec("vector", next(iter(functor_dtypes(op)), None))
