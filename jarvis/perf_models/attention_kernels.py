"""The attention kernels below ``scaled_dot_product_attention``, and its backward passes by name.

Where a trace has the forward call, the sheets price the backward by it; these formulas price what
stands alone: packed sequences, and backward passes whose forward is outside the window. No kernel
keeps the scores, so every backward computes them again.
"""

from jarvis.perf_models.arguments import flag, tensor, text
from jarvis.perf_models.attention import Attention, attention, packed_sequences
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model


def _forward(call: Attention) -> OpCost:
    return call.forward_cost().exact()


def _backward(call: Attention) -> OpCost:
    return call.backward_cost().exact()


def _cumulated(op: OpSignature, index: int) -> bool:
    """Whether cumulated sequence lengths are given at ``index``: sequences of unequal length."""
    return tensor(op, index).given


@perf_model("aten::_flash_attention_forward")
def flash_forward(op: OpSignature) -> OpCost:
    """Q, K, V (B,N,H,d), or (N,H,d) packed; flops of Q K^T and P V; bytes Q + K + V + O."""
    causal = flag(op, 8)
    if not _cumulated(op, 3):
        return _forward(attention(op, "BNHD", dropout=7, causal=causal))
    packed = packed_sequences(op, 3, 5)
    return _forward(attention(op, "NHD", dropout=7, causal=causal, packed=packed))


@perf_model("aten::_flash_attention_backward")
def flash_backward(op: OpSignature) -> OpCost:
    """dO, then Q, K, V (B,N,H,d), or (N,H,d) packed; flops of five products; operands once."""
    causal = flag(op, 11)
    if not _cumulated(op, 6):
        return _backward(attention(op, "BNHD", first=1, dropout=10, causal=causal))
    packed = packed_sequences(op, 6, 8)
    return _backward(attention(op, "NHD", first=1, dropout=10, causal=causal, packed=packed))


@perf_model("aten::_efficient_attention_forward")
def efficient_forward(op: OpSignature) -> OpCost:
    """Q, K, V (B,N,H,d), packed with B = 1; flops of Q K^T and P V; bytes Q + K + V + O.

    A bias is not counted. Mask types 1 and 2 are causal.
    """
    packed = packed_sequences(op, 4, 6) if _cumulated(op, 4) else None
    causal = text(op, 9) in ("1", "2")
    return _forward(attention(op, "BNHD", dropout=8, causal=causal, packed=packed))


@perf_model("aten::_efficient_attention_backward")
def efficient_backward(op: OpSignature) -> OpCost:
    """dO, then Q, K, V (B,N,H,d), packed with B = 1; flops of five products; operands once."""
    packed = packed_sequences(op, 6, 8) if _cumulated(op, 6) else None
    causal = text(op, 14) in ("1", "2")
    return _backward(attention(op, "BNHD", first=1, dropout=11, causal=causal, packed=packed))


@perf_model("aten::_cudnn_attention_forward")
def cudnn_forward(op: OpSignature) -> OpCost:
    """Q, K, V (B,H,N,d); flops of Q K^T and P V, causal half; bytes Q + K + V + O."""
    return _forward(attention(op, "BHND", dropout=9, causal=flag(op, 10)))


@perf_model("aten::_scaled_dot_product_flash_attention_backward")
def sdpa_flash_backward(op: OpSignature) -> OpCost:
    """dO, then Q, K, V (B,H,N,d); flops of five products, causal half; bytes of operands once."""
    return _backward(attention(op, "BHND", first=1, dropout=10, causal=flag(op, 11)))


@perf_model("aten::_scaled_dot_product_efficient_attention_backward")
def sdpa_efficient_backward(op: OpSignature) -> OpCost:
    """dO, then Q, K, V (B,H,N,d); flops of five products, causal half; bytes of operands once."""
    return _backward(attention(op, "BHND", first=1, dropout=9, causal=flag(op, 11)))


@perf_model(
    "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_cudnn_attention_backward",
)
def sdpa_cudnn_backward(op: OpSignature) -> OpCost:
    """dO, then Q, K, V (B,H,N,d); flops of five products, causal half; bytes of operands once."""
    return _backward(attention(op, "BHND", first=1, dropout=13, causal=flag(op, 14)))
