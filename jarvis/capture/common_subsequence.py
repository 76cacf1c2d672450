"""Longest common subsequence of two sequences of names.

Source: E. W. Myers, An O(ND) Difference Algorithm and Its Variations, Algorithmica 1 (1986).
"""

from collections.abc import Hashable, Sequence

Pair = tuple[int, int]


def common_subsequence(
    left: Sequence[Hashable], right: Sequence[Hashable], max_edits: int
) -> list[Pair] | None:
    """Return the positions of a longest common subsequence, as pairs in order.

    The time is that of the smaller sequence times the number of insertions and deletions. None if
    more than ``max_edits`` of them are needed.
    """
    start, end = 0, min(len(left), len(right))
    while start < end and left[start] == right[start]:
        start += 1
    tail = 0
    while tail < end - start and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    middle = _edit_path(left[start : len(left) - tail], right[start : len(right) - tail], max_edits)
    if middle is None:
        return None
    return [
        *((i, i) for i in range(start)),
        *((i + start, j + start) for i, j in middle),
        *((len(left) - k, len(right) - k) for k in range(tail, 0, -1)),
    ]


def _edit_path(
    left: Sequence[Hashable], right: Sequence[Hashable], max_edits: int
) -> list[Pair] | None:
    """Return the matches on a shortest edit path, found breadth-first by number of edits.

    ``furthest[k]`` is the largest position of ``left`` reached on the diagonal ``k``, the position
    of ``left`` minus that of ``right``.
    """
    height, width = len(left), len(right)
    furthest = {1: 0}
    history = []
    for edits in range(min(max_edits, height + width) + 1):
        history.append(furthest.copy())
        for k in range(-edits, edits + 1, 2):
            i = _reached(furthest, k, edits)
            j = i - k
            while i < height and j < width and left[i] == right[j]:
                i, j = i + 1, j + 1
            furthest[k] = i
            if i >= height and j >= width:
                return _matches(history, height, width)
    return None


def _reached(furthest: dict[int, int], k: int, edits: int) -> int:
    """Return the position of ``left`` after the edit that leads to a diagonal."""
    if k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1]):
        return furthest[k + 1]
    return furthest[k - 1] + 1


def _matches(history: list[dict[int, int]], i: int, j: int) -> list[Pair]:
    """Follow the path back from the end and return its matches in order."""
    pairs = []
    for edits in range(len(history) - 1, -1, -1):
        furthest, k = history[edits], i - j
        start = _reached(furthest, k, edits)
        while i > start:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        i, j = (i, j - 1) if down else (i - 1, j)
    return pairs[::-1]
