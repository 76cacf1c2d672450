"""Unified ops: the outermost op that a perf model covers, else the op that launches.

Every linked GPU event except communication belongs to exactly one of them; an event that no op
covers gets its own row, named after the call that launched it.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.arrays import has_any
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report.calls import (
    ARGUMENTS,
    HostCalls,
)
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.launchers import with_op_category
from jarvis.perf_report.roofline import COST_SCHEMA, backward, costs
from jarvis.perf_report.work import COMMUNICATION, GpuWork
from jarvis.schemas.names import C
from jarvis.text.short_names import SYNTHETIC
from jarvis.trace.links import CAPTURE_ROOT, GRAPH_LAUNCHES
from jarvis.trace.tables import RUNTIME_CATEGORIES

_REPORT_ORDER = ("is_outside_python", "root_ts_ns", "root_order", "order")
_PLACE = (C.uid, "order", C.subtree_end, C.depth, C.is_root, C.is_dropped)
_WRAPPER_LEVELS = 5
"""Maximum levels between an op and its autograd wrapper."""


@dataclass(frozen=True)
class UnifiedCalls:
    """Unified ops and their GPU work.

    ``calls`` has a row for each unified op in report order: ``uid`` (above all events for synthetic
    rows), ``source_uid`` (its host call), ``name``, ``op_category``, thread, arguments as JSON
    text, ``dur_ns``, ``is_synthetic``, the columns of ``costs`` (null without a model) and
    ``kernel_time_us``. ``work`` has ``owner_uid`` (a ``uid`` of calls) and the columns of
    ``GpuWork.below``.
    """

    calls: pl.DataFrame
    work: pl.DataFrame


def unified_calls(
    calls: HostCalls,
    own_costs: pl.DataFrame,
    backward_links: pl.DataFrame,
    work: GpuWork,
    direct: pl.DataFrame,
    first_free_uid: int,
    strict: bool = False,
    registry: Registry = BUILTIN,
) -> UnifiedCalls:
    """Return the unified ops of a trace.

    Args:
        own_costs: ``costs`` of the cpu ops.
        backward_links: ``Trace.backwards``.
        direct: ``direct_work``.
        first_free_uid: First uid of synthetic rows.
    """
    modelled = own_costs.filter(pl.col(C.modelled) & pl.col("makes_row"))[C.uid]
    tree = _features(calls, work, modelled)
    wrapped = _wrapped_backwards(tree, calls, modelled, backward_links, work, strict, registry)
    collected = _collect(tree, wrapped[C.uid], calls)
    chosen = (
        calls.rows(collected[C.uid])
        .join(collected, on=C.uid)
        .sort(_REPORT_ORDER, maintain_order=True)
        .drop(_REPORT_ORDER)
        .with_columns(pl.col(C.uid).alias(C.source_uid), pl.lit(False).alias(C.is_synthetic))
    )
    below = work.below(chosen[C.uid])
    synthetic, synthetic_work = _uncovered(calls, work, below, first_free_uid)
    every = pl.concat([chosen, synthetic], how="diagonal")
    every_work = pl.concat([below, synthetic_work], how="diagonal")
    all_costs = pl.concat([own_costs, _synthetic_costs(synthetic, strict, registry)])
    priced = _priced(with_op_category(every, direct, registry), all_costs, wrapped)
    timed = priced.join(
        busy_ns(every_work, [C.owner_uid]),
        left_on=C.uid,
        right_on=C.owner_uid,
        how="left",
        maintain_order="left",
    ).with_columns(microseconds(pl.col(C.busy_ns).fill_null(0)).alias(C.kernel_time_us))
    return UnifiedCalls(timed, every_work)


def _features(calls: HostCalls, work: GpuWork, modelled: pl.Series) -> pl.DataFrame:
    """Return the call tree by ``order`` with the features that select unified ops.

    ``has_work`` and ``has_communication`` below it; ``is_op``, ``is_python``, ``is_modelled``;
    ``is_leaf``: it launches GPU work directly through runtime calls (not driver calls);
    ``has_modelled_below``; ``is_barrier``: a runtime call inside an op.
    """
    launched = work.launches["order"].to_numpy()
    kinds = work.events[C.kind].gather(work.launches["event"])
    runtime = calls.runtime.filter(pl.col(C.cat) == RUNTIME_CATEGORIES[0])[C.uid]
    by_runtime = work.events.select(C.launch_uid, C.op_uid).filter(_is_among(C.launch_uid, runtime))
    graphs = calls.runtime.filter(pl.col(C.name).is_in([*GRAPH_LAUNCHES, CAPTURE_ROOT]))[C.uid]
    is_runtime = _is_among(C.uid, calls.runtime[C.uid])
    is_op = _is_among(C.uid, calls.cpu_ops[C.uid])
    tree = work.call_tree.select(
        *_PLACE,
        is_op=is_op,
        is_python=~(is_op | is_runtime),
        is_python_root=~(is_op | is_runtime) & pl.col(C.parent_uid).is_null(),
        **{C.is_modelled: is_op & _is_among(C.uid, modelled)},
        is_leaf=is_op & _is_among(C.uid, by_runtime[C.op_uid].drop_nulls()),
        # Ops inside a runtime call cannot be reached from above, except captured ones.
        is_barrier=is_runtime & pl.col(C.op_uid).is_not_null() & ~_is_among(C.uid, graphs),
    )
    order, end = tree["order"].to_numpy(), tree[C.subtree_end].to_numpy()
    works = np.bincount(launched, minlength=tree.height)
    is_communication = (kinds == COMMUNICATION).to_numpy()
    communicates = np.bincount(launched[is_communication], minlength=tree.height)
    tree = tree.with_columns(
        has_work=has_any(works, order, end), has_communication=has_any(communicates, order, end)
    )
    counted = pl.col(C.is_modelled) & pl.col("has_work") & ~_inside(pl.col("is_barrier"))
    modelled_here = tree.select(counted).to_series().to_numpy()
    return tree.with_columns(has_modelled_below=has_any(modelled_here, order + 1, end))


def _is_among(column: str, uids: pl.Series) -> pl.Expr:
    return pl.col(column).is_in(uids.implode())


def _inside(condition: pl.Expr) -> pl.Expr:
    """Return whether a row (by ``order``) has a proper ancestor for which ``condition`` holds."""
    reached = pl.when(condition).then(C.subtree_end).otherwise(0).cum_max().shift(1, fill_value=0)
    return reached > pl.col("order")


def _collect(tree: pl.DataFrame, wrapped: pl.Series, calls: HostCalls) -> pl.DataFrame:
    """Return ``uid`` of the unified ops, with the columns of ``_REPORT_ORDER`` for sorting.

    In a tree with Python functions, ops inside a runtime call can be reached too, and calls below a
    Python function come first.
    """
    is_wrapped = _is_among(C.uid, wrapped)
    descends = (
        pl.col("has_work")
        & ~pl.col(C.is_modelled)
        & (pl.col("has_modelled_below") | ~(is_wrapped | pl.col("is_leaf")))
    )
    collects = pl.col(C.is_modelled) | is_wrapped | ~pl.col("has_communication")
    has_python = bool(tree["is_python"].any())
    stops = (
        pl.when("is_op").then(~descends).otherwise(pl.lit(not has_python) & pl.col("is_barrier"))
    )
    is_start = pl.col("is_python_root") | (pl.col(C.is_root) & ~pl.col("is_in_python"))
    ops = (
        tree.with_columns(is_in_python=_inside(pl.col("is_python_root")))
        .with_columns(
            root_order=pl.when(is_start).then("order").forward_fill(),
            is_visited=~_inside(stops),
        )
        .filter(pl.col("is_op") & pl.col("is_visited") & pl.col("has_work") & ~descends & collects)
        .filter(~pl.col(C.is_dropped))
        .select(C.uid, "order", "root_order", is_outside_python=~pl.col("is_in_python"))
    )
    roots = tree[C.uid].gather(ops["root_order"])
    starts = calls.select(roots.drop_nulls().unique(), C.ts_ns).rename(
        {C.uid: "root_uid", C.ts_ns: "root_ts_ns"}
    )
    return (
        ops.with_columns(root_uid=roots)
        .join(starts, on="root_uid", how="left", maintain_order="left")
        .drop("root_uid")
    )


def _wrapped_backwards(
    tree: pl.DataFrame,
    calls: HostCalls,
    modelled: pl.Series,
    backward_links: pl.DataFrame,
    work: GpuWork,
    strict: bool,
    registry: Registry,
) -> pl.DataFrame:
    """Return ``uid, backward_category`` and costs of ops that a forward op's model covers.

    Such an op is the only one with GPU work below an autograd node that has the node's name.
    """
    nodes = _priced_nodes(calls, modelled, backward_links, registry)
    named = (
        _namesakes(nodes, tree, calls)
        .filter(pl.len().over(C.node_uid) == 1)
        .filter(
            ~pl.col(C.is_modelled) & (pl.col(C.depth) - pl.col("node_depth") <= _WRAPPER_LEVELS)
        )
        .sort("node_depth", maintain_order=True)
        .unique(C.uid, keep="last", maintain_order=True)
        .join(nodes.select(C.node_uid, C.forward_uid, "backward_category"), on=C.node_uid)
        .select(C.uid, C.forward_uid, "backward_category")
    )
    forward_calls = calls.select(named[C.forward_uid].unique(), C.name, *ARGUMENTS)
    prices = costs(forward_calls, work, backward, strict, registry=registry)
    return (
        named.join(prices.rename({C.uid: C.forward_uid}), on=C.forward_uid)
        .filter(pl.col(C.flops).is_not_null())
        .drop(C.forward_uid)
    )


def _priced_nodes(
    calls: HostCalls, modelled: pl.Series, backward_links: pl.DataFrame, registry: Registry
) -> pl.DataFrame:
    """Return ``node_uid, forward_uid, backward_category`` of nodes whose forward op has a model."""
    links = backward_links.filter(_is_among(C.forward_uid, modelled))
    forwards = calls.select(links[C.forward_uid].unique(), C.name)
    models = {name: registry.find_model(name) for name in forwards[C.name].unique()}
    categories = {
        name: model.backward_category for name, model in models.items() if model is not None
    }
    category = pl.col(C.name).replace_strict(categories, default=None, return_dtype=pl.String)
    return (
        links.join(forwards.rename({C.uid: C.forward_uid}), on=C.forward_uid)
        .select(C.forward_uid, pl.col(C.backward_uid).alias(C.node_uid), backward_category=category)
        .drop_nulls("backward_category")
    )


def _namesakes(nodes: pl.DataFrame, tree: pl.DataFrame, calls: HostCalls) -> pl.DataFrame:
    """Return ops with GPU work below an autograd node of the same name.

    Columns: ``uid, depth, is_modelled, node_uid, node_depth``, by ``node_uid``.
    """
    places = tree.select(
        "order", C.subtree_end, pl.col(C.uid).alias(C.node_uid), node_depth=C.depth
    ).filter(_is_among(C.node_uid, nodes[C.node_uid]))
    names = calls.select(nodes[C.node_uid], C.name).select(
        pl.col(C.uid).alias(C.node_uid), expected_name=pl.col(C.name).str.replace("^.*?: ", "")
    )
    works = pl.col("is_op") & pl.col("has_work")
    working = tree.select(C.uid, "order", C.depth, C.is_modelled, works=works).filter("works")
    order = working["order"]
    spans = (
        places.select(
            C.node_uid,
            "node_depth",
            first=order.search_sorted(places["order"], side="right"),
            last=order.search_sorted(places[C.subtree_end]),
        )
        .filter(pl.col("first") < pl.col("last"))
        .select(
            C.node_uid, "node_depth", pl.int_ranges("first", "last", dtype=pl.UInt32).alias(C.place)
        )
        .explode(C.place)
    )
    below = spans.drop(C.place).hstack(working.drop("order", "works")[spans[C.place]])
    op_names = calls.select(below[C.uid].unique(), C.name)
    return (
        below.join(names, on=C.node_uid)
        .join(op_names, on=C.uid)
        .filter(pl.col(C.name) == pl.col("expected_name"))
        .drop(C.name, "expected_name")
        .sort(C.node_uid, C.uid)
    )


def _uncovered(
    calls: HostCalls, work: GpuWork, below: pl.DataFrame, first_free_uid: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return rows, and their work, for linked GPU events that no unified op covers.

    Communication is excluded. Events without an op above their launch come first; rows are named
    after the nearest op, else after the launch.
    """
    left = (
        work.linked.filter(
            (pl.col(C.kind) != COMMUNICATION) & ~pl.col(C.uid).is_in(below[C.gpu_uid].implode())
        )
        .with_columns(
            has_op=pl.col(C.op_uid).is_not_null(),
            **{C.source_uid: pl.coalesce(C.op_uid, C.launch_uid)},
        )
        .with_columns(first_of_source=pl.col(C.uid).min().over(C.source_uid))
        .sort("has_op", "first_of_source", C.uid)
        .with_columns(
            (first_free_uid + pl.int_range(pl.len())).alias(C.owner_uid),
            pl.col(C.uid).alias(C.gpu_uid),
        )
    )
    rows = (
        left.select(C.source_uid, pl.col(C.owner_uid).alias(C.uid), pl.col(C.name).alias(C.kernel))
        .join(
            calls.rows(left[C.source_uid].unique()).rename({C.uid: C.source_uid}),
            on=C.source_uid,
            maintain_order="left",
        )
        .with_columns(
            pl.format(SYNTHETIC, "name", "kernel").cast(pl.Categorical).alias(C.name),
            pl.lit(True).alias(C.is_synthetic),
        )
        .drop(C.kernel)
    )
    return rows, left.select(c for c in below.columns if c in left.columns)


def _synthetic_costs(rows: pl.DataFrame, strict: bool, registry: Registry) -> pl.DataFrame:
    """Return ``costs`` of the synthetic rows with a model of exactly their name."""
    models = {name: registry.find_model(name) for name in rows[C.name].unique()}
    named = [name for name, model in models.items() if model is not None and model.name == name]
    return costs(rows.filter(pl.col(C.name).is_in(named)), strict=strict, registry=registry)


def _priced(every: pl.DataFrame, own_costs: pl.DataFrame, wrapped: pl.DataFrame) -> pl.DataFrame:
    own = own_costs.filter(~pl.col(C.uid).is_in(wrapped[C.uid].implode()))
    prices = pl.concat([own.filter(C.modelled), wrapped.select(C.uid, *COST_SCHEMA)])
    return (
        every.join(prices, on=C.uid, how="left", maintain_order="left")
        .join(
            wrapped.select(C.uid, "backward_category"),
            on=C.uid,
            how="left",
            maintain_order="left",
        )
        .with_columns(
            pl.coalesce(
                pl.col("backward_category").cast(pl.Categorical), pl.col(C.op_category)
            ).alias(C.op_category)
        )
        .drop("backward_category")
    )
