"""Why the last rank of a collective was last.

Ranks that compute beside a collective do not start together after it. They do where they had to
wait for its end: there they were *held together*. All ranks are compared since the last time
that the late rank was held, also those that were held again since. Its lateness is what it was late
already then (inherited), and what it took longer since (own), which the states of its GPU divide
exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.perf_report.intervals import covered_until
from jarvis.perf_report.timeline.states import State
from jarvis.ranks.events import Member
from jarvis.ranks.holding import holding_kernels
from jarvis.schemas.names import C

Int64s = NDArray[np.int64]

UNKNOWN_STATE = "unknown"
"""State of a rank outside of the window of its timeline."""

MAX_DEPTH = 20
"""Instances through which inherited lateness is followed."""

COMPARABLE_SHARE = 1.1
"""Own time above the lateness, as a factor, from which on it is that of other work."""

_AT_ONCE = 250_000
"""Kernels whose instances are compared at once."""

Key = tuple[str, str | None]
"""A state and its detail."""


@dataclass
class _Times:
    """Time in each state between baseline and arrival, by the row of the instance: of its late
    rank, and the sum of those in the middle. ``calls`` are those of the longest gap by ``row`` and
    ``detail``."""

    instances: int
    late: dict[Key, Int64s] = field(default_factory=dict)
    middle: dict[Key, Int64s] = field(default_factory=dict)
    calls: list[pl.DataFrame] = field(default_factory=list)

    def add(self, to: dict[Key, Int64s], state: Key, rows: Int64s, times_ns: Int64s) -> None:
        """Add times to a state; each row is there once."""
        if state not in to:
            to[state] = np.zeros(self.instances, np.int64)
        to[state][rows] += times_ns


def is_comparable() -> pl.Expr:
    """Return whether the own time of a late rank can be compared with that of the others.

    It cannot where they began later: most of it is from before that.
    """
    return pl.col(C.own_lateness_ns) <= COMPARABLE_SHARE * pl.col(C.lateness_ns)


def is_own() -> pl.Expr:
    """Return whether most of a lateness arose since the rank was last held together with others."""
    return pl.col(C.own_lateness_ns) >= pl.col(C.inherited_ns)


def lateness(
    kernels: pl.DataFrame, instances: pl.DataFrame, members: Sequence[Member]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables ``lateness`` and ``lateness_causes``.

    Args:
        kernels: Kernels of instances with ``instance_id`` (``instances.kernels``).
        instances: Table ``instances``.
        members: The ranks.
    """
    late, compared = _compared(kernels, instances)
    times = _Times(late.height)
    by_rank = compared.partition_by(C.rank, as_dict=True)
    for member in members:
        if (member.rank,) in by_rank:
            _add_times(times, member, by_rank[member.rank,])
    causes = _causes(late, times)
    named = causes.drop_nulls(C.detail).group_by(C.instance_id)
    explained = named.agg(pl.col(C.extra_ns).clip(lower_bound=0).sum().alias("explained"))
    own = pl.col(C.own_lateness_ns)
    table = _with_roots(_with_new(late)).join(explained, on=C.instance_id, how="left")
    share = (100 * pl.col("explained").fill_null(0) / own).clip(upper_bound=100.0)
    return table.with_columns(pl.when(own > 0).then(share).alias(C.explained_pct)).sort(
        C.instance_id
    ), causes


