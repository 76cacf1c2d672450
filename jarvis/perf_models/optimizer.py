"""Optimizer steps: fused kernels for many parameters, and ops over lists of tensors (foreach).

They move several values for each of the n parameters. The profiler records no shapes for lists of
more than 30 tensors; such calls have no model.
"""

from jarvis.core.dtypes import element_bytes
from jarvis.perf_models.arguments import (
    dtype,
    flag,
    functor_compute,
    functor_dtypes,
    functor_size,
    is_tensor_list,
    list_numel,
    list_shapes,
    text,
    total_bytes,
)
from jarvis.perf_models.elementwise import element_flops
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model

_PREFIX = "aten::_foreach_"
_OUT_OF_PLACE_AND_IN_PLACE = """
    add sub mul div addcmul addcdiv lerp maximum minimum clamp_min clamp_max pow sqrt rsqrt
    reciprocal neg abs exp expm1 log log1p log2 log10 sin cos tan tanh sigmoid erf erfc floor ceil
    round trunc frac sign
"""

_ADAM_FLOPS = 14  # first moment 3, second moment 4, denominator 4, update 3
_DECAY_FLOPS = 2
_UPDATE_FLOPS = 2
_MOMENTUM_FLOPS = 3
_NESTEROV_FLOPS = 2


def _step(op: OpSignature, flops: int, values: int, grad_scale: int) -> OpCost:
    """Return the cost of ``values`` moved per parameter.

    With a gradient scale (argument ``grad_scale``), gradients are divided and written back.
    """
    scaled = dtype(op, grad_scale) != ""
    parameters = list_numel(op, 0)
    return OpCost(
        flops=(flops + scaled) * parameters,
        bytes=total_bytes(((values + scaled) * parameters, functor_size(op))),
        compute=functor_compute(op),
        params={"tensors": len(list_shapes(op, 0)), "num_elems": parameters},
    )


def _is_zero(op: OpSignature, index: int) -> bool:
    return float(text(op, index) or 0) == 0


@perf_model(
    "aten::_fused_adam_",
    "aten::_fused_adamw_",
    needs_kernels=True,
)
def adam(op: OpSignature) -> OpCost:
    """Return the cost of an Adam step.

    FLOPs 14n (+ 2n decay) (+ n amsgrad) (+ n gradient scale); bytes 4n read, 3n written: parameter,
    gradient and both moments read, all but the gradient written. The largest second moment of
    amsgrad is read and written too; a scaled gradient is written.
    """
    amsgrad = flag(op, 11)
    decay = 0 if _is_zero(op, 9) else _DECAY_FLOPS
    return _step(op, _ADAM_FLOPS + decay + amsgrad, 7 + 2 * amsgrad, grad_scale=13)


@perf_model("aten::_fused_sgd_", needs_kernels=True)
def sgd(op: OpSignature) -> OpCost:
    """Return the cost of an SGD step.

    FLOPs 2n (+ 2n decay) (+ 3n momentum, + 2n Nesterov) (+ n gradient scale). Bytes 2n read, n
    written; the momentum is written, and read except in the first step.
    """
    momentum, first = not _is_zero(op, 4), flag(op, 9)
    flops = _UPDATE_FLOPS + (0 if _is_zero(op, 3) else _DECAY_FLOPS)
    if momentum and not first:
        flops += _MOMENTUM_FLOPS
    if momentum and flag(op, 7):
        flops += _NESTEROV_FLOPS
    values = 3 + momentum + (momentum and not first)
    return _step(op, flops, values, grad_scale=10)


def _list_count(op: OpSignature) -> int:
    """Return the number of tensor lists among the arguments."""
    return sum(is_tensor_list(op, index) for index in range(len(op.input_types)))


def _over_lists(op: OpSignature, flops_per_element: int, moved_elements: int) -> OpCost:
    return OpCost(
        flops=flops_per_element * list_numel(op, 0),
        bytes=total_bytes((moved_elements, functor_size(op))),
        compute=functor_compute(op),
        params={"tensors": len(list_shapes(op, 0)), "num_elems": list_numel(op, 0)},
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
    """Return the cost of a function of n elements in lists.

    FLOPs of the function for each of the n elements; bytes of every list read, n written.
    """
    flops = element_flops(op.name.removeprefix(_PREFIX))
    return _over_lists(op, flops, (_list_count(op) + 1) * list_numel(op, 0))


@perf_model(f"{_PREFIX}zero_", needs_kernels=True)
def foreach_zero(op: OpSignature) -> OpCost:
    """Return the cost of zeroing lists: FLOPs 0; bytes n written."""
    return _over_lists(op, 0, list_numel(op, 0))


@perf_model(f"{_PREFIX}copy_", needs_kernels=True)
def foreach_copy(op: OpSignature) -> OpCost:
    """Return the cost of copying lists.

    FLOPs 0; bytes n read of the source's dtype, n written of the destination's.
    """
    sizes = [element_bytes(dtype) for dtype in functor_dtypes(op)] or [None]
    elements = list_numel(op, 0)
    return OpCost(
        flops=0,
        bytes=total_bytes((elements, sizes[0]), (elements, sizes[-1])),
        params={"tensors": len(list_shapes(op, 0)), "num_elems": elements},
    )


@perf_model(f"{_PREFIX}norm", needs_kernels=True)
def foreach_norm(op: OpSignature) -> OpCost:
    """Return the cost of a norm per tensor (square and add).

    FLOPs 2n; bytes n read, one element per tensor written.
    """
    return _over_lists(op, element_flops("norm"), list_numel(op, 0) + len(list_shapes(op, 0)))


@perf_model(
    "aten::_amp_foreach_non_finite_check_and_unscale_",
    needs_kernels=True,
)
def unscale(op: OpSignature) -> OpCost:
    """Return the cost of checking for infinity and multiplying.

    FLOPs 2n; bytes n read, n written.
    """
    return _over_lists(op, 2, 2 * list_numel(op, 0))
