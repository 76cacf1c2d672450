"""Elementwise ops: arithmetic, activations and gradients, comparisons, dropout, copies, fills.

Every tensor operand is read once, as far as it is stored, and the result is written once. Ops that
the roofline sheets list (``category="elementwise"``) count one FLOP per output element there.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    broadcast,
    layout_params,
    optional_tensor,
    tensor,
    tensors_at,
    total_bytes,
    vector_cost,
)
from jarvis.perf_models.dtypes import compute_spec, is_floating
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

BOOL_BYTES = MASK_BYTES = 1
SILU_AND_MUL_FLOPS = 5
GELU_AND_MUL_FLOPS = 8
GELU_TANH_AND_MUL_FLOPS = 10

_NAMES = {
    0: """
        where masked_fill clone copy _to_copy cat stack embedding index gather index_select fill
        zero
    """,
    1: """
        abs neg sign floor ceil round trunc frac add sub rsub mul div maximum minimum fmax fmin
        square relu threshold threshold_backward clamp_min clamp_max
        eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_xor logical_not
        mean sum amax amin max min argmax argmin any all prod
    """,
    2: """
        clamp hardtanh hardtanh_backward leaky_relu leaky_relu_backward _prelu_kernel
        _prelu_kernel_backward hardshrink hardshrink_backward softshrink softshrink_backward
        sqrt rsqrt reciprocal pow var floor_divide norm
    """,
    3: """
        addcmul addcdiv lerp nan_to_num tanh_backward sigmoid_backward logit_backward
        hardsigmoid_backward
    """,
    4: """
        exp exp2 expm1 log log2 log10 log1p erf erfc erfinv sin cos tan asin acos atan atan2 sinh
        cosh tanh sigmoid silu remainder fmod hardsigmoid
    """,
    5: "_softmax _log_softmax xlogy hardswish hardswish_backward glu",
    6: "elu elu_backward logit",
    8: "gelu softplus softplus_backward log_sigmoid_backward",
    9: "silu_backward glu_backward",  # sigmoid s, then g s (1 + x (1 - s))
    10: "log_sigmoid_forward",
    13: "mish",  # x tanh(softplus(x))
    16: "gelu_backward",
    22: "mish_backward",
}

FLOPS_PER_ELEMENT: dict[str, int] = {
    name: flops for flops, names in _NAMES.items() for name in names.split()
}
"""FLOPs per output element, by op name without namespace and without the in-place underscore.

Add, multiply, compare, round: 1. Root, reciprocal, power: 2. Exponential, logarithm, trigonometric,
hyperbolic and error function: 4. Composite ops cost the sum of their parts, such as
hardswish(x) = x clamp(x + 3, 0, 6) / 6: 5. Data movement costs nothing.
"""


def element_flops(name: str) -> int:
    """Return the FLOPs per element of an op such as ``"aten::lerp_"``; KeyError if unlisted."""
    return FLOPS_PER_ELEMENT[name.rpartition("::")[2].removesuffix("_")]


def pointwise_cost(
    op: OpSignature,
    flops_per_element: float,
    operands: Iterable[int],
    out_size: int | None = None,
    is_self_read: bool = True,
) -> OpCost:
    """Return the cost of an op over the broadcast shape of its tensor arguments ``operands``.

    Args:
        out_size: bytes per element written. A tensor argument after the operands is the output and
            takes precedence, as does the first argument of an in-place op. Default: the size of the
            widest operand.
        is_self_read: False for an in-place op that only writes its first argument.
    """
    positions = tuple(operands)
    read = list(tensors_at(op, positions))
    if not read:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without a tensor.")
    elements = prod(_shape(read))
    out = next(tensors_at(op, range(max(positions) + 1, len(op.input_dims))), None)
    if out is not None:
        out_size = out.real_size
    elif op.name.endswith("_"):
        out_size = read[0].real_size
    elif out_size is None:
        out_size = _result_size(read)
    sources = read if is_self_read else read[1:]
    computing = next((t.dtype for t in read if is_floating(t.dtype)), None)
    return OpCost(
        flops=flops_per_element * elements if computing else 0,
        bytes=total_bytes(*((t.stored, t.real_size) for t in sources), (elements, out_size)),
        compute=compute_spec("vector", computing),
        params=layout_params(read[0]),
    )


def _shape(tensors: list[Tensor]) -> Shape:
    shape: Shape = ()
    for t in tensors:
        shape = broadcast(shape, t.shape)
    return shape


def _result_size(read: list[Tensor]) -> int | None:
    """Return the bytes per element after type promotion: floating before integer, then the widest.

    A tensor without dimensions counts only if no other operand has dimensions.
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
    """Return the cost of a function of one tensor.

    FLOPs of the function per element; bytes n read, n written.
    """
    return pointwise_cost(op, element_flops(op.name), (0,))


