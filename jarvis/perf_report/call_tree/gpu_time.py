"""GPU time by launching call: a tree of calls merged by name and position, with kernels as leaves.

An autograd node is moved under the module or Python frame of the op that it differentiates, if the
trace links the two and the node has no Python frame of its own. A module that runs again below an
autograd node (activation checkpointing computes it again) is moved to where it ran before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import polars as pl

from jarvis.core.arrays import Bools, Int64s, has_any, in_any
from jarvis.perf_report.call_tree.frames import NONE, depths, merge
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.perf_report.calls import HostCalls
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.schemas.names import C
from jarvis.trace.links import BACKWARD_PREFIX
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

UNLINKED_NAME = "Launch not recorded"
"""Name of the node for GPU work without a recorded launch."""


class NodeKind(IntEnum):
    """Kinds of nodes."""

    ROOT = 0
    MODULE = 1
    PYTHON = 2
    OP = 3
    RUNTIME = 4
    KERNEL = 5
    REST = 6
    UNLINKED = 7

    @property
    def word(self) -> str:
        """Name of the kind in tables."""
        return self.name.lower()


@dataclass(frozen=True)
class GpuCallTree:
    """The nodes as arrays, kernels last.

    ``name`` is an index into ``names``. ``calls`` counts the calls of a node; runtime calls are
    nodes only outside ops. ``own``: ``gpu_ns, backward_ns, modelled_ns, launches``, nonzero only
    for kernels. ``work``: ``node, operation_uid, gpu_ns, launches, calls`` of the kernels by
    operation.
    """

    parent: Int64s
    depth: Int64s
    kind: Int64s
    name: Int64s
    names: pl.Series
    calls: Int64s
    own: Mapping[str, Int64s]
    work: pl.DataFrame


@dataclass(frozen=True)
class _Rows:
    """The calls above GPU work as a tree; ``parent`` is a row, ``is_below_op``: an op is above."""

    uid: Int64s
    parent: Int64s
    depth: Int64s
    is_below_op: Bools


_KIND = (
    pl.when(pl.col(C.cat) == CPU_OP)
    .then(int(NodeKind.OP))
    .when(pl.col(C.cat) != PYTHON_FUNCTION)
    .then(int(NodeKind.RUNTIME))
    .when(pl.col(C.name).str.starts_with(MODULE_PREFIX))
    .then(int(NodeKind.MODULE))
    .otherwise(int(NodeKind.PYTHON))
    .cast(pl.Int64)
)


def gpu_call_tree(
    tree: pl.DataFrame,
    host_calls: HostCalls,
    backward_links: pl.DataFrame,
    gpu_events: pl.DataFrame,
    grouped: UnifiedCalls,
) -> GpuCallTree:
    """Return the tree of all GPU events under the calls that launched them.

    Args:
        tree: Call tree with Python functions.
        host_calls: Host calls with Python functions.
        backward_links: ``Trace.backwards``.
        gpu_events: ``GpuWork.events``.
        grouped: Unified calls by operation.
    """
    rows = _rows_above(tree, host_calls, backward_links, gpu_events[C.launch_uid].drop_nulls())
    called = host_calls.select(pl.Series(rows.uid, dtype=pl.Int64), C.name, C.cat).with_columns(
        pl.col(C.name).cast(pl.String)
    )
    events = _with_operations(gpu_events, grouped)
    names, (call_name, event_name, (unlinked_name,)) = coded(
        called[C.name], events[C.name], pl.Series([UNLINKED_NAME])
    )
    at = np.searchsorted(called[C.uid].to_numpy(), rows.uid)
    name, kind = call_name[at], called.select(_KIND.alias(C.kind))[C.kind].to_numpy()[at]
    is_hidden = rows.is_below_op & (kind == NodeKind.RUNTIME)
    merged = merge(rows.parent, rows.depth, name * len(NodeKind) + kind, is_hidden)
    unlinked = merged.parent.size
    above = _of(rows.uid, merged.node, events[C.launch_uid], missing=unlinked)
    kernels, work = _kernels(
        events.with_columns(above=pl.Series(above), **{C.name: pl.Series(event_name)}), unlinked + 1
    )
    parent = np.concatenate([merged.parent, [NONE], kernels["above"].to_numpy()])
    kinds = (kind[merged.example], [NodeKind.UNLINKED], np.full(kernels.height, NodeKind.KERNEL))
    calls = np.bincount(merged.node[~is_hidden], minlength=unlinked)
    before = np.zeros(unlinked + 1, dtype=np.int64)
    own = {
        column: np.concatenate([before, kernels[column].to_numpy()])
        for column in (C.gpu_ns, C.modelled_ns, C.launches)
    }
    result = GpuCallTree(
        parent=parent,
        depth=depths(parent),
        kind=np.concatenate(kinds),
        name=np.concatenate([name[merged.example], [unlinked_name], kernels[C.name].to_numpy()]),
        names=names,
        calls=np.concatenate([calls, [0], kernels[C.launches].to_numpy()]),
        own=own,
        work=work,
    )
    own["backward_ns"] = np.where(_is_backward(result), own[C.gpu_ns], 0)
    return result


def _with_operations(gpu_events: pl.DataFrame, grouped: UnifiedCalls) -> pl.DataFrame:
    """Return ``launch_uid, name, dur_ns, operation_uid, calls, is_modelled`` of every GPU event.

    ``calls`` is the event's share, by time, of one call of the operation.
    """
    known = pl.col(C.modelled).fill_null(value=False) & pl.col(C.failure).is_null()
    models = grouped.calls.select(C.operation_uid, known.alias(C.is_modelled)).unique(
        C.operation_uid, keep="first", maintain_order=True
    )
    share = pl.col(C.dur_ns) / pl.col(C.dur_ns).sum().over(C.owner_uid)
    owned = (
        grouped.work.select(C.operation_uid, C.owner_uid, C.dur_ns, pl.col(C.gpu_uid).alias(C.uid))
        .unique(C.uid, keep="first", maintain_order=True)
        .with_columns(share.fill_nan(1 / pl.len().over(C.owner_uid)).alias(C.calls))
        .join(models, on=C.operation_uid, how="left")
        .drop(C.dur_ns, C.owner_uid)
    )
    return (
        gpu_events.select(C.uid, C.launch_uid, pl.col(C.name).cast(pl.String), C.dur_ns)
        .join(owned, on=C.uid, how="left", maintain_order="left")
        .with_columns(pl.col(C.is_modelled).fill_null(value=False))
    )


def coded(*texts: pl.Series) -> tuple[pl.Series, list[Int64s]]:
    """Return the distinct texts, and the indices of each series into them."""
    together = pl.concat([series.alias("text") for series in texts])
    distinct = together.unique(maintain_order=True)
    numbers = distinct.to_frame().with_row_index("code")
    codes = (
        together.to_frame()
        .join(numbers, on="text", how="left", maintain_order="left")["code"]
        .cast(pl.Int64)
        .to_numpy()
    )
    return distinct, np.split(codes, np.cumsum([series.len() for series in texts])[:-1])


def _kernels(events: pl.DataFrame, first: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Merge GPU events by the node ``above`` them and name; return kernels and their work.

    Kernels are numbered from ``first``.
    """
    work = events.group_by("above", C.name, C.operation_uid, maintain_order=True).agg(
        pl.col(C.dur_ns).sum().alias(C.gpu_ns),
        pl.col(C.dur_ns).filter(C.is_modelled).sum().alias(C.modelled_ns),
        pl.len().cast(pl.Int64).alias(C.launches),
        pl.col(C.calls).sum(),
    )
    kernels = (
        work.group_by("above", C.name, maintain_order=True)
        .agg(pl.col(C.gpu_ns, C.modelled_ns, C.launches).sum())
        .with_columns((first + pl.int_range(pl.len(), dtype=pl.Int64)).alias(C.node))
    )
    placed = work.join(
        kernels.select("above", C.name, C.node), on=["above", C.name], maintain_order="left"
    )
    return kernels, placed.select(C.node, C.operation_uid, C.gpu_ns, C.launches, C.calls)


