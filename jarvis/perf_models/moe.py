"""Mixture of experts: the matrix products of the experts, fused into one kernel or in two stages.

M tokens of width K go through k of E experts each, whose inner width is N. Gated experts have two
up-projections. A batch reaches E (1 - (1 - k/E)^M) of the E experts if tokens choose evenly.
"""

from dataclasses import dataclass
from typing import Any

from jarvis.core.dtypes import find_dtype
from jarvis.perf_models.arguments import (
    Tensor,
    dtype,
    tensor,
    text,
    total_bytes,
)
from jarvis.perf_models.dtypes import (
    FP8_BYTES,
    HALF_PRECISION_BYTES,
    PACKED_FP4_BYTES,
    bytes_per_element,
    compute_spec,
)
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

EXPERTS_PER_TOKEN = "experts_per_token"
GATED = "gated"
"""Names of the values that pseudo ops append to the arguments of their op, as name=value."""

_SHEET_NAMES = frozenset(
    {
        *("Float8_e4m3fn", "Float8_e4m3fnuz", "Float8_e5m2", "Float8_e5m2fnuz", "FP8", "FP4"),
        *("c10::Float8_e4m3fn", "c10::Float8_e4m3fnuz", "c10::Float4_e2m1fn_x2"),
        *("BFloat16", "Float16", "Half", "Float32", "Float"),
        *("c10::BFloat16", "c10::Half", "c10::Float"),
    }
)
"""Dtypes of experts that TraceLens supports; others get the default of the call."""


def _value_bytes(name: str) -> float | None:
    """Return the bytes of an unpacked value as the sheets count them for experts."""
    found = find_dtype(name) if name in _SHEET_NAMES else None
    return None if found is None else found.bytes / found.packed


def _size(op: OpSignature, index: int, default: float) -> float:
    size = _value_bytes(dtype(op, index))
    return default if size is None else size


def check_choices(per_token: int, experts: int) -> None:
    """Raise UnexpectedArgumentsError unless a token can go through ``per_token`` experts."""
    if not 1 <= per_token <= experts:
        raise UnexpectedArgumentsError(
            f"A token cannot go through {per_token} of {experts} experts."
        )


def expected_experts(experts: int, per_token: int, all_experts: int, tokens: int) -> float:
    """Return how many of ``experts`` at least one token chooses if tokens choose evenly."""
    missed = (all_experts - per_token) / all_experts
    return float(experts * (1 - missed**tokens))


@dataclass(frozen=True, slots=True)
class Experts:
    """Extents of one call; sizes in bytes per element, None if unknown."""

    tokens: int
    hidden: int
    inner: int
    experts: int
    per_token: int
    gated: bool
    input_size: float | None
    weight_size: float | None
    output_size: float | None

    def __post_init__(self) -> None:
        check_choices(self.per_token, self.experts)

    @property
    def reached(self) -> float:
        """Expected number of experts that at least one token chooses."""
        return expected_experts(self.experts, self.per_token, self.experts, self.tokens)

    @property
    def up_projections(self) -> int:
        """Number of up-projection matrices: two in gated experts."""
        return 2 if self.gated else 1

    @property
    def product_flops(self) -> int:
        """2MKNk, one projection of every token through its experts."""
        return 2 * self.tokens * self.hidden * self.inner * self.per_token

    def fused_cost(self, compute: str) -> OpCost:
        """Return the cost of up, down and the weighted sum of the k results of a token.

        FLOPs (2 or 3) 2MKNk + MK (2k - 1); bytes MK in + the weights of reached experts + MK out.
        """
        summed = self.tokens * self.hidden * (2 * self.per_token - 1)
        rows = self.tokens * self.hidden
        return self._cost(
            self.product_flops * (self.up_projections + 1) + summed,
            total_bytes(
                (rows, self.input_size),
                (self._weights * (self.up_projections + 1), self.weight_size),
                (rows, self.output_size),
            ),
            compute,
        )

    def up_cost(self, compute: str) -> OpCost:
        """Return the cost of the up-projections.

        FLOPs 2MKNk (x2 gated); bytes MK in + weights of reached experts + MNk out.
        """
        return self._cost(
            self.product_flops * self.up_projections,
            total_bytes(
                (self.tokens * self.hidden, self.input_size),
                (self._weights * self.up_projections, self.weight_size),
                (self._activations, self.output_size),
            ),
            compute,
        )

    def down_cost(self, compute: str) -> OpCost:
        """Return the cost of the down-projection.

        FLOPs 2MKNk; bytes MNk in + weights of reached experts + MK out.
        """
        return self._cost(
            self.product_flops,
            total_bytes(
                (self._activations, self.input_size),
                (self._weights, self.weight_size),
                (self.tokens * self.hidden, self.output_size),
            ),
            compute,
        )

    @property
    def _weights(self) -> float:
        return self.reached * self.inner * self.hidden

    @property
    def _activations(self) -> int:
        return self.tokens * self.inner * self.per_token

    def _cost(self, flops: float, moved: float | None, compute: str) -> OpCost:
        params: dict[str, Any] = {
            "M": self.tokens,
            "K": self.hidden,
            "N": self.inner,
            "E": self.experts,
            "topk": self.per_token,
            "gated": self.gated,
        }
        return OpCost(flops, moved, compute, params)


