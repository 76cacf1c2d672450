"""Batch, layer, group, instance and RMS normalization, forward and backward.

Of the framework (``Norm``): n elements in c channels (for layer and RMS norm c is the normalized
extent), e = n/c. Of inference engines (``RowNorm``), RMS alone or with residual add and quant: n
elements in M = n/c rows of c; all of them count R = M (2c + 2) + 2n FLOPs for the norm itself.
The local kernels of batch normalization across ranks come last.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any

from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    flag,
    flags,
    integer,
    integers,
    layout_params,
    optional_tensor,
    tensor,
    total_bytes,
)
from jarvis.perf_models.dtypes import MX_BLOCK, PACKED_FP4_BYTES, SCALE_BYTES, compute_spec
from jarvis.perf_models.registry import (
    Formula,
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)

LIBRARIES = ("", "native_", "miopen_", "cudnn_")
_STATISTICS_BYTES = 4  # float32 for half precision inputs


@dataclass(frozen=True, slots=True)
class Norm:
    """Input, channels c, and whether statistics, weight, bias and gradients take part."""

    x: Tensor
    channels: int
    training: bool
    affine: bool
    bias: bool
    mask: tuple[bool, ...] | None = None

    @property
    def n(self) -> int:
        """Elements."""
        return self.x.numel

    def forward_cost(self) -> OpCost:
        """Return the cost of the forward pass.

        FLOPs 6c + 2n (+ 3n training); bytes 2n + wc, w = 2 + weight + bias + 2 training.
        """
        vectors = 2 + self.affine + (self.affine and self.bias) + 2 * self.training
        return self.cost(
            6 * self.channels + 2 * self.n + (3 * self.n if self.training else 0),
            2 * self.n + vectors * self.channels,
        )

    def backward_cost(self) -> OpCost:
        """Return the cost of weight and input gradients.

        flops = 4n (+ 3c in inference) + (5n for the input gradient in training, 2n without one);
        bytes = 2n (+ n for the input gradient in training) + c (training + weight + training
        weight gradients, twice with bias).
        """
        c, n = self.channels, self.n
        input_grad = self.mask is not None and self.mask[0]
        flops = 4 * n + (0 if self.training else 3 * c)
        if not input_grad:
            flops += 2 * n
        elif self.training:
            flops += 5 * n
        elements = n + n * (2 if input_grad and self.training else 1)
        vectors = int(self.training) + int(self.affine)
        if self.affine and self.training:
            vectors += 2 if self.bias else 1
        return self.cost(flops, elements + vectors * c)

    def cost(self, flops: float, elements: float) -> OpCost:
        """Return a cost of ``elements`` of the input's dtype."""
        return OpCost(
            flops=flops,
            bytes=total_bytes((elements, self.x.size)),
            compute=compute_spec("vector", self.x.dtype),
            params=self.params(),
        )

    def params(self) -> dict[str, Any]:
        """Return the params under the names that the sheets use."""
        params = layout_params(self.x) | {
            "num_channels": self.channels,
            "has_bias": self.bias,
            "is_affine": self.affine,
            "is_training": self.training,
        }
        if self.mask is not None:
            params["output_mask"] = list(self.mask)
        return params


def _given(op: OpSignature, index: int) -> bool:
    return optional_tensor(op, index).given


def _extent(op: OpSignature, index: int) -> int:
    """Return the product of the normalized shape at ``index``."""
    shape: Shape | None = integers(op, index)
    if not shape:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without its normalized shape.")
    return prod(shape)


def _mask(op: OpSignature, index: int, gradients: int) -> tuple[bool, ...]:
    """Return which gradients are computed; all of them if that is not recorded."""
    return tuple(flags(op, index) or [True] * gradients)


def _forward(op: OpSignature, channels: int, training: bool, weight: int, bias: int) -> OpCost:
    norm = Norm(tensor(op, 0), channels, training, _given(op, weight), _given(op, bias))
    return norm.forward_cost()


def _forward_model(*names: str) -> Callable[[Formula], Formula]:
    return perf_model(
        *names, category="NORM_fwd", sheet="Normalization", backward_category="NORM_bwd"
    )