def _is_backward(tree: GpuCallTree) -> Bools:
    """Return whether a node is, or is below, an autograd node."""
    starts = tree.names.str.starts_with(BACKWARD_PREFIX).to_numpy()[tree.name]
    starts &= tree.kind == NodeKind.OP
    result = starts.copy()
    above = tree.parent
    while (deeper := above >= 0).any():
        result[deeper] |= starts[above[deeper]]
        above = np.where(deeper, tree.parent[above], NONE)
    return result


def _rows_above(
    tree: pl.DataFrame, host_calls: HostCalls, backward_links: pl.DataFrame, launches: pl.Series
) -> _Rows:
    """Return the calls above ``launches``, including the launching calls, with moved nodes."""
    order, end, uid = (tree[name].to_numpy() for name in ("order", C.subtree_end, C.uid))
    parent = _of(uid, order, tree[C.parent_uid])
    depth = tree[C.depth].to_numpy().copy()
    marks = np.bincount(_of(uid, order, launches), minlength=uid.size)
    python = host_calls.python_functions
    is_python = np.zeros(uid.size, dtype=np.bool_)
    if python is not None:
        placed = _of(uid, order, python[C.uid])
        is_python[placed[placed >= 0]] = True
    node, frame = _moves(
        _of(uid, order, backward_links[C.backward_uid]),
        _of(uid, order, backward_links[C.forward_uid]),
        parent=parent,
        end=end,
        is_python=is_python,
    )
    again, before = _recomputed(
        _of(uid, order, backward_links[C.backward_uid]),
        _module_names(uid, order, host_calls),
        parent=parent,
        end=end,
    )
    for moved, below in ((node, frame), (again, before)):
        works = has_any(marks, moved, end[moved])
        moved, below = moved[works], below[works]
        parent[moved] = below
        deeper = np.zeros(uid.size + 1, dtype=np.int64)
        np.add.at(deeper, moved, depth[below] + 1 - depth[moved])
        np.add.at(deeper, end[moved], depth[moved] - depth[below] - 1)
        depth += np.cumsum(deeper[:-1])
        marks[below] += 1
    used = np.flatnonzero(has_any(marks, order, end))
    row = np.full(uid.size + 1, NONE, dtype=np.int64)  # the last entry is for NONE
    row[used] = np.arange(used.size)
    return _Rows(
        uid=uid[used],
        parent=row[parent[used]],
        depth=depth[used],
        is_below_op=tree[C.op_uid].is_not_null().to_numpy()[used],
    )


