"""The loops over the dependency graph, compiled; nothing else is in this file.

Numba compiles a kernel again only when the kernel's own file changes. All values are integers, so
that results are the same on every machine.
"""

import heapq

import numpy as np

from jarvis.core.arrays import Int32s, Int64s
from jarvis.trace.jit import kernel, types

__all__ = [
    "LANES",
    "replay",
    "replay_apart",
    "replay_ordered",
    "sort_topologically",
    "walk_back",
]

LANES = 8
"""Number of replays that ``replay_apart`` computes in one pass."""


_INT32S = types.Array(types.int32, 1, "C")
_INT64S = types.Array(types.int64, 1, "C")
_INT64_ROWS = types.Array(types.int64, 2, "C")


@kernel(types.void(_INT32S, _INT32S, _INT64S, types.int64, _INT64S, _INT32S))
def replay(
    indptr: Int32s, src: Int32s, weight: Int64s, start: int, out: Int64s, arg: Int32s
) -> None:
    """Compute the time of each node: the latest of its edges.

    Args:
        indptr: Edges ``indptr[n]:indptr[n + 1]`` end at node n.
        src: Source of each edge, a node before its target.
        weight: Weight of each edge in ns.
        start: Time of a node without edges.
        out: Receives the time of each node.
        arg: Receives the edge that determines it (the first of equal ones), or -1.
    """
    for node in range(out.size):
        time, edge = start, -1
        for e in range(indptr[node], indptr[node + 1]):
            reached = out[src[e]] + weight[e]
            if edge < 0 or reached > time:
                time, edge = reached, e
        out[node] = time
        arg[node] = edge


@kernel(types.void(_INT32S, _INT32S, _INT32S, _INT64S, _INT64S))
def replay_ordered(order: Int32s, indptr: Int32s, src: Int32s, weight: Int64s, out: Int64s) -> None:
    """Compute the time of each node: the latest of its edges.

    Args:
        order: The nodes, each after those that its edges come from.
        indptr: As in ``replay``, also ``src``.
        src: Source of each edge.
        weight: Weight of each edge in ns.
        out: Receives the time of each node with edges; the others have theirs.
    """
    for place in range(order.size):
        node = order[place]
        first, last = indptr[node], indptr[node + 1]
        if first == last:
            continue
        time = out[src[first]] + weight[first]
        for e in range(first + 1, last):
            time = max(time, out[src[e]] + weight[e])
        out[node] = time


@kernel(types.void(_INT32S, _INT32S, _INT64S, _INT64S, _INT32S, types.int64, _INT64_ROWS))
def replay_apart(
    indptr: Int32s,
    src: Int32s,
    weight: Int64s,
    changed: Int64s,
    lane: Int32s,
    start: int,
    out: Int64s,
) -> None:
    """Compute the time of each node in LANES replays, each with changes of its own.

    Args:
        indptr: As in ``replay``, also ``src`` and ``start``.
        src: Source of each edge.
        weight: Weight of each edge in ns, without changes.
        changed: Weight of each edge in the replay that changes it.
        lane: That replay of each edge, or -1.
        start: Time of a node without edges.
        out: Receives the time of each node in each replay, a row for each node.
    """
    for node in range(out.shape[0]):
        for k in range(LANES):
            out[node, k] = start
        for e in range(indptr[node], indptr[node + 1]):
            source, own, is_first = src[e], lane[e], e == indptr[node]
            before = out[node, own] if own >= 0 else start
            for k in range(LANES):
                reached = out[source, k] + weight[e]
                if is_first or reached > out[node, k]:
                    out[node, k] = reached
            if own >= 0:
                reached = out[source, own] + changed[e]
                out[node, own] = reached if is_first else max(before, reached)


@kernel(types.int64(_INT32S, _INT32S, _INT64S, types.int64, types.int64, _INT32S))
def walk_back(src: Int32s, arg: Int32s, time: Int64s, end: int, begin_ns: int, path: Int32s) -> int:
    """Write the edges that determine ``end`` to ``path``, last first; return how many.

    The walk ends at a node without edges, or at or before ``begin_ns``.
    """
    count = 0
    node = end
    while time[node] > begin_ns and arg[node] >= 0:
        path[count] = arg[node]
        node = src[arg[node]]
        count += 1
    return count


@kernel(types.int64(_INT32S, _INT32S, _INT32S, _INT64S, _INT32S))
def sort_topologically(
    indptr: Int32s, dst: Int32s, degree: Int32s, time: Int64s, order: Int32s
) -> int:
    """Write the nodes to ``order`` by time, sources before targets; return how many.

    Args:
        indptr: Edges ``indptr[n]:indptr[n + 1]`` start at node n.
        dst: Target of each edge.
        degree: Number of edges that end at each node; overwritten.
        time: Recorded time of each node, which no edge contradicts.
        order: Receives the nodes. Nodes on a cycle are not written.
    """
    count = 0
    heap: list[tuple[np.int64, np.int64]] = [(time[0], np.int64(0))]  # numba needs its type
    heap.pop()
    for node in range(degree.size):
        if degree[node] == 0:
            heapq.heappush(heap, (time[node], np.int64(node)))
    while len(heap) > 0:
        source = heapq.heappop(heap)[1]
        order[count] = source
        count += 1
        for e in range(indptr[source], indptr[source + 1]):
            target = np.int64(dst[e])
            degree[target] -= 1
            if degree[target] == 0:
                heapq.heappush(heap, (time[target], target))
    return count
