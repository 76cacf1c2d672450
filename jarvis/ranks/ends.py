"""The ends of matched collectives, and the offsets of clocks that make them agree best."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]

_MAX_SWEEPS = 50
_STILL_NS = 50.0
_AT_ONCE = 1 << 18
"""Values that are in memory in the order of their groups."""


class Medians:
    """Medians of groups of values; the order by group is found once.

    Args:
        group: The group of each value.
        groups: Number of groups.
    """

    def __init__(self, group: Int32s, groups: int) -> None:
        self._groups = groups
        self.counts: Int64s = np.bincount(group, minlength=groups)
        self.order: Int32s = np.argsort(group, kind="stable").astype(np.int32)
        self.begins: Int64s = np.cumsum(self.counts) - self.counts

    def __call__(self, values: Floats) -> Floats:
        """Return the median of each group, 0 for one without values."""
        found = np.zeros(self._groups)
        for count in np.unique(self.counts[self.counts > 0]):
            same = np.flatnonzero(self.counts == count)
            for groups in np.array_split(same, -(-same.size * int(count) // _AT_ONCE)):
                rows = self.order[self.begins[groups][:, None] + np.arange(count)]
                ordered = values[rows]
                ordered.sort(axis=1)
                low, high = ordered[:, (count - 1) // 2], ordered[:, count // 2]
                found[groups] = low + (high - low) * 0.5
        return found

    def rows(self, groups: Int64s) -> Int32s:
        """Return the values of some groups, by their places."""
        counts = self.counts[groups]
        skipped = np.repeat(self.begins[groups] - np.cumsum(counts) + counts, counts)
        found: Int32s = self.order[skipped + np.arange(skipped.size)]
        return found


@dataclass(frozen=True)
class Ends:
    """Ends of kernels by ``instance``, of which each has several, and ``rank``; ``group`` is the
    number of the kind in its communicator. ``end_ns`` counts from the origin of the rank."""

    instance: Int32s
    rank: Int32s
    group: Int32s
    end_ns: Floats

    def __getitem__(self, rows: slice | Bools | Int32s) -> Self:
        """Return some of the ends."""
        return type(self)(self.instance[rows], self.rank[rows], self.group[rows], self.end_ns[rows])

    def of_groups(self, groups: Sequence[int]) -> Self:
        """Return the ends of some groups."""
        is_used = np.isin(self.group, groups)
        return self if is_used.all() else self[is_used]

    @cached_property
    def instances(self) -> tuple[Int32s, Medians]:
        """The place of the instance of each end among the instances, and the medians of these."""
        known, place = _places(self.instance)
        return place, Medians(place, known.size)

    @cached_property
    def ranks(self) -> tuple[Int64s, Int32s, Medians]:
        """The ranks, the place of that of each end among them, and the medians of the ranks."""
        known, place = _places(self.rank)
        return known, place, Medians(place, known.size)

    @cached_property
    def components(self) -> list[list[int]]:
        """The sets of ranks that collectives connect, the one with the first rank first."""
        (instance, of_instances), (known, rank, _) = self.instances, self.ranks
        label = np.arange(known.size)
        while True:
            least = np.full(of_instances.counts.size, known.size)
            np.minimum.at(least, instance, label[rank])
            lower = label.copy()
            np.minimum.at(lower, rank, least[instance])
            lower = lower[lower]
            if (lower == label).all():
                break
            label = lower
        return [known[label == first].tolist() for first in np.unique(label)]

    @cached_property
    def offsets(self) -> Floats:
        """What the clock of each of the ranks is ahead of that of the first rank of its
        component, in ns."""
        known, _, _ = self.ranks
        offset = self._swept(self._started())
        for ranks in self.components:
            own = known.searchsorted(ranks)
            offset[own] -= offset[own[0]]
        return offset

    def _started(self) -> Floats:
        """Return first estimates: medians of pairwise differences along a breadth-first walk."""
        (instance, of_instances), (known, rank, of_ranks) = self.instances, self.ranks
        offset, is_reached = np.zeros(known.size), np.zeros(known.size, np.bool_)
        own_ns = np.zeros(of_instances.counts.size)
        for ranks in self.components:
            own = known.searchsorted(ranks)
            largest = int(own[np.argmax(of_ranks.counts[own])])
            is_reached[largest] = True
            waiting = deque([largest])
            while waiting and not is_reached[own].all():
                at = waiting.popleft()
                mine = of_ranks.rows(np.array([at]))
                own_ns[instance[mine]] = self.end_ns[mine]
                rows = of_instances.rows(np.unique(instance[mine]))
                rows = rows[~is_reached[rank[rows]]]
                if not rows.size:
                    continue
                found = Medians(rank[rows], known.size)
                behind = found(self.end_ns[rows] - own_ns[instance[rows]])
                others = np.flatnonzero(found.counts)
                offset[others] = offset[at] + behind[others]
                is_reached[others] = True
                waiting += others[np.argsort(-found.counts[others], kind="stable")].tolist()
        return offset

    def _swept(self, offset: Floats) -> Floats:
        """Return estimates improved until none moves: each is the median of its differences from
        the medians of all."""
        (instance, of_instances), (_, rank, of_ranks) = self.instances, self.ranks
        for _ in range(_MAX_SWEEPS):
            middle = of_instances(self.end_ns - offset[rank])
            moved = of_ranks(self.end_ns - middle[instance])
            step = np.abs(moved - offset).max(initial=0.0)
            offset = moved
            if step < _STILL_NS:
                break
        return offset

    def residuals(self, offset: Floats) -> Floats:
        """Return what is left of the difference of each end from the median of its instance.

        Args:
            offset: The offset of the clock of each of the ranks, in ns.
        """
        (instance, of_instances), (_, rank, _) = self.instances, self.ranks
        placed = self.end_ns - offset[rank]
        return placed - of_instances(placed)[instance]


def _places(values: Int32s) -> tuple[Int64s, Int32s]:
    """Return the different ones of small numbers, and the place of each among them."""
    is_there = np.bincount(values) > 0
    places = (np.cumsum(is_there) - 1).astype(np.int32)
    return np.flatnonzero(is_there), places[values]
