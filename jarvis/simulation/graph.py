"""The dependency graph of a trace: what each moment of the recording waits for.

A node is the start or the end of a host call or of a GPU event. An edge with weight w says that its
target happens at least w after its source. The edge that explains a moment best, the binding one,
weighs what was recorded, so that the replay of the unchanged graph is the recording; the others
weigh what is usual in the trace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.core.arrays import Bools, Int32s, Int64s
from jarvis.schemas.names import C
from jarvis.simulation import waits
from jarvis.simulation.edges import LONG_LAUNCH, US, Constants, Edges, Kind, Kinds, launch_constants
from jarvis.simulation.events import Recording, read_events
from jarvis.simulation.host_chain import predecessors
from jarvis.simulation.waits import streams
from jarvis.trace import Trace

DISTANT_NS = 1_000 * US
"""A launch further away from its work than this explains only the usual latency."""

UNEXPLAINED_NS, NEAR_NS = 3 * US, 30 * US
"""A start that much later than all its edges explain may wait for work that ended that shortly
before it."""


class What(IntEnum):
    """What a node is."""

    CALL_START = 0
    CALL_END = 1
    GPU_START = 2
    GPU_END = 3
    MARK = 4
    BEGIN = 5
    END = 6


@dataclass(frozen=True)
class Counts:
    """How the edges were found: counts for the quality of a simulation."""

    launches: int = 0
    dropped_launches: int = 0
    unlinked: int = 0
    waits_from_calls: int = 0
    waits_by_nearness: int = 0


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order, edges by target, source and kind.

    Nodes: ``time`` in ns after ``first_ns``, ``what``, ``uid`` of the event (-1 for the begin and
    the end, below -1 for step marks), ``thread``, ``device`` and ``stream`` (-1 for none).
    Edges: ``src``, ``dst``, ``kind``, ``weight`` (the recording), ``nominal`` (what is usual),
    ``binding``, ``inferred``.
    """

    time: Int64s
    what: NDArray[np.uint8]
    uid: Int64s
    thread: Int32s
    device: Int32s
    stream: Int64s
    src: Int32s
    dst: Int32s
    kind: NDArray[np.uint8]
    weight: Int64s
    nominal: Int64s
    binding: Bools
    inferred: Bools
    first_ns: int
    constants: Constants
    counts: Counts

    @cached_property
    def indptr(self) -> Int32s:
        """Edges ``indptr[n]:indptr[n + 1]`` end at node n."""
        return _first_edges(self.dst, self.time.size)

    @cached_property
    def begin(self) -> int:
        """The node where the window begins: the first step mark, else the first event."""
        marks = np.flatnonzero(self.what == What.MARK)
        return int(marks[0] if marks.size else np.flatnonzero(self.what == What.BEGIN)[0])

    @cached_property
    def end(self) -> int:
        """The node where the window ends."""
        return int(np.flatnonzero(self.what == What.END)[0])

    @property
    def window_ns(self) -> int:
        """Recorded time from ``begin`` to ``end``."""
        return int(self.time[self.end] - self.time[self.begin])


class CycleError(Exception):
    """Events of the same instant wait for each other."""


def build_graph(trace: Trace) -> Graph | None:
    """Return the dependency graph of a trace; None for a trace without timed events.

    Raises:
        CycleError: The recording has no order in which each event comes after those it waits for.
    """
    recording = read_events(trace)
    if not len(recording.calls) and not len(recording.gpu):
        return None
    return _Builder(recording).graph()