def _compared(kernels: pl.DataFrame, instances: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the late rank of each instance (``_late_ranks``), and the ``_arrivals`` of late ranks
    and of those in the middle.

    Instances at edges, and those without one last rank, are left out. The others are compared some
    at a time, for the memory of all their columns.
    """
    chosen = instances.filter(~pl.col(C.is_edge) & pl.col(C.last_rank).is_not_null())
    held = (
        holding_kernels(kernels)
        .select(
            C.rank, pl.col(C.end_ns).alias("held_ns"), pl.col(C.instance_id).alias(C.held_instance)
        )
        .sort("held_ns")
    )
    at_once = max(1, _AT_ONCE * instances.height // max(kernels.height, 1))
    late, compared = [], []
    for first in range(0, max(chosen.height, 1), at_once):
        rows = _arrivals(kernels, held, chosen[first : first + at_once])
        rows = rows.with_columns(pl.col("row") + first)
        late.append(_late_ranks(rows))
        compared.append(rows.filter(pl.col("is_late") | pl.col("is_middle")))
    return pl.concat(late), pl.concat(compared)


def _arrivals(kernels: pl.DataFrame, held: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of chosen instances.

    Columns: ``row`` (of the instance), ``instance_id, rank, start_ns, baseline_ns, held_instance``
    (that ended at the baseline), ``shift`` (from the common clock to that of the trace, after its
    origin), ``is_late``, and ``is_middle`` of those whose arrivals are in the middle half, by which
    the late one is measured.
    """
    windows = kernels.group_by(C.rank).agg(pl.col(C.start_ns).min().alias("window_ns"))
    place, count = pl.int_range(pl.len()).over(C.instance_id), pl.len().over(C.instance_id)
    is_late = pl.col(C.rank) == pl.col(C.last_rank)
    arrivals = (
        kernels.lazy()
        .select(C.instance_id, C.rank, C.start_ns, "own_start_ns")
        .join(chosen.lazy().select(C.instance_id, C.last_rank), on=C.instance_id)
        .join(windows.lazy(), on=C.rank)
        .sort(C.start_ns)
        .join_asof(
            held.lazy(),
            left_on=C.start_ns,
            right_on="held_ns",
            by=C.rank,
            check_sortedness=False,
        )
        .with_columns(pl.col(C.held_instance).filter(is_late).first().over(C.instance_id))
        .collect()
    )
    ends = kernels.filter(
        pl.col(C.instance_id).is_in(arrivals[C.held_instance].unique().implode())
    ).select(
        C.rank,
        pl.col(C.instance_id).alias(C.held_instance),
        pl.col(C.end_ns).alias("common_ns"),
    )
    # A rank that was never held in the recording is compared since its begin.
    is_held = pl.col(C.held_instance).is_not_null()
    since = pl.when(is_held).then(pl.coalesce("common_ns", "held_ns"))
    return (
        arrivals.join(ends, on=[C.rank, C.held_instance], how="left")
        .sort(C.instance_id, C.start_ns, C.rank)
        .select(
            pl.col(C.instance_id).rle_id().cast(pl.Int64).alias("row"),
            C.instance_id,
            C.rank,
            C.start_ns,
            pl.coalesce(since, "window_ns").alias("baseline_ns"),
            C.held_instance,
            (pl.col("own_start_ns") - pl.col(C.start_ns)).alias("shift"),
            is_late.alias("is_late"),
            ((place >= count // 4) & (place < count - count // 4) & ~is_late).alias("is_middle"),
        )
    )


def _late_ranks(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Return the late rank of each instance with its lateness, by ``row``.

    Means of the ranks in the middle are rounded down, so that all parts add up exactly.
    """

    def against_middle(column: str) -> pl.Expr:
        middle = pl.col(column).filter("is_middle")
        return pl.col(column).filter("is_late").first() - middle.sum() // middle.len()

    return (
        arrivals.group_by("row", maintain_order=True)
        .agg(
            pl.col(C.instance_id).first(),
            pl.col(C.rank, C.held_instance).filter("is_late").first(),
            against_middle(C.start_ns).alias(C.lateness_ns),
            against_middle("baseline_ns").alias(C.inherited_ns),
            pl.col("is_middle").sum().cast(pl.Int64).alias("middle"),
        )
        .with_columns((pl.col(C.lateness_ns) - pl.col(C.inherited_ns)).alias(C.own_lateness_ns))
    )


def _add_times(times: _Times, member: Member, arrivals: pl.DataFrame) -> None:
    """Add the time of a rank in each state, from its baseline to its arrival."""
    states = member.tables["timeline_states"]
    shift = arrivals["shift"].to_numpy() + member.origin_ns
    begins = arrivals["baseline_ns"].to_numpy() + shift
    ends = arrivals[C.start_ns].to_numpy() + shift
    rows, is_late = arrivals["row"].to_numpy(), arrivals["is_late"].to_numpy()
    rest = ends - begins
    for (name, detail), of_state in states.group_by(C.state, C.detail, maintain_order=True):
        spans = of_state.rename({C.start_ns: C.ts_ns})
        inside = covered_until(spans, ends) - covered_until(spans, begins)
        rest = rest - inside
        state = str(name), None if detail is None else str(detail)
        for to, chosen in ((times.late, is_late), (times.middle, ~is_late)):
            times.add(to, state, rows[chosen], inside[chosen])
    for to, chosen in ((times.late, is_late), (times.middle, ~is_late)):
        times.add(to, (UNKNOWN_STATE, None), rows[chosen], rest[chosen])
    gaps = member.tables["idle_gaps"]
    times.calls += _longest_gaps(gaps, rows[is_late], begins[is_late], ends[is_late])


def _longest_gaps(
    gaps: pl.DataFrame, rows: Int64s, begins: Int64s, ends: Int64s
) -> Iterator[pl.DataFrame]:
    """Yield what the host did in the longest gap of each cause between the times of each row."""
    for (cause,), of_cause in gaps.group_by(C.cause, maintain_order=True):
        starts = of_cause[C.start_ns].to_numpy()
        first = np.searchsorted(starts + of_cause[C.dur_ns].to_numpy(), begins, side="right")
        after = np.searchsorted(starts, ends, side="left")
        has_gap = first < after
        longest_first = np.argsort(-of_cause[C.dur_ns].to_numpy(), kind="stable")
        place = np.append(np.argsort(longest_first), starts.size)
        least = np.minimum.reduceat(place, np.stack([first, after], axis=1).ravel())[::2]
        texts = [name for name in _CALLS if name in of_cause.columns]
        yield of_cause[longest_first[least[has_gap]]].select(
            pl.Series("row", rows[has_gap]), pl.lit(cause, pl.String).alias(C.detail), *texts
        )


def _causes(late: pl.DataFrame, times: _Times) -> pl.DataFrame:
    """Return the states of the late rank of each instance, most extra time first; their extra times
    add up to its own lateness.

    Means are rounded down, and what that leaves belongs to the state with most time.
    """
    if late.is_empty():
        return pl.DataFrame(schema=_CAUSES)
    states = sorted({*times.late, *times.middle}, key=str)
    none = np.zeros(times.instances, np.int64)
    own = np.stack([times.late.get(state, none) for state in states])
    middle = np.stack([times.middle.get(state, none) for state in states])
    usual = middle // late["middle"].to_numpy()
    places = np.arange(late.height)
    left = own.sum(axis=0) - usual.sum(axis=0) - late[C.own_lateness_ns].to_numpy()
    usual[own.argmax(axis=0), places] += left
    order = np.argsort(usual - own, axis=0, kind="stable").T.ravel()
    rows = np.repeat(places, len(states))
    is_there = (own[order, rows] != 0) | (usual[order, rows] != 0)
    order, rows = order[is_there], rows[is_there]
    names = pl.DataFrame(states, schema={C.state: pl.String, C.detail: pl.String}, orient="row")
    calls = pl.concat([*times.calls, pl.DataFrame(schema=_OF_CALLS)], how="diagonal")
    of_rows: pl.DataFrame = late[rows].select("row", C.instance_id, C.rank)
    return (
        of_rows.hstack(names[order])
        .with_columns(
            pl.Series(C.state_ns, own[order, rows]),
            pl.Series(C.yardstick_ns, usual[order, rows]),
            pl.Series(C.extra_ns, own[order, rows] - usual[order, rows]),
        )
        .join(
            calls.with_columns(pl.lit(State.IDLE.value).alias("idle")),
            left_on=["row", C.state, C.detail],
            right_on=["row", "idle", C.detail],
            how="left",
            maintain_order="left",
        )
        .select(list(_CAUSES))
    )


_CALLS = (C.host_call, C.host_op, C.host_frame)
_CAUSES = pl.Schema(
    {
        C.instance_id: pl.Int64,
        C.rank: pl.Int64,
        C.state: pl.String,
        C.detail: pl.String,
        C.state_ns: pl.Int64,
        C.yardstick_ns: pl.Int64,
        C.extra_ns: pl.Int64,
        **dict.fromkeys(_CALLS, pl.String),
    }
)
_OF_CALLS = pl.Schema({"row": pl.Int64, C.detail: pl.String, **dict.fromkeys(_CALLS, pl.String)})


def _with_new(late: pl.DataFrame) -> pl.DataFrame:
    """Return instances with ``new_ns``: lateness beyond that of earlier ones with one baseline."""
    before = pl.col(C.lateness_ns).cum_max().shift(1, fill_value=0)
    new = (pl.col(C.lateness_ns) - before.over(C.rank, C.held_instance)).clip(lower_bound=0)
    return late.sort(C.instance_id).with_columns(new.alias(C.new_ns))


def _with_roots(late: pl.DataFrame) -> pl.DataFrame:
    """Return instances with the rank and the instance at which the lateness arose, followed while
    most of it is inherited."""
    columns = (C.instance_id, C.rank, C.held_instance, C.inherited_ns, C.own_lateness_ns)
    entries = {instance: rest for instance, *rest in late.select(columns).iter_rows()}
    roots = []
    for instance in late[C.instance_id]:
        at = instance
        for _ in range(MAX_DEPTH):
            _, held_by, inherited_ns, own_ns = entries[at]
            if inherited_ns <= own_ns or held_by not in entries:
                break
            at = held_by
        roots.append((instance, entries[at][0], at))
    schema = pl.Schema(dict.fromkeys((C.instance_id, C.root_rank, C.root_instance), pl.Int64))
    return late.join(pl.DataFrame(roots, schema=schema, orient="row"), on=C.instance_id)