@perf_model(
    *_aten("sub rsub maximum minimum fmax fmin _prelu_kernel"),
    *_aten("remainder fmod floor_divide atan2 xlogy"),
    *_aten("sub_ remainder_ fmod_ floor_divide_"),
)
def binary(op: OpSignature) -> OpCost:
    """Return the cost of a function of two tensors.

    FLOPs of the function per output element; bytes of both operands read, the output written.
    """
    return pointwise_cost(op, element_flops(op.name), (0, 1))


@perf_model(
    *_aten("gelu_backward silu_backward tanh_backward hardtanh_backward hardsigmoid_backward"),
    *_aten("hardswish_backward leaky_relu_backward mish_backward softplus_backward"),
    *_aten("hardshrink_backward softshrink_backward log_sigmoid_backward logit_backward"),
)
def activation_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, then input or output.

    FLOPs of the derivative per element; bytes 2n read, n written.
    """
    return pointwise_cost(op, element_flops(op.name), (0, 1))


@perf_model("aten::elu_backward")
def elu_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, input or output at argument 5.

    FLOPs 6n; bytes 2n read, n written.
    """
    return pointwise_cost(op, element_flops(op.name), (0, 5))


@perf_model(
    *_aten("addcmul addcdiv lerp clamp masked_fill", in_place=True),
    "aten::where",
)
def ternary(op: OpSignature) -> OpCost:
    """Return the cost of a function of three tensors.

    FLOPs of the function per output element; bytes of every tensor read, the output written.
    ``where`` and ``masked_fill`` move data: 0 FLOPs.
    """
    return pointwise_cost(op, element_flops(op.name), (0, 1, 2))


@perf_model(
    *_aten("eq ne lt le gt ge logical_and logical_or logical_xor", in_place=True),
)
def predicate(op: OpSignature) -> OpCost:
    """Return the cost of a comparison of two tensors.

    FLOPs n for floating-point operands, else 0; bytes of the operands read, n bools written.
    """
    return pointwise_cost(op, element_flops(op.name), (0, 1), out_size=BOOL_BYTES)


@perf_model(*_aten("isnan isinf isfinite logical_not logical_not_"))
def unary_predicate(op: OpSignature) -> OpCost:
    """Return the cost of a test of one tensor.

    FLOPs n for a floating-point input, else 0; bytes n read, n bools written.
    """
    return pointwise_cost(op, element_flops(op.name), (0,), out_size=BOOL_BYTES)


@perf_model(
    *_aten("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", True),
)
def bitwise(op: OpSignature) -> OpCost:
    """Return the cost of a bitwise op.

    FLOPs 0: integers and bools; bytes of the operands read, the output written.
    """
    return pointwise_cost(op, 0, (0, 1))


@perf_model("aten::bitwise_not", "aten::bitwise_not_")
def bitwise_not(op: OpSignature) -> OpCost:
    """Return the cost of a bitwise negation: FLOPs 0; bytes n read, n written."""
    return pointwise_cost(op, 0, (0,))


