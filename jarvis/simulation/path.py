"""The critical path: the chain of moments that the end of the window waited for."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.arrays import Float64s, Int32s, Int64s
from jarvis.perf_report.timeline.host_spans import ALLOCATOR, DATA_LOADING, KERNEL_LOADING
from jarvis.schemas.names import C
from jarvis.simulation.edges import Kind
from jarvis.simulation.events import length_before, union
from jarvis.simulation.graph import Graph, What


def replayed(graph: Graph, weights: Int64s) -> tuple[Int64s, Int32s]:
    """Return the time of each node under weights, and the edge that determines it or -1."""
    from jarvis.simulation.replay import replay  # loads compiled kernels

    times = np.empty(graph.time.size, np.int64)
    edges = np.empty(graph.time.size, np.int32)
    replay(graph.indptr, graph.src, weights, 0, times, edges)
    return times, edges


@dataclass(frozen=True)
class Path:
    """Edges of the path, last first, each with its part of the window.

    ``end_ns`` is when an edge ends, ``ns`` the time of the window that it takes, ``residual_ns``
    the part of it that nothing in the trace explains. Together the edges take the window exactly.
    """

    edges: Int64s
    end_ns: Int64s
    ns: Int64s
    residual_ns: Int64s

    def within(self, begin_ns: int, end_ns: int) -> "Path":
        """Return the part of the path in a span of the window, which it takes exactly."""
        first = np.maximum(self.end_ns - self.ns, begin_ns)
        ns = np.maximum(np.minimum(self.end_ns, end_ns) - first, 0)
        return Path(self.edges, self.end_ns, ns, np.minimum(self.residual_ns, ns))


def critical_path(graph: Graph, times: Int64s, determining: Int32s, weights: Int64s) -> Path:
    """Return the path of a replay, from the end of the window back to its begin.

    Args:
        graph: The graph.
        times: The replayed time of each node.
        determining: The edge that determines each node, or -1.
        weights: The replayed weights.
    """
    from jarvis.simulation.replay import walk_back  # loads compiled kernels

    begin_ns = int(times[graph.begin])
    found = np.empty(graph.time.size, np.int32)
    length = walk_back(graph.src, determining, times, graph.end, begin_ns, found)
    path = found[:length].astype(np.int64)
    ends = times[graph.dst[path]]
    ns = ends - np.maximum(times[graph.src[path]], begin_ns)
    residual = np.minimum(np.maximum(weights[path] - graph.nominal[path], 0), ns)
    return Path(path, ends, ns, residual)


@dataclass(frozen=True, slots=True)
class PathPart:
    """A part of the critical path: its name, and its time."""

    name: str
    ns: int


OF_KINDS = {
    Kind.LAUNCH: "launch latency",
    Kind.STREAM: "gaps between kernels",
    Kind.WAIT: "gaps between kernels",
    Kind.SYNC: "end of waiting calls",
    Kind.QUEUE: "launch queue",
    Kind.UNLINKED: "time before GPU work without a recorded launch",
}
UNLINKED_WORK = "GPU work without a recorded launch"
"""Such work, and what the path waits for while it runs."""

HOST_KINDS = (Kind.HOST, Kind.BEGIN, Kind.TAIL)
HOST_CAUSES = {
    DATA_LOADING: "data loading",
    KERNEL_LOADING: "kernel loading",
    ALLOCATOR: "allocator",
    "operator": "operators",
    "python": "Python code",
}
"""Names of host time by the cause of the span that it lies in; the first cause counts."""

LOADING = (DATA_LOADING, KERNEL_LOADING, ALLOCATOR)
"""Causes of which runtime calls are a part."""

HOST_WORK, RUNTIME_CALLS, UNEXPLAINED = "host work", "runtime calls", "unexplained"
HOST_PARTS = (*HOST_CAUSES.values(), HOST_WORK, RUNTIME_CALLS)
"""The parts of a path that the host takes."""


def path_parts(
    graph: Graph, path: Path, name_of_work: Mapping[int, str], spans: pl.DataFrame
) -> list[PathPart]:
    """Return the parts of a path, longest first; together they take as long as it.

    Args:
        graph: The graph.
        path: A path of it.
        name_of_work: What each GPU event counts as, by uid.
        spans: The table ``sim_spans``.
    """
    totals: Counter[str] = Counter()
    totals[UNEXPLAINED] = int(path.residual_ns.sum())
    explained = path.ns - path.residual_ns
    kinds, targets = graph.kind[path.edges], graph.dst[path.edges]
    for kind, name in OF_KINDS.items():
        totals[name] += int(explained[kinds == kind].sum())
    of_unlinked = kinds == Kind.UNLINKED
    busy_part = unlinked_part(graph, path.edges[of_unlinked], name_of_work)
    busy_ns = int(np.rint(busy_part * explained[of_unlinked]).sum())
    totals[UNLINKED_WORK] += busy_ns
    totals[OF_KINDS[Kind.UNLINKED]] -= busy_ns
    own = kinds == Kind.DURATION
    on_gpu = own & (graph.what[targets] == What.GPU_END)
    for uid, ns in zip(graph.uid[targets[on_gpu]].tolist(), explained[on_gpu], strict=True):
        totals[name_of_work.get(uid, "GPU work")] += int(ns)
    for of_kind, rest in ((np.isin(kinds, HOST_KINDS), HOST_WORK), (own & ~on_gpu, RUNTIME_CALLS)):
        totals += _host_time(graph, path.edges[of_kind], explained[of_kind], spans, rest)
    return [PathPart(name, ns) for name, ns in totals.most_common() if ns > 0]


def unlinked_part(graph: Graph, edges: Int64s, name_of_work: Mapping[int, str]) -> Float64s:
    """Return the part of the recorded time of edges in which UNLINKED_WORK runs."""
    if not edges.size:
        return np.empty(0)
    uids = [uid for uid, name in name_of_work.items() if name == UNLINKED_WORK]
    own = np.flatnonzero((graph.kind == Kind.DURATION) & np.isin(graph.uid[graph.dst], uids))
    times = np.column_stack([graph.time[graph.src[own]], graph.time[graph.dst[own]]])
    return _covered_part(graph, edges, times)


def _covered_part(graph: Graph, edges: Int64s, times: Int64s) -> Float64s:
    """Return the part of the recorded time of edges that spans (rows of ``times``) cover."""
    length = np.maximum(graph.weight[edges], 0)
    if not len(times):
        return np.zeros(edges.size)
    start = graph.time[graph.src[edges]]
    begins, stops = union(map(tuple, times.tolist()))
    before, until = (length_before(begins, stops, each) for each in (start, start + length))
    part: Float64s = np.divide(until - before, length, out=np.zeros(edges.size), where=length > 0)
    return part


def _host_time(
    graph: Graph, edges: Int64s, explained: Int64s, spans: pl.DataFrame, rest: str
) -> Counter[str]:
    """Return the time of host edges by the cause of the recorded spans that they lie in.

    Time of runtime calls, which are within operators, is theirs if they load data or code, or
    allocate.
    """
    causes = LOADING if rest == RUNTIME_CALLS else tuple(HOST_CAUSES)
    is_tail = graph.kind[edges] == Kind.TAIL
    thread = np.where(is_tail, graph.thread[graph.src[edges]], graph.thread[graph.dst[edges]])
    totals: Counter[str] = Counter()
    counted = np.zeros(edges.size, np.int64)
    for number, cause in enumerate(causes, start=1):
        own = spans.filter(pl.col(C.cause).is_in(causes[:number]))
        part = np.zeros(edges.size)
        for (key,), of_thread in own.partition_by(C.thread, as_dict=True).items():
            times = of_thread.select(C.start_ns, C.end_ns).to_numpy() - graph.first_ns
            on_thread = thread == key
            part[on_thread] = _covered_part(graph, edges[on_thread], times)
        upto = np.minimum(np.rint(part * explained).astype(np.int64), explained)
        totals[HOST_CAUSES[cause]] += int((upto - counted).sum())
        counted = upto
    totals[rest] += int((explained - counted).sum())
    return totals
