"""Recorded and simulated steps as events on lanes: calls of host threads and work of streams."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.run.run import Run
from jarvis.run.timeline import Timeline
from jarvis.schemas.names import C
from jarvis.simulation.edges import Kind
from jarvis.simulation.graph import What
from jarvis.text.format import counted

LAUNCH, WAITING, OTHER_CALL = "Launch call", "Waiting call", "Other call"
UNNAMED_CALL = "runtime call"
MAX_THREADS, MAX_STREAMS = 4, 8
"""Maximum number of lanes of a step, busiest first."""


@dataclass(frozen=True)
class Lane:
    """A host thread or a stream: key of its events, and label."""

    key: str
    label: str


@dataclass(frozen=True)
class StepLanes:
    """The events of a step: ``row, uid, name, what, operation, input_dims, ts_ns, dur_ns``.

    ``ts_ns`` is the time since the begin of the step, which takes ``length_ns``.
    """

    events: pl.DataFrame
    length_ns: int


@dataclass(frozen=True)
class ReplayedSteps:
    """The steps of a run that can be simulated; the events of its graph are cached."""

    timeline: Timeline

    @property
    def run(self) -> Run:
        """The run."""
        return self.timeline.run

    @cached_property
    def names(self) -> list[str]:
        """The names of the recorded steps; numbers if the trace does not name them."""
        count = len(self.run.simulation.recorded.steps_ns)
        steps = self.run.table("steps")
        if C.dur_ns in steps.columns:
            names = steps.drop_nulls([C.dur_ns, C.name])[C.name].to_list()
            if len(names) == count == len(set(names)):
                return names
        return [f"Step {number}" for number in range(1, count + 1)] if count > 1 else ["Recording"]

    @property
    def median(self) -> int:
        """The position of the recorded step with the median time; of two, of the shorter one."""
        times = self.run.simulation.recorded.steps_ns
        return int(np.argsort(times, kind="stable")[(len(times) - 1) // 2])

    def step(self, times: Int64s, number: int) -> StepLanes:
        """Return the events of a step, for the times of the nodes of the graph."""
        bounds = self.run.simulation.step_bounds(times)
        place = min(number, bounds.size - 2)
        begin, end = int(bounds[place]), int(bounds[place + 1])
        start = times[self._start] - begin
        duration = times[self._end] - times[self._start]
        inside = (start < end - begin) & (start + duration > 0) & (duration > 0)
        events = self._events.with_columns(
            pl.Series(C.ts_ns, start), pl.Series(C.dur_ns, duration)
        ).filter(pl.Series(inside))
        return StepLanes(events, end - begin)

    def lanes(self, steps: Sequence[StepLanes]) -> tuple[list[Lane], str]:
        """Return the busiest lanes of some steps, threads first, and which ones are left out."""
        busy = (
            pl.concat(step.events for step in steps)
            .group_by(C.row, "is_gpu", C.device, C.stream, C.thread)
            .agg(pl.col(C.dur_ns).sum())
            .sort(C.dur_ns, C.row, descending=[True, False])
        )
        threads, streams = busy.filter(~pl.col("is_gpu")), busy.filter("is_gpu")
        hidden = [
            counted(every.height - shown, noun)
            for every, shown, noun in (
                (threads, MAX_THREADS, "thread"),
                (streams, MAX_STREAMS, "stream"),
            )
            if every.height > shown
        ]
        rows = [
            *threads.head(MAX_THREADS).sort(C.thread)[C.row],
            *streams.head(MAX_STREAMS).sort(C.device, C.stream, nulls_last=True)[C.row],
        ]
        return [Lane(row, self._labels.get(row, row)) for row in rows], " and ".join(hidden)

    @cached_property
    def _edges(self) -> Int64s:
        graph = self.run.simulation.graph
        return np.flatnonzero(graph.kind == Kind.DURATION)

    @cached_property
    def _start(self) -> Int64s:
        return self.run.simulation.graph.src[self._edges].astype(np.int64)

    @cached_property
    def _end(self) -> Int64s:
        return self.run.simulation.graph.dst[self._edges].astype(np.int64)

    @cached_property
    def _labels(self) -> dict[str, str]:
        threads = self.timeline.threads[C.thread].to_list()
        return {f"thread {thread}": self.timeline.thread_label(thread) for thread in threads}

    @cached_property
    def _events(self) -> pl.DataFrame:
        """The events of the graph in the order of ``_edges``, without times."""
        graph, index = self.run.simulation.graph, self.run.simulation.index
        calls = np.where(index.launch_calls[self._start], LAUNCH, OTHER_CALL)
        calls = np.where(index.waiting_calls[self._end], WAITING, calls)
        names = pl.DataFrame(schema={C.uid: pl.Int64, C.name: pl.String})
        if "host_slices" in self.run.tables:
            names = self.run.table("host_slices").select(C.uid, C.name)
        work = self.timeline.gpu_events.select(
            *(C.uid, C.name, "what", "operation", C.input_dims, C.device, C.stream),
            pl.col("track").alias(C.row),
        )
        thread = pl.format("thread {}", C.thread)
        return (
            pl.DataFrame(
                {
                    C.uid: graph.uid[self._end].astype(np.int64),
                    C.thread: graph.thread[self._end].astype(np.int64),
                    "call": calls,
                    "is_gpu": graph.what[self._end] == What.GPU_END,
                }
            )
            .join(work, on=C.uid, how="left", maintain_order="left")
            .join(names, on=C.uid, how="left", maintain_order="left", suffix="_of_call")
            .with_columns(
                pl.coalesce(C.row, thread).alias(C.row),
                what=pl.coalesce("what", "call"),
                name=pl.coalesce(C.name, "name_of_call", pl.lit(UNNAMED_CALL)),
            )
        )