@perf_model("aten::glu")
def glu(op: OpSignature) -> OpCost:
    """Return the cost of sigmoid(x[n:]) x[:n]: FLOPs 5n; bytes 2n read, n written."""
    x = optional_tensor(op, 0)
    return _single_dtype_cost(x, element_flops(op.name) * x.numel // 2, 1.5 * x.numel)


@perf_model("aten::glu_backward")
def glu_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient (n), input (2n): FLOPs 9n; bytes 3n read, 2n written."""
    grad, x = optional_tensor(op, 0), optional_tensor(op, 1)
    return _single_dtype_cost(x, element_flops(op.name) * grad.numel, grad.numel + 2 * x.numel)


@perf_model("aten::_prelu_kernel_backward")
def prelu_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, input, weight.

    FLOPs 2n; bytes 2n + weight read, both gradients (2n) written.
    """
    x, weight = optional_tensor(op, 1), optional_tensor(op, 2)
    return _single_dtype_cost(x, element_flops(op.name) * x.numel, 4 * x.numel + weight.numel)


def _single_dtype_cost(x: Tensor, flops: float, moved_elements: float) -> OpCost:
    """Return a cost whose bytes are all of the dtype of x."""
    return vector_cost(x, flops, total_bytes((moved_elements, x.real_size)))


@perf_model(
    *_aten("fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_"),
)
def write(op: OpSignature) -> OpCost:
    """Return the cost of a fill: FLOPs 0 (random number generation is not counted); bytes n.

    The value of ``fill_`` and the probabilities of ``bernoulli_`` are read if they are tensors.
    """
    return pointwise_cost(op, 0, (0, 1), is_self_read=False)


def _unary(op: OpSignature) -> OpCost:
    x, other = tensor(op, 0), optional_tensor(op, 1)
    out = other if other.given else None
    out_size = out.size if out else x.size
    return OpCost(
        flops=x.numel,
        bytes=total_bytes((x.numel, x.size), (x.numel, out_size)),
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x, out),
    )


@perf_model(
    "aten::clamp_min",
    "aten::clamp_min_",
    "aten::clamp_max",
    "aten::clamp_max_",
    "aten::sigmoid",
    "aten::rsqrt",
    "aten::silu",
    "aten::neg",
    "aten::pow",
    category="elementwise",
    sheet="UnaryElementwise",
)
def sheet_unary(op: OpSignature) -> OpCost:
    """Return the cost of a unary op as the sheets count it.

    FLOPs n; bytes n read of the input's dtype, n written of argument 1's dtype if that is a tensor.
    ``exact_bytes`` includes an exponent or a limit that is a tensor.
    """
    return _with_real_operands(_unary(op), op, (0, 1) if _has_operand(op.name) else (0,))


def _has_operand(name: str) -> bool:
    return name == "aten::pow" or name.startswith("aten::clamp")


def _with_real_operands(cost: OpCost, op: OpSignature, operands: tuple[int, ...]) -> OpCost:
    """Set the exact values: actual element sizes, no bytes for scalars, no FLOPs for integers."""
    if not any(tensors_at(op, operands)):
        return cost
    real = pointwise_cost(op, 1, operands)
    return replace(cost, exact_flops=real.flops, exact_bytes=real.bytes)


@perf_model("aten::copy", "aten::copy_", category="elementwise", sheet="UnaryElementwise")
def copy(op: OpSignature) -> OpCost:
    """Return the cost of destination, source: FLOPs n; bytes n of either dtype.

    A copy computes nothing: ``exact_flops`` is 0. ``exact_bytes`` reads a broadcast source once.
    """
    target, source = tensor(op, 0), optional_tensor(op, 1)
    exact = total_bytes((target.numel, target.real_size), (source.stored, source.real_size))
    return replace(_unary(op), exact_flops=0, exact_bytes=exact)


def _gated(op: OpSignature, flops_per_element: int) -> OpCost:
    """Return the cost of output, input of twice the width.

    FLOPs per output element as given; bytes 2n of the input's dtype, n of the output's.
    """
    out, x = tensor(op, 0), tensor(op, 1)
    return OpCost(
        flops=flops_per_element * out.numel,
        bytes=total_bytes((2 * out.numel, x.size), (out.numel, out.size)),
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x, out) | {"op_shape": out.shape},
    )


