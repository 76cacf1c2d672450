"""Kernels that a compiler fuses from framework ops: ``triton_<kind>_fused_<op>_<op>_<number>``.

Kinds: ``poi`` pointwise, ``red`` reduction in a loop, ``per`` reduction of a row held on chip.
"""

import re
from itertools import accumulate
from operator import mul

from jarvis.perf_models.arguments import Tensor, tensor, text, total_bytes
from jarvis.perf_models.aten_names import ATEN_NAMES
from jarvis.perf_models.dtypes import compute_spec, precision
from jarvis.perf_models.element_flops import FLOPS_PER_ELEMENT
from jarvis.perf_models.registry import (
    NoModelForCallError,
    OpCost,
    OpSignature,
    categorize,
    perf_model,
)

_FUSED_NAME = re.compile(r"triton_(?:poi|red|per)_fused_(.*?)_\d+")

_SHEET_FLOPS_PER_ELEMENT = (
    dict.fromkeys(
        ("add", "sub", "mul", "div", "relu", "mean", "sum", "abs", "neg", "ne", "eq", "lt", "gt"), 1
    )
    | dict.fromkeys(("pow", "sqrt", "rsqrt", "var", "reciprocal"), 2)
    | dict.fromkeys(("exp", "log", "sigmoid", "tanh", "silu"), 4)
    | {"gelu": 8}
)
"""The ops that the sheets count; all others are free there."""

_LOOK_UPS = (
    *("embedding", "embedding_backward", "embedding_dense_backward", "gather", "take"),
    *("index", "index_add", "index_copy", "index_fill", "index_put", "index_select"),
    *("scatter", "scatter_add", "scatter_reduce", "_unsafe_index", "_unsafe_index_put"),
)
"""Ops that touch only the elements of a tensor that an index names."""

_MAX_OP_TOKENS = 1 + max(name.count("_") for name in ATEN_NAMES)


def fused_ops(name: str) -> list[str]:
    """The framework ops in a fused kernel's name, or [] if the name is not made of known ones.

    Op names hold underscores too: of all ways to split the name into known ones, the one with the
    longest last op is taken, then the longest before it, and so on.
    """
    match = _FUSED_NAME.fullmatch(name)
    if match is None:
        return []
    tokens = match[1].split("_")
    reachable = [True]
    for end in range(1, len(tokens) + 1):
        reachable.append(_last_op_start(tokens, end, reachable) is not None)
    if not reachable[-1]:
        return []
    ops: list[str] = []
    end = len(tokens)
    while (start := _last_op_start(tokens, end, reachable)) is not None:
        ops.append("_".join(tokens[start:end]))
        end = start
    return ops[::-1]


def _last_op_start(tokens: list[str], end: int, reachable: list[bool]) -> int | None:
    """Where the longest op that ends at ``end`` and has a known split before it begins."""
    for start in range(max(0, end - _MAX_OP_TOKENS), end):
        if reachable[start] and "_".join(tokens[start:end]) in ATEN_NAMES:
            return start
    return None


def _tensors(op: OpSignature) -> list[Tensor]:
    operands = (tensor(op, i) for i in range(len(op.input_dims)))
    return [t for t in operands if t.given and t.dtype != "Scalar"]


def _sizes(op: OpSignature) -> list[int]:
    """The integer arguments in order: the extents that the kernel iterates over come last."""
    values = (text(op, i) for i in range(len(op.concrete_inputs)))
    return [int(value) for value in values if re.fullmatch(r"-?\d+", value)]


def _iterations(sizes: list[int], tensors: list[Tensor], xnumel: int, rnumel: int) -> int:
    """Elements that the kernel iterates over.

    A pointwise kernel may have several extents, and sizes of a dynamic shape before them: of the
    products of the last extents the largest counts that is the size of a tensor.
    """
    if rnumel > 1:
        return xnumel * rnumel
    counts = {t.numel for t in tensors}
    products = accumulate(reversed(sizes), mul)
    return max((n for n in products if n in counts), default=xnumel)


def _moved_bytes(tensors: list[Tensor], ops: list[str], iterations: int) -> float | None:
    """Every tensor once; where the kernel looks up rows, as much of it as it can touch."""
    most = iterations if any(name in _LOOK_UPS for name in ops) else max(t.numel for t in tensors)
    return total_bytes(*((min(t.numel, most), t.real_size) for t in tensors))


@perf_model("triton_poi_*", "triton_red_*", "triton_per_*", category="triton", sheet="")
def fused_kernel(op: OpSignature) -> OpCost:
    """Flops per element of the fused ops x xnumel x rnumel; bytes of every tensor argument once.

    Inputs and outputs both stand among the arguments, without their names. A tensor that is
    updated in place is one argument too, so its write is not counted. Flops are unknown where the
    name cannot be split. ``exact_flops`` counts every op that the table of flops per element has,
    and all extents of a kernel; ``exact_bytes`` counts no more of a look-up table than the
    kernel can touch.
    """
    sizes, tensors = _sizes(op), _tensors(op)
    if not sizes or not tensors:
        raise NoModelForCallError(f"{op.name} was recorded without its tensors and extents.")
    pointwise = op.name.startswith("triton_poi_")
    xnumel, rnumel = (sizes[-1], 1) if pointwise or len(sizes) == 1 else sizes[-2:]
    ops = fused_ops(op.name)
    per_element = sum(_SHEET_FLOPS_PER_ELEMENT.get(name, 0) for name in ops)
    exact_per_element = sum(FLOPS_PER_ELEMENT.get(name, 0) for name in ops)
    spec_dtype = next((t.dtype for t in tensors if precision(t.dtype)), None)
    iterations = _iterations(sizes, tensors, xnumel, rnumel)
    return OpCost(
        flops=per_element * xnumel * rnumel if ops else None,
        bytes=total_bytes(*((t.numel, t.real_size) for t in tensors)),
        compute=compute_spec("vector", spec_dtype),
        params={
            "fused_ops": ", ".join(f"aten.{name}" for name in ops),
            "xnumel": xnumel,
            "rnumel": rnumel,
        },
        exact_flops=exact_per_element * iterations if ops else None,
        exact_bytes=_moved_bytes(tensors, ops, iterations),
    )


categorize("triton", "triton*")
