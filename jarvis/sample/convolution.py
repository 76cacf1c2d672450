"""Convolution blocks on images in NCHW order: each convolution transposes to NHWC and back."""

from typing import Any

from jarvis.sample.autograd import Session
from jarvis.sample.gpu import Work
from jarvis.sample.pointwise import elementwise, launch_reduce
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
