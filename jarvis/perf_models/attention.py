"""Scaled dot product attention: softmax(Q K^T) V and its backward pass."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

from jarvis.perf_models.arguments import Shape, Tensor, dtype, flag, tensor, text
from jarvis.perf_models.dtypes import compute_spec
from jarvis.perf_models.registry import (
    Formula,
    OpCost,
    OpSignature,
    UnexpectedArgumentsError,
    categorize,
    perf_model,
)

SHEET_BYTES_PER_ELEMENT = 2  # the sheets assume half precision for every dtype


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed sequences of unequal length: their number and the longest, of Q and of K/V."""

    sequences_q: int
    sequences_kv: int
    longest_q: int
    longest_kv: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Extents of one call: batch, rows and heads of Q and of K/V, head dims of Q/K and of V."""

    batch: int
    n_q: int
    h_q: int
    n_kv: int
    h_kv: int
    d_qk: int
    d_v: int
    dropout: float
    causal: bool
    flash: bool
    dtypes: tuple[str, ...]
    show_dtypes: bool = True
    packed: Packed | None = None
    element_size: int | None = None
    strides: dict[str, Any] = field(default_factory=dict)

    def visible_share(self, n_q: int, n_kv: int) -> float:
        """Return the computed share of the score matrix; a causal mask ends at the last key."""
        if not self.causal:
            return 1.0
        return 1 - n_q / (2 * max(n_kv, 1)) if n_q <= n_kv else n_kv / (2 * n_q)

    def forward_flops(self) -> float:
        """Return the FLOPs of Q K^T and P V.

        B H_Q 2 N_Q N_KV (d_qk + d_v), times the visible share.
        """
        return self._over_sequences(self._forward_flops)

    def backward_flops(self) -> float:
        """Return the FLOPs of dV, dP, dQ, dK (and Q K^T again for flash kernels).

        Sums over shared heads are included.
        """
        return self._over_sequences(self._backward_flops)

    def forward_bytes(self, element_size: int) -> int:
        """Return the bytes of Q, K, V read and the output written, once each."""
        return (self._q + self._k + self._v + self._out) * element_size

    def backward_bytes(self, element_size: int) -> int:
        """Return the bytes of Q, K, V and dO read, dQ, dK and dV written, once each."""
        return (2 * (self._q + self._k + self._v) + self._out) * element_size

    def forward_cost(self) -> OpCost:
        """Return the cost of the forward pass."""
        return self._cost(self.forward_flops(), self.forward_bytes)

    def backward_cost(self, element_size: int | None = SHEET_BYTES_PER_ELEMENT) -> OpCost:
        """Return the cost of the backward pass, ``element_size`` bytes per element in the sheets.

        Fused kernels do not store the scores, so ``exact_flops`` always includes Q K^T.
        """
        cost = self._cost(self.backward_flops(), self.backward_bytes, element_size)
        return replace(cost, exact_flops=replace(self, flash=True).backward_flops())

    def params(self) -> dict[str, Any]:
        """Return the params under the names that the sheets use."""
        params: dict[str, Any] = {
            "B": self.batch,
            "N_Q": self.n_q,
            "H_Q": self.h_q,
            "N_KV": self.n_kv,
            "H_KV": self.h_kv,
            "d_h_qk": self.d_qk,
            "d_h_v": self.d_v,
            "dropout": self.dropout,
            "causal": self.causal,
            "flash_impl": self.flash,
        }
        if self.show_dtypes:
            params["dtype_A_B"] = self.dtypes
        return params | self.strides

    @property
    def _q(self) -> int:
        return self.batch * self.n_q * self.h_q * self.d_qk

    @property
    def _k(self) -> int:
        return self.batch * self.n_kv * self.h_kv * self.d_qk

    @property
    def _v(self) -> int:
        return self.batch * self.n_kv * self.h_kv * self.d_v

    @property
    def _out(self) -> int:
        return self.batch * self.n_q * self.h_q * self.d_v

    def _cost(
        self,
        flops: float,
        moved: Callable[[int], int],
        element_size: int | None = SHEET_BYTES_PER_ELEMENT,
    ) -> OpCost:
        return OpCost(
            flops=flops,
            bytes=None if element_size is None else moved(element_size),
            compute=compute_spec("matrix", self.dtypes[0] if self.show_dtypes else None),
            params=self.params(),
            exact_bytes=None if self.element_size is None else moved(self.element_size),
        )

    def _over_sequences(self, flops: Callable[[int, int], float]) -> float:
        """Return the FLOPs of the longest sequence plus the others at their mean length."""
        if (packed := self.packed) is None:
            return flops(self.n_q, self.n_kv)
        total = flops(packed.longest_q, packed.longest_kv)
        others_q, others_kv = packed.sequences_q - 1, packed.sequences_kv - 1
        if others_q > 0:
            mean_q = (self.n_q - packed.longest_q) // others_q
            mean_kv = (self.n_kv - packed.longest_kv) // others_kv
            total += others_q * flops(mean_q, mean_kv)
        return total

    def _forward_flops(self, n_q: int, n_kv: int) -> float:
        products = self.batch * self.h_q * 2 * n_q * n_kv * (self.d_qk + self.d_v)
        return products * self.visible_share(n_q, n_kv)

    def _backward_flops(self, n_q: int, n_kv: int) -> float:
        product = self.batch * self.h_q * 2 * n_q * n_kv
        head_sums = self.batch * n_kv * (self.h_q // self.h_kv - 1) * (self.d_qk + self.d_v)
        recomputed = product * self.d_qk if self.flash else 0
        total = recomputed + 2 * product * (self.d_qk + self.d_v) + head_sums
        return total * self.visible_share(n_q, n_kv)


def _extents(t: Tensor, layout: str) -> dict[str, int]:
    if len(t.shape) != len(layout):
        raise UnexpectedArgumentsError(f"Attention expects shapes of {layout}, found {t.shape}.")
    return {"B": 1} | dict(zip(layout, t.shape, strict=True))


def attention(
    op: OpSignature,
    layout: str,
    *,
    first: int = 0,
    dropout: int | None = None,
    causal: bool = False,
    flash: bool = True,
    show_dtypes: bool = True,
    packed: Packed | None = None,
) -> Attention:
    """Read Q, K, V at ``first`` .. ``first + 2``.

    Args:
        layout: a letter per dim: B batch, N rows, H heads, D head dim.

    Raises:
        UnexpectedArgumentsError: ranks or extents do not fit together.
    """
    tensors = [tensor(op, first + i) for i in range(3)]
    q, k, v = (_extents(t, layout) for t in tensors)
    if not (q["B"] == k["B"] == v["B"] and q["D"] == k["D"]):
        raise UnexpectedArgumentsError(f"{op.name}: batch or head dim of Q and K/V differ.")
    if (k["H"], k["N"]) != (v["H"], v["N"]):
        raise UnexpectedArgumentsError(f"{op.name}: heads or rows of K and V differ.")
    return Attention(
        batch=q["B"],
        n_q=q["N"],
        h_q=q["H"],
        n_kv=k["N"],
        h_kv=k["H"],
        d_qk=q["D"],
        d_v=v["D"],
        dropout=0.0 if dropout is None else float(text(op, dropout) or 0.0),
        causal=causal,
        flash=flash,
        dtypes=(dtype(op, 0), dtype(op, 1)),
        show_dtypes=show_dtypes,
        packed=packed,
        element_size=tensors[0].real_size,
    )


Reader = Callable[[OpSignature], Attention]


def _forward_model(*names: str) -> Callable[[Reader], Reader]:
    """Register a reader of arguments as perf model of the forward ops ``names``."""

    def register(reader: Reader) -> Reader:
        @wraps(reader)
        def forward(op: OpSignature) -> OpCost:
            return reader(op).forward_cost()

        @wraps(reader)
        def backward(op: OpSignature) -> OpCost:
            return reader(op).backward_cost()

        perf_model(*names, category="SDPA_fwd", backward=backward, backward_category="SDPA_bwd")(
            forward
        )
        return reader

    return register


def _backward_model(*names: str) -> Callable[[Formula], Formula]:
    return perf_model(*names, category="SDPA_bwd", backward_category="SDPA_bwd")


@_forward_model("FlashAttnFunc", "flash_attn::_flash_attn_forward")
def flash_attention(op: OpSignature) -> Attention:
    """Read Q, K, V (B,N,H,d).

    FLOPs B H_Q 2 N_Q N_KV (d_qk + d_v), causal half; bytes Q + K + V + O.
    """
    names = ("q_stride", "k_stride", "v_stride")
    strides = {name: _required_strides(op, index) for index, name in enumerate(names)}
    return replace(attention(op, "BNHD", dropout=3, causal=flag(op, 5)), strides=strides)


def _required_strides(op: OpSignature, index: int) -> Shape:
    strides = tensor(op, index).strides
    if strides is None:
        raise UnexpectedArgumentsError(f"{op.name} was recorded without strides.")
    return strides


@_backward_model("flash_attn::_flash_attn_backward")
def flash_attention_backward(op: OpSignature) -> OpCost:
    """Return the cost of a backward pass: dO, then Q, K, V (B,N,H,d).

    FLOPs of the five backward products; bytes of dO's dtype.
    """
    causal = flag(op, 10) if len(op.concrete_inputs) > 10 else True
    call = attention(op, "BNHD", first=1, dropout=8, causal=causal)
    return call.backward_cost(tensor(op, 0).size)


def packed_sequences(op: OpSignature, lengths_at: int, longest_at: int) -> Packed:
    """Read cumulative lengths of Q and K/V at ``lengths_at``, the longest at ``longest_at``."""
    return Packed(
        sequences_q=tensor(op, lengths_at).shape[0] - 1,
        sequences_kv=tensor(op, lengths_at + 1).shape[0] - 1,
        longest_q=int(text(op, longest_at)),
        longest_kv=int(text(op, longest_at + 1)),
    )


@_forward_model("flash_attn::_flash_attn_varlen_forward")
def flash_attention_packed(op: OpSignature) -> Attention:
    """Read Q, K, V (N,H,d) packed.

    FLOPs of the longest sequence and of the others at mean length.
    """
    packed = packed_sequences(op, 3, 5)
    return attention(op, "NHD", dropout=7, causal=flag(op, 9), packed=packed)


@_backward_model("flash_attn::_flash_attn_varlen_backward")
def flash_attention_packed_backward(op: OpSignature) -> OpCost:
    """Return the cost of a backward pass: dO, then Q, K, V (N,H,d) packed.

    FLOPs of the longest sequence and of the others at mean length.
    """
    packed = packed_sequences(op, 9, 11)
    call = attention(op, "NHD", first=1, dropout=13, causal=flag(op, 15), packed=packed)
    return call.backward_cost()


@_forward_model(
    "aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_efficient_attention"
)
def sdpa_with_bias(op: OpSignature) -> Attention:
    """Read Q, K, V (B,H,N,d).

    FLOPs B H_Q 2 N_Q N_KV (d_qk + d_v), causal half; bytes Q + K + V + O.
    """
    return attention(op, "BHND", dropout=5, causal=flag(op, 6), flash=False)


@_forward_model("aten::_scaled_dot_product_flash_attention")
def sdpa_flash(op: OpSignature) -> Attention:
    """Read Q, K, V (B,H,N,d).

    FLOPs B H_Q 2 N_Q N_KV (d_qk + d_v), causal half; bytes Q + K + V + O.
    """
    return attention(op, "BHND", dropout=3, causal=flag(op, 4))


@_forward_model("aiter::_flash_attn_forward", "aiter::mha_fwd", "aiter::fmha_v3_fwd")
def aiter_forward(op: OpSignature) -> Attention:
    """Read Q, K, V (B,N,H,d).

    FLOPs B H_Q 2 N_Q N_KV (d_qk + d_v), causal half; bytes Q + K + V + O.
    """
    return attention(op, "BNHD", dropout=3, causal=flag(op, 5), show_dtypes=False)


_AITER_BACKWARD = {
    "aiter::_flash_attn_backward": (10, 12),
    "aiter::wrapper_fmha_v3_bwd": (7, 9),
    "aiter::mha_bwd": (6, 8),
}
"""Positions of dropout and causal mask."""


@_backward_model(*_AITER_BACKWARD)
def aiter_backward(op: OpSignature) -> OpCost:
    """Return the cost of a backward pass: dO, then Q, K, V (B,N,H,d).

    FLOPs of the five backward products; bytes of operands once.
    """
    dropout, mask = _AITER_BACKWARD[op.name]
    causal = flag(op, mask)
    call = attention(op, "BNHD", first=1, dropout=dropout, causal=causal, show_dtypes=False)
    return call.backward_cost()


@_forward_model("aiter::wrapper_fmha_v3_fwd")
def aiter_wrapped_forward(op: OpSignature) -> Attention:
    """Read Q, K, V (B,N,H,d) from argument 1.

    FLOPs B H_Q 2 N_Q N_KV (d_qk + d_v), causal half; bytes Q + K + V + O.
    """
    return attention(op, "BNHD", first=1, dropout=4, causal=flag(op, 6), show_dtypes=False)


@_forward_model("flash_attn_3::fwd")
def flash_attention_3(op: OpSignature) -> Attention:
    """Read Q, K, V (B,N,H,d).

    FLOPs B H_Q 2 N_Q N_KV (d_qk + d_v), causal half; bytes Q + K + V + O.
    """
    return attention(op, "BNHD", causal=flag(op, 24), show_dtypes=False)


@_forward_model("EvoformerAttention")
def evoformer(op: OpSignature) -> Attention:
    """Read Q, K, V (B,S,N,H,d), S sequences each.

    FLOPs (B S) H 2 N^2 (d_qk + d_v); bytes Q + K + V + O.
    """
    folded = []
    for index in range(3):
        t = tensor(op, index)
        if len(t.shape) != 5:
            raise UnexpectedArgumentsError(f"{op.name} reads 5-d operands, found {t.shape}.")
        folded.append((t.shape[0] * t.shape[1], *t.shape[2:]))
    call = OpSignature(op.name, tuple(folded), op.input_types[:1])
    read = attention(call, "BNHD", flash=False)
    return replace(read, dtypes=(dtype(op, 0),))


categorize("SDPA_fwd", "aten::_efficient_attention_forward")
categorize(
    "SDPA_bwd",
    "FlashAttnFuncBackward",
    "FusedAttnFuncBackward",
    "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_efficient_attention_backward",
)


# Kernels called by ``scaled_dot_product_attention``, and its backward passes by name. If a trace
# has the forward call, the sheets derive the backward cost from it; these formulas are for the
# rest: packed sequences, and backward passes whose forward call is outside the window.


def _exact_forward(call: Attention) -> OpCost:
    return call.forward_cost().exact()


def _exact_backward(call: Attention) -> OpCost:
    return call.backward_cost().exact()


def _has_lengths(op: OpSignature, index: int) -> bool:
    """Return whether cumulative sequence lengths (packed sequences) are given at ``index``."""
    return tensor(op, index).given


@perf_model("aten::_flash_attention_forward")
def flash_forward(op: OpSignature) -> OpCost:
    """Return the cost of Q, K, V (B,N,H,d), or (N,H,d) packed.

    FLOPs of Q K^T and P V; bytes Q + K + V + O.
    """
    causal = flag(op, 8)
    if not _has_lengths(op, 3):
        return _exact_forward(attention(op, "BNHD", dropout=7, causal=causal))
    packed = packed_sequences(op, 3, 5)
    return _exact_forward(attention(op, "NHD", dropout=7, causal=causal, packed=packed))


@perf_model("aten::_flash_attention_backward")
def flash_backward(op: OpSignature) -> OpCost:
    """Return the cost of a backward pass: dO, then Q, K, V (B,N,H,d), or (N,H,d) packed.

    FLOPs of five products; bytes of operands once.
    """
    causal = flag(op, 11)
    if not _has_lengths(op, 6):
        return _exact_backward(attention(op, "BNHD", first=1, dropout=10, causal=causal))
    packed = packed_sequences(op, 6, 8)
    return _exact_backward(attention(op, "NHD", first=1, dropout=10, causal=causal, packed=packed))


@perf_model("aten::_efficient_attention_forward")
def efficient_forward(op: OpSignature) -> OpCost:
    """Return the cost of Q, K, V (B,N,H,d), packed with B = 1.

    FLOPs of Q K^T and P V; bytes Q + K + V + O. A bias is not counted. Mask types 1 and 2 are
    causal.
    """
    packed = packed_sequences(op, 4, 6) if _has_lengths(op, 4) else None
    causal = text(op, 9) in ("1", "2")
    return _exact_forward(attention(op, "BNHD", dropout=8, causal=causal, packed=packed))


@perf_model("aten::_efficient_attention_backward")
def efficient_backward(op: OpSignature) -> OpCost:
    """Return the cost of a backward pass: dO, then Q, K, V (B,N,H,d), packed with B = 1.

    FLOPs of five products; bytes of operands once.
    """
    packed = packed_sequences(op, 6, 8) if _has_lengths(op, 6) else None
    causal = text(op, 14) in ("1", "2")
    return _exact_backward(attention(op, "BNHD", first=1, dropout=11, causal=causal, packed=packed))


@perf_model("aten::_cudnn_attention_forward")
def cudnn_forward(op: OpSignature) -> OpCost:
    """Return the cost of Q, K, V (B,H,N,d).

    FLOPs of Q K^T and P V, causal half; bytes Q + K + V + O.
    """
    return _exact_forward(attention(op, "BHND", dropout=9, causal=flag(op, 10)))


_SDPA_BACKWARD = {
    "aten::_scaled_dot_product_flash_attention_backward": (10, 11),
    "aten::_scaled_dot_product_efficient_attention_backward": (9, 11),
    "aten::_scaled_dot_product_cudnn_attention_backward": (13, 14),
    "aten::_cudnn_attention_backward": (13, 14),
}
"""Positions of dropout and causal mask."""


@perf_model(*_SDPA_BACKWARD)
def sdpa_backward(op: OpSignature) -> OpCost:
    """Return the cost of a backward pass: dO, then Q, K, V (B,H,N,d).

    FLOPs of five products, causal half; bytes of operands once.
    """
    dropout, mask = _SDPA_BACKWARD[op.name]
    return _exact_backward(attention(op, "BHND", first=1, dropout=dropout, causal=flag(op, mask)))
