"""Lengths of unions of intervals: busy time of GPU events.

Times are integer nanoseconds, so no length is rounded.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.core.arrays import Int64s
from jarvis.schemas.names import C

START = pl.col(C.ts_ns)
END = pl.col(C.ts_ns) + pl.col(C.dur_ns)


def microseconds(nanoseconds: pl.Expr) -> pl.Expr:
    """Convert nanoseconds (multiples of 0.5 below 2**53) to µs, correctly rounded.

    Polars multiplies by the reciprocal of a constant divisor, which can be off in the last digit;
    the divisor is a column here.
    """
    exact = nanoseconds.cast(pl.Float64)
    return exact / (exact * 0 + 1e3)


def least_ns(times: pl.Series) -> int | None:
    """Return the minimum of integer nanoseconds; None if there is none."""
    least = times.min()
    return least if isinstance(least, int) else None


def greatest_ns(times: pl.Series) -> int | None:
    """Return the maximum of integer nanoseconds; None if there is none."""
    greatest = times.max()
    return greatest if isinstance(greatest, int) else None


def busy_ns(events: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return ``by, busy_ns``: the length of the union of ``ts_ns, dur_ns`` intervals per group."""
    ordered = events.select(*by, C.ts_ns, END.alias(C.end_ns)).sort(*by, C.ts_ns)
    group = ordered.select(pl.struct(by).rle_id()).to_series().to_numpy()
    starts, ends = ordered[C.ts_ns].to_numpy(), ordered[C.end_ns].to_numpy()
    covered_from = starts.copy()
    is_later = group[1:] == group[:-1]
    reached = _running_max(ends, group)[:-1]
    np.maximum(starts[1:], reached, out=covered_from[1:], where=is_later)
    added = pl.Series(C.busy_ns, np.maximum(ends - covered_from, 0))
    return ordered[list(by)].hstack([added]).group_by(by).agg(pl.col(C.busy_ns).sum())


def _running_max(values: Int64s, group: NDArray[np.uint32]) -> Int64s:
    """Return the running maximum within each group; ``group`` is ascending.

    It is computed on ranks, offset by group, so that groups do not interfere.
    """
    ascending = np.argsort(values, kind="stable")
    base = group.astype(np.int64) * values.size
    keys = base.copy()
    keys[ascending] += np.arange(values.size)
    largest: Int64s = values[ascending[np.maximum.accumulate(keys) - base]]
    return largest


def covered_ns(events: pl.DataFrame) -> int:
    """Return the length of the union of all ``ts_ns, dur_ns`` intervals."""
    begins, ends = added_parts(events)
    return int((ends - begins).sum())


def covered_by_bin(events: pl.DataFrame, edges: Int64s) -> Int64s:
    """Return the covered time between each edge and the next, in ns."""
    covered: Int64s = np.diff(covered_until(events, edges))
    return covered


def covered_during(events: pl.DataFrame, starts: Int64s, ends: Int64s) -> Int64s:
    """Return the covered time in each span, in ns."""
    before, until = covered_until(events, np.stack([starts, ends]))
    covered: Int64s = until - before
    return covered


def covered_until(events: pl.DataFrame, times: Int64s) -> Int64s:
    """Return the covered time before each of ``times``, an array of any shape, in ns."""
    begins, ends = added_parts(events)
    if not begins.size:
        return np.zeros(times.shape, dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(ends - begins)])
    passed = np.searchsorted(ends, times, side="right")
    current = np.minimum(passed, begins.size - 1)
    running = np.where(passed < begins.size, np.maximum(times - begins[current], 0), 0)
    covered: Int64s = before[passed] + running
    return covered


def added_parts(events: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return begins and ends of what each interval adds to the union of the earlier ones, by
    time; together they are the union."""
    starts = events[C.ts_ns].to_numpy()
    order = np.argsort(starts, kind="stable")
    begins, ends = starts[order], (starts + events[C.dur_ns].to_numpy())[order]
    np.maximum(begins[1:], np.maximum.accumulate(ends)[:-1], out=begins[1:])
    is_added = ends > begins
    return begins[is_added], ends[is_added]
