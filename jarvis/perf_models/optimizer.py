"""Optimizer steps that one kernel does for many parameters: Adam, AdamW, SGD.

They move several values for each of the n parameters. The profiler records no shapes of a list of
more than 30 tensors; such calls have no model.
"""

from jarvis.perf_models.arguments import dtype, flag, text, total_bytes
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model
from jarvis.perf_models.tensor_lists import functor_compute, functor_size, numel, shapes

_ADAM_FLOPS = 14  # first moment 3, second moment 4, denominator 4, update 3
_DECAY_FLOPS = 2
_UPDATE_FLOPS = 2
_MOMENTUM_FLOPS = 3
_NESTEROV_FLOPS = 2


def _step(op: OpSignature, flops: int, values: int, grad_scale: int) -> OpCost:
    """``values`` moved per parameter; a gradient scale (argument) divides and writes gradients."""
    scaled = dtype(op, grad_scale) != ""
    parameters = numel(op, 0)
    return OpCost(
        flops=(flops + scaled) * parameters,
        bytes=total_bytes(((values + scaled) * parameters, functor_size(op))),
        compute=functor_compute(op),
        params={"tensors": len(shapes(op, 0)), "num_elems": parameters},
    )


def _is_zero(op: OpSignature, index: int) -> bool:
    return float(text(op, index) or 0) == 0


@perf_model(
    "aten::_fused_adam_",
    "aten::_fused_adamw_",
    needs_kernels=True,
)
def adam(op: OpSignature) -> OpCost:
    """Flops 14n (+ 2n decay) (+ n amsgrad) (+ n gradient scale); bytes 4n read, 3n written.

    Read are parameter, gradient and both moments, written all but the gradient. The largest second
    moment of amsgrad is read and written too, a scaled gradient is written.
    """
    amsgrad = flag(op, 11)
    decay = 0 if _is_zero(op, 9) else _DECAY_FLOPS
    return _step(op, _ADAM_FLOPS + decay + amsgrad, 7 + 2 * amsgrad, grad_scale=13)


@perf_model("aten::_fused_sgd_", needs_kernels=True)
def sgd(op: OpSignature) -> OpCost:
    """Flops 2n (+ 2n decay) (+ 3n momentum, + 2n Nesterov) (+ n gradient scale).

    Bytes 2n read, n written; the momentum is written, and read but in the first step.
    """
    momentum, first = not _is_zero(op, 4), flag(op, 9)
    flops = _UPDATE_FLOPS + (0 if _is_zero(op, 3) else _DECAY_FLOPS)
    if momentum and not first:
        flops += _MOMENTUM_FLOPS
    if momentum and flag(op, 7):
        flops += _NESTEROV_FLOPS
    values = 3 + momentum + (momentum and not first)
    return _step(op, flops, values, grad_scale=10)
