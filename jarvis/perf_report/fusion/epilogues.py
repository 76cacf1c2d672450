"""Find epilogues: elementwise steps after a matrix product that could be fused into its kernel.

The first step reads the product's result, each further step the previous result, and all results
have the product's shape: a bias, an activation, a gate, a residual, a cast. Their other operands
must then be read by the product's kernel; if the plain result is also used elsewhere, it is written
in addition to the last one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.fusion.data_flow import OperandTensor, Shape, base_name, is_view
from jarvis.perf_report.fusion.launch_order import Call, LaunchOrder, members, product_sizes
from jarvis.perf_report.fusion.scopes import MAX_STEPS
from jarvis.schemas.names import C

_COPY = "aten::copy_"
_BACKWARD_NEEDS_RESULT = frozenset(
    {"add", "sub", "relu", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "neg", "copy"}
)
"""Operators whose backward pass does not need their inputs."""


class Epilogue(NamedTuple):
    """Estimate for the steps after a product.

    ``length``: number of steps. ``is_stored``: the product's own result is written too.
    ``added_bytes``: traffic added to the product's kernel, None if a shape or dtype is not known.
    """

    length: int
    is_stored: bool
    added_bytes: int | None


def epilogue_members(
    order: LaunchOrder, taken: pl.Series, differentiated: pl.Series
) -> pl.DataFrame:
    """Return the steps of epilogues.

    Args:
        taken: Rows of steps that belong to other groups.
        differentiated: Uids of the calls that have a backward pass in the trace.

    Returns:
        Columns of ``chain_members``, ``product`` (row of the matrix product) and ``is_kept`` (see
        ``Epilogue.is_stored``).
    """
    operation = order.steps["operation"].to_numpy()
    has_backward = order.steps[C.source_uid].is_in(differentiated.implode()).to_numpy()
    first, run, end = _stretches(order, taken)
    calls = order.calls
    known: dict[tuple[int, bool, bytes], Epilogue] = {}
    instances = []
    for start, length, stop in zip(first.tolist(), run.tolist(), end.tolist(), strict=True):
        window = operation[start - 1 : stop]
        key = (length, bool(has_backward[start]), window.tobytes())
        if key not in known:
            product, *later = [calls[number] for number in window[window >= 0]]
            known[key] = _epilogue(product, later, length, key[1])
        epilogue = known[key]
        row = (True, epilogue.added_bytes, start - 1, epilogue.is_stored)
        instances.append((start, epilogue.length, *row))
    flow = {C.has_data_flow: pl.Boolean, C.fused_bytes: pl.Int64}
    return members(instances, {**flow, "product": pl.Int64, "is_kept": pl.Boolean})


def _stretches(order: LaunchOrder, taken: pl.Series) -> tuple[Int64s, Int64s, Int64s]:
    """Return the elementwise steps directly after each product: the first one, the number of
    consecutive ones on its stream, and the end of the steps up to the next one that cannot be
    fused."""
    steps = order.steps
    size = steps.height
    may_join = (steps["is_elementwise"] & steps["can_fuse"]).to_numpy(writable=True)
    may_join[taken.to_numpy()] = False
    is_same_thread = _like_before(steps, C.thread)
    may_join &= is_same_thread & _like_before(steps, C.stream)
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
    """Return the epilogue among the first ``run`` calls after a product.

    Args:
        later: All calls up to the next one that cannot be fused. They show whether the product's
            result is read again: more operands of its shape than results computed since.
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
        is_repeated = call == before  # a repeated call works on another tensor
        if is_repeated or not inputs or not _makes(call, result) or _only_moves(call):
            break
        outside += [tensor for tensor in call.traffic.reads if tensor is not inputs[0]]
        length, before = length + 1, call
    if not 0 < length <= MAX_STEPS:
        return Epilogue(0, is_stored=False, added_bytes=None)
    is_saved = has_backward and base_name(later[0].name) not in _BACKWARD_NEEDS_RESULT
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
    """Return whether a call copies to the same dtype, so that only the layout changes."""
    traffic = call.traffic
    return call.name == _COPY and (
        not traffic.reads or traffic.reads[0].bytes == traffic.typed[0].bytes
    )


def _is_read_again(calls: Sequence[Call], result: Shape) -> bool:
    """Return whether a call has more operands of this shape than results computed since."""
    made = 1
    for call in calls:
        if sum(is_view(tensor.shape, result) for tensor in call.traffic.reads) > made:
            return True
        made += _makes(call, result)
    return False
