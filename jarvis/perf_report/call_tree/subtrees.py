"""Questions about ranges of the call tree, answered for all rows at once.

The tree is numbered in preorder, so a subtree is a range of ``order``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


def has_any(counts: NDArray[Any], first: Int64s, end: Int64s) -> Bools:
    """For each range from ``first`` up to ``end`` whether ``counts`` is above 0 somewhere in it.

    ``counts`` has an entry of at least 0, or a truth value, for each row of the tree.
    """
    before = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=before[1:])
    found: Bools = before[end] > before[first]
    return found


def in_any(size: int, first: Int64s, end: Int64s) -> Bools:
    """For each of ``size`` rows whether it lies in one of the ranges ``first`` up to ``end``."""
    changes = np.bincount(first, minlength=size + 1) - np.bincount(end, minlength=size + 1)
    found: Bools = np.cumsum(changes)[:size] > 0
    return found
