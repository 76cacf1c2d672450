"""The recordings of several ranks in one dependency graph, joined by their collectives.

A rank arrives at a collective when its kernel starts; the work begins when the last rank arrives.
That moment is a node of its own, from which the kernel of each rank takes what was recorded to its
end. The clocks of the ranks are aligned on these ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.schemas.names import C
from jarvis.simulation.edges import Edges, Int32s, Kind
from jarvis.simulation.events import Int64s
from jarvis.simulation.graph import Counts, Graph, What, assembled

UIDS, THREADS = 1 << 40, 1 << 16
"""Numbers of each rank in the joint graph, more than a trace has."""

_SAME = (C.group, "seq", "number")
"""What the kernels of a collective have in common."""


@dataclass(frozen=True)
class Shift:
    """What is added to the uids, threads and times of a rank in the joint graph."""

    uid: int
    thread: int
    ns: int


@dataclass(frozen=True)
class Joint:
    """Several recordings in one graph, and how many collectives join them."""

    graph: Graph
    shifts: tuple[Shift, ...]
    collectives: int

    def rows(self, tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of a table of each rank as they are in the graph."""
        return pl.concat(
            table.with_columns(
                pl.col(column) + by
                for column, by in (
                    (C.uid, shift.uid),
                    (C.operation_uid, shift.uid),
                    (C.thread, shift.thread),
                    (C.start_ns, shift.ns),
                    (C.end_ns, shift.ns),
                )
                if column in table.columns
            )
            for table, shift in zip(tables, self.shifts, strict=True)
        )


def joint_graph(graphs: Sequence[Graph], collectives: Sequence[pl.DataFrame]) -> Joint:
    """Return the graph of all ranks.

    Collectives match by group and sequence number, without one by their order; then those of a
    group count if all its ranks recorded as many. A collective has to be of one kind, and the last
    rank arrives before any rank leaves. Others take the time that was recorded.

    Args:
        graphs: The graph of each rank.
        collectives: The table ``collectives`` of each rank: ``uid, group, collective``, and ``seq``
            if it was recorded.
    """
    members = _members(graphs, collectives)
    clocks = _clocks(members, len(graphs))
    members = members.with_columns(
        pl.col(time) + pl.col("rank").replace_strict(range(len(graphs)), clocks)
        for time in ("start", "end")
    ).filter(pl.col("start").max().over(_SAME) <= pl.col("end").min().over(_SAME))
    members = members.with_columns(pl.struct(_SAME).rle_id().cast(pl.Int64).alias("instance"))
    shifts = tuple(
        Shift(uid=rank * UIDS, thread=rank * THREADS, ns=clock) for rank, clock in enumerate(clocks)
    )
    return Joint(_joined(graphs, shifts, members), shifts, members["instance"].n_unique())


