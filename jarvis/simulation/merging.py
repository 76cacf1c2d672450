"""Stretches of launches: those that one graph launch could replace, those of the same work."""

import numpy as np
import polars as pl

from jarvis.changes import MergeLaunches
from jarvis.schemas.names import C
from jarvis.simulation.events import Int64s
from jarvis.simulation.graph import What
from jarvis.simulation.simulation import Simulation

LEAST_LAUNCHES = 2


def merged_launches(simulation: Simulation) -> tuple[MergeLaunches, ...]:
    """Return a change for each stretch of launches of a thread without a wait or a step mark."""
    graph, index = simulation.graph, simulation.index
    starts = np.flatnonzero(np.isin(graph.what, (What.CALL_START, What.MARK)))
    is_end = graph.what == What.CALL_END
    waiting = np.unique(graph.uid[is_end & index.waiting_calls])
    found: list[MergeLaunches] = []
    for thread in simulation.threads:
        own = starts[graph.thread[starts] == thread]
        breaks = (graph.what[own] == What.MARK) | np.isin(graph.uid[own], waiting)
        stretch = np.cumsum(breaks)
        launching = index.launch_calls[own] & ~breaks
        found += _stretches(graph.uid[own[launching]], stretch[launching])
    return tuple(found)


def _stretches(calls: Int64s, stretch: Int64s) -> list[MergeLaunches]:
    _, first, count = np.unique(stretch, return_index=True, return_counts=True)
    return [
        MergeLaunches(first=int(calls[start]), last=int(calls[start + size - 1]))
        for start, size in zip(first, count, strict=True)
        if size >= LEAST_LAUNCHES
    ]


def between_launches(simulation: Simulation, calls: Int64s) -> pl.DataFrame:
    """Return ``thread, start_ns, end_ns`` of host time from the first to the last of these calls
    that follow each other on a thread without the launch of other work between them."""
    graph = simulation.graph
    starts = np.flatnonzero((graph.what == What.CALL_START) & simulation.index.launch_calls)
    starts = starts[np.lexsort((graph.time[starts], graph.thread[starts]))]
    thread, is_own = graph.thread[starts], np.isin(graph.uid[starts], calls)
    is_new = np.append(True, (thread[1:] != thread[:-1]) | (is_own[1:] != is_own[:-1]))
    first = np.flatnonzero(is_new[: starts.size] & is_own)
    last = np.flatnonzero(np.append(is_new[1 : starts.size], True)[: starts.size] & is_own)
    return pl.DataFrame(
        {
            C.thread: thread[first].astype(np.int32),
            C.start_ns: graph.time[starts[first]] + graph.first_ns,
            C.end_ns: graph.time[starts[last]] + graph.first_ns,
        }
    ).filter(pl.col(C.end_ns) > pl.col(C.start_ns))
