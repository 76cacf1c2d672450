"""Replay a step under changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import polars as pl

from jarvis import impact
from jarvis.changes import COMPUTE, Change, ScaleGpu, Several, Work
from jarvis.core.arrays import Bools, Float64s, Int64s
from jarvis.core.errors import NotSimulatedError
from jarvis.perf_report.work import COMPUTE as COMPUTE_KIND
from jarvis.schemas.names import C
from jarvis.simulation.changed_weights import Index, changed_weights
from jarvis.simulation.graph import Graph, What
from jarvis.simulation.path import (
    UNLINKED_WORK,
    Path,
    PathPart,
    critical_path,
    path_parts,
    replayed,
)
from jarvis.simulation.quality import Grade, Stall, stall_edges
from jarvis.simulation.steps import StepBounds, step_bounds, tail_ns
from jarvis.simulation.stored import HELD, SimulationInfo, stored_graph


@dataclass(frozen=True)
class StepTimes:
    """The times of the steps in a replay.

    ``bounds_ns`` is where each step begins and the last one ends. ``tail_ns`` is how long the last
    one was recorded to go on after its mark, until the end of its GPU work.
    """

    bounds_ns: tuple[int, ...]
    tail_ns: int

    @property
    def steps_ns(self) -> tuple[int, ...]:
        """The duration of each step."""
        return tuple(np.diff(self.bounds_ns).tolist())

    @property
    def step_ns(self) -> float:
        """The mean of the steps. The last one ends with its mark, as in the table ``steps``, but
        gains what its GPU work after it gains, as a step that follows waits for that."""
        steps = np.diff(self.bounds_ns)
        steps[-1:] -= self.tail_ns
        return float(np.mean(steps.clip(min=0)))


@dataclass(frozen=True)
class Replay(StepTimes):
    """A replay: times in ns of the window, of each step and of the GPU work that runs in the
    recorded steps, and its path, which has an entry for each event on it."""

    window_ns: int
    gpu_time_ns: int
    path: Path


MAX_REPLAYS, MAX_SAVED, MAX_WORK = 64, 4096, 16
"""Number of replays, of savings, and of the events of some work that are stored: a slider must not
fill a server's memory."""

MAX_SLOWDOWN = 64.0
"""An operation that can take that many times as long never moves the step."""

SLACK_STEP, SLACK_NS = 1.05, 1_000
"""Precision of a slowdown, as a factor, and of an unchanged step."""


NEEDED = ("gpu_work", "operations", "steps", "step_gaps", "collectives")
"""Tables of a run that a simulation reads, besides those of its graph."""


