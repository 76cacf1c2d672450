"""The recordings of several ranks in one dependency graph, joined by their collectives.

A rank arrives at a collective when its kernel starts; the work begins when the last rank arrives.
That moment is a node of its own, from which the kernel of each rank takes what was recorded to its
end. A rank without a recording is either absent, or arrives as late as the recorded ends allow: the
truth lies between the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from jarvis.core.arrays import Bools, Float64s, Int32s, Int64s
from jarvis.schemas.names import C
from jarvis.simulation.changed_weights import Index
from jarvis.simulation.edges import REMOVED
from jarvis.simulation.graph import CycleError, Graph, topological_order

NO_CHANGES: Mapping[int, Int64s] = {}


@dataclass(frozen=True)
class RankClock:
    """The way from the clock of a trace to the common one: ``shift_ns`` is added, and the time
    after ``origin_ns`` runs ``drift_ppm`` slower."""

    shift_ns: int = 0
    drift_ppm: float = 0.0
    origin_ns: int = 0

    def common_ns(self, times: Int64s) -> Int64s:
        """Return times of the trace on the common clock."""
        drift = np.rint((times - self.origin_ns) * (self.drift_ppm / 1e6)).astype(np.int64)
        common: Int64s = times + self.shift_ns - drift
        return common


@dataclass(frozen=True)
class Joint:
    """Several recordings in one graph.

    The nodes of the ranks follow each other, then one for each joined collective, and the origin
    of time. ``nodes`` and ``edges`` are where those of each rank begin; ``order`` is a topological
    order of the nodes. ``kernel_edge`` is the duration edge of each joined kernel, ``kernel_join``
    the place of its collective in ``instances``, ``transfer_ns`` its time after the last arrival,
    ``ghost_transfer_ns`` that after the latest possible arrival of an absent rank.
    ``ghost_edge`` are the edges by which absent ranks arrive.
    """

    time: Int64s
    order: Int32s
    indptr: Int32s
    src: Int32s
    weight: Int64s
    nodes: Int64s
    edges: Int64s
    ends: Int64s
    instances: Int64s
    kernel_edge: Int64s
    kernel_join: Int64s
    transfer_ns: Int64s
    ghost_transfer_ns: Int64s
    ghost_edge: Int64s

    @property
    def is_complete(self) -> bool:
        """Whether all ranks of each joined collective are recorded."""
        return not self.ghost_edge.size

    def replay(
        self,
        changed: Mapping[int, Int64s] = NO_CHANGES,
        transfer_factor: Float64s | None = None,
        *,
        with_absent: bool = False,
    ) -> Int64s:
        """Return the time of each node under changes.

        Args:
            changed: What is added to the weights of the graph of a rank, by its position.
            transfer_factor: How many times as long the transfer of each of ``instances`` takes.
            with_absent: Whether ranks without a recording arrive as late as they can have, at the
                same time as in the recording; else they are absent.
        """
        from jarvis.simulation.replay import replay_ordered  # loads compiled kernels

        weight = self.weight.copy()
        for position, added in changed.items():
            weight[self.edges[position] : self.edges[position + 1]] += added
        transfer = self.ghost_transfer_ns if with_absent else self.transfer_ns
        if transfer_factor is not None:
            scaled = transfer * transfer_factor[self.kernel_join]
            transfer = np.rint(scaled).astype(np.int64)
        weight[self.kernel_edge] = transfer
        if not with_absent:
            weight[self.ghost_edge] = REMOVED
        times = self.time.copy()
        replay_ordered(self.order, self.indptr, self.src, weight, times)
        return times

    def of_rank(self, times: Int64s, position: int) -> Int64s:
        """Return the times of the nodes of one rank, in the order of its graph."""
        return times[self.nodes[position] : self.nodes[position + 1]]

    def window_ns(self, times: Int64s) -> int:
        """Return the time from the first begin to the last end of all ranks."""
        return int(times[self.ends].max() - times[self.nodes[:-1]].min())


def joint_graph(
    graphs: Iterable[Graph], clocks: Sequence[RankClock], kernels: pl.DataFrame
) -> Joint:
    """Return the graph of all ranks; the graphs are read one after the other.

    The last rank has to arrive at a collective before any rank leaves it. Others take the time
    that was recorded.

    Args:
        graphs: The graph of each rank.
        clocks: The clock of each rank.
        kernels: Matched kernels of collectives that no rank leaves before all have come:
            ``instance_id, position`` (of the rank), ``uid``, ``is_complete`` (all ranks of the
            collective are recorded) and ``floor_ns``, its least transfer.

    Raises:
        CycleError: The collectives have no order.
    """
    parts = _Parts()
    by_position = kernels.partition_by("position", as_dict=True)
    for position, (graph, clock) in enumerate(zip(graphs, clocks, strict=True)):
        parts.add(graph, clock, by_position.get((position,), kernels.clear()))
    return parts.joined()


@dataclass
class _Parts:
    """The graphs of the ranks under construction."""

    time: list[Int64s] = field(default_factory=list)
    degree: list[Int64s] = field(default_factory=list)
    src: list[Int32s] = field(default_factory=list)
    weight: list[Int64s] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    kernels: list[pl.DataFrame] = field(default_factory=list)
    nodes: list[int] = field(default_factory=lambda: [0])
    edges: list[int] = field(default_factory=lambda: [0])

    def add(self, graph: Graph, clock: RankClock, kernels: pl.DataFrame) -> None:
        """Add the graph of a rank, with its kernels of collectives."""
        first_node, first_edge = self.nodes[-1], self.edges[-1]
        time = clock.common_ns(graph.time + graph.first_ns)
        recorded = time[graph.dst] - time[graph.src]
        self.time.append(time)
        self.degree.append(np.diff(graph.indptr).astype(np.int64))
        self.src.append((graph.src + first_node).astype(np.int32))
        self.weight.append(np.where(graph.binding, recorded, np.minimum(graph.weight, recorded)))
        self.ends.append(first_node + graph.end)
        uids, own = Index(graph).gpu_edge
        durations = pl.DataFrame({C.uid: uids, "edge": own})
        found = kernels.join(durations, on=C.uid).sort(C.instance_id)
        edge = found["edge"].to_numpy()
        self.kernels.append(
            found.with_columns(
                pl.col("edge") + first_edge,
                pl.Series("start_node", graph.src[edge].astype(np.int64) + first_node),
                pl.Series("start", time[graph.src[edge]], dtype=pl.Int64),
                pl.Series("end", time[graph.dst[edge]], dtype=pl.Int64),
            )
        )
        self.nodes.append(first_node + time.size)
        self.edges.append(first_edge + graph.src.size)

    def joined(self) -> Joint:
        """Return the graph of the ranks that were added."""
        kernels = _joinable(pl.concat(self.kernels))
        joins = kernels.unique(C.instance_id, maintain_order=True)
        first_join, first_edge = self.nodes[-1], self.edges[-1]
        is_absent = ~joins["is_complete"].to_numpy()
        origin_ns = min((int(time.min()) for time in self.time), default=0)
        origin = first_join + joins.height
        place = kernels["join"].to_numpy()
        # By target: the kernels of each collective, then the origin for an absent rank.
        source = np.append(kernels["start_node"].to_numpy(), np.full(is_absent.sum(), origin))
        target = np.append(place, np.flatnonzero(is_absent))
        by_target = np.argsort(target, kind="stable")
        is_ghost = by_target >= place.size
        latest = joins["latest"].to_numpy()[is_absent] - origin_ns
        arrival = np.append(np.zeros(place.size, np.int64), latest)[by_target]
        src = np.concatenate([*self.src, source[by_target].astype(np.int32)])
        edge = kernels["edge"].to_numpy()
        src[edge] = (first_join + place).astype(np.int32)
        degree = np.concatenate(
            [*self.degree, np.bincount(target, minlength=joins.height), np.zeros(1, np.int64)]
        )
        indptr = np.append(0, np.cumsum(degree)).astype(np.int32)
        time = np.concatenate([*self.time, joins["last"].to_numpy(), [origin_ns]])
        return Joint(
            time=time,
            order=_order(indptr, src, time),
            indptr=indptr,
            src=src,
            weight=np.concatenate([*self.weight, arrival]),
            nodes=np.array(self.nodes),
            edges=np.array(self.edges),
            ends=np.array(self.ends),
            instances=joins[C.instance_id].to_numpy(),
            kernel_edge=edge,
            kernel_join=place,
            transfer_ns=(kernels["end"] - kernels["last"]).to_numpy(),
            ghost_transfer_ns=(kernels["end"] - kernels["latest"]).to_numpy(),
            ghost_edge=first_edge + np.flatnonzero(is_ghost),
        )


def _joinable(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of collectives that join ranks, with ``join``, the number of each.

    ``last`` is the last recorded arrival, ``latest`` that of a rank without a recording: the least
    transfer before the first end, at the earliest with the last recorded one.
    """
    first_end = pl.col("end").min().over(C.instance_id)
    latest = (first_end - pl.col("floor_ns").fill_null(0)).clip(lower_bound=pl.col("last"))
    return (
        kernels.with_columns(pl.col("start").max().over(C.instance_id).alias("last"))
        .filter(pl.col("last") <= first_end)
        .with_columns(pl.when("is_complete").then("last").otherwise(latest).alias("latest"))
        .sort(C.instance_id, "position")
        .with_columns(pl.col(C.instance_id).rle_id().cast(pl.Int64).alias("join"))
    )


def _order(indptr: Int32s, src: Int32s, time: Int64s) -> Int32s:
    """Return an order in which each node comes after those it waits for."""
    dst = np.repeat(np.arange(time.size, dtype=np.int32), np.diff(indptr))
    is_forward: Bools = time[src] <= time[dst]
    if not is_forward.all():
        raise CycleError
    return topological_order(src, dst, time)