def _backward_model(*names: str) -> Callable[[Formula], Formula]:
    return perf_model(
        *names, category="NORM_bwd", sheet="Normalization", backward_category="NORM_bwd"
    )


@_forward_model(
    *(f"aten::{library}batch_norm" for library in LIBRARIES),
    *(f"aten::{library}instance_norm" for library in LIBRARIES),
)
def batch_norm(op: OpSignature) -> OpCost:
    """Return the cost of a batch or instance norm, c = x[1].

    FLOPs 6c + 2n (+ 3n training); bytes 2n + (2 + weight + bias + 2 training) c.
    """
    return _forward(op, tensor(op, 0).shape[1], flag(op, 5), weight=1, bias=2)


@_forward_model(*(f"aten::{library}layer_norm" for library in LIBRARIES))
def layer_norm(op: OpSignature) -> OpCost:
    """Return the cost of a layer norm, c = prod(normalized shape).

    FLOPs 6c + 5n; bytes 2n + (4 + weight + bias) c.
    """
    return _forward(op, _extent(op, 1), True, weight=2, bias=3)


@_forward_model(
    "aten::group_norm",
    "aten::miopen_group_norm",
    "aten::cudnn_group_norm",
    "aiter::_groupnorm_run",
)
def group_norm(op: OpSignature) -> OpCost:
    """Return the cost of a group norm, c = x[1].

    FLOPs 6c + 5n; bytes 2n + (4 + weight + bias) c.
    """
    return _forward(op, tensor(op, 0).shape[1], True, weight=2, bias=3)


@_forward_model("aten::native_group_norm")
def native_group_norm(op: OpSignature) -> OpCost:
    """Return the cost of a group norm, c = x[1].

    FLOPs 6c + 5n; bytes 2n + (4 + weight + bias) c.
    """
    return _forward(op, tensor(op, 0).shape[1], True, weight=1, bias=2)


@_forward_model("aten::_fused_rms_norm")
def fused_rms_norm(op: OpSignature) -> OpCost:
    """Return the cost of an RMS norm, c = prod(normalized shape).

    FLOPs (n/c)(2c + 2) + n (+ n weight); bytes 2n (+ c weight).
    """
    norm = Norm(tensor(op, 0), _extent(op, 1), False, _given(op, 2), bias=False)
    n, c = norm.n, norm.channels
    flops = n // c * (2 * c + 2) + n * (2 if norm.affine else 1)
    return norm.cost(flops, 2 * n + (c if norm.affine else 0))


@_forward_model("primus::fused_ln_modulate")
def ln_modulate(op: OpSignature) -> OpCost:
    """Return the cost of x (T,B,H), shift and scale per B.

    FLOPs 12n; bytes 2n + 2BH of x's dtype + 8TB.
    """
    return _modulated(op, flops_per_element=12, tensors=2, vectors=2)


@_backward_model("primus::fused_ln_modulate_backward")
def ln_modulate_backward(op: OpSignature) -> OpCost:
    """Return the cost of the backward pass of ``ln_modulate``.

    FLOPs 15n; bytes 3n + 3BH of x's dtype + 8TB.
    """
    return _modulated(op, flops_per_element=15, tensors=3, vectors=3)


def _modulated(op: OpSignature, flops_per_element: int, tensors: int, vectors: int) -> OpCost:
    x = tensor(op, 0)
    if len(x.shape) != 3:
        raise UnexpectedArgumentsError(f"{op.name} reads a 3-d input, found shape {x.shape}.")
    rows, batch, hidden = x.shape
    norm = Norm(x, hidden, training=True, affine=True, bias=True)
    moved = total_bytes(
        (tensors * x.numel + vectors * batch * hidden, x.size), (8 * rows * batch, 1)
    )
    return replace(norm.cost(flops_per_element * x.numel, 0), bytes=moved)