class _Builder:
    """Builds the edges of a recording, with nodes in the order of ``_nodes``."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.calls, self.gpu = recording.calls, recording.gpu
        self.launching = launch_constants(self.calls, self.gpu)
        self.work = streams(self.calls, self.gpu, self.launching)
        count, events = len(self.calls), len(self.gpu)
        has_end = ~self.calls.is_mark
        self.call_start = 1 + np.arange(count)
        self.call_end = np.where(has_end, count + np.cumsum(has_end), self.call_start)
        first_event = 1 + count + int(has_end.sum())
        self.gpu_start = first_event + np.arange(events)
        self.gpu_end = self.gpu_start + events
        self.end = first_event + 2 * events
        self.edges = Edges()
        self.time = np.zeros(self.end + 1, np.int64)
        self.time[self.call_start] = self.calls.start
        self.time[self.call_end] = self.calls.end
        self.time[self.gpu_start] = self.gpu.start
        self.time[self.gpu_end] = self.gpu.end

    def graph(self) -> Graph:
        waiting = waits.host_waits(self.recording, self.work)
        constants = waiting.constants(self.launching, self.calls, self.gpu)
        awaited = waits.event_waits(self.recording, self.work)
        self._host(waiting.is_waiting, constants)
        self._gpu(constants, awaited)
        self.edges.add(
            Kind.SYNC,
            self.gpu_end[waiting.awaited.src],
            self.call_end[waiting.awaited.dst],
            constants.sync,
        )
        queue = waits.queue_waits(self.calls, self.work)
        self.edges.add(Kind.QUEUE, self.gpu_start[queue.src], self.call_end[queue.dst], 0)
        self._tail()
        near = self._near(constants)
        counts = Counts(
            launches=int((self.gpu.launch >= 0).sum()),
            dropped_launches=int((self._is_linked != (self.gpu.launch >= 0)).sum()),
            unlinked=self._unlinked_count,
            waits_from_calls=awaited.src.size,
            waits_by_nearness=near,
        )
        return assembled(
            self.time, self._nodes(), self.edges, self.recording.first_ns, constants, counts
        )

    def _host(self, is_waiting: Bools, constants: Constants) -> None:
        calls = self.calls
        own = np.flatnonzero(~calls.is_mark)
        duration = calls.end - calls.start
        nominal = np.where(is_waiting, np.minimum(duration, constants.call), duration)
        self.edges.add(Kind.DURATION, self.call_start[own], self.call_end[own], nominal[own])
        before = predecessors(self.recording)
        rows = np.flatnonzero(before >= 0)
        self._recorded(Kind.HOST, self.call_end[before[rows]], self.call_start[rows])
        inside = np.flatnonzero(calls.around >= 0)
        first_inside = inside[before[inside] < 0]
        self._recorded(
            Kind.HOST, self.call_start[calls.around[first_inside]], self.call_start[first_inside]
        )
        ends_inside = inside[calls.end[inside] <= calls.end[calls.around[inside]]]
        self._recorded(
            Kind.HOST, self.call_end[ends_inside], self.call_end[calls.around[ends_inside]]
        )
        first = np.flatnonzero((before < 0) & (calls.around < 0))
        self._recorded(Kind.BEGIN, 0, self.call_start[first])

    def _gpu(self, constants: Constants, awaited: waits.Pairs) -> None:
        gpu, calls = self.gpu, self.calls
        every = np.arange(len(gpu))
        self.edges.add(Kind.DURATION, self.gpu_start, self.gpu_end, gpu.end - gpu.start)
        before = gpu.predecessor
        follows = np.flatnonzero((before >= 0) & (gpu.end[before] <= gpu.start))
        self.edges.add(
            Kind.STREAM, self.gpu_end[before[follows]], self.gpu_start[follows], constants.gap
        )
        self.edges.add(
            Kind.WAIT, self.gpu_end[awaited.src], self.gpu_start[awaited.dst], constants.gap
        )
        self._is_linked = gpu.launch >= 0
        if len(calls):
            self._is_linked = self._is_linked & (calls.start[gpu.launch] <= gpu.start)
            linked = every[self._is_linked]
            call = gpu.launch[linked]
            self.edges.add(
                Kind.LAUNCH, self.call_start[call], self.gpu_start[linked], constants.launch
            )
            is_long = calls.end[call] - calls.start[call] > LONG_LAUNCH * constants.launch
            late = linked[is_long & (calls.end[call] <= gpu.start[linked])]
            self.edges.add(
                Kind.LAUNCH, self.call_end[gpu.launch[late]], self.gpu_start[late], constants.late
            )
        is_queued = waits.queued_behind(gpu, constants)
        self._unlinked(every[~self._is_linked & ~is_queued], constants)

    def _unlinked(self, rows: Int64s, constants: Constants) -> None:
        """Add edges to work without a launch: from the last host call before it."""
        gpu, calls = self.gpu, self.calls
        self._unlinked_count = rows.size
        callers = np.flatnonzero(~calls.is_mark)
        if not callers.size:
            first = rows[gpu.predecessor[rows] < 0]
            self._recorded(Kind.BEGIN, 0, self.gpu_start[first])
            return
        limit = self._next_linked_launch()[rows]
        start = gpu.start[rows]
        is_limited = limit < start - constants.launch
        until = np.minimum(limit, start - constants.launch)
        index = np.searchsorted(calls.start[callers], until, side="right") - 1
        has = index >= 0
        self._recorded(Kind.BEGIN, 0, self.gpu_start[rows[~has]])
        call = callers[index[has]]
        distance = start[has] - calls.start[call]
        is_distant = is_limited[has] & (distance > DISTANT_NS)
        self.edges.add(
            Kind.UNLINKED,
            self.call_start[call],
            self.gpu_start[rows[has]],
            np.where(is_distant, constants.launch, distance),
        )

    def _next_linked_launch(self) -> Int64s:
        """Return the start of the next linked launch of each event's stream; of itself, too."""
        launched = np.full(len(self.gpu), np.iinfo(np.int64).max)
        launched[self._is_linked] = self.calls.start[self.gpu.launch[self._is_linked]]
        for part in self.work.slices.values():
            launched[part] = np.minimum.accumulate(launched[part][::-1])[::-1]
        return launched

    def _tail(self) -> None:
        """Add the edges to the end of the window, and set its time."""
        calls = self.calls
        last_work = [part.stop - 1 for part in self.work.slices.values()]
        marks = np.flatnonzero(calls.is_mark)
        if marks.size:
            last_call = marks[-1:]
            times = calls.start[last_call]
            found = [self.work.last_before(stream, times)[0] for stream in self.work.slices]
            last_work = [event for event in found if event >= 0]
            after = np.zeros(1, np.int64)
        else:
            busy = dict(
                self.recording.busy.group_by(C.thread).agg(pl.col(C.end_ns).max()).iter_rows()
            )
            order = np.lexsort((np.arange(len(calls)), calls.end, calls.thread))
            is_last = np.append(calls.thread[order][1:] != calls.thread[order][:-1], True)
            last_call = order[is_last[: order.size]]
            ends = np.array([busy[int(t)] for t in calls.thread[last_call]], np.int64)
            after = np.maximum(ends - calls.end[last_call], 0)
        host, gpu = self.call_end[last_call], self.gpu_end[np.array(last_work, np.int64)]
        self.edges.add(Kind.TAIL, host, self.end, after)
        self.edges.add(Kind.TAIL, gpu, self.end, 0)
        self.time[self.end] = np.concatenate([self.time[host] + after, self.time[gpu]]).max()

    def _near(self, constants: Constants) -> int:
        """Add waits that only nearness in time suggests; return how many lower the quality."""
        src, dst, _, nominal, _ = self.edges.arrays()
        explained = np.full(self.time.size, -1, np.int64)
        np.maximum.at(explained, dst, np.minimum(self.time[src] + nominal, self.time[dst]))
        is_late = self.gpu.start - explained[self.gpu_start] > UNEXPLAINED_NS
        rows = np.flatnonzero(is_late)
        near = waits.nearest_ends(self.work, rows, NEAR_NS)
        rows, near = rows[near >= 0], near[near >= 0]
        is_graph = (self.gpu.launch[near] == self.gpu.launch[rows]) & (self.gpu.launch[rows] >= 0)
        for chosen, inferred in ((is_graph, False), (~is_graph, True)):
            self.edges.add(
                Kind.WAIT,
                self.gpu_end[near[chosen]],
                self.gpu_start[rows[chosen]],
                constants.gap,
                inferred,
            )
        return int((~is_graph).sum())

    def _recorded(self, kind: Kind, src: Int64s | int, dst: Int64s) -> None:
        """Add edges that weigh what was recorded."""
        self.edges.add(kind, src, dst, self.time[dst] - self.time[src])

    def _nodes(self) -> dict[str, NDArray[np.integer]]:
        calls, gpu = self.calls, self.gpu
        size = self.time.size
        what, uid = np.full(size, What.BEGIN, np.uint8), np.full(size, -1, np.int64)
        thread, device = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
        stream = np.full(size, -1, np.int64)
        what[self.call_end] = What.CALL_END
        what[self.call_start] = np.where(calls.is_mark, What.MARK, What.CALL_START)
        what[self.gpu_start], what[self.gpu_end] = What.GPU_START, What.GPU_END
        what[self.end] = What.END
        for nodes in (self.call_end, self.call_start):
            uid[nodes], thread[nodes] = calls.uid, calls.thread
        for nodes in (self.gpu_start, self.gpu_end):
            uid[nodes], device[nodes], stream[nodes] = gpu.uid, gpu.device, gpu.stream_id
        return {"what": what, "uid": uid, "thread": thread, "device": device, "stream": stream}


