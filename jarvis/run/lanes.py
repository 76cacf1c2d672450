"""Events as lanes of a timeline: busy shares of bins for many events, stacked rows for few."""

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.intervals import covered_by_bin
from jarvis.schemas.names import C


def bin_edges(start_ns: int, end_ns: int, count: int) -> Int64s:
    """Return the edges of up to ``count`` bins of about equal length, none shorter than 1 ns."""
    length = end_ns - start_ns
    bins = max(min(count, length), 1)
    return np.array([start_ns + length * n // bins for n in range(bins + 1)], dtype=np.int64)


def binned(events: pl.DataFrame, edges: Int64s) -> pl.DataFrame:
    """Return the covered time of each bin in each row of a timeline, and its largest part.

    ``events``: ``row, what, ts_ns, dur_ns``. Returns ``row, what, start_ns, end_ns, busy_ns`` by
    row and time, without empty bins.
    """
    parts = [
        _binned_row(row, row_events, edges)
        for (row,), row_events in events.partition_by(C.row, as_dict=True).items()
    ]
    return pl.concat(parts) if parts else _binned_row("", events, edges).clear()


def _binned_row(row: object, events: pl.DataFrame, edges: Int64s) -> pl.DataFrame:
    busy = covered_by_bin(events, edges)
    parts = events.partition_by("what", as_dict=True) or {("",): events}
    whats = sorted(what for (what,) in parts)
    shares = [covered_by_bin(parts[what,], edges) for what in whats]
    most = np.argmax(np.stack(shares), axis=0)
    bins = pl.DataFrame({C.start_ns: edges[:-1], C.end_ns: edges[1:], C.busy_ns: busy}).select(
        pl.lit(str(row)).alias(C.row),
        pl.Series("what", whats, dtype=pl.String)[most].alias("what"),
        C.start_ns,
        C.end_ns,
        C.busy_ns,
    )
    return bins.filter(pl.col(C.busy_ns) > 0)


def stacked(events: pl.DataFrame) -> pl.DataFrame:
    """Add ``lane`` (from 0) to events, so that none overlaps another one of its row and lane.

    An event is below the events of its row that contain it, else in the first free lane.
    ``events``: ``row, ts_ns, dur_ns`` and others; returned by row and time.
    """
    ordered = events.sort(C.row, C.ts_ns, C.dur_ns, descending=[False, False, True])
    lanes: list[int] = []
    reached: list[int] = []
    current = None
    rows = ordered.select(
        C.row, C.ts_ns, (pl.col(C.ts_ns) + pl.col(C.dur_ns)).alias(C.end_ns)
    ).iter_rows()
    for row, start, end in rows:
        if row != current:
            current, reached = row, []
        lane = next(
            (n + 1 for n in range(len(reached))[::-1] if _contains(reached[n], start, end)), 0
        )
        while lane < len(reached) and reached[lane] > start:
            lane += 1
        reached[lane:] = [end, *reached[lane + 1 :]]
        lanes.append(lane)
    return ordered.with_columns(pl.Series("lane", lanes, dtype=pl.Int64))


def _contains(reached: int, start: int, end: int) -> bool:
    """Return whether the event that ends a lane at ``reached`` still runs and outlasts another
    one."""
    return reached > start and reached >= end
