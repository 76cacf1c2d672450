"""The dtype of tensors in lists: not recorded by the trace, but indicated by kernel names."""

from collections.abc import Sequence

from jarvis.perf_models.registry import OpSignature
from jarvis.perf_models.tensor_lists import copied_size, functor_dtypes
from jarvis.replay.schema import Argument

_OF_SIZE = {1: "unsigned char", 2: "c10::BFloat16", 4: "float", 8: "double"}
"""Bytes per element -> a dtype of that size; copies take equally long for any other."""


def list_dtype(operator: str, argument: Argument, kernels: Sequence[str]) -> str | None:
    """Return the dtype of a list's elements as traces name it, None if no kernel indicates it.

    Kernels that only copy indicate only the element size: then it is a dtype of that size.
    """
    call = OpSignature(operator, kernel_names=tuple(kernels))
    if (size := copied_size(call)) is not None:
        return _OF_SIZE.get(size)
    named = functor_dtypes(call)
    if argument.name == "state_steps":
        return "float"  # optimizers count steps in float, whatever they train
    if argument.name == "src":
        return named[-1] if named else None
    return named[0] if named else None