def assembled(
    time: Int64s,
    nodes: Mapping[str, NDArray[np.integer]],
    edges: Edges,
    first_ns: int,
    constants: Constants,
    counts: Counts,
) -> Graph:
    """Return the graph of nodes and edges, in its order.

    An edge that points back in time is left out, and no edge weighs more than was recorded.

    Raises:
        CycleError: The edges have no order.
    """
    src, dst, kind, nominal, inferred = edges.arrays()
    forward = time[src] <= time[dst]
    if not forward.all():
        src, dst, kind = src[forward], dst[forward], kind[forward]
        nominal, inferred = nominal[forward], inferred[forward]
    order = topological_order(src, dst, time)
    position = np.empty(order.size, np.int32)
    position[order] = np.arange(order.size, dtype=np.int32)
    by_target = _by_target(position[src], position[dst], kind)
    src, dst, kind = position[src[by_target]], position[dst[by_target]], kind[by_target]
    time = time[order]
    recorded = time[dst] - time[src]
    nominal = np.minimum(nominal[by_target], recorded)
    binding = _binding(dst, time[src] + nominal)
    columns = {name: column[order] for name, column in nodes.items()}
    return Graph(
        time=time,
        what=columns["what"].astype(np.uint8, copy=False),
        uid=columns["uid"].astype(np.int64, copy=False),
        thread=columns["thread"].astype(np.int32, copy=False),
        device=columns["device"].astype(np.int32, copy=False),
        stream=columns["stream"].astype(np.int64, copy=False),
        src=src,
        dst=dst,
        kind=kind,
        weight=np.where(binding, recorded, nominal),
        nominal=nominal,
        binding=binding,
        inferred=inferred[by_target],
        first_ns=first_ns,
        constants=constants,
        counts=counts,
    )


