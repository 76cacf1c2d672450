"""Mixture of experts except the products: selection, sorting and exchange of tokens."""

from jarvis.perf_models.arguments import Tensor, tensor, total_bytes
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)

SOFTPLUS_FLOPS = 6  # per router output: softplus, root, bias, comparison


def _tensors(op: OpSignature) -> list[Tensor]:
    """Return every argument with a shape, except lists of tensors."""
    plain = [
        index
        for index, dims in enumerate(op.input_dims)
        if dims and all(isinstance(extent, int) for extent in dims)
    ]
    return [tensor(op, index) for index in plain]


@perf_model(
    "aiter::biased_grouped_topk_hip",
    "aiter::moe_sorting_fwd",
    "aiter::mxfp4_moe_sort_hip",
    category="MoE_aux",
)
def choose_or_sort(op: OpSignature) -> OpCost:
    """Return the cost of all operands.

    FLOPs one for each element of the largest; bytes of all with a known dtype, once each.
    """
    operands = _tensors(op)
    if not operands:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without a tensor.")
    largest = max(operands, key=lambda t: t.numel)
    moved = sum(t.numel * t.size for t in operands if t.size is not None)
    params = {"op_shape": largest.shape, "dtype": largest.dtype}
    return OpCost(largest.numel, moved or None, compute_spec("vector", largest.dtype), params)


@perf_model(
    "sglang_profiler::fused_moe_triton_kernels_fused_append_shared_experts", category="MoE_aux"
)
def append_shared_experts(op: OpSignature) -> OpCost:
    """Return the cost of choices (M,k) and their weights: FLOPs Mk; bytes both read and written."""
    choices, weights = tensor(op, 0), tensor(op, 1)
    moved = total_bytes((2 * choices.numel, choices.size), (2 * weights.numel, weights.size))
    params = {"op_shape": choices.shape, "dtype": choices.dtype}
    return OpCost(choices.numel, moved, compute_spec("vector", choices.dtype), params)


@perf_model("aiter::topk_softplus", category="MoE_aux")
def topk_softplus(op: OpSignature) -> OpCost:
    """Return the cost of weights (M,k), choices, router output (M,E), bias (E).

    FLOPs 6ME; bytes ME + 4E + 8Mk.
    """
    scores = tensor(op, 2)
    if len(scores.shape) != 2:
        raise UnexpectedArgumentsError(f"{op.name} reads a matrix of scores, not {scores.shape}.")
    tokens, experts = scores.shape
    chosen = tensor(op, 0).shape[1]
    moved = total_bytes((scores.numel, scores.size), (4 * experts + 8 * tokens * chosen, 1))
    params = {"M": tokens, "E": experts, "topk": chosen}
    return OpCost(
        SOFTPLUS_FLOPS * scores.numel, moved, compute_spec("vector", scores.dtype), params
    )


def _exchanged(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,K): FLOPs 0; bytes MK of their dtype."""
    tokens = tensor(op, 0)
    rows, width = tokens.shape[:2]
    params = {"M": rows, "K": width, "dtype": tokens.dtype}
    return OpCost(0, total_bytes((rows * width, tokens.size)), params=params)


@perf_model(
    "MoEDispatch",
    "MoECombine",
    category="MoE_comm_fwd",
    backward=_exchanged,
    backward_category="MoE_comm_bwd",
)
def exchange_tokens(op: OpSignature) -> OpCost:
    """Return the cost of sending tokens (M,K) to their experts or back.

    FLOPs 0; bytes MK of their dtype, the same in the backward pass.
    """
    return _exchanged(op)


categorize(
    "MoE_aux",
    "aiter::moe_sorting_opus_fwd",
    "aiter::moe_align_block_size",
    "_moe_C::moe_align_block_size",
    "aiter::moe_sum",
    "aiter::topk_softmax",
    "aiter::topk_softmax_asm",
    "aiter::topk_sigmoid",
    "aiter::grouped_topk",
    "aiter::moe_fused_gate",
    "aiter::fused_moe_->_fused_dynamic_mxfp4_quant_moe_sort_kernel (Synthetic Op)",
)
categorize("MoE_comm_fwd", "TokenPermuteMaskMap", "_OperationFuserAutogradFunction")
categorize(
    "MoE_comm_bwd",
    "MoEDispatchBackward",
    "MoECombineBackward",
    "TokenPermuteMaskMapBackward",
    "_OperationFuserAutogradFunctionBackward",
)
