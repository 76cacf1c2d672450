"""The critical path: the chain of moments that the end of the window waited for."""

from dataclasses import dataclass

import numpy as np

from jarvis.simulation.events import Int64s
from jarvis.simulation.graph import Graph, Int32s
from jarvis.simulation.replay import replay


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
    begin_ns = times[graph.begin]
    edges = []
    node = graph.end
    while times[node] > begin_ns and (edge := int(determining[node])) >= 0:
        edges.append(edge)
        node = int(graph.src[edge])
    path = np.array(edges, np.int64)
    ends = times[graph.dst[path]]
    ns = ends - np.maximum(times[graph.src[path]], begin_ns)
    residual = np.minimum(np.maximum(weights[path] - graph.nominal[path], 0), ns)
    return Path(path, ns, residual)
