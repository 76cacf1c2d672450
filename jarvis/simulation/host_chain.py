"""The order of host calls: which call follows which one, on its thread and across threads."""

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.intervals import covered_during
from jarvis.perf_report.timeline.host_spans import union
from jarvis.schemas.names import C
from jarvis.simulation.events import Calls, Recording, runs

SERIAL_OVERLAP = 0.1
"""Two threads whose busy times overlap by at most this share of the shorter one take turns."""

MAX_COMPARED_THREADS = 64
"""The busiest threads are compared with each other; any other thread follows only itself."""


def predecessors(recording: Recording) -> Int64s:
    """Return the position of the call that each call follows, or -1 if it follows none.

    It is the call with the latest end before the start of this one, on its thread or on a thread
    that takes turns with it. A call inside another one follows the last call that ended inside it.
    """
    calls = recording.calls
    found = np.full(len(calls), -1, np.int64)
    rows = _rows_by_thread(calls)
    turns = _threads_in_turns(recording)
    for thread, own in rows.items():
        others = [rows[other] for other in turns.get(thread, []) if other in rows]
        found[own] = _latest_before(calls, own, np.concatenate([own, *others]))
    is_first_inside = (calls.around >= 0) & (
        (found < 0) | (calls.end[found] <= calls.start[calls.around])
    )
    return np.where(is_first_inside, -1, found)


def _rows_by_thread(calls: Calls) -> dict[int, Int64s]:
    order = np.argsort(calls.thread, kind="stable")
    return {thread: order[part] for thread, part in runs(calls.thread[order]).items()}


def _latest_before(calls: Calls, rows: Int64s, candidates: Int64s) -> Int64s:
    """Return for each row the candidate with the latest end at or before its start, or -1.

    At the same instant only candidates at an earlier position count.
    """
    positions = np.concatenate([rows, candidates])
    times = np.concatenate([calls.start[rows], calls.end[candidates]])
    order = np.lexsort((positions, times))  # stable: a row comes before itself as a candidate
    is_candidate = order >= rows.size
    latest = np.maximum.accumulate(np.where(is_candidate, np.arange(order.size), -1))
    asked = np.flatnonzero(~is_candidate)
    before = latest[asked]
    found = np.full(rows.size, -1, np.int64)
    found[order[asked]] = np.where(before >= 0, positions[order[before]], -1)
    return found


def _threads_in_turns(recording: Recording) -> dict[int, list[int]]:
    """Return for each thread the threads of its process that take turns with it."""
    busy = {
        int(thread): union(spans).with_columns((pl.col(C.end_ns) - pl.col(C.ts_ns)).alias(C.dur_ns))
        for (thread,), spans in recording.busy.partition_by(C.thread, as_dict=True).items()
    }
    length = {thread: int(spans[C.dur_ns].sum()) for thread, spans in busy.items()}
    compared = sorted(busy, key=lambda thread: (-length[thread], thread))[:MAX_COMPARED_THREADS]
    process = recording.threads[C.pid].to_list()
    turns: dict[int, list[int]] = {thread: [] for thread in compared}
    for index, one in enumerate(compared):
        for other in compared[:index]:
            if process[one] == process[other]:
                shared = _overlap_ns(busy[one], busy[other])
                if shared <= SERIAL_OVERLAP * min(length[one], length[other]):
                    turns[one].append(other)
                    turns[other].append(one)
    return turns


def _overlap_ns(one: pl.DataFrame, other: pl.DataFrame) -> int:
    starts, ends = other[C.ts_ns].to_numpy(), other[C.end_ns].to_numpy()
    return int(covered_during(one, starts, ends).sum())
