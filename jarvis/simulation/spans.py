"""Stretches of time: their union, and how much of it lies before a moment."""

from collections.abc import Iterable

import numpy as np

from jarvis.simulation.events import Int64s


def union(spans: Iterable[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    """Return disjoint spans by time."""
    times = np.array(sorted(spans), np.int64)
    begins, stops = times[:, 0], np.maximum.accumulate(times[:, 1])
    is_new = np.append(True, begins[1:] > stops[:-1])
    is_last = np.append(is_new[1:], True)
    return begins[is_new], stops[is_last]


def length_before(begins: Int64s, stops: Int64s, times: Int64s) -> Int64s:
    """Return the time that disjoint spans cover before each of ``times``."""
    total = np.concatenate([[0], np.cumsum(stops - begins)])
    index = np.searchsorted(begins, times, side="right")
    last_stop = np.concatenate([[0], stops])[index]
    result: Int64s = total[index] - np.maximum(last_stop - times, 0) * (index > 0)
    return result
