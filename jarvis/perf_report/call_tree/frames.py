"""The call tree as arrays over positions in preorder; trees of merged calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from jarvis.core.arrays import Bools, Int64s
from jarvis.schemas.names import C

NONE = -1
"""Position of a root's parent and of calls that are not in the tree."""


@dataclass(frozen=True)
class CallFrames:
    """Arrays of the call tree.

    By position: ``uid``, ``end`` (first position after the subtree), ``parent_uid`` (or NONE) and
    ``is_dropped``. By uid: ``position``.
    """

    uid: Int64s
    end: Int64s
    parent_uid: Int64s
    is_dropped: Bools
    position: Int64s

    def places(self, uids: Int64s) -> Int64s:
        """Return the position of each call; NONE if it is not in the tree."""
        is_known = uids < self.position.size
        return np.where(is_known, self.position[np.where(is_known, uids, 0)], NONE)

    def parent(self, places: Int64s) -> Int64s:
        """Return the parent position of each position; NONE if there is none, and for NONE."""
        uid = np.where(places >= 0, self.parent_uid[places], NONE)
        return np.where(uid >= 0, self.position[uid], NONE)


@dataclass(frozen=True)
class Marked:
    """Counts of marked calls below each position.

    ``before`` has the number of marked calls before each position, and finally the total.
    """

    frames: CallFrames
    before: Int64s

    def inside(self, places: Int64s) -> tuple[Int64s, Int64s]:
        """Return the index range of the marked calls below each position: first and end."""
        return self.before[places + 1], self.before[self.frames.end[places]]

    def count(self, places: Int64s) -> Int64s:
        """Return the number of marked calls below each position."""
        first, last = self.inside(places)
        return last - first

    def parent_with_more(self, places: Int64s) -> Int64s:
        """Return the nearest ancestor of each position with more marked calls, or NONE."""
        here, above = places, self.frames.parent(places)
        count = self.count(places)
        while (same := (above >= 0) & (self.count(above) <= count)).any():
            here = np.where(same, above, here)
            above = np.where(same, self.frames.parent(here), above)
        return above


def call_frames(tree: pl.DataFrame) -> CallFrames:
    """Return the arrays of a call tree (``Trace.call_tree``, with or without Python functions)."""
    uid = tree[C.uid].to_numpy()
    position = np.full(int(uid.max(initial=0)) + 1, NONE, dtype=np.int64)
    position[uid] = np.arange(uid.size)
    return CallFrames(
        uid=uid,
        end=tree[C.subtree_end].to_numpy(),
        parent_uid=tree[C.parent_uid].fill_null(NONE).to_numpy(),
        is_dropped=tree[C.is_dropped].to_numpy(),
        position=position,
    )


def marked(frames: CallFrames, at: Int64s) -> Marked:
    """Mark the calls at these positions."""
    before = np.zeros(frames.uid.size + 1, dtype=np.int64)
    np.cumsum(np.bincount(at, minlength=frames.uid.size), out=before[1:])
    return Marked(frames, before)


"""Parent of a root, and node of a row without one."""


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
