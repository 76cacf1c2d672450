"""What late ranks did longer than those in the middle: the states of their GPUs."""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.perf_report.intervals import covered_during
from jarvis.perf_report.timeline.states import State
from jarvis.ranks.events import TEXT
from jarvis.ranks.members import RANK, Batch
from jarvis.schemas.names import C

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]

UNKNOWN_STATE = "unknown"
"""State of a rank outside of the window of its timeline."""

Key = tuple[str, str | None]
"""A state and its detail."""


class Times:
    """Time in each state between baseline and arrival, by instance: of its late rank, and the sum
    of those in the middle.

    Args:
        instances: Number of instances.
    """

    def __init__(self, instances: int) -> None:
        self._instances = instances
        self._late: dict[Key, Int64s] = {}
        self._middle: dict[Key, Int64s] = {}
        self._calls: list[pl.DataFrame] = [pl.DataFrame(schema=_OF_CALLS)]
        self._computing: list[pl.DataFrame] = [pl.DataFrame(schema=_COMPUTING)]

    def add(
        self, batch: Batch, begins: Int64s, ends: Int64s, instance: Int32s, is_late: Bools
    ) -> None:
        """Add the times of the ranks of a batch.

        Args:
            batch: The ranks.
            begins: When each time begins, on the axis of the batch.
            ends: When it ends.
            instance: The instance to which it belongs.
            is_late: Whether it is that of the late rank.
        """
        states = batch.read("timeline_states", C.state, C.detail, C.start_ns, C.dur_ns)
        spans = states.select(
            *(C.rank, C.state, C.detail, C.dur_ns), batch.on_axis(C.start_ns).alias(C.ts_ns)
        )
        rest = ends - begins
        for (state, detail), of_state in spans.group_by(C.state, C.detail, maintain_order=True):
            inside = covered_during(of_state, begins, ends)
            rest = rest - inside
            key = str(state), None if detail is None else str(detail)
            self._add(key, inside, instance, is_late)
            if state == State.COMPUTE:
                sums = of_state.group_by(C.rank).agg(pl.col(C.dur_ns).sum().alias("ns"))
                named = sums.with_columns(pl.lit(detail, pl.String).alias(C.detail))
                self._computing.append(named.select(_COMPUTING.names()))
        self._add((UNKNOWN_STATE, None), rest, instance, is_late)
        columns = (C.cause, C.start_ns, C.dur_ns, C.next_uid, *_CALLS)
        gaps = batch.read("idle_gaps", *columns).select(
            pl.col(C.cause).cast(TEXT).alias(C.detail),
            batch.on_axis(C.start_ns),
            C.dur_ns,
            pl.col(C.next_uid).cast(pl.Int32).alias(C.uid),
            pl.col(_CALLS).cast(TEXT),
        )
        self._calls += _longest_gaps(gaps, instance[is_late], begins[is_late], ends[is_late])

    def _add(self, key: Key, times_ns: Int64s, instance: Int32s, is_late: Bools) -> None:
        for to, chosen in ((self._late, is_late), (self._middle, ~is_late)):
            if key not in to:
                to[key] = np.zeros(self._instances, np.int64)
            np.add.at(to[key], instance[chosen], times_ns[chosen])

    def computing(self) -> pl.DataFrame:
        """Return ``rank, detail, ns``: the time of each category of compute in the window."""
        return pl.concat(self._computing)

    def causes(self, late: pl.DataFrame) -> pl.DataFrame:
        """Return the states of the late rank of each instance, most extra time first; their extra
        times add up to its own lateness.

        Means are rounded down, and what that leaves belongs to the state with most time.

        Args:
            late: ``instance_id, rank, own_lateness_ns``, and ``middle``, the ranks in the middle.
        """
        keys = sorted({*self._late, *self._middle}, key=str)
        names = pl.DataFrame(keys, schema={C.state: TEXT, C.detail: TEXT}, orient="row")
        calls = pl.concat(self._calls).with_columns(pl.lit(State.IDLE.value, TEXT).alias(C.state))

        def with_calls(rows: pl.DataFrame) -> pl.DataFrame:
            key = [C.instance_id, C.state, C.detail]
            return rows.join(calls, on=key, how="left", maintain_order="left")

        parts = (self._causes(keys, names, part) for part in late.iter_slices(_AT_ONCE))
        empty = pl.DataFrame(schema=_CAUSES)
        return pl.concat([with_calls(empty), *map(with_calls, parts)])

    def _causes(self, keys: list[Key], names: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
        instance = late[C.instance_id].to_numpy()
        own = np.stack([self._late[key][instance] for key in keys])
        usual = np.stack([self._middle[key][instance] for key in keys]) // late["middle"].to_numpy()
        places = np.arange(late.height)
        left = own.sum(axis=0) - usual.sum(axis=0) - late[C.own_lateness_ns].to_numpy()
        usual[own.argmax(axis=0), places] += left
        order = np.argsort(usual - own, axis=0, kind="stable").T.ravel()
        rows = np.repeat(places, len(keys))
        is_there = (own[order, rows] != 0) | (usual[order, rows] != 0)
        order, rows = order[is_there], rows[is_there]
        of_rows: pl.DataFrame = late.select(C.instance_id, C.rank)[rows]
        return of_rows.hstack(names[order]).with_columns(
            pl.Series(C.state_ns, own[order, rows]),
            pl.Series(C.yardstick_ns, usual[order, rows]),
            pl.Series(C.extra_ns, own[order, rows] - usual[order, rows]),
        )


_AT_ONCE = 1 << 14
"""Instances whose states are in memory together."""

_CALLS = (C.host_call, C.host_op, C.host_frame)
_KEY = [(C.instance_id, pl.Int32()), (C.detail, TEXT)]
_OF_CALLS = pl.Schema([*_KEY, *((name, TEXT) for name in _CALLS), (C.uid, pl.Int32())])
_COMPUTING = pl.Schema([(C.rank, RANK()), (C.detail, pl.String()), ("ns", pl.Int64())])
_TIMES = ((name, pl.Int64()) for name in (C.state_ns, C.yardstick_ns, C.extra_ns))
_CAUSES = pl.Schema([_KEY[0], (C.rank, RANK()), (C.state, TEXT), _KEY[1], *_TIMES])


def _longest_gaps(
    gaps: pl.DataFrame, rows: Int32s, begins: Int64s, ends: Int64s
) -> Iterator[pl.DataFrame]:
    """Yield what the host did in the longest gap of each cause between two times of instances."""
    for _, of_cause in gaps.group_by(C.detail, maintain_order=True):
        starts = of_cause[C.start_ns].to_numpy()
        first = np.searchsorted(starts + of_cause[C.dur_ns].to_numpy(), begins, side="right")
        after = np.searchsorted(starts, ends, side="left")
        has_gap = first < after
        longest_first = np.argsort(-of_cause[C.dur_ns].to_numpy(), kind="stable")
        place = np.append(np.argsort(longest_first), starts.size)
        least = np.minimum.reduceat(place, np.stack([first, after], axis=1).ravel())[::2]
        yield of_cause[longest_first[least[has_gap]]].select(
            pl.Series(C.instance_id, rows[has_gap]), C.detail, *_CALLS, C.uid
        )
