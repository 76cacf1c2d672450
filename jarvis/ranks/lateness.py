"""Why the last rank of a collective was last.

Ranks that compute beside a collective do not start together after it. They do where they had to
wait for its end: there they were *held together*. All ranks are compared since the last time
that the late rank was held, also those that were held again since. Its lateness is what it was late
already then (inherited), and what it took longer since (own), which the states of its GPU divide
exactly.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.perf_report.intervals import covered_until
from jarvis.perf_report.timeline.states import State
from jarvis.ranks.events import Member
from jarvis.ranks.holding import holding_kernels
from jarvis.ranks.identity import MAX_RANK
from jarvis.ranks.roles import stages_of
from jarvis.schemas.names import C

Int64s = NDArray[np.int64]

UNKNOWN_STATE = "unknown"
"""State of a rank outside of the window of its timeline."""

COMPARABLE_SHARE = 1.1
"""Own time above the lateness, as a factor, from which on it is that of other work."""

HIDDEN_SHARE = 0.5
"""Part of the waiting at a send without compute beside it below which it was posted before."""

_AT_ONCE = 250_000
"""Kernels that are compared at once, for the memory of all their columns."""

_MAX_REPLICAS = 16
"""Groups of one description that are compared with each other, by the order of their names."""

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
    kernels: pl.DataFrame,
    instances: pl.DataFrame,
    communicators: pl.DataFrame,
    members: Sequence[Member],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables ``lateness`` and ``lateness_causes``.

    Args:
        kernels: Kernels of instances with ``instance_id`` (``instances.kernels``).
        instances: Rows of ``instances.instances``.
        communicators: Table of ``with_roles``.
        members: The ranks.
    """
    stages = stages_of(communicators)
    counted = _counted(instances, communicators, stages)
    # A send or receive that is posted long before, and waits beside compute, is no arrival.
    is_posted = pl.col(C.src_rank).is_not_null() & ~pl.col("is_sent")
    is_hidden = is_posted & (pl.col(C.exposed_wait_us) < HIDDEN_SHARE * pl.col(C.wait_us))
    chosen = counted.filter(~pl.col(C.is_edge), pl.col(C.wait_us).is_not_null(), ~is_hidden).select(
        _CHOSEN
    )
    reference = _Reference.of(kernels, counted)
    facts = kernels.select(C.instance_id, C.rank, C.start_ns, "own_start_ns")
    each = (facts.height + _MAX_REPLICAS * instances.height) // max(instances.height, 1)
    at_once = max(1, _AT_ONCE // max(each, 1))
    found, of_replicas, compared, count = [], [], [], 0
    for first in range(0, max(chosen.height, 1), at_once):
        part = chosen[first : first + at_once]
        replicas = _replicas(facts, part, chosen)
        arrivals = reference.arrivals(_compared(facts, part, replicas, stages))
        arrivals = arrivals.with_columns(pl.col("row") + count)
        found.append(_late_ranks(arrivals))
        count += found[-1].height
        of_replicas.append(_late_ranks(reference.arrivals(replicas)))
        is_used = pl.col("is_clear") & (pl.col("is_late") | pl.col("is_middle"))
        compared.append(arrivals.filter(is_used))
    roots = _roots(pl.concat(found), pl.concat(of_replicas))
    late = pl.concat(found).filter("is_clear")
    times = _Times(count)
    by_rank = pl.concat(compared).partition_by(C.rank, as_dict=True)
    for member in members:
        if (member.rank,) in by_rank:
            _add_times(times, member, by_rank[member.rank,])
    causes = _causes(late, times)
    named = causes.drop_nulls(C.detail).group_by(C.instance_id)
    explained = named.agg(pl.col(C.extra_ns).clip(lower_bound=0).sum().alias("explained"))
    own = pl.col(C.own_lateness_ns)
    table = _with_new(late).join(roots, on=C.instance_id)
    table = table.join(explained, on=C.instance_id, how="left")
    share = (100 * pl.col("explained").fill_null(0) / own).clip(upper_bound=100.0)
    return table.with_columns(pl.when(own > 0).then(share).alias(C.explained_pct)).sort(
        C.instance_id
    ), causes


def _counted(
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


_CHOSEN = (
    *(C.instance_id, C.src_rank, C.dst_rank),
    *("latest", "peers", "is_clear", "is_sent"),
)
_COMPARED = (
    *(C.instance_id, "latest", "is_clear", "is_replica"),
    *(C.rank, C.start_ns, "own_start_ns"),
)


def _replicas(facts: pl.DataFrame, part: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """Return, by instance of a part of those chosen, the last kernel of each instance with the same
    place in the program; of a send those of the ranks at the same end of it."""
    ends = (C.src_rank, C.dst_rank, "latest")
    others = chosen.select("peers", pl.col(C.instance_id).alias("other"), *ends)
    facts = facts.rename({C.instance_id: "other"})
    is_source = pl.col("latest") == pl.col(C.src_rank)
    end = pl.when(is_source).then(f"{C.src_rank}_other").otherwise(f"{C.dst_rank}_other")
    return (
        part.join(others, on="peers", suffix="_other")
        .with_columns(pl.when("is_sent").then(end).otherwise("latest_other").alias(C.rank))
        .join(facts, on=["other", C.rank])
        .with_columns(pl.lit(value=True).alias("is_replica"))
        .select(_COMPARED)
    )


def _compared(
    facts: pl.DataFrame, chosen: pl.DataFrame, replicas: pl.DataFrame, stages: Mapping[int, int]
) -> pl.DataFrame:
    """Return the kernels with which those of late ranks are compared, by the instance of these.

    Ranks of other pipeline stages do other work: they are not compared. At a send from one stage to
    another, the ranks of the same stage are, that do the same.
    """
    inside = facts.join(chosen.filter(~pl.col("is_sent")), on=C.instance_id).filter(
        _stage(C.rank, stages).eq_missing(_stage("latest", stages))
    )
    sent = replicas.join(chosen.filter("is_sent"), on=C.instance_id, how="semi")
    return pl.concat(
        [inside.with_columns(pl.lit(value=False).alias("is_replica")).select(_COMPARED), sent]
    )


@dataclass(frozen=True)
class _Reference:
    """What arrivals are compared by: ``held``, the times at which a rank was held, ``windows``, its
    begin, ``ends``, its first end of equal instances, and ``same``, which instances are equal."""

    held: pl.DataFrame
    windows: pl.DataFrame
    ends: pl.DataFrame
    same: pl.DataFrame

    @classmethod
    def of(cls, kernels: pl.DataFrame, instances: pl.DataFrame) -> Self:
        """Return the reference of all kernels of instances of ``_counted``."""
        same = instances.select(C.instance_id, "same")
        held = holding_kernels(kernels).select(
            C.rank, pl.col(C.end_ns).alias("held_ns"), pl.col(C.instance_id).alias(C.held_instance)
        )
        return cls(
            held=held.sort("held_ns"),
            windows=kernels.group_by(C.rank).agg(pl.col(C.start_ns).min().alias("window_ns")),
            ends=kernels.select(C.instance_id, C.rank, C.end_ns)
            .join(same, on=C.instance_id)
            .group_by(C.rank, "same")
            .agg(pl.col(C.end_ns).min().alias("common_ns")),
            same=same.rename({C.instance_id: C.held_instance}),
        )

    def arrivals(self, compared: pl.DataFrame) -> pl.DataFrame:
        """Return the arrivals that are compared.

        Columns: ``row`` (of the instance), ``instance_id, rank, start_ns, baseline_ns,
        held_instance`` (that ended at the baseline), ``shift`` (from the common clock to that of
        the trace, after its origin), ``is_late``, ``is_middle`` of those whose arrivals are in the
        middle half, by which the late one is measured, or in the first half of replicas, and
        ``is_clear``, whether the late one is the only one.
        """
        place, count = pl.int_range(pl.len()).over(C.instance_id), pl.len().over(C.instance_id)
        is_late = pl.col(C.rank) == pl.col("latest")
        # A rank that was never held in the recording is compared since its begin, one that arrived
        # before the end of that instance since it was held itself.
        is_held = pl.col(C.held_instance).is_not_null()
        is_before = pl.col("common_ns") <= pl.col(C.start_ns)
        since = pl.when(is_held).then(pl.coalesce(pl.when(is_before).then("common_ns"), "held_ns"))
        in_middle = (place >= count // 4) & (place < count - count // 4)
        is_early = (place < count // 2) | (count == 2)
        middle = pl.when("is_replica").then(is_early).otherwise(in_middle) & ~is_late
        return (
            compared.join(self.windows, on=C.rank)
            .sort(C.start_ns)
            .join_asof(
                self.held,
                left_on=C.start_ns,
                right_on="held_ns",
                by=C.rank,
                check_sortedness=False,
            )
            .with_columns(pl.col(C.held_instance).filter(is_late).first().over(C.instance_id))
            .join(self.same, on=C.held_instance, how="left")
            .join(self.ends, on=[C.rank, "same"], how="left")
            .sort(C.instance_id, C.start_ns, C.rank)
            .with_columns(is_late.alias("is_late"), middle.alias("is_middle"))
            .filter(pl.col("is_middle").any().over(C.instance_id))
            .select(
                pl.col(C.instance_id).rle_id().cast(pl.Int64).alias("row"),
                C.instance_id,
                C.rank,
                C.start_ns,
                pl.coalesce(since, "window_ns").alias("baseline_ns"),
                C.held_instance,
                (pl.col("own_start_ns") - pl.col(C.start_ns)).alias("shift"),
                "is_late",
                "is_middle",
                "is_clear",
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
            pl.col(C.instance_id, "is_clear").first(),
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
    row = late["row"].to_numpy()
    own = np.stack([times.late.get(state, none)[row] for state in states])
    middle = np.stack([times.middle.get(state, none)[row] for state in states])
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


def _roots(late: pl.DataFrame, of_replicas: pl.DataFrame) -> pl.DataFrame:
    """Return the rank and the instance at which the lateness of each instance arose, followed while
    most of it is inherited.

    All ranks of an instance may be late already. So on the way it is compared with those that other
    ranks have at the same point of the program, where it is later than those.
    """
    columns = (C.instance_id, C.rank, C.held_instance, C.inherited_ns, C.own_lateness_ns)
    later = pl.concat([late, of_replicas]).sort(C.lateness_ns, descending=True, maintain_order=True)
    entries, followed = (
        {instance: rest for instance, *rest in rows.select(columns).iter_rows()}
        for rows in (late, later.unique(C.instance_id, keep="first", maintain_order=True))
    )
    # An instance that held a rank has a lower number than the one at which the rank is late.
    passed: dict[int, tuple[int, int]] = {}
    roots = []
    for instance, entry in sorted(entries.items()):
        ends = []
        for rank, held_by, inherited_ns, own_ns in (followed[instance], entry):
            is_inherited = inherited_ns > own_ns and held_by in passed
            ends.append(passed[held_by] if is_inherited else (rank, instance))
        passed[instance] = ends[0]
        roots.append((instance, *ends[1]))
    schema = pl.Schema(dict.fromkeys((C.instance_id, C.root_rank, C.root_instance), pl.Int64))
    return pl.DataFrame(roots, schema=schema, orient="row")
