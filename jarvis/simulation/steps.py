"""The bounds of the steps of a replay, found as the table ``steps`` finds the recorded ones."""

from collections.abc import Callable

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.timeline.steps import StepSource, TimedBy, timed_by
from jarvis.schemas.names import C
from jarvis.simulation.edges import Kind
from jarvis.simulation.graph import Graph, What

StepBounds = Callable[[Int64s], Int64s]
"""Returns where each step begins and the last one ends, in ns, for the times of all nodes."""


def step_bounds(graph: Graph, steps: pl.DataFrame) -> StepBounds:
    """Return the function that finds the steps of a replay.

    Without marks the window is the step. Steps timed by their marks last from mark to mark, the
    last one until the end of the window; steps timed by the GPU last from the end of the work of
    the step before, or from the start of their own, to the end of their own. Where the GPU gets
    faster than the host, which runs ahead of it, the host sets the pace.
    """
    marks = _marks(graph, steps)
    if not marks.size:
        window = [graph.begin, graph.end]
        return lambda times: times[window]
    if timed_by(steps) is TimedBy.MARKS:
        bounds = np.append(marks[:-1], graph.end)
        return lambda times: times[bounds]
    start = steps.drop_nulls(C.dur_ns)[C.start_ns].min()
    by_gpu = _by_gpu(graph, marks, (start if isinstance(start, int) else 0) - graph.first_ns)
    if steps[C.source][0] == StepSource.ENGINE:
        return by_gpu
    return lambda times: max(by_gpu(times), times[marks], key=np.ptp)


def tail_ns(graph: Graph, steps: pl.DataFrame) -> int:
    """Return for how long the window goes on after the last mark, if marks time the steps."""
    marks = _marks(graph, steps)
    if not marks.size or timed_by(steps) is not TimedBy.MARKS:
        return 0
    return int(graph.time[graph.end] - graph.time[marks[-1]])


def _marks(graph: Graph, steps: pl.DataFrame) -> Int64s:
    """Return the nodes that mark the steps; none where the recording is the step."""
    is_marked = not steps.is_empty() and steps[C.source][0] != StepSource.RECORDING
    return np.flatnonzero((graph.what == What.MARK) & is_marked)


def _by_gpu(graph: Graph, marks: Int64s, start_ns: int) -> StepBounds:
    """Return the function for steps timed by the GPU, the first of which starts at ``start_ns``."""
    launches = np.flatnonzero(graph.kind == Kind.LAUNCH)
    launched = graph.time[graph.src[launches]]
    step = np.searchsorted(graph.time[marks], launched, side="right") - 1
    own = (step >= 0) & (launched <= graph.time[marks[-1]])
    starts, step = graph.dst[launches[own]], np.minimum(step[own], marks.size - 2)
    durations = np.flatnonzero(
        (graph.kind == Kind.DURATION) & (graph.what[graph.dst] == What.GPU_END)
    )
    end_of = np.full(graph.time.size, -1, np.int64)
    end_of[graph.src[durations]] = graph.dst[durations]
    ends = end_of[starts]
    begins = starts[graph.time[starts] >= start_ns]

    def found(times: Int64s) -> Int64s:
        last = np.full(marks.size - 1, np.iinfo(np.int64).min)
        np.maximum.at(last, step, times[ends])
        has_work = last > np.iinfo(np.int64).min
        reached = np.maximum.accumulate(last)[has_work]
        first = times[begins].min() if begins.size else 0
        return np.append(first, reached)

    return found
