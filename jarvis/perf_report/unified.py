"""Unified ops: the outermost op that a perf model covers, else the op that launches.

Every linked GPU event except communication belongs to exactly one of them; an event that no op
covers gets its own row, named after the call that launched it.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report.call_tree.frames import has_any
from jarvis.perf_report.calls import (
    ARGUMENTS,
    HostCalls,
)
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.launchers import with_op_category
from jarvis.perf_report.roofline import COST_SCHEMA, backward, costs
from jarvis.perf_report.work import COMMUNICATION, GpuWork
from jarvis.trace.tables import RUNTIME_CATEGORIES

SYNTHETIC_END = " (Synthetic Op)"
SYNTHETIC = "{}->{}" + SYNTHETIC_END
"""Name of a row for one GPU event: the call that launched it, and the event."""

_REPORT_ORDER = ("is_outside_python", "root_ts_ns", "root_order", "order")
_PLACE = ("uid", "order", "subtree_end", "depth", "is_root", "is_dropped")
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
    modelled = own_costs.filter(pl.col("modelled") & pl.col("makes_row"))["uid"]
    tree = _features(calls, work, modelled)
    wrapped = _wrapped_backwards(tree, calls, modelled, backward_links, work, strict, registry)
    collected = _collect(tree, wrapped["uid"], calls)
    chosen = (
        calls.rows(collected["uid"])
        .join(collected, on="uid")
        .sort(_REPORT_ORDER)
        .drop(_REPORT_ORDER)
        .with_columns(source_uid="uid", is_synthetic=pl.lit(False))
    )
    below = work.below(chosen["uid"])
    synthetic, synthetic_work = _uncovered(calls, work, below, first_free_uid)
    every = pl.concat([chosen, synthetic], how="diagonal")
    every_work = pl.concat([below, synthetic_work], how="diagonal")
    priced = _priced(with_op_category(every, direct, registry), own_costs, wrapped)
    timed = priced.join(
        busy_ns(every_work, ["owner_uid"]),
        left_on="uid",
        right_on="owner_uid",
        how="left",
        maintain_order="left",
    ).with_columns(kernel_time_us=microseconds(pl.col("busy_ns").fill_null(0)))
    return UnifiedCalls(timed, every_work)


def _features(calls: HostCalls, work: GpuWork, modelled: pl.Series) -> pl.DataFrame:
    """Return the call tree by ``order`` with the features that select unified ops.

    ``has_work`` and ``has_communication`` below it; ``is_op``, ``is_python``, ``is_modelled``;
    ``is_leaf``: it launches GPU work directly through runtime calls (not driver calls);
    ``has_modelled_below``; ``is_barrier``: a runtime call inside an op.
    """
    launched = work.launches["order"].to_numpy()
    kinds = work.events["kind"].gather(work.launches["event"])
    runtime = calls.runtime.filter(pl.col("cat") == RUNTIME_CATEGORIES[0])["uid"]
    by_runtime = work.events.select("launch_uid", "op_uid").filter(_is_among("launch_uid", runtime))
    is_runtime = _is_among("uid", calls.runtime["uid"])
    is_op = _is_among("uid", calls.cpu_ops["uid"])
    tree = work.call_tree.select(
        *_PLACE,
        is_op=is_op,
        is_python=~(is_op | is_runtime),
        is_python_root=~(is_op | is_runtime) & pl.col("parent_uid").is_null(),
        is_modelled=is_op & _is_among("uid", modelled),
        is_leaf=is_op & _is_among("uid", by_runtime["op_uid"].drop_nulls()),
        # Ops inside a runtime call cannot be reached from above.
        is_barrier=is_runtime & pl.col("op_uid").is_not_null(),
    )
    order, end = tree["order"].to_numpy(), tree["subtree_end"].to_numpy()
    works = np.bincount(launched, minlength=tree.height)
    is_communication = (kinds == COMMUNICATION).to_numpy()
    communicates = np.bincount(launched[is_communication], minlength=tree.height)
    tree = tree.with_columns(
        has_work=has_any(works, order, end), has_communication=has_any(communicates, order, end)
    )
    counted = pl.col("is_modelled") & pl.col("has_work") & ~_inside(pl.col("is_barrier"))
    modelled_here = tree.select(counted).to_series().to_numpy()
    return tree.with_columns(has_modelled_below=has_any(modelled_here, order + 1, end))


def _is_among(column: str, uids: pl.Series) -> pl.Expr:
    return pl.col(column).is_in(uids.implode())


def _inside(condition: pl.Expr) -> pl.Expr:
    """Return whether a row (by ``order``) has a proper ancestor for which ``condition`` holds."""
    reached = pl.when(condition).then("subtree_end").otherwise(0).cum_max().shift(1, fill_value=0)
    return reached > pl.col("order")


def _collect(tree: pl.DataFrame, wrapped: pl.Series, calls: HostCalls) -> pl.DataFrame:
    """Return ``uid`` of the unified ops, with the columns of ``_REPORT_ORDER`` for sorting.

    In a tree with Python functions, ops inside a runtime call can be reached too, and calls below a
    Python function come first.
    """
    is_wrapped = _is_among("uid", wrapped)
    descends = (
        pl.col("has_work")
        & ~pl.col("is_modelled")
        & (pl.col("has_modelled_below") | ~(is_wrapped | pl.col("is_leaf")))
    )
    collects = pl.col("is_modelled") | is_wrapped | ~pl.col("has_communication")
    has_python = bool(tree["is_python"].any())
    stops = (
        pl.when("is_op").then(~descends).otherwise(pl.lit(not has_python) & pl.col("is_barrier"))
    )
    is_start = pl.col("is_python_root") | (pl.col("is_root") & ~pl.col("is_in_python"))
    ops = (
        tree.with_columns(is_in_python=_inside(pl.col("is_python_root")))
        .with_columns(
            root_order=pl.when(is_start).then("order").forward_fill(),
            is_visited=~_inside(stops),
        )
        .filter(pl.col("is_op") & pl.col("is_visited") & pl.col("has_work") & ~descends & collects)
        .filter(~pl.col("is_dropped"))
        .select("uid", "order", "root_order", is_outside_python=~pl.col("is_in_python"))
    )
    roots = tree["uid"].gather(ops["root_order"])
    starts = calls.select(roots.drop_nulls().unique(), "ts_ns").rename(
        {"uid": "root_uid", "ts_ns": "root_ts_ns"}
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
        .filter(pl.len().over("node_uid") == 1)
        .filter(
            ~pl.col("is_modelled") & (pl.col("depth") - pl.col("node_depth") <= _WRAPPER_LEVELS)
        )
        .sort("node_depth", maintain_order=True)
        .unique("uid", keep="last", maintain_order=True)
        .join(nodes.select("node_uid", "forward_uid", "backward_category"), on="node_uid")
        .select("uid", "forward_uid", "backward_category")
    )
    forward_calls = calls.select(named["forward_uid"].unique(), "name", *ARGUMENTS)
    prices = costs(forward_calls, work, backward, strict, registry=registry)
    return (
        named.join(prices.rename({"uid": "forward_uid"}), on="forward_uid")
        .filter(pl.col("flops").is_not_null())
        .drop("forward_uid")
    )


def _priced_nodes(
    calls: HostCalls, modelled: pl.Series, backward_links: pl.DataFrame, registry: Registry
) -> pl.DataFrame:
    """Return ``node_uid, forward_uid, backward_category`` of nodes whose forward op has a model."""
    links = backward_links.filter(_is_among("forward_uid", modelled))
    forwards = calls.select(links["forward_uid"].unique(), "name")
    models = {name: registry.find_model(name) for name in forwards["name"].unique()}
    categories = {
        name: model.backward_category for name, model in models.items() if model is not None
    }
    category = pl.col("name").replace_strict(categories, default=None, return_dtype=pl.String)
    return (
        links.join(forwards.rename({"uid": "forward_uid"}), on="forward_uid")
        .select("forward_uid", node_uid="backward_uid", backward_category=category)
        .drop_nulls("backward_category")
    )


def _namesakes(nodes: pl.DataFrame, tree: pl.DataFrame, calls: HostCalls) -> pl.DataFrame:
    """Return ops with GPU work below an autograd node of the same name.

    Columns: ``uid, depth, is_modelled, node_uid, node_depth``, by ``node_uid``.
    """
    places = tree.select("order", "subtree_end", node_uid="uid", node_depth="depth").filter(
        _is_among("node_uid", nodes["node_uid"])
    )
    names = calls.select(nodes["node_uid"], "name").select(
        node_uid="uid", expected_name=pl.col("name").str.replace("^.*?: ", "")
    )
    works = pl.col("is_op") & pl.col("has_work")
    working = tree.select("uid", "order", "depth", "is_modelled", works=works).filter("works")
    order = working["order"]
    spans = (
        places.select(
            "node_uid",
            "node_depth",
            first=order.search_sorted(places["order"], side="right"),
            last=order.search_sorted(places["subtree_end"]),
        )
        .filter(pl.col("first") < pl.col("last"))
        .select("node_uid", "node_depth", place=pl.int_ranges("first", "last", dtype=pl.UInt32))
        .explode("place")
    )
    below = spans.drop("place").hstack(working.drop("order", "works")[spans["place"]])
    op_names = calls.select(below["uid"].unique(), "name")
    return (
        below.join(names, on="node_uid")
        .join(op_names, on="uid")
        .filter(pl.col("name") == pl.col("expected_name"))
        .drop("name", "expected_name")
        .sort("node_uid", "uid")
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
            (pl.col("kind") != COMMUNICATION) & ~pl.col("uid").is_in(below["gpu_uid"].implode())
        )
        .with_columns(
            has_op=pl.col("op_uid").is_not_null(), source_uid=pl.coalesce("op_uid", "launch_uid")
        )
        .with_columns(first_of_source=pl.col("uid").min().over("source_uid"))
        .sort("has_op", "first_of_source", "uid")
        .with_columns(owner_uid=first_free_uid + pl.int_range(pl.len()), gpu_uid="uid")
    )
    rows = (
        left.select("source_uid", uid="owner_uid", kernel="name")
        .join(
            calls.rows(left["source_uid"].unique()).rename({"uid": "source_uid"}),
            on="source_uid",
            maintain_order="left",
        )
        .with_columns(
            name=pl.format(SYNTHETIC, "name", "kernel").cast(pl.Categorical),
            is_synthetic=pl.lit(True),
        )
        .drop("kernel")
    )
    return rows, left.select(c for c in below.columns if c in left.columns)


def _priced(every: pl.DataFrame, own_costs: pl.DataFrame, wrapped: pl.DataFrame) -> pl.DataFrame:
    own = own_costs.filter(~pl.col("uid").is_in(wrapped["uid"].implode()))
    prices = pl.concat([own.filter("modelled"), wrapped.select("uid", *COST_SCHEMA)])
    return (
        every.join(prices, on="uid", how="left", maintain_order="left")
        .join(
            wrapped.select("uid", "backward_category"),
            on="uid",
            how="left",
            maintain_order="left",
        )
        .with_columns(
            op_category=pl.coalesce(
                pl.col("backward_category").cast(pl.Categorical), pl.col("op_category")
            )
        )
        .drop("backward_category")
    )
