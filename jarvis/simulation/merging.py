"""Stretches of launches that one graph launch could replace."""

import numpy as np

from jarvis.changes import MergeLaunches
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
