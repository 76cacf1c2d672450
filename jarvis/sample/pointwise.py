"""Operators limited by memory: elementwise, reductions, softmax, normalization, embedding.

Each function records one forward operator with its launches, and passes its backward to
``Session.node``. Shapes: T tokens, H features, V entries of the vocabulary.
"""

from typing import Any

from jarvis.sample.autograd import Session
from jarvis.sample.gpu import Work
from jarvis.sample.tensors import BF16, FP32, SampleTensor

_MUL = "at::native::binary_internal::MulFunctor<float> >"
_CUDA_LAMBDA = "{lambda()#2}::operator()() const::{lambda(c10::BFloat16)#1}"
_FUNCTORS = {
    "add": f"at::native::CUDAFunctor_add<{BF16}>",
    "mul": f"at::native::BinaryFunctor<{BF16}, {BF16}, {BF16}, {_MUL}",
    "scale": f"at::native::AUnaryFunctor<{BF16}, {BF16}, {BF16}, {_MUL}",
    "pow": f"at::native::(anonymous namespace)::pow_tensor_scalar_kernel_impl<{BF16}>",
    "rsqrt": f"at::native::rsqrt_kernel_cuda(at::TensorIteratorBase&)::{_CUDA_LAMBDA}",
    "gelu": f"at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{_CUDA_LAMBDA}",
    "gelu_backward": f"at::native::GeluBackwardCUDAKernelImpl()::{_CUDA_LAMBDA}",
    "clamp": f"at::native::(anonymous namespace)::launch_clamp_scalar()::{_CUDA_LAMBDA}",
    "threshold": f"at::native::(anonymous namespace)::threshold_kernel_impl<{BF16}>",
    "copy": f"at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{_CUDA_LAMBDA}",
}
_REDUCTIONS = {
    "mean": f"MeanOps<{BF16}, float, float, {BF16}>",
    "sum": f"func_wrapper_t<{BF16}, at::native::sum_functor<{BF16}, float, {BF16}> >",
}


