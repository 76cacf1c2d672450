"""Find chains of calls that one kernel could replace, and estimate the traffic of that kernel.

A chain is a sequence of neighboring fusible steps on one stream with data flow: all steps of one
module or function, or consecutive steps in which each result has the shape of the next operand.
Equal sequences in a row are instances of one chain, so the same call on many tensors is no chain.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from jarvis.perf_report.call_tree.frames import Bools, Int64s
from jarvis.perf_report.fusion.data_flow import Shape, Traffic, flows, is_part, is_related
from jarvis.perf_report.fusion.launch_order import Call, LaunchOrder, members
from jarvis.perf_report.fusion.scopes import MAX_STEPS
from jarvis.schemas.names import C

_NORMALIZATIONS = ("layer_norm", "rms_norm")


class ChainEstimate(NamedTuple):
    """Estimate for one instance of a chain, from shapes.

    ``length``: number of steps. ``has_data_flow``: every step reads the result shape of the
    previous one. ``fused_bytes``: bytes that a fused kernel reads and writes, None if a shape or
    dtype is not known.
    """

    length: int
    has_data_flow: bool = False
    fused_bytes: int | None = None


def chain_members(order: LaunchOrder, taken: pl.Series) -> pl.DataFrame:
    """Return the steps of chains.

    Args:
        taken: Rows of steps that belong to other groups.

    Returns:
        ``step`` (row of the steps), ``instance`` (row of its first step), ``position`` within the
        instance, ``has_data_flow``, ``fused_bytes`` of the instance.
    """
    can_fuse = order.steps["can_fuse"].to_numpy(writable=True)
    can_fuse[taken.to_numpy()] = False
    stretches = (
        order.steps.select("operation")
        .with_row_index("step")
        .with_columns(stretch=_stretches(order, can_fuse))
        .filter(can_fuse)
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("step").first(), "operation")
        .filter(pl.col("operation").list.len() >= 2)
    )
    calls = order.calls
    known: dict[tuple[int, ...], list[tuple[int, ChainEstimate]]] = {}
    instances = []
    for start, operations in stretches.select("step", "operation").iter_rows():
        key = tuple(operations)
        if key not in known:
            known[key] = _instances([calls[operation] for operation in key])
        instances += [(start + offset, *chain) for offset, chain in known[key]]
    return members(instances, {C.has_data_flow: pl.Boolean, C.fused_bytes: pl.Int64})


def _stretches(order: LaunchOrder, can_fuse: Bools) -> Int64s:
    """Return a number for each step, equal for steps that can be fused with each other."""
    here = order.steps.select("operation", C.is_bounded, "scope", C.thread, C.stream)
    operation, is_bounded = here["operation"].to_numpy(), here[C.is_bounded].to_numpy()
    is_same = here.select(
        pl.all_horizontal(
            pl.col(c).eq_missing(pl.col(c).shift(1)) for c in ("scope", C.thread, C.stream)
        )
    ).to_series()
    is_neighbor = is_same.to_numpy() & can_fuse & np.concatenate([[False], can_fuse[:-1]])
    later = np.flatnonzero(is_neighbor)
    calls = order.calls
    pairs = np.stack([operation[later - 1], operation[later], is_bounded[later]], axis=1)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    joins = [_belong_together(calls[one], calls[other], bool(b)) for one, other, b in distinct]
    starts = np.ones(operation.size, dtype=np.bool_)
    starts[later] = ~np.array(joins, dtype=np.bool_)[which]
    return np.cumsum(starts)


def _belong_together(before: Call, call: Call, is_bounded: bool) -> bool:
    one, other = before.traffic, call.traffic
    return is_related(one, other) if is_bounded else flows(one, other)


def _instances(calls: Sequence[Call]) -> list[tuple[int, ChainEstimate]]:
    """Return the offset and the estimate of each instance of a chain in a sequence of calls."""
    length = _period([call.name for call in calls])
    if not 2 <= length <= MAX_STEPS:
        return []
    return [
        (start, _chain(calls[start : start + length])) for start in range(0, len(calls), length)
    ]


def _period(names: Sequence[str]) -> int:
    """Return the length of the shortest prefix that repeated gives all names."""
    count = len(names)
    return next(
        n
        for n in range(1, count + 1)
        if count % n == 0 and list(names[:n]) * (count // n) == list(names)
    )


def _chain(calls: Sequence[Call]) -> ChainEstimate:
    parts = [call.traffic for call in calls]
    return ChainEstimate(
        length=len(calls),
        has_data_flow=all(flows(one, other) for one, other in pairwise(parts)),
        fused_bytes=_fused_bytes(calls, parts),
    )


def _fused_bytes(calls: Sequence[Call], parts: list[Traffic]) -> int | None:
    """Return the bytes of inputs from outside the chain, and of the last step's result.

    An operand counts as computed inside if it has the shape of an earlier result, and as already
    read if it is a part of a tensor seen before. The input of a normalization is written too,
    because the next layer adds to it.
    """
    made: list[Shape] = []
    seen: list[Shape] = []
    moved = 0
    for call, part in zip(calls, parts, strict=True):
        inside = list(made)
        for tensor in part.reads:
            if tensor.shape in inside:
                inside.remove(tensor.shape)
                moved += (tensor.bytes or 0) if call.name.endswith(_NORMALIZATIONS) else 0
                continue
            if any(is_part(tensor.shape, shape) for shape in seen):
                continue
            if tensor.bytes is None:
                return None
            moved += tensor.bytes
            seen.append(tensor.shape)
        made += part.results[:1]
        seen += part.results[:1]
    written = parts[-1].written
    return None if written is None else moved + written
