"""Convolution: input x, filter w, output out."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    flag,
    flags,
    integer,
    optional_tensor,
    per_dim,
    tensor,
    total_bytes,
)
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)

MAX_SPATIAL_DIMS = 3
GRADIENTS = 3  # of input, weight and bias


@dataclass(frozen=True, slots=True)
class Convolution:
    """Input (N, C_in, spatial...), filter, stride, padding, ...; ``bias`` as the sheets show it."""

    x: Tensor
    w: Tensor
    stride: Shape
    padding: Shape
    dilation: Shape
    transposed: bool
    output_padding: Shape
    groups: int
    bias: Any = False

    @property
    def out_spatial(self) -> Shape:
        """Spatial extents of the output."""
        moves = zip(
            self.x.shape[2:],
            self.w.shape[2:],
            self.stride,
            self.padding,
            self.dilation,
            self.output_padding,
            strict=True,
        )
        if self.transposed:
            return tuple(
                (x - 1) * s - 2 * p + d * (k - 1) + extra + 1 for x, k, s, p, d, extra in moves
            )
        return tuple((x + 2 * p - d * (k - 1) - 1) // s + 1 for x, k, s, p, d, _ in moves)

    @property
    def out_shape(self) -> Shape:
        """Output shape in the sheets, which ignore the groups of transposed convolutions."""
        channels = self.w.shape[1] if self.transposed else self.w.shape[0]
        return (self.x.shape[0], channels, *self.out_spatial)

    @property
    def real_out_shape(self) -> Shape:
        """Output shape with the channels of every group."""
        groups = self.groups if self.transposed else 1
        batch, channels, *spatial = self.out_shape
        return (batch, channels * groups, *spatial)

    @property
    def product_flops(self) -> int:
        """2 x filter taps x the positions where they are applied."""
        positions = self.x.numel if self.transposed else prod(self.out_shape)
        return 2 * prod(self.w.shape[1:]) * positions

    def forward_cost(self) -> OpCost:
        """Return the cost of the forward pass.

        FLOPs 2 prod(w[1:]) prod(out) (+ prod(out) for a bias); bytes x + w + out (+ bias).
        """
        out, size = prod(self.out_shape), self.x.size
        bias = self.out_shape[1] if self.bias else 0
        real_bias = self.real_out_shape[1] if self.bias else 0
        operands = self.x.numel + self.w.numel
        return OpCost(
            flops=self.product_flops + (out if self.bias else 0),
            bytes=total_bytes((operands + out + bias, size)),
            compute=compute_spec("matrix", self.x.dtype),
            params=self.params(),
            exact_flops=self.product_flops + (prod(self.real_out_shape) if self.bias else 0),
            exact_bytes=total_bytes((operands + prod(self.real_out_shape) + real_bias, size)),
        )

    def backward_cost(self, needed: tuple[bool, bool, bool]) -> OpCost:
        """Return the cost of input gradient and weight gradient; bytes 2 (x + w + out).

        The sheets always count both gradients, and the bias gradient in elements. ``exact_flops``
        and ``exact_bytes`` count only the ``needed`` (input, weight, bias) gradients.
        """
        out, size = prod(self.out_shape), self.x.size
        reached = prod(self.x.shape[2:]) if self.transposed else prod(self.out_spatial)
        weight_grad = 2 * self.w.numel * self.x.shape[0] * reached
        moved = total_bytes((2 * (self.x.numel + self.w.numel + out), size))
        if moved is not None and self.bias:
            moved += out + self.out_shape[1]
        real_out = prod(self.real_out_shape)
        per_gradient = self.x.numel + self.w.numel + real_out
        bias_grad = real_out + self.real_out_shape[1]
        needs_input, needs_weight, needs_bias = needed
        return OpCost(
            flops=self.product_flops + weight_grad + (out if self.bias else 0),
            bytes=moved,
            compute=compute_spec("matrix", self.x.dtype),
            params=self.params(),
            exact_flops=self.product_flops * needs_input
            + weight_grad * needs_weight
            + real_out * needs_bias,
            exact_bytes=total_bytes(
                (per_gradient * (needs_input + needs_weight) + bias_grad * needs_bias, size)
            ),
        )

    def params(self) -> dict[str, Any]:
        """Return the params under the names that the sheets use."""
        return {
            "convNd": f"conv{len(self.x.shape) - 2}d",
            "input_shape": self.x.shape,
            "filter_shape": self.w.shape,
            "dtype_input_weight": (self.x.dtype, self.w.dtype),
            "input_stride": self.x.strides,
            "weight_stride": self.w.strides,
            "bias": self.bias,
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "transposed_conv": self.transposed,
            "output_padding": self.output_padding,
            "groups": self.groups,
        }


def _spatial_dims(op: OpSignature, x: Tensor, w: Tensor) -> int:
    """Return the number of spatial dims.

    Raises:
        UnexpectedArgumentsError: x and w differ in dtype, or the rank is not supported.
    """
    if x.dtype != w.dtype:
        raise UnexpectedArgumentsError(f"{op.name} mixes {x.dtype} with a filter of {w.dtype}.")
    spatial = len(x.shape) - 2
    if not 1 <= spatial <= MAX_SPATIAL_DIMS:
        raise UnexpectedArgumentsError(f"{op.name} reads 1 to 3 spatial dims, found {x.shape}.")
    return spatial


def _convolution(op: OpSignature, first: int, movement: int) -> Convolution:
    """Read input and filter from ``first``; stride, padding, dilation, ... from ``movement``."""
    x, w = tensor(op, first), tensor(op, first + 1)
    spatial = _spatial_dims(op, x, w)

    return Convolution(
        x,
        w,
        stride=per_dim(op, movement, spatial, "stride"),
        padding=per_dim(op, movement + 1, spatial, "padding"),
        dilation=per_dim(op, movement + 2, spatial, "dilation"),
        transposed=flag(op, movement + 3),
        output_padding=per_dim(op, movement + 4, spatial, "output padding"),
        groups=integer(op, movement + 5, 1),
    )


def _forward(op: OpSignature) -> Convolution:
    return replace(_convolution(op, 0, 3), bias=optional_tensor(op, 2).given)


def _backward_of_forward(op: OpSignature) -> OpCost:
    call = _forward(op)
    return call.backward_cost((True, True, call.bias))


@perf_model(
    "aten::convolution",
    category="CONV_fwd",
    backward=_backward_of_forward,
    backward_category="CONV_bwd",
)
def convolution(op: OpSignature) -> OpCost:
    """Return the cost of a convolution.

    FLOPs 2 prod(w[1:]) prod(out) (+ prod(out) for a bias); bytes x + w + out (+ bias).
    A transposed convolution applies its taps to every input element: prod(x) for prod(out).
    """
    return _forward(op).forward_cost()


@perf_model("aten::convolution_backward", category="CONV_bwd", backward_category="CONV_bwd")
def convolution_backward(op: OpSignature) -> OpCost:
    """Return the cost of the gradients of a convolution.

    FLOPs 2 prod(out) prod(w[1:]) + 2 prod(w) N prod(out spatial); bytes 2 (x + w + out).
    ``exact_flops`` and ``exact_bytes`` count only the gradients that output_mask selects.
    """
    call = replace(_convolution(op, 1, 4), bias=optional_tensor(op, 3).shape or [])
    if len(mask := flags(op, 10) or []) != GRADIENTS:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its output mask.")
    return call.backward_cost((mask[0], mask[1], mask[2]))


def _fused_bias(op: OpSignature) -> Convolution:
    x, w = tensor(op, 0), tensor(op, 1)
    spatial = _spatial_dims(op, x, w)
    return Convolution(
        x,
        w,
        stride=per_dim(op, 3, spatial, "stride"),
        padding=per_dim(op, 4, spatial, "padding"),
        dilation=(1,) * spatial,
        transposed=False,
        output_padding=(0,) * spatial,
        groups=1,
        bias=True,
    )


def _backward_of_fused_bias(op: OpSignature) -> OpCost:
    return _fused_bias(op).backward_cost((True, True, True))


@perf_model(
    "ConvBias_",
    "ConvBiasReLU_",
    category="CONV_fwd",
    backward=_backward_of_fused_bias,
    backward_category="CONV_bwd",
)
def convolution_with_bias(op: OpSignature) -> OpCost:
    """Return the cost of a fused convolution and bias, with one stride for all dims.

    FLOPs 2 prod(w[1:]) prod(out) + prod(out); bytes x + w + out + bias.
    """
    return _fused_bias(op).forward_cost()


categorize("CONV_fwd", "aten::miopen_convolution", "aten::cudnn_convolution")
categorize("CONV_bwd", "ConvBias_Backward", "ConvBiasReLU_Backward")
