"""Merge two call trees from the top to find their common nodes."""

import numpy as np

from jarvis.tracelens.trace_diff.children import matched_children
from jarvis.tracelens.trace_diff.gpu_paths import Bools, Int64s, PathTree

NONE = -1


def counterparts(first: PathTree, second: PathTree) -> Int64s:
    """Return the counterpart in ``second`` of each node of ``first``, or NONE.

    Counterparts are in the same order in both trees, and below counterparts.
    """
    counterpart = np.full(first.name.size, NONE, np.int64)
    open_pairs = [(0, 0)]
    while open_pairs:
        node, other = open_pairs.pop()
        end, other_end = first.subtree_end[node], second.subtree_end[other]
        if np.array_equal(first.shape[node:end], second.shape[other:other_end]):
            counterpart[node:end] = np.arange(other, other_end)
            continue
        counterpart[node] = other
        is_root = node == 0
        open_pairs += matched_children(first, second, node, other, is_root=is_root)
    return counterpart


def nearest_common(common: Bools, parent: Int64s) -> Int64s:
    """Return the nearest ``common`` node at or above each node; the root is always common."""
    above = parent.tolist()
    nearest = list(range(common.size))
    for node in np.flatnonzero(~common).tolist():
        nearest[node] = nearest[above[node]]
    return np.array(nearest, np.int64)
