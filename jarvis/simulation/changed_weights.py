"""Turn changes into weights of a dependency graph."""

from collections.abc import Iterable, Sequence
from functools import cached_property, singledispatchmethod
from itertools import groupby
from typing import Protocol

import numpy as np

from jarvis.changes import (
    AtRoofline,
    Change,
    Collective,
    CollectiveMode,
    Fuse,
    MergeLaunches,
    RemoveGpu,
    RemoveWait,
    ScaleGpu,
    ScaleHost,
    Span,
    Work,
)
from jarvis.core.arrays import Bools, Float64s, Int32s, Int64s
from jarvis.core.errors import ChangeError
from jarvis.simulation.edges import REMOVED, Kind
from jarvis.simulation.events import length_before, union
from jarvis.simulation.graph import Graph, What

ORDER = (
    ScaleGpu,
    AtRoofline,
    Fuse,
    RemoveGpu,
    MergeLaunches,
    ScaleHost,
    RemoveWait,
    Collective,
)
"""The order in which changes that are made together apply."""


class Tables(Protocol):
    """What changes mean in the tables of a run."""

    def edges(self, work: Work) -> Int64s:
        """Return the duration edges of the GPU events of some work."""

    def target_factors(self, work: Work, target_pct: float) -> tuple[Int64s, Float64s]:
        """Return the duration edges of operations below a target, and the factor of each."""

    def fastest_ns(self, uids: Sequence[int]) -> Int64s:
        """Return for each collective the time of the fastest of its kind, group and size."""

    @property
    def held_calls(self) -> Int64s:
        """The calls that load modules or allocate.

        A merged launch does not shorten them; changes of host time do, even if they launch work.
        """


class Index:
    """Where the events of a graph are among its nodes and edges.

    ``stalls``: edges whose unexplained time no change takes away.
    """

    def __init__(self, graph: Graph, stalls: Int64s | None = None) -> None:
        self.graph = graph
        self.stalls = np.empty(0, np.int64) if stalls is None else stalls
        own = np.flatnonzero(graph.kind == Kind.DURATION)
        self.gpu_edge = self._by_uid(own[graph.what[graph.dst[own]] == What.GPU_END])
        self.call_edge = self._by_uid(own[graph.what[graph.dst[own]] == What.CALL_END])

    def _by_uid(self, edges: Int64s) -> tuple[Int64s, Int64s]:
        uid = self.graph.uid[self.graph.dst[edges]]
        order = np.argsort(uid, kind="stable")
        return uid[order], edges[order]

    def gpu_edges(self, uids: Iterable[int] | Int64s) -> Int64s:
        """Return the duration edges of GPU events that are in the graph."""
        return _find(self.gpu_edge, uids)

    def call_edges(self, uids: Iterable[int] | Int64s) -> Int64s:
        """Return the duration edges of host calls that are in the graph."""
        return _find(self.call_edge, uids)

    @cached_property
    def launch_calls(self) -> Bools:
        """Whether work is launched at each node."""
        return self.flagged(self.graph.src[self.graph.kind == Kind.LAUNCH])

    @cached_property
    def waiting_calls(self) -> Bools:
        """Whether the node is the end of a call that awaits GPU work."""
        return self.flagged(self.graph.dst[self.graph.kind == Kind.SYNC])

    def flagged(self, nodes: Int32s) -> Bools:
        """Return whether each node is one of ``nodes``."""
        flags = np.zeros(self.graph.time.size, np.bool_)
        flags[nodes] = True
        return flags


def _find(index: tuple[Int64s, Int64s], uids: Iterable[int] | Int64s) -> Int64s:
    known, edges = index
    wanted = np.asarray(uids if isinstance(uids, np.ndarray) else list(uids), np.int64)
    if not known.size:
        return known
    place = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    is_wanted = np.zeros(known.size, np.bool_)
    is_wanted[place[known[place] == wanted]] = True
    return edges[is_wanted]


def changed_weights(index: Index, tables: Tables, changes: Iterable[Change]) -> Int64s:
    """Return the weights of a graph under changes.

    Of several changes of one GPU event or one stretch of host time, the one that leaves least
    counts.

    Raises:
        ChangeError: A change is not possible in this trace.
    """
    changed = _Changed(index, tables)
    ordered = sorted(changes, key=lambda change: ORDER.index(type(change)))
    for kind, of_kind in groupby(ordered, key=type):
        if kind is Fuse:
            changed.fuse([change for change in of_kind if isinstance(change, Fuse)])
        else:
            for change in of_kind:
                changed.apply(change)
    return changed.weights()


