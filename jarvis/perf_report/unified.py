"""The unified ops: the highest op that a perf model covers, else the op that launches.

Every linked GPU event without communication belongs to exactly one of them; what no op covers
gets a row of its own, named after the call that launched it.
"""

from dataclasses import dataclass

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.perf_models import find_model
from jarvis.perf_report.calls import (
    ARGUMENTS,
    CALL_KEY,
    key_of,
    numbered,
    shares,
    statistics,
    with_kernel_details,
)
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.ops import with_op_category
from jarvis.perf_report.overlap import (
    Overlaps,
    overlap_statistics,
    with_overlap_details,
    with_overlaps,
)
from jarvis.perf_report.roofline import COST_SCHEMA, backward, costs, sheet_metrics
from jarvis.perf_report.work import COMMUNICATION, GpuWork
from jarvis.schemas import SPREAD
from jarvis.trace.tables import PYTHON_FUNCTION, RUNTIME_CATEGORIES

SYNTHETIC = "{}->{} (Synthetic Op)"
"""Name of a row for one GPU event: the call that launched it, and its own name."""

_FIRST_METRICS = ("gflops", "data_moved_mb", "flops_per_byte", "compute_spec", "perf_params")
_REPORT_ORDER = ("is_outside_python", "root_ts_ns", "root_order", "order")
_WRAPPER_LEVELS = 5
"""How far above an op its autograd wrapper may stand."""


@dataclass(frozen=True)
class UnifiedCalls:
    """``calls``: one row for each unified op in report order; ``work``: its GPU work.

    ``calls`` has ``uid`` (synthetic rows get one past the last event), ``source_uid`` (the host
    call that it stands for), ``name``, ``op_category``, thread, arguments as JSON text, ``dur_ns``,
    ``is_synthetic``, the columns of ``costs`` (null without a model) and ``kernel_time_us``.
    ``work`` has ``owner_uid`` (a ``uid`` of calls), ``link_index`` and the columns of GPU events.
    """

    calls: pl.DataFrame
    work: pl.DataFrame


def unified_calls(
    calls: pl.DataFrame,
    own_costs: pl.DataFrame,
    backward_links: pl.DataFrame,
    work: GpuWork,
    direct: pl.DataFrame,
    first_free_uid: int,
    strict: bool = False,
) -> UnifiedCalls:
    """Choose the unified ops of a trace.

    ``calls``: ``host_calls``; ``own_costs``: ``costs`` of them; ``direct``: ``direct_work``.
    """
    # A model that TraceLens lacks prices a row, but does not change which rows there are.
    modelled = own_costs.filter(pl.col("modelled") & pl.col("tracelens"))["uid"]
    tree = _features(calls, work, modelled)
    wrapped = _wrapped_backwards(tree, calls, modelled, backward_links, work, strict)
    collected = _collect(tree, wrapped["uid"])
    chosen = (
        calls.join(collected, on="uid")
        .sort(_REPORT_ORDER)
        .drop(_REPORT_ORDER)
        .with_columns(source_uid="uid", is_synthetic=pl.lit(False))
    )
    below = work.below(chosen["uid"])
    synthetic, synthetic_work = _uncovered(calls, work, below, first_free_uid)
    every = pl.concat([chosen, synthetic], how="diagonal")
    every_work = pl.concat([below, synthetic_work], how="diagonal")
    priced = _priced(with_op_category(every, direct), own_costs, wrapped)
    timed = priced.join(
        busy_ns(every_work, ["owner_uid"]),
        left_on="uid",
        right_on="owner_uid",
        how="left",
        maintain_order="left",
    ).with_columns(kernel_time_us=microseconds(pl.col("busy_ns").fill_null(0)))
    return UnifiedCalls(timed, every_work)


