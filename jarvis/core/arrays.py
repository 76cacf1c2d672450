"""Types of NumPy arrays, and ranges of their rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
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
