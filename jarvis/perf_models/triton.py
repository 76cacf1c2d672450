"""Kernels fused from framework ops by a compiler: ``triton_<kind>_fused_<op>_<op>_<number>``.

Kinds: ``poi`` pointwise, ``red`` reduction in a loop, ``per`` reduction of a row held on chip.
"""

import re
from itertools import accumulate
from math import inf
from operator import mul

from jarvis.perf_models.arguments import Tensor, tensors_at, text, total_bytes
from jarvis.perf_models.dtypes import compute_spec, is_floating, precision
from jarvis.perf_models.elementwise import FLOPS_PER_ELEMENT
from jarvis.perf_models.registry import (
    NoModelForCallError,
    OpCost,
    OpSignature,
    categorize,
    perf_model,
)

_ARITHMETIC = """
    abs absolute add addcdiv addcmul addr ceil clamp clamp_max clamp_min clip copysign deg2rad div
    divide fix floor floor_divide fma fmax fmin fmod frac frexp gcd hypot lcm ldexp lerp maximum
    minimum mul multiply nan_to_num neg negative nextafter positive rad2deg reciprocal remainder
    round rsub sgn sign signbit square sub subtract true_divide trunc xlogy
"""
_TRANSCENDENTAL = """
    acos acosh angle arccos arcsin arctan arctan2 asin asinh atan atan2 atanh cos cosh digamma erf
    erfc erfinv exp exp2 expm1 float_power i0 igamma igammac lgamma log log10 log1p log2 logaddexp
    logaddexp2 logit mvlgamma polygamma pow rsqrt sigmoid sin sinc sinh special_bessel_j0
    special_bessel_j1 special_entr special_erf special_erfc special_erfcx special_expit
    special_expm1 special_i0 special_i0e special_i1 special_i1e special_log1p special_log_ndtr
    special_ndtr special_ndtri special_softmax special_xlog1py special_zeta sqrt tan tanh
"""
_COMPARISON_AND_LOGIC = """
    all allclose any bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
    bitwise_xor eq equal ge greater greater_equal gt heaviside isclose isfinite isin isinf isnan
    isneginf isposinf isreal le less less_equal logical_and logical_not logical_or logical_xor lt
    ne not_equal where
"""
_ACTIVATION = """
    _prelu_kernel _softmax _log_softmax celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh
    leaky_relu log_sigmoid log_sigmoid_forward log_softmax mish prelu relu relu6 rrelu
    rrelu_with_noise selu silu softmax softplus softshrink softsign tanhshrink threshold
"""
_REDUCTION = """
    _cdist_forward _euclidean_dist _segment_reduce amax amin aminmax argmax argmin argsort bincount
    cdist cosine_similarity count_nonzero cummax cummin cumprod cumsum dist dot frobenius_norm
    histc kthvalue linalg_norm linalg_vector_norm logcumsumexp logsumexp max mean median min mode
    nanmean nanmedian nansum norm nuclear_norm prod quantile renorm searchsorted sort std std_mean
    sum sum_to_size topk trace unique var var_mean
"""
_NORMALIZATION = """
    _batch_norm_impl_index _batch_norm_no_update _batch_norm_with_update
    _batch_norm_with_update_functional _fused_rms_norm _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training batch_norm
    cudnn_batch_norm group_norm instance_norm layer_norm local_response_norm miopen_batch_norm
    native_batch_norm native_group_norm native_layer_norm rms_norm
"""
_BACKWARD = """
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward _batch_norm_impl_index_backward
    _fused_rms_norm_backward _log_softmax_backward_data _prelu_kernel_backward
    _softmax_backward_data adaptive_max_pool2d_backward avg_pool2d_backward avg_pool3d_backward
    batch_norm_backward binary_cross_entropy_backward convolution_backward
    cudnn_batch_norm_backward elu_backward embedding_backward embedding_dense_backward
    gelu_backward glu_backward grid_sampler_2d_backward hardshrink_backward hardsigmoid_backward
    hardswish_backward hardtanh_backward huber_loss_backward index_backward index_select_backward
    leaky_relu_backward log_sigmoid_backward logit_backward max_pool2d_with_indices_backward
    max_pool3d_with_indices_backward mish_backward miopen_batch_norm_backward mse_loss_backward
    native_batch_norm_backward native_dropout_backward native_group_norm_backward
    native_layer_norm_backward nll_loss2d_backward nll_loss_backward pixel_shuffle_backward
    reflection_pad1d_backward reflection_pad2d_backward replication_pad1d_backward
    replication_pad2d_backward rrelu_with_noise_backward select_backward sigmoid_backward
    silu_backward slice_backward smooth_l1_loss_backward soft_margin_loss_backward
    softplus_backward softshrink_backward tanh_backward threshold_backward unfold_backward
    upsample_bicubic2d_backward upsample_bilinear2d_backward upsample_nearest1d_backward
    upsample_nearest2d_backward upsample_nearest3d_backward value_selecting_reduction_backward
"""
_LOSS = """
    binary_cross_entropy binary_cross_entropy_with_logits cross_entropy cross_entropy_loss
    cosine_embedding_loss ctc_loss hinge_embedding_loss huber_loss kl_div l1_loss
    margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d
    nll_loss2d_forward nll_loss_forward nll_loss_nd poisson_nll_loss smooth_l1_loss
    soft_margin_loss triplet_margin_loss
"""
_POOLING_AND_RESIZING = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _upsample_bicubic2d_aa _upsample_bilinear2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d affine_grid_generator avg_pool1d avg_pool2d avg_pool3d
    col2im fractional_max_pool2d grid_sampler grid_sampler_2d grid_sampler_3d im2col max_pool1d
    max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices pixel_shuffle
    pixel_unshuffle upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_trilinear3d
