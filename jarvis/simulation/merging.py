"""Stretches of launches that one graph launch could replace."""

import numpy as np
import polars as pl

from jarvis.changes import MergeLaunches
from jarvis.core.arrays import Bools, Int64s
from jarvis.perf_report.timeline.host_spans import DATA_LOADING
from jarvis.schemas.names import C
from jarvis.simulation.graph import What
from jarvis.simulation.simulation import Simulation

MIN_LAUNCHES = 2


def merged_launches(simulation: Simulation) -> tuple[MergeLaunches, ...]:
    """Return a change for each stretch of launches of a thread without a wait, a step mark, or the
    loading of data on any thread: what follows these cannot be launched before."""
    graph, index = simulation.graph, simulation.index
    is_start = graph.what == What.CALL_START
    is_break = (graph.what == What.MARK) | (is_start & _waits_inside(simulation))
    loads = simulation.tables["sim_spans"].filter(pl.col(C.cause) == DATA_LOADING)
    bounds = loads.select(pl.concat_list(C.start_ns, C.end_ns).explode().sort()).to_series()
    stretch = np.cumsum(is_break)
    stretch += np.searchsorted(bounds.to_numpy() - graph.first_ns, graph.time, side="right")
    launches = is_start & index.launch_calls & ~is_break
    found: list[MergeLaunches] = []
    for thread in simulation.threads:
        own = launches & (graph.thread == thread)
        found += _stretches(graph.uid[own], stretch[own])
    return tuple(found)


def _waits_inside(simulation: Simulation) -> Bools:
    """Return whether the node is the start of a call that waits for GPU work, or has one inside."""
    graph, index = simulation.graph, simulation.index
    _, edges = index.call_edge
    starts, ends = graph.src[edges], graph.dst[edges]
    found = np.zeros(graph.time.size, np.bool_)
    for thread in simulation.threads:
        waited = np.cumsum(index.waiting_calls & (graph.thread == thread))
        own = graph.thread[starts] == thread
        found[starts[own]] = waited[ends[own]] > waited[starts[own]]
    return found


def _stretches(calls: Int64s, stretch: Int64s) -> list[MergeLaunches]:
    _, first, count = np.unique(stretch, return_index=True, return_counts=True)
    return [
        MergeLaunches(first=int(calls[start]), last=int(calls[start + size - 1]))
        for start, size in zip(first, count, strict=True)
        if size >= MIN_LAUNCHES
    ]