@_backward_model("aten::batch_norm_backward", "aten::native_batch_norm_backward")
def batch_norm_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, input x.

    FLOPs 4n + 5n input gradient; bytes 3n + vectors (training).
    """
    x, mask = tensor(op, 1), _mask(op, 9, gradients=3)
    return Norm(
        x, x.shape[1], flag(op, 7), _given(op, 2), bias=mask[2], mask=mask[:1]
    ).backward_cost()


@_backward_model("aten::miopen_batch_norm_backward", "aten::cudnn_batch_norm_backward")
def library_batch_norm_backward(op: OpSignature) -> OpCost:
    """Return the cost of input x, gradient.

    The sheets count it as inference, 4n + 3c FLOPs and 2n + c weight bytes. If batch statistics are
    given (argument 5), ``exact_flops`` and ``exact_bytes`` count a training step.
    """
    x = tensor(op, 0)
    norm = Norm(x, x.shape[1], False, _given(op, 2), bias=True, mask=(True,))
    exact = replace(norm, training=_given(op, 5)).backward_cost()
    return replace(norm.backward_cost(), exact_flops=exact.flops, exact_bytes=exact.bytes)


@_backward_model(*(f"aten::{library}layer_norm_backward" for library in LIBRARIES))
def layer_norm_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, input x, normalized shape.

    FLOPs 4n + 5n input gradient; bytes 3n + vectors.
    """
    mask = _mask(op, 7, gradients=3)
    norm = Norm(tensor(op, 1), _extent(op, 2), True, mask[1], mask[2], mask)
    return norm.backward_cost()


@_backward_model(*(f"aten::{library}group_norm_backward" for library in LIBRARIES))
def group_norm_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, input x, c = x[1].

    FLOPs 4n + 5n input gradient; bytes 3n + vectors.
    """
    x, mask = tensor(op, 1), _mask(op, 9, gradients=3)
    return Norm(x, x.shape[1], True, _given(op, 4), mask[2], mask).backward_cost()


@_backward_model(
    *(f"aten::{library}rms_norm_backward" for library in LIBRARIES),
    "aten::_fused_rms_norm_backward",
)
def rms_norm_backward(op: OpSignature) -> OpCost:
    """Return the cost of gradient, input x.

    FLOPs n (+ n weight) (+ 6n input gradient) (+ n weight gradient, + n more to sum it over several
    rows); bytes 3n (+ 2c weight).
    """
    mask = _mask(op, 5, gradients=2)
    norm = Norm(tensor(op, 1), _extent(op, 2), False, _given(op, 4), bias=False, mask=mask)
    n, c = norm.n, norm.channels
    flops = n + n * norm.affine + (6 * n if mask[0] else 0)
    if mask[1] and norm.affine:
        flops += n + (n if n > c else 0)
    return norm.cost(flops, 3 * n + (2 * c if norm.affine else 0))


categorize("NORM_bwd", *(f"aten::{library}instance_norm_backward" for library in LIBRARIES))


@dataclass(frozen=True, slots=True)
class RowNorm:
    """Rows to normalize and their weight."""

    x: Tensor
    weight: Tensor

    @property
    def n(self) -> int:
        """Elements."""
        return self.x.numel

    @property
    def c(self) -> int:
        """Elements per row."""
        return self.weight.numel

    @property
    def rows(self) -> int:
        """Rows M."""
        return self.n // self.c

    @property
    def flops(self) -> int:
        """R = M (2c + 2) + 2n."""
        return self.rows * (2 * self.c + 2) + 2 * self.n

    def scale_bytes(self, group: int) -> int:
        """Return the bytes of one float scale per group and row."""
        return SCALE_BYTES * self.rows * ceil(self.c / group)

    def cost(self, more_flops: float, elements: float, other_bytes: float = 0) -> OpCost:
        """Return the cost of R + ``more_flops`` FLOPs.

        Bytes: ``elements`` and the weight, of the input's dtype, and ``other_bytes``.
        """
        params: dict[str, Any] = layout_params(self.x) | {
            "num_channels": self.c,
            "has_bias": False,
            "is_affine": True,
            "is_training": False,
        }
        return OpCost(
            flops=self.flops + more_flops,
            bytes=total_bytes((elements + self.c, self.x.size), (other_bytes, 1)),
            compute=compute_spec("vector", self.x.dtype),
            params=params,
        )


def _row_norm(op: OpSignature, x: int, weight: int) -> RowNorm:
    return RowNorm(tensor(op, x), tensor(op, weight))


@perf_model("aiter::rms_norm", "aiter::rmsnorm2d_fwd_ck", category="RMSNorm")
def rms_norm(op: OpSignature) -> OpCost:
    """Return the cost of input, weight at 0, 1: FLOPs R; bytes 2n + c of the input's dtype."""
    norm = _row_norm(op, 0, 1)
    return norm.cost(0, 2 * norm.n)