"""
_VIEWS_AND_COPIES = """
    _conj _neg_view _reshape_alias _reshape_copy _to_copy _unsafe_view alias alias_copy arange
    as_strided as_strided_copy as_strided_scatter atleast_1d atleast_2d atleast_3d broadcast_tensors
    broadcast_to cat channel_shuffle chunk clone complex concat concatenate conj contiguous copy
    detach detach_copy diag diag_embed diagonal diagonal_copy diagonal_scatter dropout empty
    empty_like empty_permuted empty_strided expand expand_as expand_copy eye feature_dropout fill
    flatten flip fliplr flipud full full_like hsplit hstack imag lift_fresh lift_fresh_copy linspace
    logspace meshgrid movedim narrow narrow_copy native_dropout new_empty new_empty_strided
    new_full new_ones new_zeros numpy_T ones ones_like pad permute permute_copy ravel real repeat
    repeat_interleave reshape resize resolve_conj resolve_neg roll rot90 scalar_tensor select
    select_copy select_scatter slice slice_copy slice_scatter split split_copy split_with_sizes
    split_with_sizes_copy squeeze squeeze_copy stack swapaxes t t_copy tensor_split tile to
    transpose transpose_copy tril triu type_as unbind unbind_copy unflatten unfold unfold_copy
    unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_copy view view_as
    view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy vsplit vstack zero
    zeros zeros_like
"""
_PADDING = """
    _pad_circular constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d
"""
_INDEXING = """
    _embedding_bag _embedding_bag_forward_only _index_put_impl _unsafe_index _unsafe_index_put
    _unsafe_masked_index _unsafe_masked_index_put_accumulate bucketize embedding embedding_bag
    gather index index_add index_copy index_fill index_put index_reduce index_select masked_fill
    masked_scatter masked_select nonzero nonzero_static one_hot put scatter scatter_add
    scatter_reduce take take_along_dim tril_indices triu_indices
"""
_PRODUCTS = """
    _addmm_activation _convolution _efficient_attention_backward _efficient_attention_forward
    _flash_attention_backward _flash_attention_forward _grouped_mm _int_mm _linalg_det
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math
    _scaled_mm _weight_int4pack_mm _weight_int8pack_mm _weight_norm _weight_norm_interface addbmm
    addmm addmv baddbmm bmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d convolution cross cudnn_convolution einsum inner kron linalg_cross
    linalg_matrix_norm linear matmul miopen_convolution mm mv outer scaled_dot_product_attention
    tensordot vdot
"""
_RANDOM = """
    _fused_dropout bernoulli cauchy exponential geometric log_normal multinomial normal
    normal_functional poisson rand rand_like randint randint_like randn randn_like randperm uniform
"""
_QUANTIZATION = """
    _fake_quantize_learnable_per_tensor_affine
    dequantize_per_channel dequantize_per_tensor fake_quantize_per_channel_affine
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine
    fake_quantize_per_tensor_affine_cachemask quantize_per_channel quantize_per_tensor
"""
_OPTIMIZER = """
    _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_copy _foreach_div _foreach_lerp
    _foreach_maximum _foreach_mul _foreach_neg _foreach_norm _foreach_pow _foreach_reciprocal
    _foreach_sqrt _foreach_sub _fused_adam _fused_adamw _fused_sgd