class _Changed:
    """Collects the effects of changes."""

    def __init__(self, index: Index, tables: Tables) -> None:
        self.index, self.tables = index, tables
        self.graph = index.graph
        self.weight = self.graph.weight.copy()
        self.host: dict[float, list[Span]] = {}

    def weights(self) -> Int64s:
        self._scale_host()
        stalls = self.index.stalls
        unexplained = self.graph.weight[stalls] - self.graph.nominal[stalls]
        self.weight[stalls] = np.maximum(self.weight[stalls], unexplained)
        return self.weight

    @singledispatchmethod
    def apply(self, change: Change) -> None:
        """Apply one change."""
        raise NotImplementedError(change)

    @apply.register
    def _(self, change: ScaleGpu) -> None:
        edges = self.tables.edges(change.work)
        durations = self.graph.weight[edges].astype(np.float64)
        least = np.minimum(durations, change.least_us * 1e3)
        self._shorten(edges, np.maximum(durations * change.factor, least))

    @apply.register
    def _(self, change: AtRoofline) -> None:
        edges, factors = self.tables.target_factors(change.work, change.target_pct)
        self._shorten(edges, self.graph.weight[edges].astype(np.float64) * factors)

    @apply.register
    def _(self, change: RemoveGpu) -> None:
        self._remove(self.tables.edges(change.work), keeps_stream=True)

    @apply.register
    def _(self, change: MergeLaunches) -> None:
        graph = self.graph
        first, last = self.index.call_edges([change.first]), self.index.call_edges([change.last])
        if not first.size or not last.size:
            raise ChangeError(
                "The launches cannot be merged: their calls are not in the simulation."
            )
        begin, end = int(graph.src[first[0]]), int(graph.dst[last[0]])
        inside = (graph.thread == graph.thread[begin]) & (graph.what <= What.CALL_END)
        inside &= (np.arange(inside.size) >= begin) & (np.arange(inside.size) <= end)
        if (inside & self.index.waiting_calls).any():
            raise ChangeError(
                "The launches cannot be merged: a call between them waits for GPU work."
            )
        starts, stops = inside[graph.src], inside[graph.dst]
        keeps = self.held_calls[graph.dst]
        keeps[first] = True
        is_host = np.isin(graph.kind, (Kind.HOST, Kind.DURATION)) & starts & stops
        self.weight[is_host & ~keeps] = 0
        launches = np.isin(graph.kind, (Kind.LAUNCH, Kind.UNLINKED)) & starts
        self.weight[launches] = np.minimum(self.weight[launches], graph.constants.launch)

    @apply.register
    def _(self, change: ScaleHost) -> None:
        self.host.setdefault(change.factor, []).extend(change.spans)

    @apply.register
    def _(self, change: RemoveWait) -> None:
        edges = self.index.call_edges(change.calls)
        nodes = self.index.flagged(self.graph.dst[edges])
        is_wait = (self.graph.kind == Kind.SYNC) & nodes[self.graph.dst]
        self.weight[is_wait] = REMOVED
        duration = self.graph.time[self.graph.dst[edges]] - self.graph.time[self.graph.src[edges]]
        self.weight[edges] = np.minimum(
            self.weight[edges], np.minimum(duration, self.graph.constants.call)
        )

    @apply.register
    def _(self, change: Collective) -> None:
        edges = self.index.gpu_edges(change.uids)
        factor = 0.0 if change.mode is CollectiveMode.HIDDEN else change.factor
        durations = self.graph.weight[edges].astype(np.float64) * factor
        if change.mode is CollectiveMode.TRANSFER:
            uids = self.graph.uid[self.graph.dst[edges]]
            durations = self.tables.fastest_ns(uids.tolist()).astype(np.float64)
        self._shorten(edges, durations)

    def fuse(self, changes: Sequence[Fuse]) -> None:
        """Apply all fusions at once: a chain can have thousands of instances."""
        wanted: dict[int, int] = {}
        for change in changes:
            first_uid, duration_ns = change.uids[0], change.duration_ns
            wanted[first_uid] = min(duration_ns, wanted.get(first_uid, duration_ns))
        first = self.index.gpu_edges(wanted)
        uids = self.graph.uid[self.graph.dst[first]].tolist()
        self._shorten(first, np.array([wanted[uid] for uid in uids], np.float64))
        others = [uid for change in changes for uid in change.uids[1:] if uid not in wanted]
        self._remove(self.index.gpu_edges(others), keeps_stream=False)
        for change in changes:
            if change.host:
                self.host.setdefault(0.0, []).extend(change.host)

    @cached_property
    def held_calls(self) -> Bools:
        """Whether the node is the end of a call that loads modules or allocates."""
        held = self.index.flagged(self.graph.dst[self.index.call_edges(self.tables.held_calls)])
        return held

    def _shorten(self, edges: Int64s, durations: Float64s) -> None:
        """Set durations of GPU events; an event that another change changed keeps the shorter."""
        wanted = np.rint(durations).astype(np.int64)
        is_changed = self.weight[edges] != self.graph.weight[edges]
        current = self.weight[edges]
        self.weight[edges] = np.where(is_changed, np.minimum(current, wanted), wanted)

    def _remove(self, edges: Int64s, *, keeps_stream: bool) -> None:
        """Remove GPU events: their time, the gap before them, and the launches of their calls."""
        graph = self.graph
        self.weight[edges] = 0
        begins = self.index.flagged(graph.src[edges])
        into = begins[graph.dst]
        stream = into & (graph.kind == Kind.STREAM)
        launch = into & np.isin(graph.kind, (Kind.LAUNCH, Kind.UNLINKED))
        self.weight[stream] = np.minimum(self.weight[stream], 0)
        calls = self.index.flagged(graph.src[launch & (graph.kind == Kind.LAUNCH)])
        own = (graph.kind == Kind.DURATION) & (calls[graph.src] | calls[graph.dst])
        own &= graph.what[graph.dst] == What.CALL_END
        self.weight[own] = 0
        if not keeps_stream:
            has_stream = self.index.flagged(graph.dst[stream])
            self.weight[launch & has_stream[graph.dst]] = REMOVED

    def _scale_host(self) -> None:
        """Take host time off the edges that it lies on, and off the calls inside it."""
        if not self.host:
            return
        graph = self.graph
        lost = np.zeros(graph.src.size, np.float64)
        covered_before = np.zeros(graph.src.size, np.int64)
        rows = np.flatnonzero(
            np.isin(graph.kind, (Kind.HOST, Kind.BEGIN, Kind.TAIL))
            | ((graph.kind == Kind.DURATION) & (graph.what[graph.dst] == What.CALL_END))
        )
        spans: list[Span] = []
        for factor in sorted(self.host):
            spans += self.host[factor]
            covered = self._covered(rows, spans)
            lost[rows] += (1 - factor) * (covered - covered_before[rows])
            covered_before[rows] = covered
        self.weight[rows] = np.where(
            self.weight[rows] <= 0,
            self.weight[rows],
            np.maximum(self.weight[rows] - np.rint(lost[rows]).astype(np.int64), 0),
        )

    def _covered(self, rows: Int64s, spans: Sequence[Span]) -> Int64s:
        """Return how much of each edge lies in spans of its threads; of a call, all or nothing."""
        graph = self.graph
        start = graph.time[graph.src[rows]]
        end = start + np.maximum(graph.weight[rows], 0)
        source, target = graph.thread[graph.src[rows]], graph.thread[graph.dst[rows]]
        covered = np.zeros(rows.size, np.int64)
        for thread in sorted({span.thread for span in spans}):
            on_thread = (source == thread) | (target == thread)
            begins, stops = union(
                [
                    (s.start_ns - graph.first_ns, s.end_ns - graph.first_ns)
                    for s in spans
                    if s.thread == thread
                ]
            )
            inside = length_before(begins, stops, end) - length_before(begins, stops, start)
            covered[on_thread] = np.maximum(covered[on_thread], inside[on_thread])
        is_call = graph.kind[rows] == Kind.DURATION
        launches = self.index.launch_calls[graph.src[rows]] & ~self.held_calls[graph.dst[rows]]
        keeps = is_call & (launches | self.index.waiting_calls[graph.dst[rows]])
        keeps |= is_call & (covered < end - start)
        return np.where(keeps, 0, covered)
