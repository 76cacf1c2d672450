"""Operations on trees as arrays: merge rows into nodes, sum subtrees, preorder."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

NONE = -1
"""Parent of a root, and node of a row without one."""

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Merged:
    """``node`` of each row; ``parent`` and ``example`` (the first row) of each node."""

    node: Int64s
    parent: Int64s
    example: Int64s


def merge(parent: Int64s, depth: Int64s, key: Int64s, is_hidden: Bools) -> Merged:
    """Merge rows with equal keys below one node.

    Hidden rows are not nodes; their children are attached to the node above.

    Args:
        parent: Parent row of each row, or NONE.
        depth: Depth of each row, greater than that of its parent.
        key: Key of each row, at least 0.
        is_hidden: Whether a row is hidden.
    """
    above, depth = _among_shown(parent, depth, is_hidden)
    node = np.full(parent.size, NONE, dtype=np.int64)
    keys = int(key.max(initial=0)) + 1
    parents, examples, count = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    shown = np.flatnonzero(~is_hidden)
    for places in _levels(depth[shown]):
        level = shown[places]
        pairs = (_of_parent(node, above[level]) + 1) * keys + key[level]
        distinct, example, place = np.unique(pairs, return_index=True, return_inverse=True)
        node[level] = count + place
        parents.append(distinct // keys - 1)
        examples.append(level[example])
        count += distinct.size
    node = np.where(is_hidden, _of_parent(node, above), node)
    return Merged(node, np.concatenate(parents), np.concatenate(examples))


def _among_shown(parent: Int64s, depth: Int64s, is_hidden: Bools) -> tuple[Int64s, Int64s]:
    """Return the nearest visible ancestor of each row, and the number of visible ancestors."""
    if not is_hidden.any():
        return parent, depth
    above, shown_depth = parent.copy(), np.zeros(parent.size, dtype=np.int64)
    for level in _levels(depth):
        over = parent[level]
        through = (over >= 0) & is_hidden[over]
        above[level[through]] = above[over[through]]
        shown_depth[level] = _of_parent(shown_depth, above[level]) + 1
    return above, shown_depth


def depths(parent: Int64s) -> Int64s:
    """Return the number of ancestors of each node."""
    depth = np.zeros(parent.size, dtype=np.int64)
    above = parent
    while (deeper := above >= 0).any():
        depth[deeper] += 1
        above = _of_parent(parent, above)
    return depth


def summed_up(own: Int64s, parent: Int64s, depth: Int64s) -> Int64s:
    """Return the sum of ``own`` over each node and all nodes below it."""
    total = own.copy()
    for level in reversed(list(_levels(depth))[1:]):
        np.add.at(total, parent[level], total[level])
    return total


def preorder(parent: Int64s, depth: Int64s, rank: Int64s) -> tuple[Int64s, Int64s]:
    """Return the preorder position of each node and the end of its subtree.

    Siblings are ordered by ``rank``.
    """
    size = summed_up(np.ones(parent.size, dtype=np.int64), parent, depth)
    place = np.zeros(parent.size, dtype=np.int64)
    for level in _levels(depth):
        ordered = level[np.lexsort((rank[level], parent[level]))]
        over = parent[ordered]
        before = np.cumsum(size[ordered]) - size[ordered]
        is_first = np.diff(over, prepend=-2) != 0
        of_family = before[is_first][np.cumsum(is_first) - 1]
        start = np.where(over >= 0, place[over] + 1, 0)
        place[ordered] = start + before - of_family
    return place, place + size


def _of_parent(values: Int64s, parent: Int64s) -> Int64s:
    """Return the values of these parents; NONE if there is none."""
    return np.where(parent >= 0, values[parent], NONE) if values.size else parent


def _levels(depth: Int64s) -> Iterator[Int64s]:
    """Yield the rows of each depth, from 0."""
    rows = np.argsort(depth, kind="stable")
    ends = np.searchsorted(depth[rows], np.arange(int(depth.max(initial=-1)) + 2))
    for first, end in pairwise(ends):
        yield rows[first:end]