def _members(graphs: Sequence[Graph], collectives: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the kernels of collectives that match.

    Columns: ``group, seq, number`` (among those of one sequence number or without any), ``rank``,
    ``edge`` (the kernel's duration), and ``start, end`` on the clock of the trace.
    """
    own = []
    for rank, (graph, table) in enumerate(zip(graphs, collectives, strict=True)):
        edges = _kernel_durations(graph)
        kernels = pl.DataFrame(
            {
                C.uid: graph.uid[graph.dst[edges]],
                "edge": edges,
                "start": graph.time[graph.src[edges]] + graph.first_ns,
                "end": graph.time[graph.dst[edges]] + graph.first_ns,
            }
        )
        if "seq" not in table.columns:
            table = table.with_columns(pl.lit(None, pl.Int64).alias("seq"))
        names = (pl.col(column).cast(pl.String) for column in (C.group, C.collective))
        rows = table.select(C.uid, "seq", *names)
        numbered = kernels.join(rows, on=C.uid).sort("start", C.uid)
        own.append(
            numbered.with_columns(
                pl.int_range(pl.len()).over(C.group, "seq").alias("number"),
                pl.len().over(C.group, "seq").alias("count"),
                pl.lit(rank).alias("rank"),
            )
        )
    is_complete = pl.col("count").n_unique().over(C.group, "seq") == 1
    is_same = (pl.col(C.collective).n_unique().over(_SAME) == 1) & (pl.len().over(_SAME) > 1)
    members = pl.concat(own).filter(is_complete & is_same)
    return members.select(*_SAME, "rank", "edge", "start", "end").sort(*_SAME, "rank")


def _kernel_durations(graph: Graph) -> Int64s:
    is_end = graph.what[graph.dst] == What.GPU_END
    return np.flatnonzero((graph.kind == Kind.DURATION) & is_end)


def _clocks(members: pl.DataFrame, ranks: int) -> list[int]:
    """Return what to add to the clock of each rank, so that collectives end at the same time.

    A rank without a collective in common with those before it keeps its clock.
    """
    end_of: dict[tuple[object, ...], int] = {}
    clocks = []
    for rank in range(ranks):
        own = members.filter(pl.col("rank") == rank).select(*_SAME, "end").rows()
        differences = [end_of[same] - end for *key, end in own if (same := tuple(key)) in end_of]
        clock = int(np.median(differences)) if differences else 0
        for *key, end in own:
            end_of.setdefault(tuple(key), end + clock)
        clocks.append(clock)
    return clocks


def _joined(graphs: Sequence[Graph], shifts: Sequence[Shift], members: pl.DataFrame) -> Graph:
    """Return the graph with the nodes of each rank, one for each collective, and an end."""
    sizes = np.cumsum([0, *(graph.time.size for graph in graphs)])
    begins = [graph.first_ns + shift.ns for graph, shift in zip(graphs, shifts, strict=True)]
    first_ns = min(begins)
    arrived = members.group_by("instance", maintain_order=True).agg(pl.col("start").max())
    arrived_ns = arrived["start"].to_numpy() - first_ns
    times = [graph.time + begin - first_ns for graph, begin in zip(graphs, begins, strict=True)]
    end_ns = max(time[graph.end] for graph, time in zip(graphs, times, strict=True))
    edges = Edges()
    earliest, end = int(np.argmin(begins)), int(sizes[-1]) + arrived.height
    for rank, (graph, begin, offset) in enumerate(zip(graphs, begins, sizes[:-1], strict=True)):
        own = members.filter(pl.col("rank") == rank)
        joined = own["edge"].to_numpy()
        rest = np.ones(graph.src.size, np.bool_)
        rest[joined] = False
        edges.add(
            graph.kind[rest],
            offset + graph.src[rest],
            offset + graph.dst[rest],
            graph.nominal[rest],
            graph.inferred[rest],
        )
        instance = own["instance"].to_numpy()
        edges.add(Kind.WAIT, offset + graph.src[joined], sizes[-1] + instance, 0)
        edges.add(
            Kind.DURATION,
            sizes[-1] + instance,
            offset + graph.dst[joined],
            own["end"].to_numpy() - first_ns - arrived_ns[instance],
        )
        edges.add(Kind.TAIL, offset + graph.end, end, 0)
        if rank != earliest:  # the first node of each rank is its begin
            edges.add(Kind.BEGIN, sizes[earliest], offset, begin - first_ns)
    return assembled(
        np.concatenate([*times, arrived_ns, [end_ns]]),
        _nodes(graphs, shifts, arrived.height),
        edges,
        first_ns,
        graphs[0].constants,
        Counts(*(sum(values) for values in zip(*map(_counts, graphs), strict=True))),
    )


def _counts(graph: Graph) -> tuple[int, ...]:
    return tuple(vars(graph.counts).values())


def _nodes(graphs: Sequence[Graph], shifts: Sequence[Shift], collectives: int) -> dict[str, Int64s]:
    """Return the columns of the nodes: of each rank, of the collectives, and of the end."""
    none = np.full(collectives + 1, -1, np.int64)
    what = np.append(np.full(collectives, What.GPU_START), What.END)
    ranks = list(zip(graphs, shifts, strict=True))
    return {
        "what": np.concatenate([*(graph.what for graph in graphs), what]),
        "uid": np.concatenate([*(_shifted(g.uid, shift.uid) for g, shift in ranks), none]),
        "thread": np.concatenate([*(_shifted(g.thread, shift.thread) for g, shift in ranks), none]),
        "device": np.concatenate([*(graph.device for graph in graphs), none]),
        "stream": np.concatenate([*(graph.stream for graph in graphs), none]),
    }


def _shifted(column: Int64s | Int32s, by: int) -> Int64s:
    """Return the column with a number added to those that name something."""
    return np.where(column >= 0, column.astype(np.int64) + by, column)
