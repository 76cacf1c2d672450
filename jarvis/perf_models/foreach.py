"""Elementwise ops over lists of tensors, which one kernel works on at a time.

The profiler records no shapes of a list of more than 30 tensors; such calls have no model.
"""

from jarvis.perf_models.arguments import total_bytes
from jarvis.perf_models.dtypes import real_bytes_per_element
from jarvis.perf_models.element_flops import element_flops
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model
from jarvis.perf_models.tensor_lists import (
    functor_compute,
    functor_dtypes,
    functor_size,
    is_list,
    numel,
    shapes,
)

_PREFIX = "aten::_foreach_"
_OUT_OF_PLACE_AND_IN_PLACE = """
    add sub mul div addcmul addcdiv lerp maximum minimum clamp_min clamp_max pow sqrt rsqrt
    reciprocal neg abs exp expm1 log log1p log2 log10 sin cos tan tanh sigmoid erf erfc floor ceil
    round trunc frac sign
"""


def _lists(op: OpSignature) -> int:
    """Number of lists of tensors among the arguments."""
    return sum(is_list(op, index) for index in range(len(op.input_types)))


def _cost(op: OpSignature, flops_per_element: int, moved_elements: int) -> OpCost:
    return OpCost(
        flops=flops_per_element * numel(op, 0),
        bytes=total_bytes((moved_elements, functor_size(op))),
        compute=functor_compute(op),
        params={"tensors": len(shapes(op, 0)), "num_elems": numel(op, 0)},
    )


@perf_model(
    *(
        f"{_PREFIX}{name}{mark}"
        for name in _OUT_OF_PLACE_AND_IN_PLACE.split()
        for mark in ("", "_")
    ),
    needs_kernels=True,
)
def foreach(op: OpSignature) -> OpCost:
    """Flops of the function for each of the n elements; bytes of every list read, n written."""
    flops = element_flops(op.name.removeprefix(_PREFIX))
    return _cost(op, flops, (_lists(op) + 1) * numel(op, 0))


@perf_model(f"{_PREFIX}zero_", needs_kernels=True)
def foreach_zero(op: OpSignature) -> OpCost:
    """Flops 0; bytes n written."""
    return _cost(op, 0, numel(op, 0))


@perf_model(f"{_PREFIX}copy_", needs_kernels=True)
def foreach_copy(op: OpSignature) -> OpCost:
    """Flops 0; bytes n read of the source's dtype, n written of the destination's."""
    sizes = [real_bytes_per_element(dtype) for dtype in functor_dtypes(op)] or [None]
    elements = numel(op, 0)
    return OpCost(
        flops=0,
        bytes=total_bytes((elements, sizes[0]), (elements, sizes[-1])),
        params={"tensors": len(shapes(op, 0)), "num_elems": elements},
    )


@perf_model(f"{_PREFIX}norm", needs_kernels=True)
def foreach_norm(op: OpSignature) -> OpCost:
    """Square and add: flops 2n; bytes n read, one element per tensor written."""
    return _cost(op, element_flops("norm"), numel(op, 0) + len(shapes(op, 0)))


@perf_model(
    "aten::_amp_foreach_non_finite_check_and_unscale_",
    needs_kernels=True,
)
def unscale(op: OpSignature) -> OpCost:
    """Check for infinity and multiply: flops 2n; bytes n read, n written."""
    return _cost(op, 2, 2 * numel(op, 0))
