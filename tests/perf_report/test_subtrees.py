"""Queries of ranges of the call tree."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jarvis.core.arrays import has_any, in_any

SIZE = 8
RANGES = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted), max_size=5)


def bounds(ranges: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([first for first, _ in ranges], np.int64),
        np.array([end for _, end in ranges], np.int64),
    )


def test_a_range_ends_before_its_end() -> None:
    counts = np.array([0, 2, 0])
    assert has_any(counts, *bounds([[0, 1], [0, 2], [1, 2], [2, 3]])).tolist() == [
        False,
        True,
        True,
        False,
    ]
    assert in_any(3, *bounds([[0, 1], [2, 3]])).tolist() == [True, False, True]


def test_an_empty_range_contains_nothing() -> None:
    assert has_any(np.array([1]), *bounds([[0, 0], [1, 1]])).tolist() == [False, False]
    assert in_any(1, *bounds([[1, 1]])).tolist() == [False]


@given(st.lists(st.integers(0, 2), min_size=SIZE, max_size=SIZE), RANGES)
def test_ranges_that_contain_points(counts: list[int], ranges: list[list[int]]) -> None:
    expected = [sum(counts[first:end]) > 0 for first, end in ranges]
    assert has_any(np.array(counts), *bounds(ranges)).tolist() == expected


@given(RANGES)
def test_rows_in_ranges(ranges: list[list[int]]) -> None:
    covered = {row for first, end in ranges for row in range(first, end)}
    assert in_any(SIZE, *bounds(ranges)).tolist() == [row in covered for row in range(SIZE)]
