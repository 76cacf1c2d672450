"""Unions of intervals."""

import numpy as np
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from jarvis.perf_report.intervals import busy_ns, covered_during, covered_ns, microseconds

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


def frame(intervals: list[tuple[int, int]], owner: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        [(owner, start, length) for start, length in intervals],
        schema={"owner": pl.Int64, "ts_ns": pl.Int64, "dur_ns": pl.Int64},
        orient="row",
    )


def test_an_overlap_counts_once_and_a_gap_not_at_all() -> None:
    assert covered_ns(frame([(0, 10), (5, 10), (6, 2), (20, 5)])) == 20


def test_empty_intervals_cover_nothing() -> None:
    assert covered_ns(frame([])) == 0


def test_groups_do_not_mix() -> None:
    events = pl.concat([frame([(0, 10), (5, 10)], owner=1), frame([(5, 10)], owner=2)])
    busy = dict(busy_ns(events, ["owner"]).iter_rows())
    assert busy == {1: 15, 2: 10}


@given(INTERVALS)
def test_the_union_is_as_long_as_the_points_it_covers(intervals: list[tuple[int, int]]) -> None:
    points = {t for start, length in intervals for t in range(start, start + length)}
    assert covered_ns(frame(intervals)) == len(points)


@given(INTERVALS, INTERVALS)
def test_the_union_within_spans_is_as_long_as_the_points_in_each(
    intervals: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    points = {t for start, length in intervals for t in range(start, start + length)}
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    ends = starts + np.array([length for _, length in spans], dtype=np.int64)
    assert covered_during(frame(intervals), starts, ends).tolist() == [
        len(points & {*range(start, start + length)}) for start, length in spans
    ]


@given(INTERVALS, INTERVALS)
def test_groups_are_as_long_as_the_points_that_each_covers(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    events = pl.concat([frame(second, owner=2), frame(first, owner=1)])
    expected = {
        owner: len({t for start, length in intervals for t in range(start, start + length)})
        for owner, intervals in ((1, first), (2, second))
        if intervals
    }
    assert dict(busy_ns(events, ["owner"]).iter_rows()) == expected


@given(INTERVALS, INTERVALS)
def test_more_intervals_never_cover_less(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    both = covered_ns(frame(first + second))
    assert max(covered_ns(frame(first)), covered_ns(frame(second))) <= both
    assert both <= covered_ns(frame(first)) + covered_ns(frame(second))


@given(st.lists(st.integers(0, 2**47), min_size=1, max_size=50))
@example([2905])
def test_microseconds_are_the_nearest_double(half_nanoseconds: list[int]) -> None:
    values = pl.DataFrame({"ns": [half / 2 for half in half_nanoseconds]}).select(
        microseconds(pl.col("ns")), total=microseconds(pl.col("ns").cast(pl.Int64).sum())
    )
    assert values["ns"].to_list() == [half / 2000 for half in half_nanoseconds]
    assert values["total"][0] == sum(half // 2 for half in half_nanoseconds) / 1000