@perf_model("aiter::rmsnorm", category="RMSNorm")
def rms_norm_into(op: OpSignature) -> OpCost:
    """Return the cost of input, weight at 1, 2: FLOPs R; bytes 2n + c of the input's dtype."""
    norm = _row_norm(op, 1, 2)
    return norm.cost(0, 2 * norm.n)


@perf_model("_C::rms_norm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm")
def rms_norm_into_first(op: OpSignature) -> OpCost:
    """Return the cost of output, input, weight at 0 .. 2: FLOPs R; bytes 2n + c."""
    norm = _row_norm(op, 1, 2)
    return norm.cost(0, 2 * norm.n)


@perf_model(
    "_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm"
)
def add_rms_norm_in_place(op: OpSignature) -> OpCost:
    """Return the cost of input, residual, weight at 0 .. 2, the first two read and written.

    FLOPs R + n; bytes 4n + c of the input's dtype.
    """
    norm = _row_norm(op, 0, 2)
    return norm.cost(norm.n, 4 * norm.n)


@perf_model("aiter::rmsnorm2d_fwd_with_dynamicquant_ck", category="RMSNorm")
def rms_norm_dynamic_quant(op: OpSignature) -> OpCost:
    """Return the cost of input, weight at 1, 3.

    FLOPs R + 2n; bytes n + c of the input's dtype, n one-byte values, 4M.
    """
    norm = _row_norm(op, 1, 3)
    return norm.cost(2 * norm.n, norm.n, norm.n + norm.scale_bytes(norm.c))


_QUANTIZING = {
    "aiter::rmsnorm_quant": (1, 3, 5),
    "vllm::rocm_aiter_rmsnorm_fp8_group_quant": (0, 1, 3),
}
"""Positions of input, weight and group."""


@perf_model(*_QUANTIZING, category="RMSNorm")
def rms_norm_quant(op: OpSignature) -> OpCost:
    """Return the cost of a norm that quantizes in groups of g (0: row).

    FLOPs R + 2n; bytes n + c, n one-byte values, 4M ceil(c/g).
    """
    x, weight, group_at = _QUANTIZING[op.name]
    norm = _row_norm(op, x, weight)
    group = integer(op, group_at, 0) or norm.c
    return norm.cost(2 * norm.n, norm.n, norm.n + norm.scale_bytes(group))


@perf_model("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", category="RMSNorm")
def add_rms_norm_group_quant(op: OpSignature) -> OpCost:
    """Return the cost of input, weight at 0, 2, group g at 4.

    FLOPs R + 3n; bytes 3n + c, n one-byte values, 4M ceil(c/g).
    """
    norm = _row_norm(op, 0, 2)
    group = integer(op, 4, 0) or norm.c
    return norm.cost(3 * norm.n, 3 * norm.n, norm.n + norm.scale_bytes(group))


@perf_model("aiter::rmsnorm2d_fwd_with_add_ck", "aiter::add_rmsnorm", category="RMSNorm")
def add_rms_norm(op: OpSignature) -> OpCost:
    """Return the cost of input, weight at 1, 4: FLOPs R + n; bytes 4n + c of the input's dtype."""
    norm = _row_norm(op, 1, 4)
    return norm.cost(norm.n, 4 * norm.n)


