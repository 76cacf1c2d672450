"""Losses: cross entropy, negative log likelihood over classes, and elementwise distances.

An elementwise loss with a reduction launches that reduction as a separate op with its own model;
the formulas here count one kernel.
"""

from math import prod

from jarvis.perf_models.arguments import (
    Tensor,
    optional_tensor,
    tensor,
    text,
    total_bytes,
    vector_cost,
)
from jarvis.perf_models.dtypes import HALF_PRECISION_BYTES, compute_spec
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)

_NO_REDUCTION = "0"
_REDUCTION_AT = {"binary_cross_entropy": 3}  # other ops: argument 2

_DISTANCE_FLOPS = {
    "mse_loss": 2,  # difference, square
    "smooth_l1_loss": 5,
    "huber_loss": 5,
    "binary_cross_entropy": 14,  # -(t log(x) + (1 - t) log(1 - x))
}
_GRADIENT_FLOPS = {
    "mse_loss_backward": 3,
    "smooth_l1_loss_backward": 4,
    "huber_loss_backward": 4,
    "binary_cross_entropy_backward": 6,
}


CROSS_ENTROPY_FLOPS = 5  # per logit: maximum, difference, exponential, sum, quotient
LABEL_AND_LOSS_BYTES = 8 + 4  # per row


def _bytes(*tensors: Tensor) -> float | None:
    """Return the bytes of all given tensors, once each; an absent one has none."""
    return total_bytes(*((t.numel, t.real_size) for t in tensors if t.dtype))


@perf_model("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss(op: OpSignature) -> OpCost:
    """Return the cost of scores, targets [t].

    FLOPs 2t; bytes of t scores, the targets, and t losses or their sum. Only the score of the
    target class is read, and its weight if there are weights.
    """
    x, target, weight = tensor(op, 0), tensor(op, 1), optional_tensor(op, 2)
    rows = target.numel
    outputs = rows if text(op, 3) == _NO_REDUCTION else 2  # the loss and the total weight
    moved = total_bytes(
        (rows + outputs, x.real_size),
        (rows, target.real_size),
        (rows, weight.real_size if weight.given else 0),
    )
    return vector_cost(x, 2 * rows, moved)


@perf_model("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, scores [n], targets [t].

    FLOPs t; bytes of gradient and targets, n written. All classes but the target have the gradient
    0, which is written too.
    """
    grad, x, target, weight = (optional_tensor(op, index) for index in range(4))
    moved = total_bytes(
        (grad.numel, grad.real_size),
        (x.numel, x.real_size),
        (target.numel, target.real_size),
        (target.numel, weight.real_size if weight.given else 0),
    )
    return vector_cost(x, target.numel, moved)


@perf_model(*(f"aten::{name}" for name in _DISTANCE_FLOPS))
def distance(op: OpSignature) -> OpCost:
    """Return the cost of input, target.

    FLOPs of the distance per element: squared 2n; smooth and Huber 5n; binary cross entropy 14n
    (and a weight read). Bytes 2n read, n or 1 written.
    """
    kind = op.name.removeprefix("aten::")
    x, target = tensor(op, 0), tensor(op, 1)
    weight = optional_tensor(op, 2) if kind in _REDUCTION_AT else Tensor()
    unreduced = text(op, _REDUCTION_AT.get(kind, 2)) == _NO_REDUCTION
    out = Tensor(x.shape if unreduced else (), x.dtype)
    return vector_cost(x, _DISTANCE_FLOPS[kind] * x.numel, _bytes(x, target, weight, out))


@perf_model(*(f"aten::{name}" for name in _GRADIENT_FLOPS))
def distance_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient (one element or n), input, target: bytes of all read, n written.

    FLOPs: squared 3n; smooth and Huber 4n; binary cross entropy 6n.
    """
    kind = op.name.removeprefix("aten::")
    grad, x, target = (tensor(op, index) for index in range(3))
    weight = optional_tensor(op, 3) if kind.startswith("binary") else Tensor()
    return vector_cost(x, _GRADIENT_FLOPS[kind] * prod(x.shape), _bytes(grad, x, target, weight, x))


@perf_model("CrossEntropyFunction", category="CrossEntropy_fwd")
def cross_entropy(op: OpSignature) -> OpCost:
    """Return the cost of logits (b,..,V): FLOPs 5bV; bytes logits + 12b (label and loss of a row).

    ``exact_flops`` and ``exact_bytes`` count all leading dims as rows, not only the first.
    """
    logits = tensor(op, 0)
    if not logits.given:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without logits.")
    rows, classes = prod(logits.shape[:-1]), logits.shape[-1]
    batch = logits.shape[0]
    read = logits.numel * (logits.size or HALF_PRECISION_BYTES)
    return OpCost(
        flops=CROSS_ENTROPY_FLOPS * batch * classes,
        bytes=read + LABEL_AND_LOSS_BYTES * batch,
        compute=compute_spec("vector", logits.dtype),
        params={"B": batch, "V": classes, "dtype": logits.dtype},
        exact_flops=CROSS_ENTROPY_FLOPS * rows * classes,
        exact_bytes=read + LABEL_AND_LOSS_BYTES * rows,
    )


categorize("CrossEntropy_bwd", "CrossEntropyFunctionBackward")