"""
_PRIMITIVES = """
    _assert_async _assert_scalar _fft_c2c _fft_c2r _fft_r2c _local_scalar_dense
    convert_element_type device_put fft_fft fft_ifft fft_irfft fft_rfft iota item
    sym_size
"""

_FUNCTIONAL = frozenset(
    name
    for group in (
        _ARITHMETIC,
        _TRANSCENDENTAL,
        _COMPARISON_AND_LOGIC,
        _ACTIVATION,
        _REDUCTION,
        _NORMALIZATION,
        _BACKWARD,
        _LOSS,
        _POOLING_AND_RESIZING,
        _VIEWS_AND_COPIES,
        _PADDING,
        _INDEXING,
        _PRODUCTS,
        _RANDOM,
        _QUANTIZATION,
        _OPTIMIZER,
        _PRIMITIVES,
    )
    for name in group.split()
)

_IN_PLACE = frozenset(f"{name}_" for group in (_ARITHMETIC, _ACTIVATION) for name in group.split())

ATEN_NAMES = _FUNCTIONAL | _IN_PLACE | {"copy_", "fill_", "index_put_", "zero_", "detach_"}
"""Every known op name; in-place forms end in an underscore."""

_FUSED_NAME = re.compile(r"triton_(?:poi|red|per)_fused_(.*?)_\d+")

_SHEET_FLOPS_PER_ELEMENT = (
    dict.fromkeys(
        ("add", "sub", "mul", "div", "relu", "mean", "sum", "abs", "neg", "ne", "eq", "lt", "gt"), 1
    )
    | dict.fromkeys(("pow", "sqrt", "rsqrt", "var", "reciprocal"), 2)
    | dict.fromkeys(("exp", "log", "sigmoid", "tanh", "silu"), 4)
    | {"gelu": 8}
)
"""Ops that the sheets count; all others have 0 FLOPs there."""

_LOOK_UPS = (
    *("embedding", "embedding_backward", "embedding_dense_backward", "gather", "take"),
    *("index", "index_add", "index_copy", "index_fill", "index_put", "index_select"),
    *("scatter", "scatter_add", "scatter_reduce", "_unsafe_index", "_unsafe_index_put"),
)
"""Ops that access only the elements that an index names."""

_FILLS = """
    arange empty empty_like empty_strided eye fill full full_like iota linspace logspace new_empty
    new_empty_strided new_full new_ones new_zeros ones ones_like scalar_tensor zero zeros zeros_like
