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

from jarvis.core.arrays import Bools, Int64s
from jarvis.perf_report.fusion.data_flow import Shape, Traffic, flows, is_part, is_related
from jarvis.perf_report.fusion.launch_order import Call, LaunchOrder, members, step_rows
from jarvis.perf_report.fusion.scopes import MAX_STEPS
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text
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


_CHAIN = (C.scope_kind, C.scope_name, C.is_bounded, C.product_name, C.step_names)
"""Key columns of a chain."""

_PRODUCT = (C.product_name, C.product_dims, C.product_types, C.product_kernel)


def fusion_tables(
    order: LaunchOrder, chains: pl.DataFrame, epilogues: pl.DataFrame, feeding: pl.Series
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables ``fusion_chains``, most time first, and ``fusion_steps``.

    Args:
        chains: ``chain_members``.
        epilogues: ``epilogue_members``.
        feeding: Instances of chains that feed attention.
    """
    placed = order.placed(pl.concat([chains, epilogues], how="diagonal"))
    feeds = pl.col("instance").is_in(feeding.implode())
    groups = (
        _with_products(order, placed)
        .group_by(_CHAIN, maintain_order=True)
        .agg(
            pl.col("instance"),
            pl.col(C.has_data_flow).all(),
            pl.col(_PRODUCT[1:]).first(),
            **{
                C.instance_count: pl.len().cast(pl.Int64),
                C.scope_calls: pl.col("scope")
                .filter(pl.col("scope") >= 0)
                .n_unique()
                .cast(pl.Int64),
                C.kernel_count: pl.col(C.kernel_count).sum().cast(pl.Int64),
                C.kernel_time_us: microseconds(pl.col(C.busy_ns).sum()),
                C.product_time_us: microseconds(pl.col("product_ns").sum()),
                C.kept_count: pl.col("is_kept").sum().cast(pl.Int64),
                C.attention_count: feeds.sum().cast(pl.Int64),
                C.attention_time_us: microseconds(pl.col(C.busy_ns).filter(feeds).sum()),
                C.modelled_pct: 100 * pl.col(C.modelled_ns).sum() / pl.col(C.busy_ns).sum(),
                C.step_bytes: pl.col(C.step_bytes).sum(),
                C.fused_bytes: pl.when(pl.col(C.fused_bytes).null_count() == 0)
                .then(pl.col(C.fused_bytes).sum())
                .cast(pl.Float64),
                C.flops: pl.col(C.flops).sum(),
                C.compute: pl.col(C.compute).first(),
                C.input_dims: pl.col(C.input_dims).first(),
                C.example_uid: pl.col(C.source_uid).first(),
            },
        )
        .sort(C.kernel_time_us, C.example_uid, descending=[True, False])
        .with_columns(pl.int_range(1, pl.len() + 1).alias(C.chain))
        .with_columns(tuples_text(c) for c in (C.input_dims, C.product_dims, C.product_types))
    )
    return groups.drop("instance"), step_rows(placed, groups, C.chain)


def _with_products(order: LaunchOrder, placed: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each instance, with the product before an epilogue."""
    instances = placed.group_by("instance", maintain_order=True).agg(
        pl.col(C.scope_kind, C.scope_name, C.is_bounded, C.has_data_flow, C.fused_bytes).first(),
        pl.col("scope", C.source_uid, C.input_dims, "product", "is_kept").first(),
        **{
            C.step_names: pl.col(C.name),
            C.kernel_count: pl.col(C.kernel_count).sum(),
            C.busy_ns: pl.col(C.busy_ns).sum(),
            C.modelled_ns: pl.col(C.busy_ns).filter(pl.col(C.exact_bytes).is_not_null()).sum(),
            C.step_bytes: pl.col(C.exact_bytes).sum(),
            C.flops: pl.col(C.exact_flops).sum(),
            C.compute: pl.col(C.compute_spec).sort_by(C.exact_flops, maintain_order=True).last(),
        },
    )
    places = instances["product"].drop_nulls()
    steps = order.steps[places]
    called = order.operations[steps["operation"]]
    products = pl.DataFrame(
        {
            "product": places,
            C.product_name: called[C.name],
            C.product_dims: called[C.input_dims],
            C.product_types: called[C.input_types],
            C.product_kernel: steps[C.kernel],
            "product_ns": steps[C.busy_ns],
        }
    )
    return instances.join(products, on="product", how="left", maintain_order="left")
