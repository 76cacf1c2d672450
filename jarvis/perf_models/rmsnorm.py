"""RMS normalization kernels of inference engines, alone or fused with residual add and quant.

n elements in M = n/c rows of c. All of them count R = M (2c + 2) + 2n flops for the norm itself.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from jarvis.perf_models.arguments import (
    Tensor,
    integer,
    layout_params,
    optional_tensor,
    tensor,
    total_bytes,
)
from jarvis.perf_models.dtypes import MX_BLOCK, PACKED_FP4_BYTES, SCALE_BYTES, compute_spec
from jarvis.perf_models.registry import OpCost, OpSignature, perf_model


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
        """Bytes of one float scale per group and row."""
        return SCALE_BYTES * self.rows * ceil(self.c / group)

    def cost(self, more_flops: float, elements: float, other_bytes: float = 0) -> OpCost:
        """R + ``more_flops``; ``elements`` of the input's dtype, the weight, ``other_bytes``."""
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


def _norm(op: OpSignature, x: int, weight: int) -> RowNorm:
    return RowNorm(tensor(op, x), tensor(op, weight))


@perf_model("aiter::rms_norm", "aiter::rmsnorm2d_fwd_ck", category="RMSNorm")
def rms_norm(op: OpSignature) -> OpCost:
    """Input, weight at 0, 1: flops R; bytes 2n + c of the input's dtype."""
    norm = _norm(op, 0, 1)
    return norm.cost(0, 2 * norm.n)


@perf_model("aiter::rmsnorm", category="RMSNorm")
def rms_norm_into(op: OpSignature) -> OpCost:
    """Input, weight at 1, 2: flops R; bytes 2n + c of the input's dtype."""
    norm = _norm(op, 1, 2)
    return norm.cost(0, 2 * norm.n)


@perf_model("aiter::rmsnorm2d_fwd_with_dynamicquant_ck", category="RMSNorm")
def rms_norm_dynamic_quant(op: OpSignature) -> OpCost:
    """Input, weight at 1, 3: flops R + 2n; bytes n + c of the input's dtype, n narrow, 4M."""
    norm = _norm(op, 1, 3)
    return norm.cost(2 * norm.n, norm.n, norm.n + norm.scale_bytes(norm.c))


@perf_model("aiter::rmsnorm_quant", category="RMSNorm")
def rms_norm_quant(op: OpSignature) -> OpCost:
    """Input, weight at 1, 3, group g at 5 (0: row): flops R + 2n; bytes n + c, n narrow, scales."""
    norm = _norm(op, 1, 3)
    group = integer(op, 5, 0) or norm.c
    return norm.cost(2 * norm.n, norm.n, norm.n + norm.scale_bytes(group))


@perf_model("vllm::rocm_aiter_rmsnorm_fp8_group_quant", category="RMSNorm")
def rms_norm_group_quant(op: OpSignature) -> OpCost:
    """Input, weight at 0, 1, group g at 3: flops R + 2n; bytes n + c, n narrow, 4M ceil(c/g)."""
    norm = _norm(op, 0, 1)
    group = integer(op, 3, 0) or norm.c
    return norm.cost(2 * norm.n, norm.n, norm.n + norm.scale_bytes(group))


@perf_model("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", category="RMSNorm")
def add_rms_norm_group_quant(op: OpSignature) -> OpCost:
    """Input, weight at 0, 2, group g at 4: flops R + 3n; bytes 3n + c, n narrow, 4M ceil(c/g)."""
    norm = _norm(op, 0, 2)
    group = integer(op, 4, 0) or norm.c
    return norm.cost(3 * norm.n, 3 * norm.n, norm.n + norm.scale_bytes(group))


@perf_model("aiter::rmsnorm2d_fwd_with_add_ck", "aiter::add_rmsnorm", category="RMSNorm")
def add_rms_norm(op: OpSignature) -> OpCost:
    """Input, weight at 1, 4: flops R + n; bytes 4n + c of the input's dtype."""
    norm = _norm(op, 1, 4)
    return norm.cost(norm.n, 4 * norm.n)


@perf_model(
    "aiter::fused_add_rmsnorm_pad_",
    "vllm::rocm_aiter_triton_add_rmsnorm_pad",
    category="RMSNorm",
)
def add_rms_norm_pad(op: OpSignature) -> OpCost:
    """Input, weight at 0, 1, rows padded to a multiple of p (at 4).

    Flops R + n; bytes 2n + c + M p ceil(c/p) + Mc of the input's dtype.
    """
    norm = _norm(op, 0, 1)
    pad = integer(op, 4, 0) or norm.c
    padded = norm.rows * ceil(norm.c / pad) * pad
    return norm.cost(norm.n, 2 * norm.n + padded + norm.rows * norm.c)


@perf_model(
    "sglang_profiler::fused_mxfp4_quant_fused_rms_mxfp4_quant",
    "aiter::_fuse_rmsnorm_fp4_quant",
    category="RMSNorm",
)
def rms_norm_mxfp4_quant(op: OpSignature) -> OpCost:
    """Input, weight at 0, 1; a second input (M,k) at 3 and a residual at 6 where given.

    Flops R + 2n (+ n with residual) (+ R M k / n for the second input); bytes n + c of the
    input's dtype, n/2 packed, n/32 scales (+ 2n residual) (+ 2Mk + k second input).
    """
    norm = _norm(op, 0, 1)
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