"""
_GENERATORS = frozenset(f"{_RANDOM} {_FILLS}".split())
"""Ops whose result depends on no tensor, so that a kernel may only write."""

_GRADIENTS = "gelu hardsigmoid hardswish hardtanh leaky_relu mish sigmoid silu tanh"
_READING_TWO = frozenset(f"{name}_backward" for name in _GRADIENTS.split())
"""Elementwise ops of a gradient and a tensor of its size."""

_RESHAPES = frozenset(
    ("view", "view_copy", "reshape", "_reshape_alias", "_reshape_copy", "flatten")
)

_MAX_OP_TOKENS = 1 + max(name.count("_") for name in ATEN_NAMES)


def fused_ops(name: str) -> list[str]:
    """Return the framework ops in a fused kernel's name, [] if the name has unknown parts.

    Op names contain underscores too: of all ways to split the name into known ones, choose the one
    with the longest last op, then the longest before it, and so on.
    """
    match = _FUSED_NAME.fullmatch(name)
    if match is None:
        return []
    tokens = match[1].split("_")
    reachable = [True]
    for end in range(1, len(tokens) + 1):
        reachable.append(_last_op_start(tokens, end, reachable) is not None)
    if not reachable[-1]:
        return []
    ops: list[str] = []
    end = len(tokens)
    while (start := _last_op_start(tokens, end, reachable)) is not None:
        ops.append("_".join(tokens[start:end]))
        end = start
    return ops[::-1]


def _last_op_start(tokens: list[str], end: int, reachable: list[bool]) -> int | None:
    """Return the start of the longest op that ends at ``end`` and follows a known split."""
    for start in range(max(0, end - _MAX_OP_TOKENS), end):
        if reachable[start] and "_".join(tokens[start:end]) in ATEN_NAMES:
            return start
    return None


def _sizes(op: OpSignature) -> list[int]:
    """Return the integer arguments in order; the extents that the kernel iterates over are last."""
    values = (text(op, i) for i in range(len(op.concrete_inputs)))
    return [int(value) for value in values if re.fullmatch(r"-?\d+", value)]


def _iterations(sizes: list[int], tensors: list[Tensor], xnumel: int, rnumel: int) -> int:
    """Return the number of elements that the kernel iterates over.

    A pointwise kernel may have several extents, and sizes of a dynamic shape before them: of the
    products of the last extents, use the largest that is the size of a tensor.
    """
    if rnumel > 1:
        return xnumel * rnumel
    counts = {t.numel for t in tensors}
    products = accumulate(reversed(sizes), mul)
    return max((n for n in products if n in counts), default=xnumel)


def _updated(
    tensors: list[Tensor], ops: list[str], outputs: set[int], iterations: int
) -> list[Tensor]:
    """Return the tensor that a kernel updates in place, as a list; empty if none is known to be.

    Arguments updated in place come first, then inputs, then outputs. If the last argument cannot be
    an output there are none, and the first is updated.

    Args:
        tensors: tensor arguments, also those without dimensions.
        ops: the fused ops.
        outputs: possible numbers of elements of an output.
        iterations: elements that the kernel iterates over.
    """
    first, last = tensors[0], tensors[-1]
    if first.numel != iterations or not ops or _GENERATORS.intersection(ops):
        return []
    if len(tensors) == 1:
        is_input = iterations in outputs
    elif last.numel not in outputs:
        is_input = last.numel < iterations and not set(_LOOK_UPS).intersection(ops)
    else:
        # A product of matrices is read as one matrix: without another view, no output is one.
        is_product = "_unsafe_view" in ops and not _RESHAPES.intersection(ops)
        is_input = last.numel == iterations and (
            (is_product and len(last.shape) < len(first.shape))
            or (
                len(tensors) == 2
                and bool(_READING_TWO.intersection(ops))
                and is_floating(last.dtype)
            )
        )
    return [first] if is_input else []


def _moved_bytes(tensors: list[Tensor], max_elements: float = inf) -> float | None:
    """Return the bytes of ``tensors``, up to ``max_elements`` of each."""
    return total_bytes(*((min(t.numel, max_elements), t.real_size) for t in tensors))


@perf_model("triton_poi_*", "triton_red_*", "triton_per_*", category="triton", sheet="")
def fused_kernel(op: OpSignature) -> OpCost:
    """Return the cost of a fused kernel.

    FLOPs per element of the fused ops x xnumel x rnumel, unknown if the name cannot be split; bytes
    of every tensor argument once, twice if it is updated in place. The arguments contain inputs and
    outputs, without their names: an update in place is counted where no argument can be the output.
    ``exact_flops`` counts every op in the table of FLOPs per element, and all extents of a kernel;
    ``exact_bytes`` counts at most the elements of a look-up table that the kernel can access.
    """
    sizes, every = _sizes(op), list(tensors_at(op, range(len(op.input_dims))))
    tensors = [t for t in every if t.given]
    if not sizes or not tensors:
        raise NoModelForCallError(f"{op.name} was recorded without its tensors and extents.")
    pointwise = op.name.startswith("triton_poi_")
    xnumel, rnumel = (sizes[-1], 1) if pointwise or len(sizes) == 1 else sizes[-2:]
    ops = fused_ops(op.name)
    per_element = sum(_SHEET_FLOPS_PER_ELEMENT.get(name, 0) for name in ops)
    exact_per_element = sum(FLOPS_PER_ELEMENT.get(name, 0) for name in ops)
    spec_dtype = next((t.dtype for t in tensors if precision(t.dtype)), None)
    iterations = _iterations(sizes, tensors, xnumel, rnumel)
    outputs = {iterations} if pointwise else {xnumel, xnumel * rnumel}
    moved = tensors + _updated(every, ops, outputs, iterations)
    looks_up = not set(_LOOK_UPS).isdisjoint(ops)
    return OpCost(
        flops=per_element * xnumel * rnumel if ops else None,
        bytes=_moved_bytes(moved),
        compute=compute_spec("vector", spec_dtype),
        params={
            "fused_ops": ", ".join(f"aten.{name}" for name in ops),
            "xnumel": xnumel,
            "rnumel": rnumel,
        },
        exact_flops=exact_per_element * iterations if ops else None,
        exact_bytes=_moved_bytes(moved, iterations if looks_up else inf),
    )


categorize("triton", "triton*")
