"""Matrix products and convolutions of the simulated process."""

from math import prod
from typing import Any

from jarvis.sample.autograd import Session
from jarvis.sample.gpu import Work
from jarvis.sample.pointwise import contiguous, elementwise, launch_reduce, scale, softmax, sum_to
from jarvis.sample.tensors import BF16, FP32, INT64, SampleTensor

_NORM_KERNEL = "void at::native::batch_norm_"


def conv2d(
    s: Session,
    image: SampleTensor,
    weight: SampleTensor,
    stride: int,
    *,
    image_needs_gradient: bool = True,
) -> SampleTensor:
    """Record image (B, C, Y, X) with weight (K, C, R, R), padded to keep the size at stride 1."""
    channels_out, channels_in, kernel_size, _ = weight.shape
    batch, _, height, width = image.shape
    result = SampleTensor((batch, channels_out, height // stride, width // stride))
    flops = 2 * result.numel * channels_in * kernel_size**2
    geometry = ((stride, stride), (kernel_size // 2, kernel_size // 2), (1, 1))

    def product(direction: str) -> None:
        nbytes = image.nbytes + weight.nbytes + result.nbytes
        kernel = f"igemm_{direction}_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_gkgs"
        s.launch(kernel, Work("convolution", flops, nbytes, "matrix_bf16"), result.numel // 64)

    def backward() -> None:
        mask = (image_needs_gradient, True, False)
        inputs = (result, image, weight, (0,), *geometry, False, (0, 0), 1, mask)
        with s.op("aten::convolution_backward", *inputs):
            if image_needs_gradient:
                _transpose(s, result)
                _transpose(s, weight)
                product("bwd")
                _transpose(s, image)
            _transpose(s, result)
            _transpose(s, image)
            product("wrw")
            _transpose(s, weight)

    with s.grad_op("aten::conv2d", image, weight, None, *geometry, 1):
        inputs = (image, weight, None, *geometry, False, (0, 0), 1)
        with s.grad_op("aten::convolution", *inputs) as op:
            with s.op("aten::_convolution", *inputs, False, False, True, True):
                padding_first = (geometry[1], geometry[0], geometry[2])
                tail: tuple[Any, ...] = (*padding_first, 1, False, False)
                with s.op("aten::miopen_convolution", image, weight, None, *tail):
                    _transpose(s, image)
                    _transpose(s, weight)
                    product("fwd")
                    _transpose(s, result)
            s.node(op, "ConvolutionBackward0", result, backward, (weight,))
    return result


def _transpose(s: Session, tensor: SampleTensor) -> None:
    work = Work("transpose", 0, 2 * tensor.nbytes)
    s.launch("batched_transpose_32x32_half", work, tensor.numel // 1024 + 1)


def batch_norm(
    s: Session, image: SampleTensor, weight: SampleTensor, bias: SampleTensor
) -> SampleTensor:
    """Record batch normalization in training: statistics of each channel over batch and pixels."""
    channel = SampleTensor((image.shape[1],), FP32)
    inputs = (image, weight, bias, weight, bias, True, 0.1, 1e-5)

    def backward() -> None:
        mask = (True, True, True)
        tensors = (image, image, weight, weight, bias, channel, channel)
        with s.op("aten::native_batch_norm_backward", *tensors, True, 1e-5, mask):
            work = Work("batch_norm", 11 * image.numel, 5 * image.nbytes)
            s.launch(f"{_NORM_KERNEL}backward_kernel<{BF16}, {BF16}, float, int>", work, 512)

    with (
        s.grad_op("aten::batch_norm", *inputs, True),
        s.grad_op("aten::_batch_norm_impl_index", *inputs, True),
        s.grad_op("aten::native_batch_norm", *inputs) as op,
    ):
        work = Work("batch_norm", 3 * image.numel, image.nbytes)
        kernel = f"collect_statistics_kernel<at::native::Var, {BF16}, {BF16}, float, int>"
        s.launch(f"{_NORM_KERNEL}{kernel}", work, image.shape[1])
        work = Work("batch_norm", 2 * image.numel, 2 * image.nbytes)
        kernel = f"transform_input_kernel<{BF16}, {BF16}, float, true, int>"
        s.launch(f"{_NORM_KERNEL}{kernel}", work, image.numel // 2048)
        s.node(op, "NativeBatchNormBackward0", image, backward, (weight, bias))
    return image


def max_pool2d(s: Session, image: SampleTensor) -> SampleTensor:
    """Record the maxima of 3 x 3 pixels at stride 2."""
    batch, channels, height, width = image.shape
    result = SampleTensor((batch, channels, height // 2, width // 2))
    indices = SampleTensor(result.shape, INT64)
    geometry = ((3, 3), (2, 2), (1, 1), (1, 1), False)
    moved = image.nbytes + result.nbytes + indices.nbytes
    kernel = "void at::native::(anonymous namespace)::max_pool_"

    def backward() -> None:
        with s.op("aten::max_pool2d_with_indices_backward", result, image, *geometry, indices):
            s.fill(image.nbytes)
            work = Work("gather", result.numel, moved)
            s.launch(f"{kernel}backward_nchw<{BF16}, float>", work, image.numel // 256)

    with (
        s.grad_op("aten::max_pool2d", image, *geometry),
        s.grad_op("aten::max_pool2d_with_indices", image, *geometry) as op,
    ):
        work = Work("reduce", 9 * result.numel, moved)
        s.launch(f"{kernel}forward_nchw<{BF16}>", work, result.numel // 256)
        s.node(op, "MaxPool2DWithIndicesBackward0", result, backward)
    return result


def global_average(s: Session, image: SampleTensor) -> SampleTensor:
    """Record the mean over the pixels of each channel: (B, C, Y, X) -> (B, C)."""
    result = SampleTensor(image.shape[:2])

    def backward() -> None:
        pixels = float(image.shape[2] * image.shape[3])
        elementwise(s, "aten::div", "scale", image, pixels, write=image)

    with s.grad_op("aten::mean", image, (-1, -2), False, None) as op:
        launch_reduce(s, "mean", image, result)
        s.node(op, "MeanBackward1", result, backward)
    return result


_TILES = {
    "gemm": "MT256x256x64_MI16x16x1",
    "gemm_misaligned": "MT128x64x32_MI16x16x1",
    "gemm_tall_skinny": "MT64x16x128_MI16x16x1",
    "gemm_tiny_batched": "MT16x16x32_MI16x16x1",
}


def _family(batch: int, m: int, n: int, k: int) -> str:
    if batch >= 1024 and max(m, n, k) <= 64:
        return "gemm_tiny_batched"
    if min(m, n) <= 64:
        return "gemm_tall_skinny"
    return "gemm_misaligned" if m % 8 or n % 8 or k % 8 else "gemm"


def _launch(
    s: Session, left: SampleTensor, right: SampleTensor, *, bias: bool = False
) -> SampleTensor:
    """Launch (B, M, K) @ (B, K, N); the kernel's name encodes the memory order of its operands."""
    (*batch, m, k), n = left.shape, right.shape[-1]
    result = SampleTensor((*batch, m, n))
    family = _family(prod(batch), m, n, k)
    # The library uses column-major order: its A is our right operand, its B our left one.
    order_a = "Ailk" if right.strides[-1] == 1 else "Alik"
    order_b = "Bljk" if left.strides[-1] == 1 else "Bjlk"
    epilogue = "_Bias_HA_S_SAV" if bias else ""
    kernel = f"Cijk_{order_a}_{order_b}_BBS_BH{epilogue}_UserArgs_{_TILES[family]}_SN_LDSB1_GRVWA8"
    nbytes = left.nbytes + right.nbytes + result.nbytes + (2 * n if bias else 0)
    work = Work(family, 2 * result.numel * k, nbytes, "matrix_bf16")
    s.launch(kernel, work, result.numel // 256 + 1)
    return result


def _mm(s: Session, name: str, left: SampleTensor, right: SampleTensor) -> SampleTensor:
    with s.op(name, left, right):
        return _launch(s, left, right)


def _transposed(s: Session, tensor: SampleTensor) -> SampleTensor:
    with s.op("aten::t", tensor), s.op("aten::transpose", tensor, 0, 1):
        return tensor.swap(0, 1)


def linear(
    s: Session, tokens: SampleTensor, weight: SampleTensor, bias: SampleTensor
) -> SampleTensor:
    """Record tokens (T, K) @ weight (N, K) transposed + bias (N)."""

    def backward() -> None:
        _mm(s, "aten::mm", result, weight)
        gradient = _mm(s, "aten::mm", _transposed(s, result), tokens)
        sum_to(s, result, bias)
        _transposed(s, gradient)

    with s.grad_op("aten::linear", tokens, weight, bias):
        with s.grad_op("aten::t", weight) as op:
            columns = weight.swap(0, 1)
            s.view_node(op, "TBackward0", "t", columns)
        with s.grad_op("aten::addmm", bias, tokens, columns, 1, 1) as op:
            result = _launch(s, tokens, columns, bias=True)
            s.node(op, "AddmmBackward0", result, backward, (bias, weight))
    return result


def bmm(s: Session, left: SampleTensor, right: SampleTensor) -> SampleTensor:
    """Record the batched product (B, M, K) @ (B, K, N)."""

    def backward() -> None:
        _mm(s, "aten::bmm", left.swap(1, 2), result)
        _mm(s, "aten::bmm", result, right.swap(1, 2))

    with s.grad_op("aten::bmm", left, right) as op:
        result = _launch(s, left, right)
        s.node(op, "BmmBackward0", result, backward)
    return result


def heads(s: Session, tokens: SampleTensor, batch: int, count: int) -> SampleTensor:
    """Return (batch * N, count * D) as (batch, count, N, D), without copying data."""
    length, size = tokens.shape[0] // batch, tokens.shape[1] // count
    with s.grad_op("aten::view", tokens, (batch, length, count, size)) as op:
        s.view_node(op, "ViewBackward0", "reshape", tokens, tokens.shape)
    split = tokens.view(batch, length, count, size)
    with s.grad_op("aten::transpose", split, 1, 2) as op:
        s.view_node(op, "TransposeBackward0", "transpose", split.swap(1, 2), 1, 2)
    return split.swap(1, 2)


def merge_heads(s: Session, attended: SampleTensor) -> SampleTensor:
    """Record (B, count, N, D) as (B * N, count * D): the inverse of ``heads``, with a copy."""
    batch, count, length, size = attended.shape
    return contiguous(s, attended.swap(1, 2)).view(batch * length, count * size)


def fused_attention(
    s: Session, query: SampleTensor, key: SampleTensor, value: SampleTensor
) -> SampleTensor:
    """Record causal attention (B, heads, N, D) in one kernel; the scores stay on chip."""
    batch, count, length, size = query.shape
    flops = 2 * batch * count * length * length * size  # two products, half of each masked
    statistics = SampleTensor((batch, count, length), FP32)
    factor = size**-0.5
    inputs = (query, key, value, 0.0, True, False, factor)
    grid = batch * count * (length // 128 + 1)

    def backward() -> None:
        gradients = (query, query, key, value, query, statistics)
        tail = (None, None, length, length, 0.0, True, None, None, factor)
        with (
            s.op("aten::_scaled_dot_product_flash_attention_backward", *gradients, *tail),
            s.op("aten::_flash_attention_backward", *gradients, *tail),
        ):
            s.launch("bwd_preprocess", Work("norm", 0, 2 * query.nbytes), grid)
            for kernel, share in (("bwd_kernel_dk_dv", 2.0), ("bwd_kernel_dq", 1.5)):
                nbytes = 5 * query.nbytes
                work = Work("attention_backward", share * flops, nbytes, "matrix_bf16")
                s.launch(kernel, work, grid)

    with (
        s.grad_op("aten::scaled_dot_product_attention", query, key, value, None, 0.0, True),
        s.grad_op("aten::_scaled_dot_product_flash_attention", *inputs) as op,
    ):
        with s.op("aten::_flash_attention_forward", *inputs):
            work = Work("attention", flops, 4 * query.nbytes, "matrix_bf16")
            s.launch("attn_fwd", work, grid)
        s.node(op, "ScaledDotProductFlashAttentionBackward0", query, backward)
    return query


def unfused_attention(
    s: Session, query: SampleTensor, key: SampleTensor, value: SampleTensor
) -> SampleTensor:
    """Record attention (B, heads, N, D) as single operators: the scores move through memory four
    times."""
    batch, count, length, size = query.shape

    def packed(tensor: SampleTensor) -> SampleTensor:
        return contiguous(s, tensor).view(batch * count, length, size)

    query, key, value = packed(query), packed(key), packed(value)
    with s.grad_op("aten::matmul", query, key.swap(1, 2)):
        scores = bmm(s, query, key.swap(1, 2))
    weights = softmax(s, scale(s, scores, size**-0.5))
    with s.grad_op("aten::matmul", weights, value):
        attended = bmm(s, weights, value)
    return attended.view(batch, count, length, size)
