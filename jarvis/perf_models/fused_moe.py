"""Mixture of experts in one operator: tokens, weights and the chosen experts are its arguments.

M tokens of width K go through k of E experts of inner width N. Of E local experts, those of R that
this GPU has, a batch reaches E (1 - (1 - k/R)^M) and MkE/R rows if tokens choose evenly.
"""

from dataclasses import dataclass
from typing import Any

from jarvis.core.dtypes import find_dtype
from jarvis.perf_models.arguments import (
    Shape,
    Tensor,
    optional_tensor,
    tensor,
    tensors_at,
    total_bytes,
)
from jarvis.perf_models.dtypes import FP8_BYTES, HALF_PRECISION_BYTES, compute_spec
from jarvis.perf_models.moe import check_choices, expected_experts
from jarvis.perf_models.registry import (
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    perf_model,
)

_VALUES_PER_BYTE = 2  # of 4-bit weights stored as bytes
_INTEGERS = ("int", "long int")

_TOKENS_FIRST = (
    *("vllm::inplace_fused_experts", "vllm::outplace_fused_experts"),
    *("sglang::inplace_fused_experts", "sglang::outplace_fused_experts"),
)
_PRODUCTS = ("fused_moe_kernel", "fused_moe_kernel_gptq_awq")
"""Kernels of these operators, each launched for the up-projections and for the down-projection."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Tensors of a call, and the number of all experts, also those of other GPUs."""

    x: Tensor
    up: Tensor
    down: Tensor
    per_token: int
    all_experts: int

    def __post_init__(self) -> None:
        check_choices(self.per_token, self.all_experts)
        fits = (
            len(self.x.shape) == 2
            and self.hidden == self.up.shape[2] * self.packed
            and self.up.shape[1] in (self.inner, 2 * self.inner)
            and self.up.shape[0] == self.experts
        )
        if not fits:
            raise UnexpectedArgumentsError(
                f"The weights {self.up.shape} and {self.down.shape} do not give the widths of the "
                f"experts for tokens {self.x.shape}."
            )

    @property
    def experts(self) -> int:
        return self.down.shape[0]

    @property
    def hidden(self) -> int:
        return self.down.shape[1]

    @property
    def packed(self) -> int:
        """Values in a stored element: 2 where rows of weights have half the expected length."""
        whole = self.hidden == self.up.shape[2]
        return 1 if whole else _VALUES_PER_BYTE

    @property
    def inner(self) -> int:
        return self.down.shape[2] * self.packed

    @property
    def projections(self) -> int:
        """Up-projections, two in gated experts, and the down-projection."""
        return self.up.shape[1] // self.inner + 1

    @property
    def rows(self) -> float:
        """Expected rows that the local experts process."""
        return self.x.shape[0] * self.per_token * self.experts / self.all_experts

    @property
    def product_flops(self) -> float:
        return 2 * self.rows * self.hidden * self.inner * self.projections

    @property
    def weight_bytes(self) -> float | None:
        reached = expected_experts(self.experts, self.per_token, self.all_experts, self.x.shape[0])
        values = reached * self.hidden * self.inner * self.projections
        size = self.up.real_size
        return None if size is None else values * size / self.packed

    @property
    def result_size(self) -> int | None:
        size = self.x.real_size
        return None if size is None else max(size, HALF_PRECISION_BYTES)

    @property
    def compute(self) -> str:
        """The peak, ``""`` if the weights do not show in which precision products are computed."""
        weights, tokens = find_dtype(self.up.dtype), find_dtype(self.x.dtype)
        if self.packed > 1 or weights is None or tokens is None:
            return ""
        is_known = weights == tokens or weights.precision == "fp8"
        return compute_spec("matrix", self.up.dtype) if is_known else ""

    @property
    def params(self) -> dict[str, Any]:
        return {
            "M": self.x.shape[0],
            "K": self.hidden,
            "N": self.inner,
            "E": self.experts,
            "topk": self.per_token,
            "gated": self.projections > 2,
        }

    def fused_cost(self) -> OpCost:
        """Return the cost of the operator: tokens and weights read once, the result written."""
        summed = max(2 * self.rows - self.x.shape[0], 0) * self.hidden
        moved = total_bytes(
            (self.x.numel, self.x.real_size),
            (self.x.shape[0] * self.hidden, self.result_size),
        )
        return self._cost(self.product_flops + summed, moved)

    def product_cost(self) -> OpCost:
        """Return the mean cost of the two kernels, with their results in memory between them."""
        is_fp8 = self.up.real_size == FP8_BYTES and self.compute != ""
        read_size = FP8_BYTES if is_fp8 else self.x.real_size
        moved = total_bytes(
            (self.x.shape[0] * self.hidden + self.rows * self.inner, read_size),
            (self.rows * (self.up.shape[1] + self.hidden), self.result_size),
        )
        both = self._cost(self.product_flops, moved)
        half = None if both.bytes is None else both.bytes / 2
        return OpCost(self.product_flops / 2, half, both.compute, both.params)

    def _cost(self, flops: float, moved: float | None) -> OpCost:
        weights = self.weight_bytes
        total = None if moved is None or weights is None else moved + weights
        return OpCost(flops, total, self.compute, self.params)


def _call(op: OpSignature, up: int, down: int, choices: int) -> _Call:
    """Read the call; a longer vector of ints behind the choices tells where all experts are."""
    weights, chosen = (tensor(op, up), tensor(op, down)), tensor(op, choices)
    for t in weights:
        _check_rank(op, t.shape, 3)
    _check_rank(op, chosen.shape, 2)
    experts = weights[0].shape[0]
    later = tensors_at(op, range(choices + 1, len(op.input_dims)))
    maps = (
        t.numel for t in later if len(t.shape) == 1 and t.dtype in _INTEGERS and t.numel > experts
    )
    return _Call(tensor(op, 0), *weights, chosen.shape[1], next(maps, experts))


def _check_rank(op: OpSignature, shape: Shape, rank: int) -> None:
    if len(shape) != rank:
        raise UnexpectedArgumentsError(
            f"{op.name} reads weights of 3 and choices of 2 dims, found {shape}."
        )


@perf_model(*_TOKENS_FIRST, "vllm::rocm_aiter_fused_moe", "aiter::fused_moe_")
def fused_experts(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,K), up (E, N or 2N, K), down (E,K,N), choices (M,k) at 0 .. 3.

    FLOPs (2 or 3) 2MKNk + MK (2k - 1); bytes MK in, weights of the experts reached if tokens choose
    evenly, MK out.
    """
    return _call(op, 1, 2, 3).fused_cost()


@perf_model("trtllm::fused_moe")
def fused_experts_choices_first(op: OpSignature) -> OpCost:
    """Return the cost of tokens (M,K), choices (M,k) at 1, up at 3, down at 4, or 5 with biases.

    FLOPs (2 or 3) 2MKNk + MK (2k - 1); bytes MK in, weights of the experts reached if tokens choose
    evenly, MK out.
    """
    down = 5 if len(optional_tensor(op, 5).shape) == 3 else 4
    return _call(op, 3, down, 1).fused_cost()


@perf_model(
    *(f"{op}->{kernel} (Synthetic Op)" for op in _TOKENS_FIRST for kernel in _PRODUCTS),
)
def product_of_experts(op: OpSignature) -> OpCost:
    """Return the mean cost of the two products, where they are separate kernels of the operator.

    With W = Mk rows: FLOPs (2 or 3) WKN; bytes half of MK + WN in, W(N or 2N) + WK out, and the
    weights of the experts reached if tokens choose evenly.
    """
    return _call(op, 1, 2, 3).product_cost()
