"""Find what repeats in a sequence of names: the layers of a model in its kernels."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jarvis.perf_report.intervals import Int64s

MIN_REPEATS = 3
MIN_PERIOD = 2
MAX_PERIOD = 1000
"""Longest period that is searched for, to bound the time; a layer has tens of kernels."""

MIN_TIME_SHARE = 0.05
"""Minimum share of the time of a sequence that a period covers."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """``count`` repeats of ``period`` elements, from the position ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """Return the position behind the last repeat."""
        return self.start + self.period * self.count


def repeats(ids: Int64s, times: Int64s) -> list[Repeats]:
    """Return what repeats, by position: the stretch that takes most time, then the one outside it,
    while they take MIN_TIME_SHARE of the time.

    Of stretches with the same time that with the shortest period counts.

    Args:
        ids: The names as numbers, in order.
        times: Their durations.
    """
    passed = np.concatenate([[0], np.cumsum(times)])
    found = _within(ids, passed, 0, ids.size, MIN_TIME_SHARE * float(passed[-1]))
    return sorted(found, key=lambda part: part.start)


def _within(ids: Int64s, passed: Int64s, first: int, last: int, least: float) -> Iterator[Repeats]:
    """Yield the repeats from ``first`` to ``last`` that take at least ``least``; there are few."""
    if passed[last] - passed[first] < least:
        return
    best = longest_repeats(ids[first:last], passed[first : last + 1])
    if best is None or passed[first + best.stop] - passed[first + best.start] < least:
        return
    yield Repeats(first + best.start, best.period, best.count)
    yield from _within(ids, passed, first, first + best.start, least)
    yield from _within(ids, passed, first + best.stop, last, least)


def longest_repeats(ids: Int64s, passed: Int64s, min_period: int = MIN_PERIOD) -> Repeats | None:
    """Return the repeats that take most time, of those with the same time that with the shortest
    period; None if nothing repeats.

    Args:
        ids: The names as numbers, in order.
        passed: The time before each position, and that of all.
        min_period: Minimum period.
    """
    best: Repeats | None = None
    most = 0
    for period in range(min_period, min(ids.size // MIN_REPEATS, MAX_PERIOD) + 1):
        same = np.concatenate([[0], ids[:-period] == ids[period:], [0]]).astype(np.int8)
        edges = np.diff(same)
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        counts = (ends - starts + period) // period
        is_enough = counts >= MIN_REPEATS
        starts, counts = starts[is_enough], counts[is_enough]
        if not starts.size:
            continue
        taken = passed[starts + period * counts] - passed[starts]
        longest = int(np.argmax(taken))
        if taken[longest] > most:
            most = int(taken[longest])
            best = Repeats(int(starts[longest]), period, int(counts[longest]))
    return best
