"""Elementwise steps right behind a matrix product that could be its kernel's last act.

The first one reads the product's result, each next one what the one before made, and all results
have the product's shape: a bias, an activation, a gate, a residual, a cast. Fused into the product
they need no kernel of their own. What else they read, the product's kernel must read then; where
the plain result is needed elsewhere too, it is written beside the last one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from jarvis.perf_report.call_tree.frames import Int64s
from jarvis.perf_report.fusion.data_flow import OperandTensor, Shape, is_view
from jarvis.perf_report.fusion.launch_order import Call, LaunchOrder, members, product_sizes
from jarvis.perf_report.fusion.scopes import MAX_STEPS

_COPY = "aten::copy_"
_BACKWARD_NEEDS_RESULT = frozenset(
    {"add", "sub", "relu", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "neg", "copy"}
)
"""Operators whose backward pass needs their result or nothing, not what they have read."""


class Epilogue(NamedTuple):
    """What is known of the steps behind a product: how many, whether the product's own result is
    written too, and ``added_bytes``, what the product's kernel moves on top; None where a shape or
    dtype is not known."""

    length: int
    is_stored: bool
    added_bytes: int | None


def epilogue_members(
    order: LaunchOrder, taken: pl.Series, differentiated: pl.Series
) -> pl.DataFrame:
    """The steps of epilogues (``taken``: rows of steps that belong to other groups).

    ``differentiated``: uids of the calls that have a backward pass in the trace. Columns: those of
    ``chain_members``, ``product`` (row of the matrix product) and ``is_stored``.
    """
    operation = order.steps["operation"].to_numpy()
    has_backward = order.steps["source_uid"].is_in(differentiated.implode()).to_numpy()
    first, run, end = _stretches(order, taken)
    calls = order.calls
    known: dict[tuple[int, bool, bytes], Epilogue] = {}
    found = []
    for start, length, stop in zip(first.tolist(), run.tolist(), end.tolist(), strict=True):
        window = operation[start - 1 : stop]
        key = (length, bool(has_backward[start]), window.tobytes())
        if key not in known:
            product, *later = [calls[number] for number in window[window >= 0]]
            known[key] = _epilogue(product, later, length, key[1])
        epilogue = known[key]
        row = (True, epilogue.added_bytes, start - 1, epilogue.is_stored)
        found.append((start, epilogue.length, *row))
    flow = {"has_data_flow": pl.Boolean, "fused_bytes": pl.Int64}
    return members(found, {**flow, "product": pl.Int64, "is_kept": pl.Boolean})


def _stretches(order: LaunchOrder, taken: pl.Series) -> tuple[Int64s, Int64s, Int64s]:
    """Of each product with elementwise steps right behind it: the first of them, how many follow
    each other on its stream, and the end of what runs up to the next step that cannot be fused."""
    steps = order.steps
    size = steps.height
    may_join = (steps["is_elementwise"] & steps["can_fuse"]).to_numpy(writable=True)
    may_join[taken.to_numpy()] = False
    is_same_thread = _like_before(steps, "thread")
    may_join &= is_same_thread & _like_before(steps, "stream")
    first = np.flatnonzero(may_join[1:] & steps["is_product"].to_numpy()[:-1]) + 1
    breaks = np.append(np.flatnonzero(~may_join), size)
    ends = np.append(np.flatnonzero(~steps["can_fuse"].to_numpy()) + 1, size)
    threads = np.append(np.flatnonzero(~is_same_thread), size)
    run = breaks[np.searchsorted(breaks, first)] - first
    end = ends[np.searchsorted(ends, first, side="right")]
    return first, run, np.minimum(end, threads[np.searchsorted(threads, first)])


def _like_before(steps: pl.DataFrame, column: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return steps[column].eq_missing(steps[column].shift(1)).to_numpy()


def _epilogue(product: Call, later: Sequence[Call], run: int, has_backward: bool) -> Epilogue:
    """The epilogue among the first ``run`` calls after a product.

    ``later`` are all calls up to the next one that cannot be fused, which show whether something
    reads the product's result again: more operands of its shape than results made since.
    """
    sizes = product_sizes(product.params)
    if sizes is None:
        return Epilogue(0, is_stored=False, added_bytes=None)
    batch, m, n, _ = sizes
    result: Shape = (batch * m, n)
    outside: list[OperandTensor] = []
    length = 0
    before = product
    for call in later[:run]:
        inputs = [tensor for tensor in call.traffic.reads if is_view(tensor.shape, result)]
        is_repeated = call == before  # the same call again works on another tensor
        if is_repeated or not inputs or not _makes(call, result) or _only_moves(call):
            break
        outside += [tensor for tensor in call.traffic.reads if tensor is not inputs[0]]
        length, before = length + 1, call
    if not 0 < length <= MAX_STEPS:
        return Epilogue(0, is_stored=False, added_bytes=None)
    is_saved = has_backward and _base(later[0].name) not in _BACKWARD_NEEDS_RESULT
    is_stored = is_saved or _is_read_again(later[length:], result)
    read = next(t.bytes for t in later[0].traffic.reads if is_view(t.shape, result))
    written = later[length - 1].traffic.written
    amounts = [tensor.bytes for tensor in outside]
    if read is None or written is None or None in amounts:
        return Epilogue(length, is_stored, None)
    more = written if is_stored else max(0, written - read)
    return Epilogue(length, is_stored, more + sum(amount or 0 for amount in amounts))


def _makes(call: Call, result: Shape) -> bool:
    return any(is_view(shape, result) for shape in call.traffic.results[:1])


def _only_moves(call: Call) -> bool:
    """Whether it copies to the same dtype: another order of the elements, no arithmetic."""
    traffic = call.traffic
    return call.name == _COPY and (
        not traffic.reads or traffic.reads[0].bytes == traffic.typed[0].bytes
    )


def _is_read_again(calls: Sequence[Call], result: Shape) -> bool:
    """Whether a call has more operands of this shape than the epilogue and the calls since have
    made."""
    made = 1
    for call in calls:
        if sum(is_view(tensor.shape, result) for tensor in call.traffic.reads) > made:
            return True
        made += _makes(call, result)
    return False


def _base(name: str) -> str:
    return name.rpartition("::")[2].strip("_")
