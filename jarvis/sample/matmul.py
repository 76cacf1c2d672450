"""Matrix products: linear layers, batched products, fused and unfused attention."""

from math import prod

from jarvis.sample.autograd import Session
from jarvis.sample.gpu import Work
from jarvis.sample.pointwise import contiguous, scale, softmax, sum_to
from jarvis.sample.tensors import FP32, SampleTensor

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
