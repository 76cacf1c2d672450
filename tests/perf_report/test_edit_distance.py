"""Longest common subsequences, checked against the textbook's quadratic table."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.tracelens.trace_diff.edit_distance import align

SEQUENCES = st.lists(st.integers(0, 4), max_size=14)


def pairs(a: list[int] | str, b: list[int] | str, max_differences: int) -> list[tuple[int, int]]:
    first, second = (np.array([int(x) for x in items], np.int64) for items in (a, b))
    return align(first, second, max_differences)


def longest(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("", "12", []),
        ("12", "", []),
        ("12", "34", []),
        ("123", "123", [(0, 0), (1, 1), (2, 2)]),
        ("123", "13", [(0, 0), (2, 1)]),
        ("13", "123", [(0, 0), (1, 2)]),
        ("9123", "1283", [(1, 0), (2, 1), (3, 3)]),
    ],
)
def test_equal_items_are_paired_in_order(a: str, b: str, expected: list[tuple[int, int]]) -> None:
    assert pairs(a, b, 1000) == expected


@given(SEQUENCES, SEQUENCES, st.sampled_from([1, 2, 3, 1000]))
def test_pairs_are_equal_ascend_and_are_as_many_as_can_be(
    a: list[int], b: list[int], max_differences: int
) -> None:
    found = pairs(a, b, max_differences)
    assert all(a[x] == b[y] for x, y in found)
    for (x, y), (next_x, next_y) in pairwise(found):
        assert x < next_x
        assert y < next_y
    if max_differences >= len(a) + len(b):
        assert len(found) == longest(a, b)


def test_above_the_limit_the_search_continues_from_the_furthest_point() -> None:
    # Two differences at a time: 9 is passed over, then 8, and 1 2 3 4 are found all the same.
    assert pairs("991234", "881234", 2) == [(2, 2), (3, 3), (4, 4), (5, 5)]


def test_long_lists_without_anything_in_common_take_linear_time() -> None:
    first = np.arange(20_000)
    assert align(first, first + 20_000) == []
