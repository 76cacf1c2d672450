"""Tables of the call tree: three views, pruned without changing sums."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.call_tree.frames import NONE, depths, merge, preorder, summed_up
from jarvis.perf_report.call_tree.gpu_time import GpuCallTree, NodeKind, coded
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.schemas.names import C

MIN_SHARE = 5000
"""Nodes with less than 1/MIN_SHARE of the GPU time are merged into the rest of their parent."""

ROOT_NAME, REST_NAME = "All GPU work", "Rest"

_REST = int(NodeKind.REST)
NUMBER_OF_MODULE = r"(.)_\d+$"
"""Instance number in a module name."""

_SUMS = (C.gpu_ns, C.self_ns, C.backward_ns, C.modelled_ns, C.launches, C.calls, C.module_count)


class View(StrEnum):
    """Calls shown between the root and the operators."""

    CLASSES = "classes"
    MODULES = "modules"
    PYTHON = "python"


@dataclass(frozen=True)
class _Nodes:
    """The nodes of a view, root first; ``sums`` has _SUMS, ``node_of`` maps nodes of the tree."""

    parent: Int64s
    depth: Int64s
    kind: Int64s
    name: pl.Series
    sums: pl.DataFrame
    node_of: Int64s


def call_tree_tables(tree: GpuCallTree) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables ``call_tree`` and ``call_tree_operations``, view by view in preorder.

    The view of classes always exists; those of modules and of Python only if they differ from it.
    """
    tables, works, first = [], [], 0
    for view in _views(tree):
        table, work = _pruned(_nodes(tree, view), tree.work)
        places = pl.col(C.node, C.parent, C.subtree_end) + first
        tables.append(table.with_columns(places, pl.lit(view.value).alias(C.view)))
        works.append(work.with_columns(pl.col(C.node) + first))
        first += table.height
    return pl.concat(tables), pl.concat(works)


def _views(tree: GpuCallTree) -> list[View]:
    views = {NodeKind.MODULE: View.MODULES, NodeKind.PYTHON: View.PYTHON}
    return [View.CLASSES, *(view for kind, view in views.items() if (tree.kind == kind).any())]


def _nodes(tree: GpuCallTree, view: View) -> _Nodes:
    is_hidden = (tree.kind == NodeKind.PYTHON) & (view is not View.PYTHON)
    names, name = tree.names, tree.name
    if view is View.CLASSES:
        names, (code,) = coded(_without_numbers(names))
        name = code[name]
    merged = merge(tree.parent, tree.depth, name * len(NodeKind) + tree.kind, is_hidden)
    parent = np.concatenate([[NONE], merged.parent + 1])
    node_of, depth = merged.node + 1, depths(parent)
    kind = np.concatenate([[NodeKind.ROOT], tree.kind[merged.example]])
    size = parent.size
    own = {column: _added(node_of, values, size) for column, values in tree.own.items()}
    sums = {column: summed_up(values, parent, depth) for column, values in own.items()}
    is_kernel = kind == NodeKind.KERNEL
    launched = _added(parent[is_kernel], sums["gpu_ns"][is_kernel], size)
    is_module = (tree.kind == NodeKind.MODULE) & ~is_hidden
    modules = np.unique(np.stack([node_of, tree.name])[:, is_module], axis=1)[0]
    sums |= {
        C.self_ns: np.where(is_kernel, sums["gpu_ns"], launched),
        C.calls: _added(node_of[~is_hidden], tree.calls[~is_hidden], size),
        C.module_count: np.bincount(modules, minlength=size),
    }
    return _Nodes(
        parent=parent,
        depth=depth,
        kind=kind,
        name=pl.concat([pl.Series(C.name, [ROOT_NAME]), names.gather(name[merged.example])]),
        sums=pl.DataFrame(sums).select(_SUMS),
        node_of=node_of,
    )


