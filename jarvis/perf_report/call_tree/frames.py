"""The call tree as arrays over positions in preorder: what is above and below each call."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

NONE = -1
"""No position: of a root's parent, of a call that the tree does not hold."""

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class CallFrames:
    """``uid``, ``end`` (first position behind the subtree), ``parent_uid`` (NONE for none) and
    ``is_dropped`` of each position; ``position`` by uid."""

    uid: Int64s
    end: Int64s
    parent_uid: Int64s
    is_dropped: Bools
    position: Int64s

    def places(self, uids: Int64s) -> Int64s:
        """The position of each call; NONE for one that the tree does not hold."""
        is_known = uids < self.position.size
        return np.where(is_known, self.position[np.where(is_known, uids, 0)], NONE)

    def parent(self, places: Int64s) -> Int64s:
        """The place above each place; NONE for none, and for NONE."""
        uid = np.where(places >= 0, self.parent_uid[places], NONE)
        return np.where(uid >= 0, self.position[uid], NONE)


@dataclass(frozen=True)
class Marked:
    """How many of some calls start below each place.

    ``before`` has the number of marked calls before each position, and the total behind the last.
    """

    frames: CallFrames
    before: Int64s

    def inside(self, places: Int64s) -> tuple[Int64s, Int64s]:
        """The first marked call below each place, and the first one after it."""
        return self.before[places + 1], self.before[self.frames.end[places]]

    def count(self, places: Int64s) -> Int64s:
        """The number of marked calls below each place."""
        first, last = self.inside(places)
        return last - first

    def holding_more(self, places: Int64s) -> Int64s:
        """The nearest place above each one that holds more marked calls; NONE for none."""
        here, above = places, self.frames.parent(places)
        least = self.count(places)
        while (same := (above >= 0) & (self.count(above) <= least)).any():
            here = np.where(same, above, here)
            above = np.where(same, self.frames.parent(here), above)
        return above


def call_frames(tree: pl.DataFrame) -> CallFrames:
    """The arrays of a call tree (``Trace.call_tree``, with or without Python functions)."""
    uid = tree["uid"].to_numpy()
    position = np.full(int(uid.max(initial=0)) + 1, NONE, dtype=np.int64)
    position[uid] = np.arange(uid.size)
    return CallFrames(
        uid=uid,
        end=tree["subtree_end"].to_numpy(),
        parent_uid=tree["parent_uid"].fill_null(NONE).to_numpy(),
        is_dropped=tree["is_dropped"].to_numpy(),
        position=position,
    )


def marked(frames: CallFrames, at: Int64s) -> Marked:
    """The calls at these positions as marked ones."""
    before = np.zeros(frames.uid.size + 1, dtype=np.int64)
    np.cumsum(np.bincount(at, minlength=frames.uid.size), out=before[1:])
    return Marked(frames, before)
