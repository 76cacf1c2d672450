"""Detect unfused attention: a softmax between two matrix products.

Scores = Q K^T, then scaling, masking, softmax and dropout, then scores times V: the shapes show
that the result of one product is an operand of the other.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from jarvis.core.arrays import Bools, Int64s
from jarvis.perf_models import BUILTIN, OpSignature
from jarvis.perf_report.call_tree.frames import NONE, Marked, marked
from jarvis.perf_report.fusion.data_flow import takes
from jarvis.perf_report.fusion.launch_order import (
    Call,
    LaunchOrder,
    members,
    product_sizes,
    step_rows,
)
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import parsed
from jarvis.perf_report.roofline import FORMULA_ERRORS
from jarvis.schemas.names import C


def feeding_attention(
    order: LaunchOrder, chains: pl.DataFrame, attention: pl.DataFrame
) -> pl.Series:
    """Return the ``instance`` of ``chains`` (members) that feed attention.

    Args:
        attention: Members of unfused attention; fused attention is a kind of step.
    """
    steps = order.steps
    is_attention = steps["is_attention"].to_numpy(writable=True)
    is_attention[attention["step"].to_numpy()] = True
    if not is_attention.any():
        return chains["instance"].head(0)
    instances = chains.group_by("instance", maintain_order=True).agg(last=pl.col("step").max())
    last = instances["last"].to_numpy()
    at = steps["order"].to_numpy()
    has_next = last + 1 < at.size
    following = np.where(has_next, last + 1, last)
    starts_attention = is_attention[following] | steps["is_product"].to_numpy()[following]
    part = _next_part(order, last, at[following])
    in_part = _contains_attention(marked(order.marks.frames, at[is_attention]), part)
    feeds = has_next & starts_attention & in_part & _takes_result(order, last, following)
    return instances["instance"].filter(pl.Series(feeds))


def _next_part(order: LaunchOrder, last: Int64s, places: Int64s) -> Int64s:
    """Return the child, of the frame around the step ``last``, that contains each position; NONE if
    the frame does not contain it."""
    frames = order.marks.frames
    scope = order.steps["scope"].to_numpy()[last]
    is_bounded = order.steps[C.is_bounded].to_numpy()[last]
    around = np.where(is_bounded, order.marks.parent_with_more(scope), scope)
    here = np.where((around >= 0) & (around < places) & (places < frames.end[around]), places, NONE)
    while (climbs := (here >= 0) & (frames.parent(here) != around)).any():
        here = np.where(climbs, frames.parent(here), here)
    return here


def _contains_attention(attention: Marked, places: Int64s) -> Bools:
    """Return whether attention runs at or below each position; False for NONE."""
    counts = attention.before[attention.frames.end[places]] - attention.before[places]
    return (places >= 0) & (counts > 0)


def _takes_result(order: LaunchOrder, last: Int64s, following: Int64s) -> Bools:
    """Return whether the step ``following`` has an operand like the result of the step ``last``."""
    operation, calls = order.steps["operation"].to_numpy(), order.calls
    pairs = np.stack([operation[last], operation[following]], axis=1)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    known = [
        one >= 0 <= other and takes(calls[one].traffic, calls[other].traffic)
        for one, other in distinct
    ]
    return np.array(known, dtype=np.bool_)[which]


MAX_STEPS_BETWEEN = 12
"""Maximum steps between the two products: scale, mask, a decomposed softmax, dropout, copies."""

FUSED_ATTENTION = "aten::_scaled_dot_product_flash_attention"
"""The operator whose perf model gives the cost of one fused kernel."""

_SOFTMAX = "softmax"
_NO_SOFTMAX = ("log_softmax", "backward")
_DECOMPOSED = ("aten::exp", "aten::sum", "aten::div")


class Shape(NamedTuple):
    """Sizes of one attention call; ``heads`` is None if batch and heads are one dimension."""

    batch: int
    heads: int | None
    n_q: int
    n_kv: int
    d_qk: int
    d_v: int
    dtype: str


def attention_members(order: LaunchOrder) -> pl.DataFrame:
    """Return the steps of unfused attention.

    Columns: ``step`` (row of the steps), ``instance`` (row of its first product), ``position``
    within the instance, and the fields of ``Shape``.
    """
    operation = order.steps["operation"].to_numpy()
    calls = order.calls
    known: dict[bytes, Shape | None] = {}
    instances = []
    for first, last in _product_pairs(order):
        operations = operation[first : last + 1]
        key = operations.tobytes()
        if key not in known:
            known[key] = _shape([calls[number] for number in operations])
        if (shape := known[key]) is not None:
            instances.append((first, last - first + 1, *shape))
    sizes = dict.fromkeys(Shape._fields[:-1], pl.Int64)
    return members(instances, {**sizes, "dtype": pl.String})


def _product_pairs(order: LaunchOrder) -> list[tuple[int, int]]:
    """Return row pairs of neighboring matrix products with a softmax, and only fusible steps,
    between them."""
    steps = order.steps
    is_softmax = np.array([_is_softmax(call.name) for call in order.calls] + [False])
    ends = np.flatnonzero(~steps["can_fuse"].to_numpy())
    first, last = ends[:-1], ends[1:]
    is_product, thread = steps["is_product"].to_numpy(), steps[C.thread].fill_null(0).to_numpy()
    before = np.concatenate([[0], np.cumsum(is_softmax[steps["operation"].to_numpy()])])
    fits = (
        is_product[first]
        & is_product[last]
        & (thread[first] == thread[last])
        & (last - first - 1 <= MAX_STEPS_BETWEEN)
        & (before[last] > before[first])
    )
    return list(zip(first[fits].tolist(), last[fits].tolist(), strict=True))


def _is_softmax(name: str) -> bool:
    is_named = _SOFTMAX in name and not any(word in name for word in _NO_SOFTMAX)
    return is_named or name.removesuffix("_") == _DECOMPOSED[0]


def _shape(steps: Sequence[Call]) -> Shape | None:
    """Return the sizes if the steps are attention, else None.

    In attention the softmax works on the result of the first product, along the dimension over
    which the second product sums.
    """
    (first, *between, last) = steps
    one, two = product_sizes(first.params), product_sizes(last.params)
    if one is None or two is None:
        return None
    (batch, n_q, n_kv, d_qk), (batch_v, rows, d_v, summed) = one, two
    if (batch, n_q, n_kv) != (batch_v, rows, summed):
        return None
    names = [step.name.removesuffix("_") for step in between]
    softmax = next((s for s in between if _SOFTMAX in s.name), None)
    if softmax is None:
        if not set(_DECOMPOSED) <= set(names):
            return None
        softmax = between[names.index(_DECOMPOSED[0])]
    scores = parsed(softmax.input_dims)[0]
    if tuple(scores[-2:]) != (n_q, n_kv) or int(np.prod(scores)) != batch * n_q * n_kv:
        return None
    heads = int(scores[1]) if len(scores) == 4 else None
    return Shape(batch // (heads or 1), heads, n_q, n_kv, d_qk, d_v, parsed(first.input_types)[0])


def fused_cost(shape: Shape) -> tuple[float | None, float | None, str | None]:
    """Return FLOPs, bytes and compute peak of one fused kernel for this call; None if unknown."""
    model = BUILTIN.find_model(FUSED_ATTENTION)
    assert model is not None
    heads = shape.heads or 1
    query = (shape.batch, heads, shape.n_q, shape.d_qk)
    key = (shape.batch, heads, shape.n_kv, shape.d_qk)
    value = (shape.batch, heads, shape.n_kv, shape.d_v)
    types = (shape.dtype,) * 3 + ("", "Scalar", "Scalar")
    call = OpSignature(
        FUSED_ATTENTION, (query, key, value, (), (), ()), types, (), ("", "", "", "0.", "False", "")
    )
    try:
        cost = model.cost(call).exact()
    except FORMULA_ERRORS:
        return None, None, None
    return cost.flops, cost.bytes, cost.compute


def attention_tables(
    order: LaunchOrder, attention: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables ``attention_groups`` (most time first) and ``attention_steps``.

    A group has the calls of one shape in one module.

    Args:
        attention: ``attention_members``.
    """
    placed = order.placed(attention)
    instances = placed.group_by("instance", maintain_order=True).agg(
        pl.col(*_GROUP[:-1], C.source_uid).first(),
        pl.col(C.name).alias(C.step_names),
        pl.col(C.kernel_count).sum(),
        pl.col(C.busy_ns).sum(),
    )
    groups = (
        instances.group_by(_GROUP, maintain_order=True)
        .agg(
            "instance",
            pl.len().cast(pl.Int64).alias(C.instance_count),
            pl.col(C.kernel_count).sum().cast(pl.Int64),
            microseconds(pl.col(C.busy_ns).sum()).alias(C.kernel_time_us),
            pl.col(C.source_uid).first().alias(C.example_uid),
        )
        .sort(C.kernel_time_us, C.example_uid, descending=[True, False])
        .with_columns(pl.int_range(1, pl.len() + 1).alias(C.group))
    )
    costs = [fused_cost(Shape(*row)) for row in groups.select(Shape._fields).iter_rows()]
    schema = {C.fused_flops: pl.Float64, C.fused_bytes: pl.Float64, C.compute: pl.String}
    priced = groups.hstack(pl.DataFrame(costs, schema=schema, orient="row"))
    return priced.drop("instance"), step_rows(placed, groups, C.group)


_GROUP = (C.scope_kind, C.scope_name, *Shape._fields, C.step_names)
"""Key columns of a group."""