@perf_model(
    "aiter::silu_and_mul",
    "_C::silu_and_mul",
    "sgl_kernel::silu_and_mul",
    category="elementwise",
    sheet="UnaryElementwise",
)
def silu_and_mul(op: OpSignature) -> OpCost:
    """Return the cost of out[n] = silu(x[:n]) x[n:]: FLOPs 5n; bytes 2n read, n written."""
    return _gated(op, SILU_AND_MUL_FLOPS)


@perf_model("_C::gelu_and_mul", "sgl_kernel::gelu_and_mul")
@perf_model("aiter::gelu_and_mul", category="elementwise", sheet="UnaryElementwise")
def gelu_and_mul(op: OpSignature) -> OpCost:
    """Return the cost of out[n] = gelu(x[:n]) x[n:]: FLOPs 8n; bytes 2n read, n written."""
    return _gated(op, GELU_AND_MUL_FLOPS)


@perf_model("_C::gelu_tanh_and_mul", "sgl_kernel::gelu_tanh_and_mul")
@perf_model("aiter::gelu_tanh_and_mul", category="elementwise", sheet="UnaryElementwise")
def gelu_tanh_and_mul(op: OpSignature) -> OpCost:
    """Return the cost of out[n] = gelu_tanh(x[:n]) x[n:]: FLOPs 10n; bytes 2n read, n written."""
    return _gated(op, GELU_TANH_AND_MUL_FLOPS)


@perf_model(
    "aten::div",
    "aten::div_",
    "aten::mul",
    "aten::mul_",
    "aten::add",
    "aten::add_",
    "aten::sigmoid_backward",
    "aten::threshold_backward",
    "LigerSiLUMulFunction",
    category="elementwise",
    sheet="BinaryElementwise",
)
def sheet_binary(op: OpSignature) -> OpCost:
    """Return the cost of a binary op as the sheets count it.

    FLOPs prod(broadcast); bytes of both operands and of the output, once each. The output has
    argument 2's dtype if that is a tensor, else the wider of the two; a Python scalar is one
    element of 4 bytes. ``exact_bytes`` uses the result's actual dtype and no scalar.
    """
    first, second, third = tensor(op, 0), tensor(op, 1), optional_tensor(op, 2)
    out = third if third.given else None
    elements = prod(broadcast(first.shape, second.shape))
    if out:
        out_size = out.size
    elif first.given and second.given:
        out_size = max(first.size or 0, second.size or 0)
    else:
        out_size = first.size
    cost = OpCost(
        flops=elements,
        bytes=total_bytes(
            (first.numel, first.size), (second.numel, second.size), (elements, out_size)
        ),
        compute=compute_spec("vector", first.dtype),
        params={
            "shape_in1": first.shape,
            "shape_in2": second.shape,
            "dtype_in1_in2_out": (first.dtype, second.dtype, out.dtype if out else None),
            "stride_input1": first.strides,
            "stride_input2": second.strides,
            "stride_output": out.strides if out else None,
        },
    )
    return _with_real_operands(cost, op, (0, 1))


def _dropout_cost(x: Tensor) -> OpCost:
    """Return the cost of two FLOPs per element; x and its result in its dtype, one byte of mask."""
    moved = total_bytes((2 * x.numel, x.real_size), (x.numel, MASK_BYTES))
    return vector_cost(x, 2 * x.numel, moved)


@perf_model("aten::native_dropout", "aten::_fused_dropout")
def dropout(op: OpSignature) -> OpCost:
    """Return the cost of compare with p and scale.

    FLOPs 2n; bytes n read, n and n bytes of mask written.
    """
    return _dropout_cost(tensor(op, 0))


@perf_model("aten::native_dropout_backward", "aten::_masked_scale")
def dropout_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient times mask times scale.

    FLOPs 2n; bytes n and n bytes of mask read, n written.
    """
    return _dropout_cost(tensor(op, 0))
