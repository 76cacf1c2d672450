"""Reading the arguments of an op signature: tensors, and values in the profiler's text form."""

from dataclasses import dataclass
from math import prod
from typing import Any

from jarvis.perf_models.dtypes import bytes_per_element, real_bytes_per_element
from jarvis.perf_models.registry import OpSignature, UnexpectedArgumentsError

Shape = tuple[int, ...]


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
        return real_bytes_per_element(self.dtype)

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
