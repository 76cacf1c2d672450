"""Memory layout of an operator's tensors, derived from recorded shapes and strides.

Arguments are the texts of the operations table: ``"((8, 4), (4,))"``, one entry per argument.
"""

import re
from collections.abc import Sequence
from math import prod
from typing import Any, Literal

import polars as pl

from jarvis.core.expressions import first_of
from jarvis.core.literals import parse_literal, parse_tuple
from jarvis.perf_models.dtypes import bytes_per_element
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable

Access = Literal["contiguous", "broadcast", "strided"]
Order = Literal["channels_first", "channels_last"]
CHANNELS_FIRST: Order = "channels_first"
CHANNELS_LAST: Order = "channels_last"

_LOOKS_UP = re.compile(r"(?:^|[^a-z])(?:rope|rotary)(?![a-z])")

Tensor = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides without the dims of extent 1, whose strides are meaningless, and the dims of
stride 0, along which a tensor is expanded."""


def access(name: str, input_dims: str | None, input_strides: str | None) -> Access | None:
    """Return how an elementwise operator accesses its operands; None if not recorded.

    ``strided``: an operand has gaps, or operands of equal shape differ in memory order.
    ``broadcast``: operands differ in shape. ``contiguous``: all are read and written sequentially.
    """
    tensors = _operands(name, input_dims, input_strides)
    if not tensors:
        return None
    shapes = {shape for shape, _ in tensors}
    if len(set(tensors)) > len(shapes) or not all(_is_dense(tensor) for tensor in tensors):
        return "strided"
    return "broadcast" if len(shapes) > 1 else "contiguous"


def shared_run(name: str, input_dims: str | None, input_strides: str | None) -> int | None:
    """Return how many neighboring elements the largest operands all have in one row of memory.

    0 if their rows run along different dims, as in a transposition; None if an operand has no
    neighboring elements along any dim, or none are recorded.
    """
    tensors = _operands(name, input_dims, input_strides)
    most = max((prod(shape) for shape, _ in tensors), default=0)
    largest = [tensor for tensor in tensors if prod(tensor[0]) == most]
    if not largest or any(1 not in strides for _, strides in largest):
        return None
    shape, strides = largest[0]
    inner = strides.index(1)
    is_shared = all(other == shape and steps[inner] == 1 for other, steps in largest)
    return shape[inner] if is_shared else 0


def tensor(input_dims: str | None, input_strides: str | None, index: int = 0) -> Tensor | None:
    """Return full shape and strides of argument ``index``; None if it is no tensor or not
    recorded."""
    shapes, strides = parse_tuple(input_dims), parse_tuple(input_strides)
    if index >= len(shapes) or index >= len(strides):
        return None
    return _whole(shapes[index], strides[index])


def _whole(shape: Any, stride: Any) -> Tensor | None:
    if not shape or len(shape) != len(stride) or isinstance(shape[0], tuple):
        return None
    return shape, stride


def channel_order(shape: Sequence[int], strides: Sequence[int]) -> Order | None:
    """Return the memory order of an activation (N, C, spatial...); None if it is ambiguous."""
    if len(strides) != len(shape) or len(shape) < 3 or shape[1] == 1 or prod(shape[2:]) == 1:
        return None
    return CHANNELS_LAST if strides[1] == 1 else CHANNELS_FIRST


def reduced_dims(name: str, concrete_inputs: str | None, rank: int) -> tuple[int, ...]:
    """Return the dims (counted from 0) that a reduction or softmax over ``rank`` dims reduces.

    All dims if the call names none, which is the operators' own default.
    """
    values = parse_tuple(concrete_inputs)
    index = 2 if "norm" in name or "softmax_backward" in name else 1
    text = str(values[index]).strip() if index < len(values) else ""
    numbers = text.strip("[]").split(",")
    if not rank or not all(n.strip().lstrip("-").isdigit() for n in numbers):
        return tuple(range(rank))
    return tuple(sorted({int(n) % rank for n in numbers}))


def _operands(name: str, input_dims: str | None, input_strides: str | None) -> list[Tensor]:
    """Return the tensors with more than one element, without an output of another shape.

    Gated activations have it first, operators named ``_out`` last. Rotary embeddings look up the
    rows of a table.
    """
    arguments = zip(parse_tuple(input_dims), parse_tuple(input_strides), strict=False)
    found = [whole for pair in arguments if (whole := _whole(*pair)) is not None]
    if _LOOKS_UP.search(name):
        return []
    if name.endswith("_and_mul"):
        found = found[1:]
    elif name.endswith("_out"):
        found = found[: max(1, len(found) - 1)]
    return [_extended(t) for t in found if prod(t[0]) > 1]


def _extended(whole: Tensor) -> Tensor:
    dims = [(extent, step) for extent, step in zip(*whole, strict=True) if extent != 1 and step]
    return tuple(extent for extent, _ in dims), tuple(step for _, step in dims)


def _is_dense(extended: Tensor) -> bool:
    """Return whether the elements fill a contiguous memory range, in any order of dims."""
    dims = sorted(zip(*extended, strict=True), key=lambda dim: dim[1])
    expected = 1
    for extent, step in dims:
        if step != expected:
            return False
        expected *= extent
    return True


VECTOR_BYTES = 16
"""Number of neighboring bytes that a thread can access at once."""

MESSAGES = MessageTable(
    "memory_order",
    {
        "reason.transposed": "its operands differ in memory order (strides {strides:joined  and "
        "}), so one of them is accessed with large strides",
        "reason.rows": "its operands differ in the order of their rows (strides {strides:joined  "
        "and }), which are {run_bytes} of contiguous memory each",
        "reason.gaps": "its operands are not contiguous (strides {strides:joined  and })",
        "kernel.transposed": "a tiled transpose accesses both operands in contiguous runs.",
        "kernel.rows": "all operands have contiguous rows of {run_bytes}, so {kernel} can access "
        f"{VECTOR_BYTES} bytes of a row per thread.",
        "kernel.gaps": "compare {kernel} with a copy of as much contiguous memory.",
    },
)


def memory_orders(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes of a row that all operands share, and ids of messages, for each row.

    Columns: ``run_bytes``, 0 for a transposition and null without a common row;
    ``order_reason`` and ``order_kernel``, which apply to strided operands.
    """
    operands = rows.select(C.name, C.input_dims, C.input_strides, C.input_types)
    runs = [_run_bytes(*row) for row in operands.iter_rows()]
    return pl.DataFrame({"run_bytes": runs}, schema={"run_bytes": pl.Int64}).with_columns(
        order_reason=_by_order("reason"), order_kernel=_by_order("kernel")
    )


def _run_bytes(name: str, dims: str | None, strides: str | None, types: str | None) -> int | None:
    run = shared_run(name, dims, strides)
    sizes = [bytes_per_element(str(dtype)) for dtype in parse_literal(types) or ()]
    narrowest = min((size for size in sizes if size), default=None)
    return run if not run else narrowest and run * narrowest


def _by_order(text: str) -> pl.Expr:
    run_bytes = pl.col("run_bytes")
    tests = {"transposed": run_bytes == 0, "rows": run_bytes >= VECTOR_BYTES}
    return first_of(
        {MESSAGES.id(f"{text}.{order}"): test for order, test in tests.items()},
        MESSAGES.id(f"{text}.gaps"),
    )
