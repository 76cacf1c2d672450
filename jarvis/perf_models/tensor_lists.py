"""Lists of tensors among the arguments: the profiler records their shapes, but no dtype.

It records no shapes either where the list is longer than 30. What the elements are the kernels
tell, which bear the type in their name.
"""

import re
from math import prod

from jarvis.perf_models.arguments import Shape
from jarvis.perf_models.dtypes import compute_spec, real_bytes_per_element
from jarvis.perf_models.registry import NoModelForCallError, OpSignature

TENSOR_LIST = "TensorList"

_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")
_COPIED = re.compile(r"CatArrayBatchedCopy\w{0,80}<([\w:]+)")
_APPLY = "multi_tensor_apply_kernel<"
_FUNCTOR = re.compile(r"Functor<([A-Za-z][\w:]*)(?:, ([A-Za-z][\w:]*))?")


def is_list(op: OpSignature, index: int) -> bool:
    """Whether argument ``index`` is a list of tensors."""
    return index < len(op.input_types) and op.input_types[index] == TENSOR_LIST


def shapes(op: OpSignature, index: int) -> tuple[Shape, ...]:
    """Shapes of the tensors of argument ``index``; ``()`` for an empty or a too long list."""
    return tuple(tuple(shape) for shape in op.input_dims[index]) if is_list(op, index) else ()


def numel(op: OpSignature, index: int) -> int:
    """Elements of all tensors of argument ``index``; NoModelForCallError if none are recorded."""
    found = shapes(op, index)
    if not found:
        raise NoModelForCallError(f"{op.name} was recorded without the shapes of its tensors.")
    return sum(prod(shape) for shape in found)


def copied_size(op: OpSignature) -> int | None:
    """Bytes per element that the kernels of a concatenation name."""
    for kernel in op.kernel_names:
        if (opaque := _OPAQUE.search(kernel)) is not None:
            return int(opaque[1])
        if (copied := _COPIED.search(kernel)) is not None:
            return real_bytes_per_element(copied[1])
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
    return real_bytes_per_element(next(iter(functor_dtypes(op)), ""))


def functor_compute(op: OpSignature) -> str:
    """The peak for the type that the kernels over lists of tensors name."""
    return compute_spec("vector", next(iter(functor_dtypes(op)), None))