def _features(calls: pl.DataFrame, work: GpuWork, modelled: pl.Series) -> pl.DataFrame:
    """The call tree by ``order`` with what decides about each row.

    ``has_work`` and ``has_communication`` below it; ``is_modelled``; ``is_leaf``: it launches GPU
    work itself through runtime calls (driver calls do not count); ``has_modelled_below``.
    """
    launches = work.launches
    by_launch = launches["order"]
    by_communication = launches.filter(pl.col("kind") == COMMUNICATION)["order"]
    names = calls.select("uid", "name", "cat", "ts_ns")
    tree = work.call_tree.join(names, on="uid").sort("order")
    runtime = names.filter(pl.col("cat") == "cuda_runtime")["uid"]
    leaves = launches.filter(pl.col("launch_uid").is_in(runtime.implode()))["op_uid"].unique()
    first, end = tree["order"], tree["subtree_end"]
    is_op = pl.col("cat") == "cpu_op"
    tree = tree.with_columns(
        has_work=by_launch.search_sorted(end) > by_launch.search_sorted(first),
        has_communication=by_communication.search_sorted(end)
        > by_communication.search_sorted(first),
        is_modelled=is_op & pl.col("uid").is_in(modelled.implode()),
        is_leaf=is_op & pl.col("uid").is_in(leaves.implode()),
    )
    # Ops that run inside a runtime call are out of reach from above.
    is_runtime = pl.col("cat").is_in(RUNTIME_CATEGORIES)
    is_barrier = is_runtime & pl.col("op_uid").is_not_null()
    counted = pl.col("is_modelled") & pl.col("has_work") & ~_inside(is_barrier)
    upto = pl.concat([pl.Series([0]), tree.select(counted.cum_sum().cast(pl.Int64)).to_series()])
    return tree.with_columns(
        has_modelled_below=upto.gather(end) > upto.gather(first + 1),
        is_barrier=is_barrier,
    )


def _inside(condition: pl.Expr) -> pl.Expr:
    """Whether a row (by ``order``) has a proper ancestor for which ``condition`` holds."""
    reached = pl.when(condition).then("subtree_end").otherwise(0).cum_max().shift(1, fill_value=0)
    return reached > pl.col("order")


def _collect(tree: pl.DataFrame, wrapped: pl.Series) -> pl.DataFrame:
    """``uid`` of the ops to collect, with the columns of ``_REPORT_ORDER`` to sort them by.

    In a tree with Python functions, ops that run inside a runtime call are in reach too, and what
    runs below a Python function comes first.
    """
    is_wrapped = pl.col("uid").is_in(wrapped.implode())
    descends = (
        pl.col("has_work")
        & ~pl.col("is_modelled")
        & (pl.col("has_modelled_below") | ~(is_wrapped | pl.col("is_leaf")))
    )
    collects = pl.col("is_modelled") | is_wrapped | ~pl.col("has_communication")
    is_op = pl.col("cat") == "cpu_op"
    is_python_root = (pl.col("cat") == PYTHON_FUNCTION) & pl.col("parent_uid").is_null()
    has_python = tree.select((pl.col("cat") == PYTHON_FUNCTION).any()).item()
    stops = pl.when(is_op).then(~descends).otherwise(pl.lit(not has_python) & pl.col("is_barrier"))
    is_start = is_python_root | (pl.col("is_root") & ~pl.col("is_in_python"))
    return (
        tree.with_columns(is_in_python=_inside(is_python_root))
        .with_columns(
            root_order=pl.when(is_start).then("order").forward_fill(),
            root_ts_ns=pl.when(is_start).then("ts_ns").forward_fill(),
            is_visited=~_inside(stops),
        )
        .filter(is_op & pl.col("is_visited") & pl.col("has_work") & ~descends & collects)
        .filter(~pl.col("is_dropped"))
        .select(
            "uid", "order", "root_order", "root_ts_ns", is_outside_python=~pl.col("is_in_python")
        )
    )


