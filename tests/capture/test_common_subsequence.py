"""The longest common subsequence, against the textbook recurrence."""

import random
from itertools import pairwise

import pytest

from jarvis.capture.alignment import common_subsequence


def length_by_table(left: list[int], right: list[int]) -> int:
    lengths = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            longer = max(lengths[i][j + 1], lengths[i + 1][j])
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if a == b else longer
    return lengths[-1][-1]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_common_and_longest(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(50):
        left, right = (
            [source.randint(0, 3) for _ in range(source.randint(0, 12))] for _ in range(2)
        )
        pairs = common_subsequence(left, right, 24)
        assert pairs is not None
        assert len(pairs) == length_by_table(left, right)
        assert all(left[i] == right[j] for i, j in pairs)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))


def test_too_many_edits_give_none() -> None:
    assert common_subsequence([1, 2, 3], [4, 5, 6], 5) is None
    assert common_subsequence([1, 2, 3], [4, 5, 6], 6) == []
