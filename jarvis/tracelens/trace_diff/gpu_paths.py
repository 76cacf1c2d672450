"""The part of a call tree that leads to GPU work, with GPU events as leaves."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.tables import CPU_OP, PYTHON_FUNCTION

_ADDRESS = r"0x[0-9a-fA-F]+"
_LINE = r"\.py\(\d+\):"
_HIP_LAUNCH, _CUDA_LAUNCH = "hipModuleLaunchKernel", "cuLaunchKernel"
_FRAME = r"^(?:.*/)?([^/]*\.py):.*$"
_MODULE = r"^(nn\.Module: .*)_\d+$"


def shown(name: str) -> pl.Expr:
    """Return the names of a column without line numbers and addresses."""
    return pl.col(name).str.replace_all(_LINE, ".py:").str.replace_all(_ADDRESS, "0x...")


def strict(name: str) -> pl.Expr:
    """Return ``shown`` names with equivalent calls of CUDA and HIP mapped to one name."""
    is_hip = pl.col(name) == _HIP_LAUNCH
    return pl.when(is_hip).then(pl.lit(_CUDA_LAUNCH)).otherwise(pl.col(name))


def loose(name: str) -> pl.Expr:
    """Return ``shown`` names without function, folder and module instance."""
    return pl.col(name).str.replace(_FRAME, "$1").str.replace(_MODULE, "$1")


ROOT_NAME = "root"
"""Name of the root above all calls without a caller."""

ROOT, PYTHON, OP, LAUNCH, GPU_EVENT = range(5)
"""Kinds of nodes; LAUNCH is any call of the CUDA or HIP runtime."""


def gpu_paths(trace: Trace, *, with_python: bool) -> pl.DataFrame:
    """Return every call with GPU work below it, and every linked GPU event, in preorder.

    Row 0 is a root above all calls without a caller. Columns: ``uid`` (-1 for the root), ``kind``,
    ``name`` (without line numbers and addresses), ``parent`` (a row; -1 for the root) and
    ``subtree_end`` (the row after the last descendant). ``with_python`` includes Python frames.
    """
    tree = trace.python_call_tree if with_python else trace.call_tree
    leaves = _leaves(trace, tree)
    launches = np.bincount(leaves["order"].to_numpy(), minlength=tree.height)
    before = np.concatenate([[0], np.cumsum(launches)])
    leads_to_work = before[tree[C.subtree_end].to_numpy()] > before[tree["order"].to_numpy()]
    calls = tree.select(C.uid, C.parent_uid, "order", C.subtree_end).filter(
        pl.Series(leads_to_work, dtype=pl.Boolean)
    )
    nodes = (
        pl.concat([_root(tree.height), _named(calls, trace, with_python), leaves], how="diagonal")
        .sort("order", pl.col(C.kind) == GPU_EVENT, C.ts_ns, C.uid, maintain_order=True)
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(C.row))
    )
    above = nodes.filter(pl.col(C.kind) != GPU_EVENT).select(
        pl.col(C.uid).alias(C.parent_uid), pl.col(C.row).alias(C.parent)
    )
    last = nodes["order"].search_sorted(nodes[C.subtree_end].fill_null(0), "left").cast(pl.Int64)
    return nodes.join(above, on=C.parent_uid, how="left", maintain_order="left").select(
        C.uid,
        C.kind,
        shown(C.name),
        **{
            C.parent: pl.when(pl.col(C.kind) == ROOT)
            .then(-1)
            .otherwise(pl.col(C.parent).fill_null(0)),
            C.subtree_end: pl.when(pl.col(C.kind) == GPU_EVENT)
            .then(pl.col(C.row) + 1)
            .otherwise(last),
        },
    )


def _leaves(trace: Trace, tree: pl.DataFrame) -> pl.DataFrame:
    """Return linked GPU events with their launch (``order``); the later one if there are two."""
    parents = (
        trace.launches.sort(C.link_index)
        .unique(C.gpu_uid, keep="last")
        .select(pl.col(C.runtime_uid).alias(C.parent_uid), pl.col(C.gpu_uid).alias(C.uid))
    )
    return (
        trace.gpu_events.drop_nulls([C.ts_ns, C.dur_ns])
        .select(C.uid, C.name, C.ts_ns)
        .join(parents, on=C.uid)
        .join(tree.select("order", pl.col(C.uid).alias(C.parent_uid)), on=C.parent_uid)
        .with_columns(pl.lit(GPU_EVENT, pl.Int64).alias(C.kind))
    )


def _root(tree_height: int) -> pl.DataFrame:
    root = {C.uid: -1, C.name: ROOT_NAME, C.kind: ROOT, "order": -1, C.subtree_end: tree_height}
    return pl.DataFrame([root])


def _named(calls: pl.DataFrame, trace: Trace, with_python: bool) -> pl.DataFrame:
    tables = [trace.cpu_ops, trace.runtime, *([trace.python_functions] if with_python else [])]
    kind = (
        pl.when(pl.col(C.cat) == CPU_OP)
        .then(OP)
        .when(pl.col(C.cat) == PYTHON_FUNCTION)
        .then(PYTHON)
        .otherwise(LAUNCH)
    )
    parts = [
        calls.join(table.select(C.uid, C.name, kind.cast(pl.Int64).alias(C.kind)), on=C.uid)
        for table in tables
    ]
    return pl.concat(parts)


@dataclass(frozen=True)
class PathTree:
    """``gpu_paths`` as arrays with an entry for each node, for comparison with another tree.

    ``name`` and ``loose_name`` are codes shared by two trees of ``path_trees``; ``shape`` encodes
    name and number of children, so that equal ranges of it are equal subtrees. The children of a
    node are ``children[first_child[node] : first_child[node + 1]]``.
    """

    kind: Int64s
    name: Int64s
    loose_name: Int64s
    shape: Int64s
    subtree_end: Int64s
    first_child: Int64s
    children: Int64s

    def children_of(self, node: int) -> Int64s:
        """Return the rows of the children of a node, in order."""
        return self.children[self.first_child[node] : self.first_child[node + 1]]


def path_trees(first: pl.DataFrame, second: pl.DataFrame) -> tuple[PathTree, PathTree]:
    """Return the trees of two ``gpu_paths``."""
    keys = pl.concat([first, second]).select(
        pl.struct(C.kind, strict(C.name)).rank("dense").cast(pl.Int64).alias(C.name),
        loose_name=pl.struct(C.kind, loose(C.name)).rank("dense").cast(pl.Int64),
    )
    max_children = max(int(_child_counts(paths).max()) for paths in (first, second)) + 1
    return (
        _path_tree(first, keys.head(first.height), max_children),
        _path_tree(second, keys.tail(second.height), max_children),
    )


def _child_counts(paths: pl.DataFrame) -> Int64s:
    return np.bincount(paths[C.parent].to_numpy()[1:], minlength=paths.height)


def _path_tree(paths: pl.DataFrame, keys: pl.DataFrame, max_children: int) -> PathTree:
    counts = _child_counts(paths)
    name = keys[C.name].to_numpy(writable=True)
    return PathTree(
        kind=paths[C.kind].to_numpy(writable=True),
        name=name,
        loose_name=keys["loose_name"].to_numpy(writable=True),
        shape=name * max_children + counts,
        subtree_end=paths[C.subtree_end].to_numpy(writable=True),
        first_child=np.concatenate([[0], np.cumsum(counts)]),
        children=np.argsort(paths[C.parent].to_numpy()[1:], kind="stable") + 1,
    )
