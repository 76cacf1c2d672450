"""Elementwise ops beyond those of the elementwise sheets: activations, their gradients, the rest.

Every tensor operand is read once and the result is written once.
"""

from collections.abc import Iterable, Iterator
from math import prod

from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    broadcast,
    layout_params,
    optional_tensor,
    total_bytes,
)
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.element_flops import element_flops
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

BOOL_BYTES = 1

_NO_TENSOR = frozenset({"", "Scalar", "ScalarList", "TensorList", "GenericList"})


def is_floating(dtype: str) -> bool:
    """Whether a dtype name is that of a floating-point or complex type."""
    return any(mark in dtype.lower() for mark in ("float", "double", "half"))


def pointwise_cost(
    op: OpSignature,
    flops_per_element: float,
    operands: Iterable[int],
    out_size: int | None = None,
    is_self_read: bool = True,
) -> OpCost:
    """Cost of an op over the broadcast shape of its tensor arguments ``operands``.

    A tensor behind them is the result's place; its dtype, that of an in-place op's first argument
    or ``out_size`` (bytes) is what is written, else the widest operand's. ``is_self_read`` is
    false where an in-place op only writes its first argument.
    """
    positions = tuple(operands)
    read = list(tensors_at(op, positions))
    if not read:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without a tensor.")
    elements = prod(_shape(read))
    place = next(tensors_at(op, range(max(positions) + 1, len(op.input_dims))), None)
    if place is not None:
        out_size = place.real_size
    elif op.name.endswith("_"):
        out_size = read[0].real_size
    elif out_size is None:
        out_size = _result_size(read)
    sources = read if is_self_read else read[1:]
    computing = next((t.dtype for t in read if is_floating(t.dtype)), None)
    return OpCost(
        flops=flops_per_element * elements if computing else 0,
        bytes=total_bytes(*((t.numel, t.real_size) for t in sources), (elements, out_size)),
        compute=compute_spec("vector", computing),
        params=layout_params(read[0]),
    )


def tensors_at(op: OpSignature, positions: Iterable[int]) -> Iterator[Tensor]:
    """The arguments that are tensors; numbers, lists and absent ones are not."""
    for index in positions:
        if index < len(op.input_types) and op.input_types[index] not in _NO_TENSOR:
            yield optional_tensor(op, index)


def _shape(tensors: list[Tensor]) -> Shape:
    shape: Shape = ()
    for t in tensors:
        shape = broadcast(shape, t.shape)
    return shape


def _result_size(read: list[Tensor]) -> int | None:
    """Bytes per element that the operands promote to: floating before integer, then the widest.

    A tensor without dimensions takes part only where no other does.
    """
    candidates = [t for t in read if t.given] or read
    candidates = [t for t in candidates if is_floating(t.dtype)] or candidates
    sizes = [t.real_size for t in candidates]
    return None if None in sizes else max(size for size in sizes if size is not None)


def _aten(names: str, in_place: bool = False) -> list[str]:
    return [
        f"aten::{name}{mark}" for name in names.split() for mark in ("", *("_" if in_place else ""))
    ]


@perf_model(
    *_aten(
        "abs ceil floor round trunc frac sign reciprocal square sqrt exp exp2 expm1 log log2 log10 "
        "log1p erf erfc erfinv sin cos tan asin acos atan sinh cosh tanh nan_to_num relu threshold "
        "leaky_relu elu hardtanh hardsigmoid hardswish gelu mish logit",
        in_place=True,
    ),
    *_aten("softplus hardshrink softshrink log_sigmoid_forward neg_ pow_ rsqrt_ sigmoid_ silu_"),
)
def unary(op: OpSignature) -> OpCost:
    """Flops of the function per element; bytes n read, n written."""
    return pointwise_cost(op, element_flops(op.name), (0,))


@perf_model(
    *_aten("sub rsub maximum minimum fmax fmin _prelu_kernel"),
    *_aten("remainder fmod floor_divide atan2 xlogy"),
    *_aten("sub_ remainder_ fmod_ floor_divide_"),
)
def binary(op: OpSignature) -> OpCost:
    """Flops of the function per output element; bytes of both operands read, the output written."""
    return pointwise_cost(op, element_flops(op.name), (0, 1))