def _without_numbers(names: pl.Series) -> pl.Series:
    """Return names of modules without instance numbers; other names are unchanged."""
    name = pl.col(C.name)
    is_module = name.str.starts_with(MODULE_PREFIX)
    classes = pl.when(is_module).then(name.str.replace(NUMBER_OF_MODULE, "$1")).otherwise(name)
    return names.to_frame(C.name).select(classes).to_series()


def _added(places: Int64s, values: Int64s, size: int) -> Int64s:
    """Return the sum of the values at each index."""
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, places, values)
    return total


def _pruned(nodes: _Nodes, work: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the nodes with enough time, the others merged into rests, and their work."""
    every, home = _with_rests(nodes)
    stored = every.filter("is_kept")
    number = np.cumsum(every["is_kept"].to_numpy()) - 1
    above = stored["above"].to_numpy()
    parent = np.where(above >= 0, number[above], NONE)
    keys = (
        stored[C.kind],
        stored[C.name].rank("dense"),
        -stored[C.gpu_ns],
        stored[C.kind] == _REST,
    )
    rank = np.empty(stored.height, dtype=np.int64)
    rank[np.lexsort([key.to_numpy() for key in keys])] = np.arange(stored.height)
    node, end = preorder(parent, stored[C.depth].to_numpy(), rank)
    words = {int(kind): kind.word for kind in NodeKind}
    table = stored.drop("above", "is_kept").with_columns(
        pl.Series(node).alias(C.node),
        pl.when(pl.Series(parent >= 0)).then(pl.Series(node[parent])).alias(C.parent),
        pl.Series(end).alias(C.subtree_end),
        pl.col(C.kind).replace_strict(words, return_dtype=pl.String),
    )
    by_operation = (
        work.with_columns(
            pl.Series(node[number[home[nodes.node_of[work[C.node].to_numpy()]]]]).alias(C.node)
        )
        .drop_nulls(C.operation_uid)
        .group_by(C.node, C.operation_uid)
        .agg(pl.col(C.gpu_ns, C.launches, C.calls).sum())
        .sort(C.node, C.operation_uid)
    )
    return table.sort(C.node), by_operation


def _with_rests(nodes: _Nodes) -> tuple[pl.DataFrame, Int64s]:
    """Return all nodes followed by the rests, and the row to which the work of each node belongs.

    Columns: _SUMS, ``name, kind, above, depth, is_kept``.
    """
    gpu_ns, launches = (nodes.sums[column].to_numpy() for column in (C.gpu_ns, C.launches))
    is_apart = (nodes.kind == NodeKind.UNLINKED) & (launches > 0)
    is_stored = is_apart | (launches > 0) & (gpu_ns * MIN_SHARE >= gpu_ns[0])
    is_stored[0] = True
    is_cut = ~is_stored & (launches > 0) & is_stored[nodes.parent]
    cut = nodes.sums.filter(pl.Series(is_cut)).with_columns(above=pl.Series(nodes.parent[is_cut]))
    rests = cut.group_by("above").agg(pl.col(_SUMS).sum()).sort("above")
    over = rests["above"].to_numpy()
    rest_of = np.full(gpu_ns.size, NONE, dtype=np.int64)
    rest_of[over] = gpu_ns.size + np.arange(over.size)
    every = pl.concat(
        [
            nodes.sums.with_columns(
                nodes.name,
                pl.Series(C.kind, nodes.kind),
                pl.Series("above", nodes.parent),
                pl.Series(C.depth, nodes.depth),
                pl.Series("is_kept", is_stored),
            ),
            rests.with_columns(
                pl.lit(REST_NAME).alias(C.name),
                pl.lit(_REST, pl.Int64).alias(C.kind),
                pl.Series(C.depth, nodes.depth[over] + 1),
                pl.lit(value=True).alias("is_kept"),
            ),
        ],
        how="diagonal",
    )
    home = np.arange(gpu_ns.size)
    while (lost := ~is_stored[home] & (rest_of[nodes.parent[home]] < 0) & (home > 0)).any():
        home[lost] = nodes.parent[home[lost]]
    return every, np.where(is_stored[home], home, rest_of[nodes.parent[home]])