class Simulation:
    """The recorded steps of a run, and how long they take under changes.

    Args:
        graph: The dependencies of the recording.
        tables: The tables of the run, with NEEDED and ``sim_spans``.
        stalls: Unexplained time that every replay takes as given.
    """

    def __init__(
        self, graph: Graph, tables: Mapping[str, pl.DataFrame], stalls: Iterable[Stall] = ()
    ) -> None:
        self.graph, self.tables = graph, tables
        self.index = Index(graph, stall_edges(graph, stalls))
        self._replayed: dict[str, Replay] = {}
        self._saved_ms: dict[bytes, float] = {}
        self._places_of: dict[Work, Int64s] = {}
        self.fused_of: dict[tuple[object, ...], list[Any]] = {}
        """What ``of_findings`` knows of the chains that findings fuse, the same at all targets."""
        self._factors: tuple[float, Float64s] = 0.0, np.empty(0)

    @classmethod
    def of(cls, tables: Mapping[str, pl.DataFrame], info: SimulationInfo | None) -> "Simulation":
        """Return the simulation of a run.

        Raises:
            NotSimulatedError: Step times of this run cannot be simulated.
        """
        if info is None or not {*NEEDED} <= tables.keys():
            raise NotSimulatedError(
                "the run is from before step times were simulated; analyze the trace again"
            )
        if info.quality.grade is Grade.NOT_SIMULATED:
            raise NotSimulatedError(info.quality.reason or "the quality of its graph is not known")
        return cls(stored_graph(tables, info), tables, info.quality.stalls)

    @cached_property
    def recorded(self) -> "Replay":
        """The recording."""
        return self.replay([])

    def replay(self, changes: Iterable[Change]) -> "Replay":
        """Return the replay under changes that are made together.

        Raises:
            ChangeError: A change is not possible in this trace.
        """
        together = Several(changes=tuple(changes))
        key = together.model_dump_json()
        if (known := self._replayed.get(key)) is not None:
            return known
        weights = changed_weights(self.index, self, together.changes)
        times, edges = replayed(self.graph, weights)
        found = Replay(
            window_ns=int(times[self.graph.end] - times[self.graph.begin]),
            bounds_ns=tuple(self.step_bounds(times).tolist()),
            tail_ns=self._tail_ns,
            gpu_time_ns=int(weights[self._gpu_edges_of_steps].sum()),
            path=critical_path(self.graph, times, edges, weights),
        )
        if len(self._replayed) >= MAX_REPLAYS:
            self._replayed.clear()
        self._replayed[key] = found
        return found

    @cached_property
    def _tail_ns(self) -> int:
        return tail_ns(self.graph, self.tables["steps"])

    @cached_property
    def _gpu_edges_of_steps(self) -> Int64s:
        """The duration edges of the GPU events that run in the recorded steps."""
        graph, edges = self.graph, self.index.gpu_edge[1]
        bounds = self.step_bounds(graph.time)
        begins, ends = graph.time[graph.src[edges]], graph.time[graph.dst[edges]]
        in_steps: Int64s = edges[(begins < bounds[-1]) & (ends > bounds[0])]
        return in_steps

    @cached_property
    def threads(self) -> list[int]:
        """The numbers of the threads whose calls are in the graph."""
        found = np.unique(self.graph.thread[self.graph.what == What.CALL_START])
        return [int(thread) for thread in found]

    @cached_property
    def call_starts(self) -> pl.DataFrame:
        """The calls in the graph and when they start (``uid, thread, start_ns``)."""
        starts = np.flatnonzero(self.graph.what == What.CALL_START)
        return pl.DataFrame(
            {
                C.uid: self.graph.uid[starts],
                C.thread: self.graph.thread[starts].astype(np.int64),
                C.start_ns: self.graph.time[starts] + self.graph.first_ns,
            }
        )

    @cached_property
    def compute_saved_ms(self) -> float:
        """What all steps together gain if no kernel took any time: less GPU work saves no more."""
        return self.steps_saved_ms([ScaleGpu(work=Work(category=COMPUTE), factor=0)])

    @cached_property
    def waiting_calls(self) -> Int64s:
        """The calls that wait for GPU work."""
        return np.unique(self.graph.uid[self.index.waiting_calls])

    @cached_property
    def step_bounds(self) -> StepBounds:
        """The function that finds the steps in the times of the nodes."""
        return step_bounds(self.graph, self.tables["steps"])

    def node_times(self, changes: Iterable[Change]) -> Int64s:
        """Return the time of each node of the graph under changes; raise as ``replay``."""
        return replayed(self.graph, changed_weights(self.index, self, changes))[0]

    def steps_saved_ms(self, changes: Iterable[Change]) -> float:
        """Return what all steps together gain."""
        together = Several(changes=tuple(changes))
        key = _digest(together)
        if (known := self._saved_ms.get(key)) is None:
            steps_ns = sum(self.step_times(together.changes).steps_ns)
            known = (sum(self.recorded.steps_ns) - steps_ns) / 1e6
            if len(self._saved_ms) >= MAX_SAVED:
                self._saved_ms.clear()
            self._saved_ms[key] = known
        return known

    def step_times(self, changes: Iterable[Change]) -> StepTimes:
        """Return the steps of a replay under changes, of which nothing else is kept; raise as
        ``replay``."""
        bounds = self.step_bounds(self.node_times(changes))
        return StepTimes(tuple(bounds.tolist()), self._tail_ns)

    def saved_ns(self, changes: Iterable[Change]) -> int:
        """Return what the window gains; negative if it takes longer."""
        return self.recorded.window_ns - self.replay(changes).window_ns

    def slowdown(self, work: Work) -> float:
        """Return how many times as long GPU work could take without moving the window.

        At most MAX_SLOWDOWN; within SLACK_STEP.
        """

        graph = self.graph

        def moves(factor: float) -> bool:
            times = self.node_times([ScaleGpu(work=work, factor=factor)])
            return int(times[graph.end] - times[graph.begin]) - graph.window_ns > SLACK_NS

        if not moves(MAX_SLOWDOWN):
            return MAX_SLOWDOWN
        low, high = 1.0, MAX_SLOWDOWN
        while high / low > SLACK_STEP:
            middle = float(np.sqrt(low * high))
            low, high = (low, middle) if moves(middle) else (middle, high)
        return low

    def path_parts(self, replay: Replay) -> list[PathPart]:
        """Return the parts of the critical path in the steps of a replay: GPU work by category,
        host time by cause. Together they take as long as the steps."""
        spans = self.tables["sim_spans"]
        path = replay.path.within(replay.bounds_ns[0], replay.bounds_ns[-1])
        return path_parts(self.graph, path, self.names_of_work, spans)

    @cached_property
    def names_of_work(self) -> dict[int, str]:
        categories = self.tables["operations"].select(
            pl.col(C.uid).alias(C.operation_uid), C.category
        )
        work = self.tables["gpu_work"].join(categories, on=C.operation_uid, how="left")
        name = pl.when(pl.col(C.kind) == COMPUTE_KIND).then(C.category).otherwise(C.kind)
        named = work.select(C.uid, name.fill_null(UNLINKED_WORK))
        return dict(named.iter_rows())

    # What changes mean in the tables (``changed_weights.Tables``).

    def edges(self, work: Work) -> Int64s:
        """Return the duration edges of the GPU events of some work."""
        edges: Int64s = self.index.gpu_edge[1][self._places(work)]
        return edges

    def _places(self, work: Work) -> Int64s:
        """Return where the GPU events of some work are in ``index.gpu_edge``."""
        if (known := self._places_of.get(work)) is None:
            uids = self.index.gpu_edge[0]
            is_own = np.isin(uids, work.uids) if work.uids else np.zeros(uids.size, np.bool_)
            if work.operations:
                is_own |= self._is_of_rows(self.rows_of(work.operations))
            if work.category == COMPUTE:
                events = self.tables["gpu_work"]
                compute = events[C.uid].filter(events[C.kind] == COMPUTE_KIND)
                is_own |= np.isin(uids, compute.to_numpy())
            elif work.category is not None:
                own = self.tables["operations"][C.category] == work.category
                is_own |= self._is_of_rows(own.arg_true().to_numpy())
            known = np.flatnonzero(is_own)
            if len(self._places_of) >= MAX_WORK:
                self._places_of.clear()
            self._places_of[work] = known
        return known

    def _is_of_rows(self, rows: Int64s) -> Bools:
        """Return whether each event of ``index.gpu_edge`` is of these rows of ``operations``."""
        is_wanted = np.zeros(self._operations[0].size + 1, np.bool_)
        is_wanted[rows] = True
        is_wanted[-1] = False  # events that belong to no operation
        is_own: Bools = is_wanted[self.operation_rows]
        return is_own

    def rows_of(self, operations: Sequence[int] | Int64s) -> Int64s:
        """Return the rows of operations in the table ``operations``, -1 of those not in it."""
        uids, rows = self._operations
        wanted = np.asarray(operations, np.int64)
        if not uids.size:
            return np.full(wanted.size, -1)
        place = np.minimum(np.searchsorted(uids, wanted), uids.size - 1)
        return np.where(uids[place] == wanted, rows[place], -1)

    @cached_property
    def _operations(self) -> tuple[Int64s, Int64s]:
        """The operations in order, and the row of each in the table ``operations``."""
        uids = self.tables["operations"][C.uid].to_numpy()
        rows = np.argsort(uids, kind="stable")
        return uids[rows], rows

    @cached_property
    def operation_rows(self) -> Int64s:
        """The row in ``operations`` of each event of ``index.gpu_edge``, -1 if it has none."""
        events = self.tables["gpu_work"].select(C.uid, C.operation_uid).drop_nulls()
        events = events.unique(C.uid, keep="first")  # a run of another machine can repeat them
        graph_events = pl.DataFrame({C.uid: self.index.gpu_edge[0]})
        found = graph_events.join(events, on=C.uid, how="left", maintain_order="left")
        return self.rows_of(found[C.operation_uid].fill_null(-1).to_numpy())

    def gpu_ns(self, operations: Sequence[int]) -> int:
        """Return the recorded time of the GPU work of operations."""
        rows = self.rows_of(operations)
        return int(self._gpu_ns_of_rows[rows[rows >= 0]].sum())

    @cached_property
    def _gpu_ns_of_rows(self) -> Int64s:
        """The recorded time of the GPU work of each row of ``operations``."""
        events = self.tables["gpu_work"].select(C.operation_uid, C.dur_ns).drop_nulls()
        rows = self.rows_of(events[C.operation_uid].to_numpy())
        gpu_ns = np.zeros(self._operations[0].size + 1, np.int64)
        np.add.at(gpu_ns, rows, events[C.dur_ns].to_numpy())
        return gpu_ns[:-1]

    def target_factors(self, work: Work, target_pct: float) -> tuple[Int64s, Float64s]:
        """Return the duration edges of operations below a target, and the factor of each.

        An operation reaches the target as a whole, so all its events have one factor, which leaves
        them KERNEL_FLOOR_US on average.
        """
        places = self._places(work)
        factors = np.append(self.operation_factors(target_pct), 1.0)[self.operation_rows[places]]
        is_below = factors < 1
        return self.index.gpu_edge[1][places[is_below]], factors[is_below]

    def has_efficiency(self, work: Work) -> bool:
        """Return whether the efficiency of any operation of some work is known."""
        factors = np.append(self.operation_factors(impact.FULL_PCT), np.nan)
        return not bool(np.isnan(factors[self.operation_rows[self._places(work)]]).all())

    def operation_factors(self, target_pct: float) -> Float64s:
        """Return the factor by which each of ``operations`` gets shorter at a target; NaN without a
        reliable efficiency. Those of the last target are kept, as a page needs them twice."""
        known_pct, factors = self._factors
        if known_pct == target_pct:
            return factors
        is_rated = impact.has_efficiency() & (pl.col(C.pct_roofline) <= impact.ANOMALY_PCT)
        factor = 1 - impact.saved_us(target_pct) / pl.col(C.kernel_time_us)
        found = self.tables["operations"].select(pl.when(is_rated).then(factor))
        factors = found.to_series().cast(pl.Float64).to_numpy()
        self._factors = target_pct, factors
        return factors

    def fastest_ns(self, uids: Sequence[int]) -> Int64s:
        """Return for each collective the time of the fastest of its kind, group and size."""
        rows = self._fastest
        wanted = pl.DataFrame({C.uid: uids}, schema={C.uid: pl.Int64})
        return wanted.join(rows, on=C.uid, how="left", maintain_order="left")["fastest"].to_numpy()

    @cached_property
    def _fastest(self) -> pl.DataFrame:
        same = [C.collective, C.group, C.message_mb]
        return self.tables["collectives"].select(
            C.uid, fastest=(pl.col(C.dur_us).min().over(same) * 1e3).round().cast(pl.Int64)
        )

    @cached_property
    def held_calls(self) -> Int64s:
        """The calls that load modules or allocate (``changed_weights.Tables``)."""
        spans = self.tables["sim_spans"]
        return spans.filter(pl.col(C.cause).is_in(HELD))[C.uid].to_numpy()


def _digest(together: Several) -> bytes:
    """Return a checksum of changes; those by different factors share that of their work."""
    others = together.model_dump_json(exclude={"changes": {"__all__": {"work"}}})
    checksum = sha256(others.encode())
    for change in together.changes:
        if (work := getattr(change, "work", None)) is not None:
            checksum.update(work.digest)
    return checksum.digest()
