"""Elementwise ops: one flop and one write per output element, every operand read once."""

from dataclasses import replace
from math import prod

from jarvis.perf_models.arguments import (
    Tensor,
    broadcast,
    integers,
    layout_params,
    optional_tensor,
    tensor,
    total_bytes,
)
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.pointwise import pointwise_cost, tensors_at
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

SILU_AND_MUL_FLOPS = 5
GELU_AND_MUL_FLOPS = 8
GELU_TANH_AND_MUL_FLOPS = 10


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
def unary(op: OpSignature) -> OpCost:
    """Flops n; bytes n read of the input's dtype, n written of argument 1's dtype if a tensor.

    ``exact_bytes`` reads an exponent or a limit that is a tensor.
    """
    return _with_real_operands(_unary(op), op, (0, 1) if _has_operand(op.name) else (0,))


def _has_operand(name: str) -> bool:
    return name == "aten::pow" or name.startswith("aten::clamp")


def _with_real_operands(cost: OpCost, op: OpSignature, operands: tuple[int, ...]) -> OpCost:
    """Let the exact values have every dtype's size, no bytes of numbers, no flops of integers."""
    if not any(tensors_at(op, operands)):
        return cost
    real = pointwise_cost(op, 1, operands)
    return replace(cost, exact_flops=real.flops, exact_bytes=real.bytes)


@perf_model("aten::copy", "aten::copy_", category="elementwise", sheet="UnaryElementwise")
def copy(op: OpSignature) -> OpCost:
    """Destination, source: flops n; bytes n of either dtype.

    A copy computes nothing: ``exact_flops`` is 0. ``exact_bytes`` reads a broadcast source once.
    """
    target, source = tensor(op, 0), optional_tensor(op, 1)
    exact = total_bytes((target.numel, target.real_size), (source.numel, source.real_size))
    return replace(_unary(op), exact_flops=0, exact_bytes=exact)


def _resized(x: Tensor, elements: int) -> OpCost:
    return OpCost(
        flops=elements,
        bytes=total_bytes((x.numel, x.size), (elements, x.size)),
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x),
        exact_flops=0,
    )


@perf_model(
    "aten::replication_pad1d",
    "aten::replication_pad2d",
    "aten::replication_pad3d",
    category="elementwise",
    sheet="UnaryElementwise",
)
def replication_pad(op: OpSignature) -> OpCost:
    """Pads innermost dim first; flops prod(out); bytes in + out; ``exact_flops`` is 0."""
    x = tensor(op, 0)
    pads = integers(op, 1)
    if not pads:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its paddings.")
    shape = list(x.shape)
    for i in range(len(pads) // 2):
        shape[-1 - i] += pads[2 * i] + pads[2 * i + 1]
    return _resized(x, prod(shape))


@perf_model(
    "aten::upsample_nearest1d",
    "aten::upsample_nearest2d",
    "aten::upsample_nearest3d",
    category="elementwise",
    sheet="UnaryElementwise",
)
def upsample_nearest(op: OpSignature) -> OpCost:
    """Output (N, C, *size); flops prod(out); bytes in + out; ``exact_flops`` is 0."""
    x = tensor(op, 0)
    size = integers(op, 1)
    if not size:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its output size.")
    return _resized(x, prod(x.shape[:2]) * prod(size))


def _gated(op: OpSignature, flops_per_element: int) -> OpCost:
    """Output, input of twice the width: bytes 2n of the input's, n of the output's dtype."""
    out, x = tensor(op, 0), tensor(op, 1)
    return OpCost(
        flops=flops_per_element * out.numel,
        bytes=total_bytes((2 * out.numel, x.size), (out.numel, out.size)),
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x, out),
    )


@perf_model(
    "aiter::silu_and_mul",
    "_C::silu_and_mul",
    "sgl_kernel::silu_and_mul",
    category="elementwise",
    sheet="UnaryElementwise",
)
def silu_and_mul(op: OpSignature) -> OpCost:
    """out[n] = silu(x[:n]) x[n:]; flops 5n; bytes 2n read, n written."""
    return _gated(op, SILU_AND_MUL_FLOPS)


@perf_model("aiter::gelu_and_mul", category="elementwise", sheet="UnaryElementwise")
def gelu_and_mul(op: OpSignature) -> OpCost:
    """out[n] = gelu(x[:n]) x[n:]; flops 8n; bytes 2n read, n written."""
    return _gated(op, GELU_AND_MUL_FLOPS)


@perf_model("aiter::gelu_tanh_and_mul", category="elementwise", sheet="UnaryElementwise")
def gelu_tanh_and_mul(op: OpSignature) -> OpCost:
    """out[n] = gelu_tanh(x[:n]) x[n:]; flops 10n; bytes 2n read, n written."""
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
def binary(op: OpSignature) -> OpCost:
    """Flops prod(broadcast); bytes of both operands and of the output, once each.

    The output has argument 2's dtype if that is a tensor, else the wider of the two; a Python
    scalar is one element of 4 bytes. ``exact_bytes`` has the result's own dtype and no scalar.
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