def _wrapped_backwards(
    tree: pl.DataFrame,
    calls: pl.DataFrame,
    modelled: pl.Series,
    backward_links: pl.DataFrame,
    work: GpuWork,
    strict: bool,
) -> pl.DataFrame:
    """Ops that a forward op's model prices: ``uid, backward_category`` and the columns of costs.

    Such an op is the only one with GPU work below an autograd node that bears the node's name.
    """
    forwards = calls.filter(pl.col("uid").is_in(modelled.implode()))
    models = {name: find_model(name) for name in forwards["name"].unique()}
    categories = {
        name: model.backward_category for name, model in models.items() if model is not None
    }
    nodes = (
        backward_links.join(forwards.select("name", forward_uid="uid"), on="forward_uid")
        .with_columns(
            backward_category=pl.col("name").replace_strict(
                categories, default=None, return_dtype=pl.String
            )
        )
        .drop_nulls("backward_category")
        .select("forward_uid", "backward_category", uid="backward_uid")
        .join(tree.select("uid", "name", "order", "subtree_end", "depth"), on="uid")
        .select(
            "forward_uid",
            "backward_category",
            node_uid="uid",
            node_depth="depth",
            expected_name=pl.col("name").str.replace("^.*?: ", ""),
            order=pl.int_ranges(pl.col("order") + 1, "subtree_end"),
        )
        .explode("order")
        .drop_nulls("order")
    )
    named = (
        nodes.join(tree.filter((pl.col("cat") == "cpu_op") & pl.col("has_work")), on="order")
        .filter(pl.col("name") == pl.col("expected_name"))
        .filter(pl.len().over("node_uid") == 1)
        .filter(
            ~pl.col("is_modelled") & (pl.col("depth") - pl.col("node_depth") <= _WRAPPER_LEVELS)
        )
        .sort("node_depth")
        .unique("uid", keep="last", maintain_order=True)
    )
    forward_calls = calls.join(named.select(uid="forward_uid").unique(), on="uid")
    prices = costs(forward_calls, work.below(forward_calls["uid"]), backward, strict)
    return (
        named.select("uid", "forward_uid", "backward_category")
        .join(prices.rename({"uid": "forward_uid"}), on="forward_uid")
        .filter(pl.col("flops").is_not_null())
        .drop("forward_uid")
    )


def _uncovered(
    calls: pl.DataFrame, work: GpuWork, below: pl.DataFrame, first_free_uid: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows for linked GPU events, communication left out, that no collected op launched.

    Those without an op above their launch come first; each is named after its launch, or after
    the nearest op.
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
        .join(calls.rename({"uid": "source_uid"}), on="source_uid", maintain_order="left")
        .with_columns(name=pl.format(SYNTHETIC, "name", "kernel"), is_synthetic=pl.lit(True))
        .drop("kernel")
    )
    return rows, left.drop("has_op", "source_uid", "first_of_source", "uid")


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
        .with_columns(op_category=pl.coalesce("backward_category", "op_category"))
        .drop("backward_category")
    )


def unified_perf_summary(
    unified: UnifiedCalls,
    hardware: HardwareSpec | None,
    tracelens_models_only: bool,
    overlap: Overlaps | None = None,
) -> pl.DataFrame:
    """Unified ops by name, category, thread and arguments (schema: ``unified_perf_summary``).

    Columns of OPTIONAL_KEY that the calls have tell rows apart as well. ``overlap`` is that of the
    GPU work of the calls.
    """
    calls = unified.calls if overlap is None else with_overlaps(unified.calls, overlap)
    if tracelens_models_only:
        keep = pl.col("tracelens").fill_null(True)
        calls = calls.with_columns(
            pl.when(keep).then(column).alias(column) for column in COST_SCHEMA
        )
    key = key_of(calls, *CALL_KEY)
    rows = numbered(sheet_metrics(calls, hardware), key).with_columns(
        host_time_us=microseconds(pl.col("dur_ns"))
    )
    priced = ("pct_roofline",) if "pct_roofline" in rows.columns else ()
    first_priced = ("roofline_time_us", "roofline_bound") if priced else ()
    groups = rows.group_by("group", *key, maintain_order=True).agg(
        *(
            statistic
            for column in ("host_time_us", "kernel_time_us")
            for statistic in statistics(column, column, (*SPREAD, "sum"))
        ),
        *(
            statistic
            for column in ("tb_per_s", "tflops_per_s", *priced)
            for statistic in statistics(column, column, SPREAD)
        ),
        *(pl.col(column).drop_nulls().first() for column in (*_FIRST_METRICS, *first_priced)),
        *overlap_statistics(rows),
        ex_uid=pl.col("uid").first(),
        operation_count=pl.len(),
        has_perf_model=pl.col("modelled").first().fill_null(False),
    )
    return (
        with_overlap_details(with_kernel_details(groups, rows, unified.work), rows, overlap)
        .sort(["kernel_time_us_sum", "ex_uid"], descending=[True, False])
        .with_columns(*shares("kernel_time_us_sum"), *(tuples_text(name) for name in ARGUMENTS))
    )
