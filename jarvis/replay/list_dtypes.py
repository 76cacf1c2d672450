"""The dtype of tensors in lists: not recorded by the trace, but indicated by kernel names."""

from collections.abc import Sequence

from jarvis.core.dtypes import element_bytes
from jarvis.perf_models.arguments import copied_size, functor_dtypes
from jarvis.perf_models.registry import OpSignature
from jarvis.replay.schema import Argument

_NAMES = ("unsigned char", "c10::BFloat16", "float", "double")
_OF_SIZE = {element_bytes(name): name for name in _NAMES}
"""Bytes per element -> a type of that size; a copy takes as long for any other."""


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
