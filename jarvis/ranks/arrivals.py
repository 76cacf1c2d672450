"""With which arrivals that of a late rank is compared, and since when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.ranks.holding import is_holding
from jarvis.ranks.identity import MAX_RANK
from jarvis.ranks.members import Batch
from jarvis.ranks.parts import rows_by_instance, sums
from jarvis.schemas.names import C

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]

_MAX_REPLICAS = 16
"""Groups of one description that are compared with each other, by the order of their names."""

HIDDEN_SHARE = 0.5
"""Part of the waiting at a send without compute beside it below which it was posted before."""

NONE = -1


@dataclass(frozen=True)
class Arrivals:
    """Kernels that are compared at an instance, by ``kernel``, the row of it: that of the late rank
    (``is_late``), and those in the middle half, by which it is measured, or in the first half of
    replicas.

    By instance, ``late`` is the first kernel of the late rank, NONE without one.
    """

    instance: Int32s
    kernel: Int32s
    is_late: Bools
    late: Int32s

    @classmethod
    def of(
        cls,
        kernels: pl.DataFrame,
        latest: Int32s,
        instance: Int32s,
        kernel: Int32s,
        is_replica: Bools,
    ) -> Self:
        """Return which of the kernels are compared at each instance.

        Args:
            kernels: All kernels.
            latest: The last rank of each instance.
            instance: An instance, several times.
            kernel: One of the kernels that may be compared at it, each time, in ascending order.
            is_replica: Whether the instance is compared with replicas.
        """
        start, rank = kernels[C.start_ns].to_numpy(), kernels[C.rank].to_numpy()
        late, has_middle = np.full(latest.size, NONE, np.int32), np.zeros(latest.size, np.bool_)
        counts = sums(instance)
        is_used, is_late = np.zeros((2, instance.size), np.bool_)
        for part in rows_by_instance(instance):
            rows = part[np.lexsort((start[kernel[part]], instance[part]))]
            at, own = instance[rows], kernel[rows]
            count = counts[at]
            place = np.arange(at.size) - at.searchsorted(at)
            of_late = rank[own] == latest[at]
            late[at[of_late][::-1]] = own[of_late][::-1]
            in_middle = (place >= count // 4) & (place < count - count // 4)
            is_early = (place < count // 2) | (count == 2)
            is_middle = np.where(is_replica[at], is_early, in_middle) & ~of_late
            has_middle[at[is_middle]] = True
            is_used[rows] = (of_late | is_middle) & has_middle[at]
            is_late[rows] = of_late
        late[~has_middle] = NONE
        used = np.flatnonzero(is_used).astype(np.int32)
        order = used[np.argsort(kernel[used], kind="stable")]
        return cls(instance[order], kernel[order], is_late[order], late)

    def rows(self, first: int, after: int) -> slice:
        """Return which of them are arrivals of the kernels from ``first`` on, before ``after``."""
        return slice(*self.kernel.searchsorted([first, after]))


def counterparts(kernels: pl.DataFrame, instances: pl.DataFrame) -> tuple[Int32s, Int32s]:
    """Return instances with one of their replicas each time, by its last kernel, of a send by that
    of the rank at the same end of it, in ascending order of the kernels.

    Args:
        kernels: Kernels of instances with ``instance_id``, by rank.
        instances: Instances of ``counted``.
    """
    instance, rank = (kernels[name].to_numpy() for name in (C.instance_id, C.rank))
    latest, is_sent = instances["latest"].to_numpy(), instances["is_sent"].to_numpy()
    ends = instances.select("latest", C.src_rank, C.dst_rank).fill_null(NONE)
    at_end = {}
    for name in ends.columns:
        at = np.full(latest.size, NONE, np.int32)
        is_there = np.flatnonzero(rank == ends[name].to_numpy()[instance])
        at[instance[is_there]] = is_there
        at_end[name] = at
    is_chosen = instances.select(_is_arrival()).to_series().to_numpy()
    own, other = _pairs(np.flatnonzero(is_chosen), instances["peers"].to_numpy())
    kernel = at_end["latest"][other]
    is_source = latest == ends[C.src_rank].to_numpy()
    sent = np.flatnonzero(is_sent[own])
    kernel[sent] = np.where(
        is_source[own[sent]],
        at_end[C.src_rank][other[sent]],
        at_end[C.dst_rank][other[sent]],
    )
    del other
    order = np.argsort(kernel, kind="stable")[np.count_nonzero(kernel == NONE) :]
    return own[order], kernel[order]


def _is_arrival() -> pl.Expr:
    # A send or receive that is posted long before, and waits beside compute, is no arrival.
    is_posted = pl.col(C.src_rank).is_not_null() & ~pl.col("is_sent")
    is_hidden = is_posted & (pl.col(C.exposed_wait_us) < HIDDEN_SHARE * pl.col(C.wait_us))
    return ~pl.col(C.is_edge) & pl.col(C.wait_us).is_not_null() & ~is_hidden


def replicas(instances: pl.DataFrame, kernels: pl.DataFrame, of: tuple[Int32s, Int32s]) -> Arrivals:
    """Return what the replicas of the late ranks are compared with.

    Args:
        instances: Instances of ``counted``.
        kernels: Kernels of instances with ``instance_id``, by rank.
        of: Result of ``counterparts``.
    """
    latest = instances["latest"].to_numpy()
    return Arrivals.of(kernels, latest, *of, np.ones(latest.size, np.bool_))


def compared(
    kernels: pl.DataFrame,
    instances: pl.DataFrame,
    of: tuple[Int32s, Int32s],
    stages: Mapping[int, int],
) -> Arrivals:
    """Return what the late ranks are compared with: of each instance the kernels of those with the
    same place in the program, of a send those of the ranks at the same end of it.

    Ranks of other pipeline stages do other work: they are not compared. At a send from one stage to
    another, the ranks of the same stage are, that do the same.

    Args:
        kernels: Kernels of instances with ``instance_id``, by rank.
        instances: Instances of ``counted``.
        of: Those of ``counterparts`` that are sends.
        stages: The pipeline stage of each rank.
    """
    instance, rank = (kernels[name].to_numpy() for name in (C.instance_id, C.rank))
    latest, is_sent = instances["latest"].to_numpy(), instances["is_sent"].to_numpy()
    is_chosen = instances.select(_is_arrival()).to_series().to_numpy()
    stage = np.array([stages.get(at, NONE) for at in range(rank.max(initial=0) + 1)], np.int32)
    is_inside = (is_chosen & ~is_sent)[instance] & (stage[rank] == stage[latest][instance])
    inside = np.flatnonzero(is_inside).astype(np.int32)
    own, kernel = of
    return Arrivals.of(
        kernels,
        latest,
        np.concatenate([instance[inside], own]),
        np.concatenate([inside, kernel]),
        is_sent,
    )


def _pairs(chosen: Int64s, peers: Int64s) -> tuple[Int32s, Int32s]:
    """Return each of the chosen instances with each one of the same ``peers``, also itself."""
    ordered = chosen[np.argsort(peers[chosen], kind="stable")].astype(np.int32)
    _, first, inverse, counts = np.unique(
        peers[ordered], return_index=True, return_inverse=True, return_counts=True
    )
    count = counts[inverse]
    begins = np.cumsum(count) - count
    place = np.arange(count.sum()) - np.repeat(begins - first[inverse], count)
    return np.repeat(ordered, count), ordered[place]


def counted(
    instances: pl.DataFrame, communicators: pl.DataFrame, stages: Mapping[int, int]
) -> pl.DataFrame:
    """Return instances with ``same``: equal for those that groups of one description have in the
    same place of a step, which is what different ranks do at the same point of the program;
    ``peers``, the same for those that are compared; and ``is_sent``, whether it is a send from one
    pipeline stage to another.

    Of sends the stages count, not the ranks. ``is_clear`` is whether a single rank is the last.
    """
    ends = (C.src_rank, C.dst_rank, "latest")
    of_ends = [_stage(end, stages).fill_null(pl.col(end) + MAX_RANK) for end in ends[:2]]
    place = pl.int_range(pl.len()).over(C.comm_id, C.kind, *ends[:2], C.step)
    described = communicators.select(C.comm_id, C.description, pl.col(C.size).alias("of"))
    joined = instances.join(described, on=C.comm_id, how="left", maintain_order="left")
    same = pl.struct(
        C.description,
        "of",
        C.kind,
        C.step,
        place.alias("place"),
        *(stage.alias(f"{end}_stage") for stage, end in zip(of_ends, ends, strict=False)),
        pl.when(pl.col(C.src_rank).is_null()).then(_stage("latest", stages)).alias("stage"),
    )
    named = joined.with_columns(same.rank("dense").alias("same"))
    block = (pl.col(C.comm_id).rank("ordinal").over("same") - 1) // _MAX_REPLICAS
    return named.with_columns(
        pl.struct("same", block.alias("block")).rank("dense").alias("peers"),
        (pl.col(C.src_rank).is_not_null() & _stage("latest", stages).is_not_null()).alias(
            "is_sent"
        ),
        pl.col(C.last_rank).is_not_null().alias("is_clear"),
    )


def _stage(rank: str, stages: Mapping[int, int]) -> pl.Expr:
    return pl.col(rank).replace_strict(dict(stages), default=None, return_dtype=pl.Int64)


def held_at(kernels: pl.DataFrame, batches: Sequence[Batch]) -> Int32s:
    """Return, by kernel, the row of the kernel at whose end its rank was last held before it; NONE
    if it never was in the recording."""
    holding, rank = is_holding(kernels), kernels[C.rank].to_numpy()
    parts = [np.empty(0, np.int32)]
    for batch in batches:
        first, after = batch.bounds(kernels)
        rows = np.flatnonzero(holding[first:after])
        times = kernels[first:after].select(
            batch.placed(pl.col(time)) for time in (C.start_ns, C.end_ns)
        )
        ends = times[C.end_ns].to_numpy()[rows]
        by_end = np.argsort(ends, kind="stable")
        before = ends[by_end].searchsorted(times[C.start_ns].to_numpy(), side="right")
        found = np.append(first + rows[by_end], NONE)[before - 1]
        is_own = (before > 0) & (rank[found] == rank[first:after])
        parts.append(np.where(is_own, found, NONE).astype(np.int32))
    return np.concatenate(parts)


def since_ns(
    kernels: pl.DataFrame,
    batches: Sequence[Batch],
    arrivals: Arrivals,
    same: Int64s,
    held: Int32s,
) -> Int64s:
    """Return since when each arrival is compared: the end of the instance that held the late rank,
    or of an equal one, on its own rank.

    A rank that was never held in the recording is compared since its begin, one that arrived before
    the end of that instance since it was held itself.

    Args:
        kernels: All kernels.
        batches: The ranks.
        arrivals: The arrivals.
        same: Which instances are equal (``counted``).
        held: The kernels of ``held_at``.
    """
    instance, rank, start, end = (
        kernels[name].to_numpy() for name in (C.instance_id, C.rank, C.start_ns, C.end_ns)
    )
    held_by = _or_none(arrivals.late, held)
    held_by = _or_none(held_by, instance)
    window = np.full(rank.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(window, rank, start)
    space = same.max(initial=0) + 1
    parts = [np.empty(0, np.int64)]
    for batch in batches:
        first, after = batch.bounds(kernels)
        own = arrivals.rows(first, after)
        kernel, late_held = arrivals.kernel[own], held_by[arrivals.instance[own]]
        if not kernel.size:
            continue
        keys = rank[first:after] * space + same[instance[first:after]]
        by_key = np.argsort(keys, kind="stable")
        known, begins = np.unique(keys[by_key], return_index=True)
        common_ns = np.minimum.reduceat(end[first:after][by_key], begins)
        wanted = rank[kernel] * space + same[late_held]
        at = np.minimum(known.searchsorted(wanted), known.size - 1)
        is_common = (known[at] == wanted) & (common_ns[at] <= start[kernel])
        own_held, begin_ns = held[kernel], window[rank[kernel]]
        own_ns = np.where(own_held == NONE, begin_ns, end[own_held])
        found = np.where(is_common, common_ns[at], own_ns)
        parts.append(np.where(late_held == NONE, begin_ns, found))
    return np.concatenate(parts)


def _or_none(places: Int32s, values: Int32s) -> Int32s:
    """Return the values at places, NONE where there is none."""
    found: Int32s = np.where(places == NONE, NONE, values[places])
    return found