def launch_elementwise(
    s: Session,
    functor: str,
    reads: tuple[SampleTensor, ...],
    write: SampleTensor,
    family: str = "elementwise",
) -> None:
    """Launch one elementwise kernel: one FLOP per element of ``write``, each tensor moved once."""
    pointers = f"std::array<char*, {len(reads) + 1}ul>"
    body = f"{_FUNCTORS[functor]}, {pointers}"
    kernel = f"void at::native::vectorized_elementwise_kernel<8, {body} >(int, {body})"
    nbytes = sum(tensor.nbytes for tensor in reads) + write.nbytes
    s.launch(kernel, Work(family, write.numel, nbytes), write.numel // 2048 + 1)


def elementwise(s: Session, name: str, functor: str, *inputs: Any, write: SampleTensor) -> None:
    """Record an elementwise operator below autograd."""
    with s.op(name, *inputs):
        reads = tuple(value for value in inputs if isinstance(value, SampleTensor))
        launch_elementwise(s, functor, reads, write)


def add(s: Session, left: SampleTensor, right: SampleTensor) -> SampleTensor:
    """Record the sum of two tensors (``right`` broadcast); backward passes the gradient through."""
    with s.grad_op("aten::add", left, right, 1) as op:
        launch_elementwise(s, "add", (left, right), left)
        s.node(op, "AddBackward0", left, lambda: sum_to(s, left, right))
    return left


def mul(
    s: Session, left: SampleTensor, right: SampleTensor, parameters: tuple[SampleTensor, ...] = ()
) -> SampleTensor:
    """Record the product of two tensors (``right`` broadcast); backward multiplies with each
    factor."""

    def backward() -> None:
        elementwise(s, "aten::mul", "mul", left, right, write=left)
        elementwise(s, "aten::mul", "mul", left, left, write=left)
        sum_to(s, left, right)

    with s.grad_op("aten::mul", left, right) as op:
        launch_elementwise(s, "mul", (left, right), left)
        s.node(op, "MulBackward0", left, backward, parameters)
    return left


def scale(s: Session, tensor: SampleTensor, factor: float) -> SampleTensor:
    """Record the product with a number."""

    def backward() -> None:
        elementwise(s, "aten::mul", "scale", tensor, factor, write=tensor)

    with s.grad_op("aten::mul", tensor, factor) as op:
        launch_elementwise(s, "scale", (tensor,), tensor)
        s.node(op, "MulBackward0", tensor, backward)
    return tensor


def gelu(s: Session, tensor: SampleTensor) -> SampleTensor:
    """Record the GELU activation."""

    def backward() -> None:
        elementwise(s, "aten::gelu_backward", "gelu_backward", tensor, tensor, "none", write=tensor)

    with s.grad_op("aten::gelu", tensor, "none") as op:
        launch_elementwise(s, "gelu", (tensor,), tensor)
        s.node(op, "GeluBackward0", tensor, backward)
    return tensor


def relu(s: Session, tensor: SampleTensor) -> SampleTensor:
    """Record ReLU in place."""

    def backward() -> None:
        elementwise(s, "aten::threshold_backward", "threshold", tensor, tensor, 0, write=tensor)

    with s.grad_op("aten::relu_", tensor) as op:
        elementwise(s, "aten::clamp_min_", "clamp", tensor, 0, write=tensor)
        s.node(op, "ReluBackward0", tensor, backward)
    return tensor


def contiguous(s: Session, tensor: SampleTensor) -> SampleTensor:
    """Record a copy of a strided view in the order of its dimensions."""
    packed = tensor.view(*tensor.shape)
    with s.grad_op("aten::contiguous", tensor, 0), s.grad_op("aten::clone", tensor, 0) as op:
        with s.op("aten::copy_", packed, tensor, False):
            launch_elementwise(s, "copy", (tensor,), packed, "copy")
        s.node(op, "CloneBackward0", packed, lambda: None)
    return packed


def launch_reduce(s: Session, functor: str, tensor: SampleTensor, result: SampleTensor) -> None:
    """Launch one reduction kernel (``"mean"`` or ``"sum"``): one FLOP per element of ``tensor``."""
    body = f"at::native::ReduceOp<{BF16}, at::native::{_REDUCTIONS[functor]} >"
    kernel = f"void at::native::reduce_kernel<512, 1, {body} >({body})"
    work = Work("reduce", tensor.numel, tensor.nbytes + result.nbytes)
    s.launch(kernel, work, result.numel // 4 + 1, 512)


def sum_to(s: Session, tensor: SampleTensor, result: SampleTensor) -> None:
    """Sum a gradient over the dimensions along which its tensor was broadcast."""
    shape = (1,) * (len(tensor.shape) - len(result.shape)) + result.shape
    broadcast = tuple(
        i
        for i, (size, broadcast_size) in enumerate(zip(tensor.shape, shape, strict=True))
        if size != broadcast_size
    )
    if broadcast:
        with s.op("aten::sum", tensor, broadcast, True, None):
            launch_reduce(s, "sum", tensor, result)


def softmax(s: Session, scores: SampleTensor) -> SampleTensor:
    """Record softmax over the last dimension; scores in memory are read and written once."""

    def launch(kernel: str, passes: int) -> None:
        work = Work("softmax", 5 * scores.numel, passes * scores.nbytes)
        s.launch(f"void {kernel}<{BF16}, float>", work, scores.numel // scores.shape[-1], 512)

    def backward() -> None:
        with s.op("aten::_softmax_backward_data", scores, scores, -1, 15):
            launch("(anonymous namespace)::softmax_warp_backward", 3)

    with (
        s.grad_op("aten::softmax", scores, -1, None),
        s.grad_op("aten::_softmax", scores, -1, False) as op,
    ):
        launch("at::native::(anonymous namespace)::cunn_SoftMaxForward", 2)
        s.node(op, "SoftmaxBackward0", scores, backward)
    return scores


def layer_norm(
    s: Session, tensor: SampleTensor, weight: SampleTensor, bias: SampleTensor
) -> SampleTensor:
    """Record layer normalization over the last dimension."""
    rows = SampleTensor((*tensor.shape[:-1], 1), FP32)
    shape, epsilon = (tensor.shape[-1],), 1e-5
    kernel = "void at::native::(anonymous namespace)::"

    def backward() -> None:
        mask = (True, True, True)
        inputs = (tensor, tensor, shape, rows, rows, weight, bias, mask)
        with s.op("aten::native_layer_norm_backward", *inputs):
            work = Work("norm", 9 * tensor.numel, 3 * tensor.nbytes)
            s.launch(f"{kernel}layer_norm_grad_input_kernel<{BF16}, float>", work, rows.numel)
            work = Work("norm", 4 * tensor.numel, 2 * tensor.nbytes)
            s.launch(f"{kernel}GammaBetaBackwardCUDAKernel<{BF16}, float>", work, shape[0] // 32)

    with (
        s.grad_op("aten::layer_norm", tensor, shape, weight, bias, epsilon, True),
        s.grad_op("aten::native_layer_norm", tensor, shape, weight, bias, epsilon) as op,
    ):
        work = Work("norm", 5 * tensor.numel, 2 * tensor.nbytes)
        s.launch(f"{kernel}vectorized_layer_norm_kernel<{BF16}, float>", work, rows.numel)
        s.node(op, "NativeLayerNormBackward0", tensor, backward, (weight, bias))
    return tensor


def rms_norm(s: Session, tensor: SampleTensor, weight: SampleTensor) -> SampleTensor:
    """Record RMS normalization as single operators: x * rsqrt(mean(x ** 2) + epsilon) * weight."""
    rows = SampleTensor((*tensor.shape[:-1], 1))
    epsilon = 1e-6

    def pow_backward() -> None:
        elementwise(s, "aten::mul", "scale", tensor, 2.0, write=tensor)
        elementwise(s, "aten::mul", "mul", tensor, tensor, write=tensor)

    def mean_backward() -> None:
        elementwise(s, "aten::div", "scale", tensor, float(tensor.shape[-1]), write=tensor)

    def rsqrt_backward() -> None:
        elementwise(s, "aten::pow", "pow", rows, 3, write=rows)
        elementwise(s, "aten::mul", "mul", rows, rows, write=rows)

    with s.grad_op("aten::pow", tensor, 2) as op:
        launch_elementwise(s, "pow", (tensor,), tensor)
        s.node(op, "PowBackward0", tensor, pow_backward)
    with s.grad_op("aten::mean", tensor, (-1,), True, None) as op:
        launch_reduce(s, "mean", tensor, rows)
        s.node(op, "MeanBackward1", rows, mean_backward)
    with s.grad_op("aten::add", rows, epsilon, 1) as op:
        launch_elementwise(s, "add", (rows,), rows)
        s.node(op, "AddBackward0", rows, lambda: None)
    with s.grad_op("aten::rsqrt", rows) as op:
        launch_elementwise(s, "rsqrt", (rows,), rows)
        s.node(op, "RsqrtBackward0", rows, rsqrt_backward)
    return mul(s, mul(s, tensor, rows), weight, (weight,))


def embedding(s: Session, weight: SampleTensor, indices: SampleTensor) -> SampleTensor:
    """Record the rows of ``weight`` (V, H) selected by ``indices`` (T)."""
    picked = SampleTensor((indices.numel, weight.shape[-1]), BF16)
    work = Work("gather", 0, 2 * picked.nbytes + indices.nbytes)

    def backward() -> None:
        with s.op("aten::embedding_dense_backward", picked, indices, weight.shape[0], -1, False):
            s.fill(weight.nbytes)
            s.launch(f"void at::native::embedding_backward_feature_kernel<{BF16}>", work, 512)

    with s.grad_op("aten::embedding", weight, indices, -1, False, False) as op:
        with s.op("aten::index_select", weight, 0, indices):
            kernel = f"void at::native::(anonymous namespace)::indexSelectLargeIndex<{BF16}, long>"
            s.launch(kernel, work, indices.numel, 512)
        s.node(op, "EmbeddingBackward0", picked, backward, (weight,))
    return picked
