"""Align the kernels of two ranks whose sequences differ."""

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

MAX_LAG = 8
CLEAR_LAG = 1 / 3
"""A lag is taken if its ends agree this much better than those of the second-best."""

BAND = 256
"""Kernels by which an alignment may run ahead of or behind the order."""

_MISMATCH = 0.5
"""What a match costs whose ends disagree most."""


def best_lags(own_ends_ns: Int64s, other_ends_ns: Int64s) -> Int64s:
    """Return by how many places equal kernels of each rank are behind those of another one.

    The clocks of the ranks may differ: ends agree if they differ by a constant.

    Args:
        own_ends_ns: The ends of each rank, a row each.
        other_ends_ns: Those of the other rank.
    """
    own, other = own_ends_ns.shape[1], other_ends_ns.size
    lags, residuals = [], []
    for lag in sorted(range(-MAX_LAG, MAX_LAG + 1), key=lambda lag: (abs(lag), lag)):
        start, stop = max(0, -lag), min(own, other - lag)
        if stop - start >= max(3, min(own, other) // 2):
            differences = own_ends_ns[:, start:stop] - other_ends_ns[start + lag : stop + lag]
            differences = np.abs(differences - np.median(differences, axis=1, keepdims=True))
            lags.append(lag)
            residuals.append(np.median(differences, axis=1))
    if len(lags) < 2:
        return np.zeros(len(own_ends_ns), np.int64)
    best = np.argmin(residuals, axis=0)
    least, next_least = np.sort(residuals, axis=0)[:2]
    return np.where(least <= CLEAR_LAG * next_least, np.array(lags)[best], 0)


def aligned(own: Int64s, other: Int64s, own_ends_ns: Int64s, other_ends_ns: Int64s) -> Int64s:
    """Return the place of each kernel of a rank among those of another one, -1 without one.

    The order is that of both, signatures are equal, and as many as possible match; of several such
    alignments it is the one whose ends agree best.
    """
    first = _alignment(own, other, np.zeros((0,), np.float64), own_ends_ns, other_ends_ns)
    is_matched = first >= 0
    if not is_matched.any():
        return first
    differences = (own_ends_ns[is_matched] - other_ends_ns[first[is_matched]]).astype(np.float64)
    return _alignment(own, other, differences, own_ends_ns, other_ends_ns)


def _alignment(
    own: Int64s,
    other: Int64s,
    differences_ns: NDArray[np.float64],
    own_ends_ns: Int64s,
    other_ends_ns: Int64s,
) -> Int64s:
    """Return the best alignment; with differences of ends, one whose matches have similar ones."""
    offset = float(np.median(differences_ns)) if differences_ns.size else 0.0
    spread = np.abs(differences_ns - offset)
    scale = max(1.0, float(np.median(spread))) * 10 if differences_ns.size else np.inf
    rows, columns = len(own), len(other)
    choices = np.zeros((rows, columns + 1), np.int8)
    score = np.zeros(columns + 1)
    for row in range(rows):
        least, most = max(0, row - BAND), min(columns, row + BAND + abs(columns - rows) + 1)
        place = slice(least, most)
        cost = np.abs(own_ends_ns[row] - other_ends_ns[place] - offset) / scale
        gain = np.where(own[row] == other[place], 1 - _MISMATCH * np.minimum(cost, 1), -np.inf)
        through = score.copy()
        matched = score[least:most] + gain
        is_better = matched > through[least + 1 : most + 1]
        through[least + 1 : most + 1] = np.maximum(through[least + 1 : most + 1], matched)
        new = np.maximum.accumulate(through)
        choices[row, least + 1 : most + 1][is_better] = 1
        choices[row][new > through] = 2
        score = new
    slots = np.full(rows, -1, np.int64)
    row, column = rows - 1, columns
    while row >= 0 and column > 0:
        choice = choices[row, column]
        if choice == 2:
            column -= 1
        else:
            if choice == 1:
                column -= 1
                slots[row] = column
            row -= 1
    return slots
