"""The critical path: the chain of moments that the end of the window waited for."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jarvis.simulation.edges import Kind
from jarvis.simulation.events import Int64s
from jarvis.simulation.graph import Graph, Int32s, What
from jarvis.simulation.replay import replay, walk_back


def replayed(graph: Graph, weights: Int64s) -> tuple[Int64s, Int32s]:
    """Return the time of each node under weights, and the edge that determines it or -1."""
    times = np.empty(graph.time.size, np.int64)
    edges = np.empty(graph.time.size, np.int32)
    replay(graph.indptr, graph.src, weights, 0, times, edges)
    return times, edges


@dataclass(frozen=True)
class Path:
    """Edges of the path, last first, each with its part of the window.

    ``ns`` is the time of the window that an edge takes, ``residual_ns`` the part of it that
    nothing in the trace explains. Together the edges take the window exactly.
    """

    edges: Int64s
    ns: Int64s
    residual_ns: Int64s


def critical_path(graph: Graph, times: Int64s, determining: Int32s, weights: Int64s) -> Path:
    """Return the path of a replay, from the end of the window back to its begin.

    Args:
        graph: The graph.
        times: The replayed time of each node.
        determining: The edge that determines each node, or -1.
        weights: The replayed weights.
    """
    begin_ns = int(times[graph.begin])
    found = np.empty(graph.time.size, np.int32)
    length = walk_back(graph.src, determining, times, graph.end, begin_ns, found)
    path = found[:length].astype(np.int64)
    ends = times[graph.dst[path]]
    ns = ends - np.maximum(times[graph.src[path]], begin_ns)
    residual = np.minimum(np.maximum(weights[path] - graph.nominal[path], 0), ns)
    return Path(path, ns, residual)


@dataclass(frozen=True, slots=True)
class PathPart:
    """What a part of the critical path is, and its time in the window."""

    name: str
    ns: int


OF_KINDS = {
    Kind.HOST: "host work",
    Kind.BEGIN: "host work",
    Kind.TAIL: "host work",
    Kind.LAUNCH: "launch latency",
    Kind.STREAM: "gaps between kernels",
    Kind.WAIT: "gaps between kernels",
    Kind.SYNC: "end of waiting calls",
    Kind.QUEUE: "launch queue",
    Kind.UNLINKED: "before work without a recorded launch",
}
RUNTIME_CALLS, UNEXPLAINED = "runtime calls", "in no recorded event"


def path_parts(graph: Graph, path: Path, name_of_work: Mapping[int, str]) -> list[PathPart]:
    """Return the parts of a path, longest first; together they take the window.

    Args:
        graph: The graph.
        path: A path of it.
        name_of_work: What each GPU event counts as, by uid.
    """
    totals: Counter[str] = Counter()
    totals[UNEXPLAINED] = int(path.residual_ns.sum())
    explained = path.ns - path.residual_ns
    kinds, targets = graph.kind[path.edges], graph.dst[path.edges]
    for kind, name in OF_KINDS.items():
        totals[name] += int(explained[kinds == kind].sum())
    own = kinds == Kind.DURATION
    on_gpu = own & (graph.what[targets] == What.GPU_END)
    totals[RUNTIME_CALLS] += int(explained[own & ~on_gpu].sum())
    for uid, ns in zip(graph.uid[targets[on_gpu]].tolist(), explained[on_gpu], strict=True):
        totals[name_of_work.get(uid, "GPU work")] += int(ns)
    return [PathPart(name, ns) for name, ns in totals.most_common() if ns > 0]
