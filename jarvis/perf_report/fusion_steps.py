"""The calls that launch GPU work, in launch order: what can be fused, and inside which frame.

A step is a row of the unified calls. Steps that a fused kernel could contain are told from those
that end a chain: matrix products, convolutions, attention, kernels that are fused already,
communication, copies. A frame (module, function or operator) of which all steps can be fused is
their scope; a step without one has the nearest frame that holds other steps too.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.perf_report.calls import HostCalls
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.perf_report.work import COMMUNICATION, COMPUTE
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

MAX_STEPS = 15
"""A frame with more steps drives many kernels, it is no chain that one kernel could replace."""

GEMM = "GEMM"
MODULE, FUNCTION, OPERATOR, SEQUENCE = "module", "function", "operator", "sequence"
MODULE_PREFIX = "nn.Module: "

_FUSIBLE_CATEGORIES = ("elementwise", "reduce")
# Normalizations of rows only: batch statistics need all data before the first result.
_FUSIBLE_OPS = (
    r"^aten::((native_)?layer_norm|rms_norm|cat|stack|_?(safe_)?softmax|_softmax_backward_data|_?log_softmax"
    r"|_log_softmax_backward_data|masked_fill_?|native_dropout(_backward)?)$"
)
_FUSED = r"(?i)triton|flash|fmha|attn_(fwd|bwd)|paged_attention|_and_mul|fused_|foreach"
_DROPOUT = "fused_dropout"  # fused with its random numbers, not with its neighbours
_BUILT_IN = "<built-in"
_CALL_FRAMES = 4
"""How many calls may stand between a module and its code."""

_NO_PARENT = -1

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


def fusion_steps(
    of: UnifiedCalls, gpu_events: pl.DataFrame, tree: pl.DataFrame, host_calls: HostCalls
) -> pl.DataFrame:
    """One row for each step in launch order, thread by thread.

    ``of``: ``grouped`` unified calls, which hold no communication: that of ``gpu_events``
    (``GpuWork.events``) makes steps of its own, with little more than a place. ``tree`` and
    ``host_calls``: with Python functions where the trace has them.

    Columns: those of the calls, ``order``, ``thread``, ``stream``, ``kernel_names``, ``can_fuse``,
    ``scope`` (position in the tree, -1 for none), ``is_bounded`` (the scope holds nothing else),
    ``scope_kind``, ``scope_name``.
    """
    places = tree.filter(~pl.col("is_dropped")).select("order", source_uid="uid")
    communication = gpu_events.filter(pl.col("kind") == COMMUNICATION).select(
        source_uid="launch_uid"
    )
    calls = of.calls.join(_launched(of.work), on="uid").with_columns(can_fuse=_can_fuse())
    steps = (
        pl.concat([calls, communication.unique()], how="diagonal")
        .join(places, on="source_uid")
        .with_columns(pl.col("can_fuse").fill_null(value=False))
        .sort("order", "uid")
    )
    threads = host_calls.select(steps["source_uid"].unique(), "pid", "tid")
    threads = threads.select(source_uid="uid", thread=pl.struct("pid", "tid").rank("dense"))
    steps = steps.join(threads, on="source_uid", how="left", maintain_order="left")
    return steps.hstack(_scopes(steps, tree, host_calls))


def placed_steps(steps: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """The rows of ``steps`` that ``members`` (``step, instance, ...``) name, in launch order.

    Texts are strings.
    """
    texts = ("name", "input_dims", "input_types", "compute_spec")
    return (
        steps.with_row_index("step")
        .with_columns(pl.col("step").cast(pl.Int64), *(pl.col(c).cast(pl.String) for c in texts))
        .join(members, on="step")
        .sort("step")
    )


def step_rows(placed: pl.DataFrame, groups: pl.DataFrame, group: str) -> pl.DataFrame:
    """A row for each operation at each position of a group of instances.

    ``groups``: the number ``group`` and the ``instance`` list of each; ``placed``:
    ``placed_steps``.
    """
    return (
        placed.drop(group, strict=False)  # calls have groups of their own
        .join(groups.select(group, "instance").explode("instance"), on="instance")
        .group_by(group, "position", "operation_uid", maintain_order=True)
        .agg(
            pl.col("name", "input_dims", "input_types").first(),
            kernel=pl.col("kernel_names").first().list.first(),
            calls=pl.len().cast(pl.Int64),
            kernel_time_us=microseconds(pl.col("busy_ns").sum()),
            bytes=pl.col("exact_bytes").first(),
        )
        .sort(group, "position", "operation_uid")
        .with_columns(tuples_text("input_dims"), tuples_text("input_types"))
    )


def _launched(work: pl.DataFrame) -> pl.DataFrame:
    """``uid, kernel_names, stream, is_compute`` of the calls with GPU work."""
    return (
        work.unique(["owner_uid", "gpu_uid"], maintain_order=True)
        .group_by(uid="owner_uid")
        .agg(
            kernel_names="name",
            stream=pl.col("stream").first(),
            is_compute=(pl.col("kind") == COMPUTE).all(),
        )
    )


def _can_fuse() -> pl.Expr:
    name, kernels = pl.col("name").cast(pl.String), pl.col("kernel_names").list.join("\n")
    is_known = pl.col("op_category").cast(pl.String).is_in(_FUSIBLE_CATEGORIES)
    kernels = kernels.str.replace_all(_DROPOUT, "", literal=True)
    is_fused = name.str.contains(_FUSED) | kernels.str.contains(_FUSED)
    has_shapes = pl.col("input_dims").is_not_null()
    return (
        pl.col("is_compute")
        & has_shapes
        & ~pl.col("is_synthetic")
        & (is_known | name.str.contains(_FUSIBLE_OPS))
        & ~is_fused
    )


def _scopes(steps: pl.DataFrame, tree: pl.DataFrame, host_calls: HostCalls) -> pl.DataFrame:
    """``scope, is_bounded, scope_kind, scope_name`` of each step."""
    order, end = tree["order"].to_numpy(), tree["subtree_end"].to_numpy()
    at = steps["order"].to_numpy()
    first, last = np.searchsorted(at, order, "right"), np.searchsorted(at, end, "left")
    inside = last - first
    ends_chain = np.concatenate([[0], np.cumsum(~steps["can_fuse"].to_numpy())])
    is_pure = (ends_chain[last] == ends_chain[first]) & (inside >= 2) & (inside <= MAX_STEPS)
    is_pure &= ~tree["is_dropped"].to_numpy()
    frames = _named(tree, np.flatnonzero(is_pure), host_calls)
    bounded = _bounded(frames, first, inside, steps.height)
    nearest = _nearest(tree, at, inside)
    scope = np.where(bounded >= 0, bounded, nearest)
    named = _labelled(tree, np.unique(scope[scope >= 0]), host_calls)
    return (
        pl.DataFrame({"scope": scope, "is_bounded": bounded >= 0})
        .join(named, on="scope", how="left", maintain_order="left")
        .with_columns(pl.col("scope_kind").fill_null(SEQUENCE))
    )


def _named(tree: pl.DataFrame, positions: Int64s, host_calls: HostCalls) -> pl.DataFrame:
    """``scope, name, kind`` of the frames at these positions; no runtime calls, no built-ins."""
    uids = tree["uid"].gather(positions)
    rows = pl.DataFrame({"uid": uids, "scope": positions})
    category = pl.col("cat").cast(pl.String)
    name = pl.col("name").cast(pl.String)
    return (
        host_calls.select(uids, "name", "cat")
        .filter(
            (category == CPU_OP)
            | ((category == PYTHON_FUNCTION) & ~name.str.starts_with(_BUILT_IN))
        )
        .join(rows, on="uid")
        .select(
            "scope",
            name=name,
            kind=pl.when(category == CPU_OP)
            .then(pl.lit(OPERATOR))
            .when(name.str.starts_with(MODULE_PREFIX))
            .then(pl.lit(MODULE))
            .otherwise(pl.lit(FUNCTION)),
        )
        .sort("scope")
    )


def _bounded(frames: pl.DataFrame, first: Int64s, inside: Int64s, step_count: int) -> Int64s:
    """For each step the frame that bounds its chain: the innermost module, else the outermost
    function or operator; -1 for none."""
    scope = frames["scope"].to_numpy()
    pairs = (
        pl.DataFrame(
            {
                "scope": scope,
                "step": first[scope],
                "end": first[scope] + inside[scope],
                "is_module": frames["kind"] == MODULE,
            },
            schema_overrides={"step": pl.Int64, "end": pl.Int64},
        )
        .with_columns(step=pl.int_ranges("step", "end"))
        .explode("step")
    )
    module = pl.col("scope").filter("is_module").max()
    chosen = pairs.group_by("step").agg(scope=pl.coalesce(module, pl.col("scope").min()))
    found = np.full(step_count, _NO_PARENT, dtype=np.int64)
    found[chosen["step"].to_numpy()] = chosen["scope"].to_numpy()
    return found


def _nearest(tree: pl.DataFrame, at: Int64s, inside: Int64s) -> Int64s:
    """For each step at ``at`` the nearest frame above with more than one step; -1 for none."""
    parent = _parents(tree)
    here = parent[at]
    while (climbs := (here >= 0) & (inside[here] < 2)).any():
        here[climbs] = parent[here[climbs]]
    return here


def _parents(tree: pl.DataFrame) -> Int64s:
    """The position of each frame's parent; -1 for none."""
    uid = tree["uid"].to_numpy()
    position = np.full(int(uid.max(initial=0)) + 1, _NO_PARENT, dtype=np.int64)
    position[uid] = tree["order"].to_numpy()
    parent = tree["parent_uid"].fill_null(_NO_PARENT).to_numpy()
    return np.where(parent >= 0, position[parent], _NO_PARENT)


