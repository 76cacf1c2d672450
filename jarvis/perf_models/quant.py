"""Quantization kernels and sampling: read a tensor, write low-precision values and their scales."""

from math import ceil

from jarvis.perf_models.arguments import (
    Tensor,
    integer,
    tensor,
    total_bytes,
    vector_cost,
)
from jarvis.perf_models.dtypes import (
    FP8_BYTES,
    MX_BLOCK,
    PACKED_FP4_BYTES,
    SCALE_BYTES,
)
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)

GROUP_QUANT_FLOPS = 2.59375  # per element: absolute value, maximum, scale over groups of 32
FP8_GROUP_QUANT_FLOPS = 6
DEFAULT_GROUP = 128


def _matrix(x: Tensor) -> tuple[int, int]:
    if len(x.shape) != 2:
        raise UnexpectedArgumentsError(f"A matrix was expected, found shape {x.shape}.")
    return x.shape[0], x.shape[1]


@perf_model(
    "primus_turbo_cpp_extension::quantize_fp8_tensorwise",
    "primus_turbo::quantize_fp8_tensorwise",
    category="elementwise",
    sheet="UnaryElementwise",
)
def quantize_fp8(op: OpSignature) -> OpCost:
    """Return the cost of a cast to fp8: FLOPs n; bytes n of the input's dtype + n."""
    x = tensor(op, 0)
    return vector_cost(x, x.numel, total_bytes((x.numel, x.size), (x.numel, FP8_BYTES)))


@perf_model(
    "primus_turbo_cpp_extension::quantize_mxfp4_dual",
    "primus_turbo::quantize_mxfp4_dual",
    "primus::quantize_mxfp4_dual",
    category="elementwise",
    sheet="UnaryElementwise",
)
def quantize_mxfp4_dual(op: OpSignature) -> OpCost:
    """Return the cost of (M,N) packed along rows and along columns.

    FLOPs MN; bytes MN of the input's dtype + 2 ceil(MN/2) + M ceil(N/32) + N ceil(M/32).
    """
    x = tensor(op, 0)
    m, n = _matrix(x)
    scales = m * ceil(n / MX_BLOCK) + n * ceil(m / MX_BLOCK)
    moved = total_bytes((m * n, x.size), (2 * ((m * n + 1) // 2) + scales, 1))
    return vector_cost(x, m * n, moved)


@perf_model("aiter::mixed_sample_outer_exponential", category="elementwise")
def sample_outer_exponential(op: OpSignature) -> OpCost:
    """Return the cost of logits (T,V) at argument 1, noise at 2: FLOPs 2TV; bytes of both + 4T."""
    logits, noise = tensor(op, 1), tensor(op, 2)
    rows, vocabulary = _matrix(logits)
    elements = rows * vocabulary
    moved = total_bytes((elements, logits.size), (elements, noise.size), (rows, SCALE_BYTES))
    return vector_cost(logits, 2 * elements, moved)


@perf_model(
    "aiter::dynamic_per_token_scaled_quant",
    "aiter::dynamic_per_group_scaled_quant",
    "aiter::dynamic_per_tensor_quant",
    category="GroupQuant",
    sheet="BinaryElementwise",
)
def dynamic_quant(op: OpSignature) -> OpCost:
    """Return the cost of output, input, scales: FLOPs 2.59375 prod(out); bytes of the three."""
    out, x, scale = (tensor(op, i) for i in range(3))
    moved = total_bytes((out.numel, out.size), (x.numel, x.size), (scale.numel, scale.size))
    if moved is None:
        raise UnexpectedArgumentsError(f"{op.name} has an operand of unknown dtype.")
    return vector_cost(x, GROUP_QUANT_FLOPS * out.numel, moved)


@perf_model(
    "vllm::triton_per_token_group_quant_fp8", category="GroupQuant", sheet="BinaryElementwise"
)
def per_token_group_quant_fp8(op: OpSignature) -> OpCost:
    """Return the cost of (M,N) in groups of g (argument 1).

    FLOPs 6MN; bytes MN of the dtype + MN + 4M ceil(N/g).
    """
    x = tensor(op, 0)
    m, n = _matrix(x)
    groups = max(1, ceil(n / integer(op, 1, DEFAULT_GROUP)))
    moved = total_bytes((m * n, x.size), (m * n, FP8_BYTES), (m * groups, SCALE_BYTES))
    return vector_cost(x, FP8_GROUP_QUANT_FLOPS * m * n, moved)


_MXFP4_INPUT = {
    "sglang_profiler::fused_mxfp4_quant_fused_flatten_mxfp4_quant": 0,
    "sglang_profiler::quant_dynamic_mxfp4_quant": 0,
    "aiter::dynamic_per_group_scaled_quant_fp4": 1,
    "aiter::fused_dynamic_mx_quant_moe_sort_hip": 2,
    "aiter::fused_dynamic_mxfp4_quant_moe_sort_hip": 2,
}
"""Position of the input."""


@perf_model(*_MXFP4_INPUT, category="GroupQuant")
def mxfp4_quant(op: OpSignature) -> OpCost:
    """Return the cost of MX-fp4 quantization.

    FLOPs 2n; bytes n of the input's dtype + n/2 packed + n/32 scales.
    """
    x = tensor(op, _MXFP4_INPUT[op.name])
    n = x.numel
    return vector_cost(
        x, 2 * n, total_bytes((n, x.size), (n, PACKED_FP4_BYTES), (n // MX_BLOCK, 1))
    )


categorize("MoE_aux", "aiter::fused_dynamic_mxfp4_quant_moe_sort_hip")
