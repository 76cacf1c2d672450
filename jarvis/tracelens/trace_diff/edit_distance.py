"""Longest common subsequence of two sequences, by Myers' greedy algorithm.

The cost grows with the number of differences, not with the lengths: nearly equal lists of a hundred
thousand calls take milliseconds. After MAX_DIFFERENCES the furthest path is taken and the search
restarts at its end, so that time is linear and memory bounded; only lists with more differences can
miss a longer common subsequence.
"""

import numpy as np
from numpy.typing import NDArray

from jarvis.core.arrays import Int64s
from jarvis.trace.jit import helper, kernel, types

MAX_DIFFERENCES = 1_000
"""Maximum insertions and deletions for an exact alignment."""

NONE = -1
_ITEMS = types.int64[::1]


@helper
def _edited(
    reached: NDArray[np.int32], edits: int, k: int, sizes: tuple[int, int]
) -> tuple[int, int]:
    """Return the position in the first sequence after one more edit on the diagonal ``k``, or NONE.

    A diagonal is the position in the first sequence minus that in the second. The second result is
    the diagonal before the edit.
    """
    middle = reached.shape[1] // 2
    deleted = reached[edits - 1, middle + k - 1]
    inserted = reached[edits - 1, middle + k + 1]
    furthest = deleted + 1 if deleted != NONE and deleted < sizes[0] else NONE
    if inserted != NONE and inserted >= furthest and inserted - k <= sizes[1]:
        return inserted, k + 1
    return furthest, k - 1


@helper
def _search(a: Int64s, b: Int64s, reached: NDArray[np.int32]) -> tuple[int, int]:
    """Return the edits and the diagonal of a path to the end, else of the furthest path."""
    middle = reached.shape[1] // 2
    best, best_k = NONE, 0
    edits = 0
    for edits in range(reached.shape[0]):
        reached[edits] = NONE
        best = NONE
        for k in range(-edits, edits + 1, 2):
            x = _edited(reached, edits, k, (a.size, b.size))[0] if edits > 0 else 0
            if x == NONE:
                continue
            while x < a.size and x - k < b.size and a[x] == b[x - k]:
                x += 1
            reached[edits, middle + k] = x
            if 2 * x - k > best:
                best, best_k = 2 * x - k, k
        if best == a.size + b.size:
            break
    return edits, best_k


@kernel(types.void(_ITEMS, _ITEMS, _ITEMS, types.int64))
def _align(a: Int64s, b: Int64s, partner: Int64s, max_differences: int) -> None:
    """Set ``partner``: for each item of ``a`` the position of its match in ``b``, or NONE."""
    partner[:] = NONE
    limit = min(max_differences, a.size + b.size)
    reached = np.empty((limit + 1, 2 * limit + 3), np.int32)
    start_a, start_b = 0, 0
    while start_a < a.size and start_b < b.size:
        rest_a, rest_b = a[start_a:], b[start_b:]
        edits, k = _search(rest_a, rest_b, reached)
        end = int(reached[edits, limit + 1 + k])
        end_a, end_b = start_a + end, start_b + end - k
        while edits >= 0:
            begin, previous_k = 0, 0
            if edits > 0:
                begin, previous_k = _edited(reached, edits, k, (rest_a.size, rest_b.size))
            for x in range(begin, end):
                partner[start_a + x] = start_b + x - k
            edits -= 1
            k = previous_k
            end = int(reached[max(edits, 0), limit + 1 + k])
        start_a, start_b = end_a, end_b


def align(a: Int64s, b: Int64s, max_differences: int = MAX_DIFFERENCES) -> list[tuple[int, int]]:
    """Return pairs of positions with equal items, ascending in both sequences (LCS)."""
    partner = np.empty(a.size, np.int64)
    _align(a, b, partner, max_differences)
    matched = np.flatnonzero(partner != NONE)
    return list(zip(matched.tolist(), partner[matched].tolist(), strict=True))
