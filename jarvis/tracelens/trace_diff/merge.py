"""Two trees of calls merged from the top: which nodes they have in common."""

import numpy as np

from jarvis.tracelens.trace_diff.children import matched_children
from jarvis.tracelens.trace_diff.gpu_paths import Bools, Int64s, PathTree

NONE = -1


def counterparts(first: PathTree, second: PathTree) -> Int64s:
    """For each node of ``first`` its counterpart in ``second``, or NONE.

    Counterparts stand in the same order in both trees, and below counterparts.
    """
    found = np.full(first.name.size, NONE, np.int64)
    open_pairs = [(0, 0)]
    while open_pairs:
        node, other = open_pairs.pop()
        end, other_end = first.subtree_end[node], second.subtree_end[other]
        if np.array_equal(first.shape[node:end], second.shape[other:other_end]):
            found[node:end] = np.arange(other, other_end)
            continue
        found[node] = other
        is_root = node == 0
        open_pairs += matched_children(first, second, node, other, is_root=is_root)
    return found


def nearest_common(common: Bools, parent: Int64s) -> Int64s:
    """For each node the nearest one from itself upwards that is ``common`` (a truth value each).

    The root is always common.
    """
    above = parent.tolist()
    nearest = list(range(common.size))
    for node in np.flatnonzero(~common).tolist():
        nearest[node] = nearest[above[node]]
    return np.array(nearest, np.int64)