def _of(uid: Int64s, values: Int64s, wanted: pl.Series, missing: int = NONE) -> Int64s:
    """Return the values of the calls with these uids; ``missing`` for null and other calls."""
    uids = wanted.fill_null(NONE).to_numpy()
    size = max(int(uid.max(initial=0)), int(uids.max(initial=0))) + 2
    table = np.full(size, missing, dtype=np.int64)  # the last entry is for NONE
    table[uid] = values
    result: Int64s = table[uids]
    return result


def _moves(
    node: Int64s, forward: Int64s, *, parent: Int64s, end: Int64s, is_python: Bools
) -> tuple[Int64s, Int64s]:
    """Return the autograd nodes to move, and the Python frames to move them under.

    These are the nodes without a Python frame above them, and the nearest frames above their
    forward ops. All arrays have positions in the tree, or NONE. Of nested nodes only the outermost
    one moves, and no node moves into a subtree that itself moves.
    """
    node, forward = (places[(node >= 0) & (forward >= 0)] for places in (node, forward))
    frame = _nearest(is_python, parent, forward)
    fits = (frame >= 0) & (_nearest(is_python, parent, node) < 0)
    node, frame = node[fits], frame[fits]
    is_outermost = ~in_any(parent.size, node + 1, end[node])[node]
    node, frame = node[is_outermost], frame[is_outermost]
    stays = ~in_any(parent.size, node, end[node])[frame]
    return node[stays], frame[stays]


def _module_names(uid: Int64s, order: Int64s, host_calls: HostCalls) -> Int64s:
    """Return a number for the name of the module at each position; NONE where there is none."""
    names = np.full(uid.size, NONE, dtype=np.int64)
    python = host_calls.python_functions
    if python is not None:
        modules = python.select(C.uid, C.name).filter(
            pl.col(C.name).cast(pl.String).str.starts_with(MODULE_PREFIX)
        )
        places = _of(uid, order, modules[C.uid])
        numbers = modules[C.name].cast(pl.String).rank("dense").cast(pl.Int64).to_numpy()
        names[places[places >= 0]] = numbers[places >= 0]
    return names


def _recomputed(
    node: Int64s, module: Int64s, *, parent: Int64s, end: Int64s
) -> tuple[Int64s, Int64s]:
    """Return the outermost modules below autograd nodes, and the calls around these modules when
    they ran outside of autograd. All arrays have positions in the tree, or NONE."""
    node = node[node >= 0]
    is_again = in_any(parent.size, node, end[node])
    inside = np.flatnonzero(is_again & (module >= 0))
    is_outermost = ~in_any(parent.size, inside + 1, end[inside])[inside]
    again = inside[is_outermost]
    first = np.full(int(module.max(initial=0)) + 1, NONE, dtype=np.int64)
    before = np.flatnonzero(~is_again & (module >= 0) & (parent >= 0))[::-1]
    first[module[before]] = parent[before]
    place = first[module[again]]
    return again[place >= 0], place[place >= 0]


def _nearest(wanted: Bools, parent: Int64s, places: Int64s) -> Int64s:
    """Return the nearest wanted position at or above each position, or NONE."""
    here = places.copy()
    while (climbs := (here >= 0) & ~wanted[here]).any():
        here[climbs] = parent[here[climbs]]
    return here