def _labelled(tree: pl.DataFrame, scopes: Int64s, host_calls: HostCalls) -> pl.DataFrame:
    """``scope, scope_kind, scope_name``: names without the number of the instance.

    The code of a module runs in functions below it (``_call_impl``, ``forward``): where nothing
    else is in the module, it gives the name.
    """
    parent, end = _parents(tree), tree["subtree_end"].to_numpy()
    above = scopes.copy()
    chain = [scopes]
    for _ in range(_CALL_FRAMES):
        next_above = np.where(above >= 0, parent[above], _NO_PARENT)
        fits = (next_above >= 0) & (end[next_above] == end[above])
        above = np.where(fits, next_above, above)
        chain.append(above)
    named = _named(tree, np.unique(np.concatenate(chain)), host_calls)
    names = {scope: (name, kind) for scope, name, kind in named.iter_rows()}
    rows = []
    for levels in zip(*chain, strict=True):
        known = [names[level] for level in levels if level in names]
        if known:
            name, kind = next((n for n in known if n[1] == MODULE), known[0])
            rows.append((levels[0], kind, _base_name(name, kind)))
    return pl.DataFrame(
        rows,
        schema={"scope": pl.Int64, "scope_kind": pl.String, "scope_name": pl.String},
        orient="row",
    )


def _base_name(name: str, kind: str) -> str:
    """``nn.Module: RMSNorm_3`` -> ``RMSNorm``; ``model.py(61): rotate_half`` -> ``rotate_half``."""
    if kind == MODULE:
        base, _, number = name.removeprefix(MODULE_PREFIX).rpartition("_")
        return base if base and number.isdigit() else name.removeprefix(MODULE_PREFIX)
    return name.rpartition(": ")[2] if kind == FUNCTION else name