def topological_order(src: Int32s, dst: Int32s, time: Int64s) -> Int32s:
    """Return the nodes by time, sources of edges before their targets.

    Raises:
        CycleError: The edges have no order.
    """
    from jarvis.simulation.replay import sort_topologically  # loads compiled kernels

    by_source = np.argsort(src, kind="stable")
    indptr = _first_edges(src, time.size)
    degree = np.bincount(dst, minlength=time.size).astype(np.int32)
    order = np.empty(time.size, np.int32)
    if sort_topologically(indptr, dst[by_source], degree, time, order) < time.size:
        raise CycleError
    return order


def _first_edges(nodes: Int32s, count: int) -> Int32s:
    """Return for each node, and after the last, the first of the edges sorted by ``nodes``."""
    first = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(nodes, minlength=count), out=first[1:])
    return first


def _by_target(src: Int32s, dst: Int32s, kind: Kinds) -> Int64s:
    """Return the order of edges by target, source and kind; equal ones stay in order."""
    key = dst.astype(np.int64)
    key *= src.max(initial=0) + 1
    key += src
    key *= len(Kind)
    key += kind
    return np.argsort(key, kind="stable")


def _binding(dst: Int32s, reached: Int64s) -> Bools:
    """Return which edge of each target, by which edges are sorted, reaches the latest time; the
    first of equal ones."""
    first = np.flatnonzero(np.append(True, dst[1:] != dst[:-1])[: dst.size])
    latest = np.maximum.reduceat(reached, first) if first.size else reached
    of_target = np.diff(np.append(first, dst.size))
    at_latest = np.flatnonzero(reached == np.repeat(latest, of_target))
    is_first = np.append(True, dst[at_latest][1:] != dst[at_latest][:-1])[: at_latest.size]
    binding = np.zeros(dst.size, np.bool_)
    binding[at_latest[is_first]] = True
    return binding
