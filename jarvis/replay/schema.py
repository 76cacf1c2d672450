"""What arguments common framework operators take, so that a trace's values can be named.

A signature lists ``type name`` in order; what follows ``*`` is passed by keyword. ``?`` marks what
may be missing. Building a package needs no framework: this table is all there is to know.
"""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator."""

    name: str
    type: str
    is_keyword: bool

    @property
    def base(self) -> str:
        """The type without the mark of what may be missing."""
        return self.type.removesuffix("?")

    @property
    def is_optional(self) -> bool:
        """Whether nothing may be given."""
        return self.type.endswith("?")


_ONE = ("Tensor self", "Tensor self, *, Tensor out")
_TWO = ("Tensor self, Tensor other", "Tensor self, Tensor other, *, Tensor out")
_SCALED = "Tensor self, Tensor other, *, Scalar alpha"
_SCALED_NUMBER = "Tensor self, Scalar other, *, Scalar alpha"
_WITH_NUMBER = "Tensor self, Scalar other"
_REDUCED = "Tensor self, int[]? dim, bool keepdim, *, ScalarType? dtype"
_NORM_STATE = "Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var"
_SAVED = "Tensor? running_mean, Tensor? running_var, Tensor? save_mean"
_CONV_STEPS = "int[] stride, int[] padding, int[] dilation"
_CONV = f"Tensor input, Tensor weight, Tensor? bias, {_CONV_STEPS}, int groups"
_VENDOR_CONV_STEPS = "int[] padding, int[] stride, int[] dilation, int groups"
_POOL = "int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode"
_QKV = "Tensor query, Tensor key, Tensor value"
_GRADIENT_OF_OUTPUT = "Tensor grad_output, Tensor output"
_GRADIENT_OF_INPUT = "Tensor grad_output, Tensor self"

_GEMM = {
    "mm": ("Tensor self, Tensor mat2", "Tensor self, Tensor mat2, *, Tensor out"),
    "bmm": ("Tensor self, Tensor mat2", "Tensor self, Tensor mat2, *, Tensor out"),
    "matmul": ("Tensor self, Tensor other",),
    "linear": ("Tensor input, Tensor weight, Tensor? bias",),
    "addmm": (
        "Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta, Scalar alpha",
        "Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta, Scalar alpha, Tensor out",
    ),
    "baddbmm": (
        "Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta, Scalar alpha",
        "Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta, Scalar alpha, Tensor out",
    ),
}
_CONVOLUTION = {
    "convolution": (
        f"Tensor input, Tensor weight, Tensor? bias, {_CONV_STEPS}, bool transposed, "
        "int[] output_padding, int groups",
    ),
    "convolution_backward": (
        f"Tensor grad_output, Tensor input, Tensor weight, int[]? bias_sizes, {_CONV_STEPS}, "
        "bool transposed, int[] output_padding, int groups, bool[] output_mask",
    ),
    "conv1d": (_CONV,),
    "conv2d": (_CONV,),
    "conv3d": (_CONV,),
    "miopen_convolution": (
        f"Tensor self, Tensor weight, Tensor? bias, {_VENDOR_CONV_STEPS}, bool benchmark, "
        "bool deterministic",
    ),
    "cudnn_convolution": (
        f"Tensor self, Tensor weight, {_VENDOR_CONV_STEPS}, bool benchmark, bool deterministic, "
        "bool allow_tf32",
    ),
}
_VENDOR_BATCH_NORM = (
    "Tensor input, Tensor weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
    "bool training, float exponential_average_factor, float epsilon"
)
_VENDOR_BATCH_NORM_BACKWARD = (
    f"Tensor input, Tensor grad_output, Tensor weight, {_SAVED}, Tensor? save_var, float epsilon"
)
_NORMALIZATION = {
    "batch_norm": (
        f"Tensor input, {_NORM_STATE}, bool training, float momentum, float eps, "
        "bool cudnn_enabled",
    ),
    "native_batch_norm": (
        f"Tensor input, {_NORM_STATE}, bool training, float momentum, float eps",
    ),
    "native_batch_norm_backward": (
        f"Tensor grad_out, Tensor input, Tensor? weight, {_SAVED}, Tensor? save_invstd, "
        "bool train, float eps, bool[] output_mask",
    ),
    "miopen_batch_norm": (_VENDOR_BATCH_NORM,),
    "cudnn_batch_norm": (_VENDOR_BATCH_NORM,),
    "miopen_batch_norm_backward": (_VENDOR_BATCH_NORM_BACKWARD,),
    "cudnn_batch_norm_backward": (f"{_VENDOR_BATCH_NORM_BACKWARD}, Tensor reserveSpace",),
    "instance_norm": (
        f"Tensor input, {_NORM_STATE}, bool use_input_stats, float momentum, float eps, "
        "bool cudnn_enabled",
    ),
    "layer_norm": (
        "Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps, "
        "bool cudnn_enable",
    ),
    "native_layer_norm": (
        "Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps",
    ),
    "native_layer_norm_backward": (
        "Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, "
        "Tensor? weight, Tensor? bias, bool[] output_mask",
    ),
    "group_norm": (
        "Tensor input, int num_groups, Tensor? weight, Tensor? bias, float eps, bool cudnn_enabled",
    ),
    "native_group_norm": (
        "Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps",
    ),
    "native_group_norm_backward": (
        "Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, int N, int C, "
        "int HxW, int group, bool[] output_mask",
    ),
    "_fused_rms_norm": ("Tensor input, int[] normalized_shape, Tensor? weight, float? eps",),
    "_fused_rms_norm_backward": (
        "Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, "
        "bool[] output_mask",
    ),
}
_ATTENTION = {
    "_scaled_dot_product_flash_attention": (
        f"{_QKV}, float dropout_p, bool is_causal, bool return_debug_mask, *, float? scale",
    ),
    "_scaled_dot_product_efficient_attention": (
        f"{_QKV}, Tensor? attn_bias, bool compute_log_sumexp, float dropout_p, bool is_causal, *, "
        "float? scale",
    ),
    "scaled_dot_product_attention": (
        f"{_QKV}, Tensor? attn_mask, float dropout_p, bool is_causal, *, float? scale, "
        "bool enable_gqa",
    ),
    "_softmax": ("Tensor self, int dim, bool half_to_float",),
    "_log_softmax": ("Tensor self, int dim, bool half_to_float",),
    "softmax": ("Tensor self, int dim, ScalarType? dtype",),
    "log_softmax": ("Tensor self, int dim, ScalarType? dtype",),
    "_softmax_backward_data": (f"{_GRADIENT_OF_OUTPUT}, int dim, ScalarType input_dtype",),
    "_log_softmax_backward_data": (f"{_GRADIENT_OF_OUTPUT}, int dim, ScalarType input_dtype",),
}
_POINTWISE = {
    **dict.fromkeys(
        ("abs", "cos", "erf", "exp", "log", "neg", "reciprocal", "relu", "rsqrt", "sigmoid"), _ONE
    ),
    **dict.fromkeys(("silu", "sin", "sqrt", "square", "tanh"), _ONE),
    **dict.fromkeys(("relu_", "silu_", "sigmoid_", "tanh_", "zero_"), ("Tensor self",)),
    **dict.fromkeys(("add", "sub"), (_SCALED, _SCALED_NUMBER, f"{_SCALED}, Tensor out")),
    **dict.fromkeys(("add_", "sub_"), (_SCALED, _SCALED_NUMBER)),
    **dict.fromkeys(("mul", "div", "eq", "ne", "lt", "le", "gt", "ge"), (*_TWO, _WITH_NUMBER)),
    **dict.fromkeys(("mul_", "div_"), ("Tensor self, Tensor other", _WITH_NUMBER)),
    **dict.fromkeys(("maximum", "minimum"), _TWO),
    **dict.fromkeys(("silu_backward",), (_GRADIENT_OF_INPUT,)),
    **dict.fromkeys(("tanh_backward", "sigmoid_backward"), (_GRADIENT_OF_OUTPUT,)),
    **dict.fromkeys(("clamp_min", "clamp_min_"), ("Tensor self, Scalar min",)),
    "pow": ("Tensor self, Scalar exponent", "Tensor self, Tensor exponent"),
    "gelu": ("Tensor self, *, str? approximate",),
    "gelu_backward": (f"{_GRADIENT_OF_INPUT}, *, str? approximate",),
    "threshold_backward": (f"{_GRADIENT_OF_INPUT}, Scalar threshold",),
    "where": ("Tensor condition, Tensor self, Tensor other",),
    "masked_fill": (
        "Tensor self, Tensor mask, Scalar value",
        "Tensor self, Tensor mask, Tensor value",
    ),
    "masked_fill_": (
        "Tensor self, Tensor mask, Scalar value",
        "Tensor self, Tensor mask, Tensor value",
    ),
    "fill_": ("Tensor self, Scalar value", "Tensor self, Tensor value"),
    "copy_": ("Tensor self, Tensor src, bool non_blocking",),
    "clone": ("Tensor self, *, int? memory_format",),
    "mse_loss_backward": (
        f"{_GRADIENT_OF_INPUT}, Tensor target, int reduction",
        f"{_GRADIENT_OF_INPUT}, Tensor target, int reduction, *, Tensor grad_input",
    ),
}
_REDUCTION = {
    **dict.fromkeys(
        ("sum", "mean"),
        ("Tensor self, *, ScalarType? dtype", _REDUCED, f"{_REDUCED}, Tensor out"),
    ),
    **dict.fromkeys(("amax", "amin"), ("Tensor self, int[] dim, bool keepdim",)),
    **dict.fromkeys(("argmax", "argmin"), ("Tensor self, int? dim, bool keepdim",)),
    **dict.fromkeys(("all", "any"), ("Tensor self",)),
    "cumsum": ("Tensor self, int dim, *, ScalarType? dtype",),
}
_OTHER = {
    "max_pool2d_with_indices": (f"Tensor self, {_POOL}",),
    "max_pool2d_with_indices_backward": (f"{_GRADIENT_OF_INPUT}, {_POOL}, Tensor indices",),
    "_adaptive_avg_pool2d": ("Tensor self, int[] output_size",),
    "embedding": (
        "Tensor weight, Tensor indices, int padding_idx, bool scale_grad_by_freq, bool sparse",
    ),
    "embedding_dense_backward": (
        "Tensor grad_output, Tensor indices, int num_weights, int padding_idx, "
        "bool scale_grad_by_freq",
    ),
    "index_select": ("Tensor self, int dim, Tensor index",),
}
SIGNATURES: dict[str, tuple[str, ...]] = {
    f"aten::{name}": signatures
    for family in (
        _GEMM,
        _CONVOLUTION,
        _NORMALIZATION,
        _ATTENTION,
        _POINTWISE,
        _REDUCTION,
        _OTHER,
    )
    for name, signatures in family.items()
}
"""Operator -> its signatures; the first that fits the trace's arguments counts."""

OUTPUTS = frozenset({"out", "grad_input"})
"""Tensors that are only written."""

WRITTEN = {"aten::copy_": "self", "aten::fill_": "self", "aten::zero_": "self"}
"""Operators whose tensor of this name is only written."""

INDEX_BOUNDS = {
    "aten::embedding": ("indices", "weight", 0),
    "aten::index_select": ("index", "self", "dim"),
}
"""Operator -> (its index tensor, the tensor that it indexes, along which dimension)."""


@cache
def arguments(signature: str) -> tuple[Argument, ...]:
    """The arguments of a signature in order."""
    found = []
    is_keyword = False
    for part in signature.split(", "):
        if part == "*":
            is_keyword = True
        else:
            type_name, _, name = part.partition(" ")
            found.append(Argument(name, type_name, is_keyword))
    return tuple(found)