@perf_model(
    "aiter::fused_add_rmsnorm_pad_",
    "vllm::rocm_aiter_triton_add_rmsnorm_pad",
    category="RMSNorm",
)
def add_rms_norm_pad(op: OpSignature) -> OpCost:
    """Return the cost of input, weight at 0, 1, rows padded to a multiple of p (at 4).

    FLOPs R + n; bytes 2n + c + M p ceil(c/p) + Mc of the input's dtype.
    """
    norm = _row_norm(op, 0, 1)
    pad = integer(op, 4, 0) or norm.c
    padded = norm.rows * ceil(norm.c / pad) * pad
    return norm.cost(norm.n, 2 * norm.n + padded + norm.rows * norm.c)


@perf_model(
    "sglang_profiler::fused_mxfp4_quant_fused_rms_mxfp4_quant",
    "aiter::_fuse_rmsnorm_fp4_quant",
    category="RMSNorm",
)
def rms_norm_mxfp4_quant(op: OpSignature) -> OpCost:
    """Return the cost of input, weight at 0, 1; a second input (M,k) at 3, a residual at 6.

    FLOPs R + 2n (+ n with residual) (+ R M k / n for the second input); bytes n + c of the
    input's dtype, n/2 packed, n/32 scales (+ 2n residual) (+ 2Mk + k second input).
    """
    norm = _row_norm(op, 0, 1)
    flops: float = 2 * norm.n
    elements = norm.n
    if len(optional_tensor(op, 6).shape) == 2:
        flops += norm.n
        elements += 2 * norm.n
    second = optional_tensor(op, 3)
    if len(second.shape) == 2:
        width = second.shape[1]
        flops += int(norm.flops * norm.rows * width / norm.n)
        elements += 2 * norm.rows * width + width
    return norm.cost(flops, elements, PACKED_FP4_BYTES * norm.n + norm.n // MX_BLOCK)


def _local_cost(x: Tensor, flops_per_element: int, tensors: int, vectors: float | None) -> OpCost:
    """Return the cost of ``tensors`` as large as x, and ``vectors`` bytes of values per channel."""
    moved = total_bytes((tensors * x.numel, x.real_size))
    return OpCost(
        flops=flops_per_element * x.numel,
        bytes=None if moved is None or vectors is None else moved + vectors,
        compute=compute_spec("vector", x.dtype),
        params=layout_params(x) | {"num_channels": x.shape[1]},
    )


def _given_bytes(op: OpSignature, *indices: int) -> float | None:
    """Return the bytes of the arguments ``indices`` that are given."""
    tensors = (optional_tensor(op, index) for index in indices)
    return total_bytes(*((t.numel, t.real_size) for t in tensors if t.given))


@perf_model("aten::batch_norm_stats")
def statistics(op: OpSignature) -> OpCost:
    """Return the cost of mean and variance: difference, square and two sums.

    FLOPs 4n; bytes n read, 2c written.
    """
    x = tensor(op, 0)
    return _local_cost(x, 4, 1, 2 * x.shape[1] * _STATISTICS_BYTES)


@perf_model("aten::batch_norm_elemt")
def normalize(op: OpSignature) -> OpCost:
    """Return the cost of (x - mean) invstd w + b.

    FLOPs 4n; bytes n and the vectors read, n written.
    """
    return _local_cost(tensor(op, 0), 4, 2, _given_bytes(op, 1, 2, 3, 4))


@perf_model("aten::batch_norm_backward_reduce")
def backward_sums(op: OpSignature) -> OpCost:
    """Return the cost of gradient, input: sums of g and of g (x - mean).

    FLOPs 4n; bytes 2n and vectors read, four vectors of c written: both sums, the gradients of
    weight and bias.
    """
    x, vectors = tensor(op, 1), _given_bytes(op, 2, 3, 4)
    written = 4 * x.shape[1] * _STATISTICS_BYTES
    return _local_cost(x, 4, 2, None if vectors is None else vectors + written)


@perf_model("aten::batch_norm_backward_elemt")
def backward_of_input(op: OpSignature) -> OpCost:
    """Return the cost of gradient, input: (g - m_g - (x - mean) f) s.

    FLOPs 5n; bytes 2n and vectors read, n written. The factors of each channel are not counted.
    """
    return _local_cost(tensor(op, 1), 5, 3, _given_bytes(op, 2, 3, 4, 5, 6))
