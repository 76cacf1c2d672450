"""The call tree as arrays over positions in preorder: what is above and below each call."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.schemas.names import C

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


def has_any(counts: NDArray[Any], first: Int64s, end: Int64s) -> Bools:
    """Return for each range ``first:end`` whether any of its ``counts`` is above 0.

    ``counts`` has a nonnegative number or a boolean for each row of the tree.
    """
    before = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=before[1:])
    result: Bools = before[end] > before[first]
    return result


def in_any(size: int, first: Int64s, end: Int64s) -> Bools:
    """Return for each of ``size`` rows whether it is in one of the ranges ``first:end``."""
    changes = np.bincount(first, minlength=size + 1) - np.bincount(end, minlength=size + 1)
    result: Bools = np.cumsum(changes)[:size] > 0
    return result


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