def _matrices(t: Tensor) -> tuple[int, int, int]:
    """Return the shape of a stack of matrices, one per expert."""
    if len(t.shape) != 3:
        raise UnexpectedArgumentsError(f"A matrix per expert was expected, found {t.shape}.")
    return t.shape[0], t.shape[1], t.shape[2]


def _from_weights(
    tokens: int, up: Tensor, down: Tensor, per_token: int, sizes: tuple[float, float, float]
) -> Experts:
    """Read the extents from weights up (E, N or 2N, K packed) and down (E, K, N packed)."""
    experts, hidden, packed_inner = _matrices(down)
    _, up_rows, packed_hidden = _matrices(up)
    inner = packed_inner * (hidden // packed_hidden)
    return Experts(tokens, hidden, inner, experts, per_token, up_rows == 2 * inner, *sizes)


def _of_tokens_and_weights(op: OpSignature) -> Experts:
    """Read tokens, up, down, choices at 0 .. 3; the output has the dtype of the input."""
    size = _size(op, 0, HALF_PRECISION_BYTES)
    sizes = (size, _size(op, 1, FP8_BYTES), size)
    per_token = tensor(op, 3).shape[1]
    return _from_weights(tensor(op, 0).shape[0], tensor(op, 1), tensor(op, 2), per_token, sizes)


@perf_model("pseudo_op::moe_aiter_fused_1stage", category="MoE_fused")
def fused_experts(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,.), up, down, choices (M,k) at 0 .. 3.

    FLOPs (2 or 3) 2MKNk + MK (2k - 1); bytes MK in, weights of reached experts, MK out.
    """
    return _of_tokens_and_weights(op).fused_cost(compute_spec("matrix", dtype(op, 0)))


@perf_model("aiter::fmoe_fp8_blockscale_g1u1", "aiter::fmoe_g1u1", category="MoE_fused")
def fused_low_precision_experts(op: OpSignature) -> OpCost:
    """Return the cost of output (M,K), tokens, up, down at 0 .. 3, k at 8.

    FLOPs (2 or 3) 2MKNk + MK (2k - 1); bytes MK in, weights of reached experts, MK out.
    """
    if not (chosen := text(op, 8)):
        raise UnexpectedArgumentsError(f"{op.name} was recorded without the experts per token.")
    sizes = (
        _size(op, 1, FP8_BYTES),
        _size(op, 2, FP8_BYTES),
        _size(op, 0, HALF_PRECISION_BYTES),
    )
    tokens = tensor(op, 0).shape[0]
    experts = _from_weights(tokens, tensor(op, 2), tensor(op, 3), int(chosen), sizes)
    return experts.fused_cost(compute_spec("matrix", dtype(op, 1) or "fp8"))


@perf_model("aiter::moe_cktile2stages_gemm1_ck", category="MoE_unfused")
def tiled_stage_1(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,K), up (E, N or 2N, .), output (M,k,N).

    FLOPs 2MKNk (x2 gated); bytes MK in, weights of reached experts, MNk out.
    """
    tokens, hidden = tensor(op, 0).shape
    experts, up_rows, _ = _matrices(tensor(op, 1))
    _, per_token, inner = _matrices(tensor(op, 2))
    sizes = _three_sizes(op)
    call = Experts(tokens, hidden, inner, experts, per_token, up_rows == 2 * inner, *sizes)
    return call.up_cost(compute_spec("matrix", dtype(op, 0)))


@perf_model("aiter::moe_cktile2stages_gemm2_ck", category="MoE_unfused")
def tiled_stage_2(op: OpSignature) -> OpCost:
    """Return the cost of activations (M,k,N), down (E,K,.).

    FLOPs 2MKNk; bytes MNk in, weights of reached experts, MK out.
    """
    tokens, per_token, inner = _matrices(tensor(op, 0))
    experts, hidden, _ = _matrices(tensor(op, 1))
    call = Experts(tokens, hidden, inner, experts, per_token, False, *_three_sizes(op))
    return call.down_cost(compute_spec("matrix", dtype(op, 0)))


def _three_sizes(op: OpSignature) -> tuple[float, float, float]:
    """Return the bytes per element of input, weights, output at 0 .. 2."""
    return (
        _size(op, 0, HALF_PRECISION_BYTES),
        _size(op, 1, FP8_BYTES),
        _size(op, 2, HALF_PRECISION_BYTES),
    )


@perf_model("aiter::ck_moe_stage1", category="MoE_unfused")
def composed_stage_1(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,.), up, down at 0 .. 2, output (M,k,N) at 6.

    FLOPs 2MKNk (x2 gated); bytes MK in, weights of reached experts, MNk out of the input's dtype.
    """
    size = _size(op, 0, HALF_PRECISION_BYTES)
    sizes = (size, _size(op, 1, FP8_BYTES), size)
    per_token = tensor(op, 6).shape[1]
    tokens = tensor(op, 0).shape[0]
    call = _from_weights(tokens, tensor(op, 1), tensor(op, 2), per_token, sizes)
    return call.up_cost(compute_spec("matrix", dtype(op, 0)))


@perf_model("aiter::ck_moe_stage2", category="MoE_unfused")
def composed_stage_2(op: OpSignature) -> OpCost:
    """Return the cost of activations (M,k,N packed), up, down at 0 .. 2.

    FLOPs 2MKNk; bytes MNk in, weights of reached experts, MK out of the input's dtype.
    """
    tokens, per_token, packed_inner = _matrices(tensor(op, 0))
    experts, hidden, _ = _matrices(tensor(op, 2))
    inner = packed_inner * (hidden // _matrices(tensor(op, 1))[2])
    size = _size(op, 0, HALF_PRECISION_BYTES)
    sizes = (size, _size(op, 2, FP8_BYTES), size)
    call = Experts(tokens, hidden, inner, experts, per_token, False, *sizes)
    return call.down_cost(compute_spec("matrix", dtype(op, 0)))


@perf_model("pseudo_op::moe_flydsl_stage1", category="MoE_unfused")
def flydsl_stage_1(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,.), up, down, choices (M,k) at 0 .. 3.

    FLOPs 2MKNk (x2 gated); bytes MK in, weights of reached experts, MNk out; peak of the weights.
    """
    return _of_tokens_and_weights(op).up_cost(compute_spec("matrix", dtype(op, 1)))


@perf_model("pseudo_op::moe_flydsl_stage2", category="MoE_unfused")
def flydsl_stage_2(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,.), up, down, choices (M,k) at 0 .. 3.

    FLOPs 2MKNk; bytes MNk in, weights of reached experts, MK out; peak of the weights.
    """
    return _of_tokens_and_weights(op).down_cost(compute_spec("matrix", dtype(op, 1)))


def _appended_value(op: OpSignature, name: str) -> str:
    """Return the value ``name`` that the pseudo op appends to its arguments."""
    marks = [value for value in op.concrete_inputs if str(value).startswith(f"{name}=")]
    if not marks:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without {name}.")
    return str(marks[-1]).removeprefix(f"{name}=")


def _weight_size_from_kernel(op: OpSignature) -> float | None:
    name = op.kernel_names[0].lower() if op.kernel_names else ""
    if "fp4" in name:
        return PACKED_FP4_BYTES
    return FP8_BYTES if "fp8" in name or "e4m3" in name else None


def _routed(op: OpSignature) -> Experts:
    """Read tokens (M,K), router output (M,E); the inner width is not recorded: K is assumed."""
    tokens, hidden = tensor(op, 0).shape
    _, experts = tensor(op, 1).shape
    size = _size(op, 0, HALF_PRECISION_BYTES)
    return Experts(
        tokens,
        hidden,
        hidden,
        experts,
        int(_appended_value(op, EXPERTS_PER_TOKEN)),
        _appended_value(op, GATED) == "True",
        size,
        _weight_size_from_kernel(op),
        size,
    )


@perf_model("pseudo_op::moe_triton_unfused_up", category="MoE_unfused", needs_kernels=True)
def routed_up(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,K), router output (M,E); N = K assumed.

    FLOPs 2MKNk (x2 gated); bytes MK in, weights of reached experts, MNk out. The kernel name gives
    the size of the weights.
    """
    return _routed(op).up_cost(compute_spec("matrix", dtype(op, 0)))


@perf_model("pseudo_op::moe_triton_unfused_down", category="MoE_unfused", needs_kernels=True)
def routed_down(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,K), router output (M,E); N = K assumed.

    FLOPs 2MKNk; bytes MNk in, weights of reached experts, MK out. The kernel name gives the size of
    the weights.
    """
    return _routed(op).down_cost(compute_spec("matrix", dtype(op, 0)))


def _four_bit(op: OpSignature, up: bool) -> Experts:
    """Read tokens (M,K), up (E, N or 2N, .), down (E, ., N/2): weights of half a byte."""
    tokens, hidden = tensor(op, 0).shape
    per_token = int(_appended_value(op, EXPERTS_PER_TOKEN))
    gated = _appended_value(op, GATED) == "True"
    if up:
        experts, up_rows, _ = _matrices(tensor(op, 1))
        inner = up_rows // 2 if gated else up_rows
    else:
        experts, _, packed_inner = _matrices(tensor(op, 2))
        inner = 2 * packed_inner
    size = _size(op, 0, HALF_PRECISION_BYTES)
    sizes = (size, PACKED_FP4_BYTES, size)
    return Experts(tokens, hidden, inner, experts, per_token, gated, *sizes)


@perf_model("pseudo_op::moe_gptq_awq_up", category="MoE_unfused")
def four_bit_up(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,K), up (E, N or 2N, .), weights of half a byte.

    FLOPs 2MKNk (x2 gated); bytes MK in, weights of reached experts, MNk out.
    """
    return _four_bit(op, up=True).up_cost(compute_spec("matrix", dtype(op, 0)))


@perf_model("pseudo_op::moe_gptq_awq_down", category="MoE_unfused")
def four_bit_down(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,K), down (E, ., N/2) at 2, weights of half a byte.

    FLOPs 2MKNk; bytes MNk in, weights of reached experts, MK out.
    """
    return _four_bit(op, up=False).down_cost(compute_spec("matrix", dtype(op, 0)))


@perf_model(
    "sglang_profiler::fused_moe_triton_kernels_invoke_fused_moe_kernel", category="MoE_unfused"
)
def chosen_rows(op: OpSignature) -> OpCost:
    """Return the cost of one stage: rows, weights (E,N,K), output at 3, choices (M,k) at 8.

    With W = Mk rows processed: FLOPs 2WNK; bytes WK in, weights of reached experts, WN out; peak of
    the weights.
    """
    experts, inner, hidden = _matrices(tensor(op, 1))
    tokens, per_token = tensor(op, 8).shape
    input_size, weight_size, output_size = (
        bytes_per_element(name) if (size := _value_bytes(name)) is None else size
        for name in (dtype(op, 0), dtype(op, 1), dtype(op, 3) or dtype(op, 0))
    )
    call = Experts(
        tokens, hidden, inner, experts, per_token, False, input_size, weight_size, output_size
    )
    rows = tokens * per_token
    moved = total_bytes(
        (rows * hidden, input_size),
        (call.reached * inner * hidden, weight_size),
        (rows * inner, output_size),
    )
    cost = call.up_cost(compute_spec("matrix", dtype(op, 1)))
    return OpCost(cost.flops, moved, cost.compute, cost.params)