@perf_model(
    *_aten("gelu_backward silu_backward tanh_backward hardtanh_backward hardsigmoid_backward"),
    *_aten("hardswish_backward leaky_relu_backward mish_backward softplus_backward"),
    *_aten("hardshrink_backward softshrink_backward log_sigmoid_backward logit_backward"),
)
def activation_backward(op: OpSignature) -> OpCost:
    """Gradient, input or output: flops of the derivative per element; bytes 2n read, n written."""
    return pointwise_cost(op, element_flops(op.name), (0, 1))


@perf_model("aten::elu_backward")
def elu_backward(op: OpSignature) -> OpCost:
    """Gradient, input or output at argument 5: flops 6n; bytes 2n read, n written."""
    return pointwise_cost(op, element_flops(op.name), (0, 5))


@perf_model(
    *_aten("addcmul addcdiv lerp clamp masked_fill", in_place=True),
    "aten::where",
)
def ternary(op: OpSignature) -> OpCost:
    """Flops of the function per output element; bytes of every tensor read, the output written.

    ``where`` and ``masked_fill`` move data: 0 flops.
    """
    return pointwise_cost(op, element_flops(op.name), (0, 1, 2))


@perf_model(
    *_aten("eq ne lt le gt ge logical_and logical_or logical_xor", in_place=True),
)
def predicate(op: OpSignature) -> OpCost:
    """Flops n of floating-point operands, else 0; bytes of the operands read, n bools written."""
    return pointwise_cost(op, element_flops(op.name), (0, 1), out_size=BOOL_BYTES)


@perf_model(*_aten("isnan isinf isfinite logical_not logical_not_"))
def unary_predicate(op: OpSignature) -> OpCost:
    """Flops n of a floating-point input, else 0; bytes n read, n bools written."""
    return pointwise_cost(op, element_flops(op.name), (0,), out_size=BOOL_BYTES)


@perf_model(
    *_aten("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", True),
)
def bitwise(op: OpSignature) -> OpCost:
    """Flops 0: integers and bools; bytes of the operands read, the output written."""
    return pointwise_cost(op, 0, (0, 1))


@perf_model("aten::bitwise_not", "aten::bitwise_not_")
def bitwise_not(op: OpSignature) -> OpCost:
    """Flops 0; bytes n read, n written."""
    return pointwise_cost(op, 0, (0,))


@perf_model("aten::glu")
def glu(op: OpSignature) -> OpCost:
    """sigmoid(x[n:]) x[:n]: flops 5n; bytes 2n read, n written."""
    x = optional_tensor(op, 0)
    return _of_one_tensor(x, element_flops(op.name) * x.numel // 2, 1.5 * x.numel)


@perf_model("aten::glu_backward")
def glu_backward(op: OpSignature) -> OpCost:
    """Gradient (n), input (2n): flops 9n; bytes 3n read, 2n written."""
    grad, x = optional_tensor(op, 0), optional_tensor(op, 1)
    return _of_one_tensor(x, element_flops(op.name) * grad.numel, grad.numel + 2 * x.numel)


@perf_model("aten::_prelu_kernel_backward")
def prelu_backward(op: OpSignature) -> OpCost:
    """Gradient, input, weight: flops 2n; bytes 2n + weight read, both gradients (2n) written."""
    x, weight = optional_tensor(op, 1), optional_tensor(op, 2)
    return _of_one_tensor(x, element_flops(op.name) * x.numel, 4 * x.numel + weight.numel)


def _of_one_tensor(x: Tensor, flops: float, moved_elements: float) -> OpCost:
    """A cost whose bytes are all of the dtype of x."""
    return OpCost(
        flops=flops,
        bytes=total_bytes((moved_elements, x.real_size)),
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x),
    )


@perf_model(
    *_aten("fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_"),
)
def write(op: OpSignature) -> OpCost:
    """Flops 0 (drawing random numbers is not counted); bytes n written.

    The value of ``fill_`` and the probabilities of ``bernoulli_`` are read where they are tensors.
    """
    return pointwise_cost(op, 0, (0, 1), is_self_read=False)
