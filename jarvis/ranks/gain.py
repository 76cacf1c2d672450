"""What the steps of a job gain if something about its ranks changes.

The recordings of all ranks are replayed together, joined by their collectives. Where that is not
possible, waiting bounds the gain: a rank that arrives earlier saves at most what one of the others
waits for it, and at least what all of them wait beyond the rank before it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import polars as pl

from jarvis.changes import COMPUTE, Change, ScaleGpu, ScaleHost, Span, Work
from jarvis.core.arrays import Float64s, Int64s
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.states import State
from jarvis.ranks.clock import Clock, Quality
from jarvis.ranks.delays import is_comparable
from jarvis.ranks.holding import HELD_SHARE
from jarvis.ranks.members import Batch, Member
from jarvis.ranks.parts import by_instance
from jarvis.schemas.names import C
from jarvis.simulation.changed_weights import changed_weights
from jarvis.simulation.graph import CycleError, Graph
from jarvis.simulation.quality import Grade
from jarvis.simulation.ranks import Joint, RankClock, joint_graph
from jarvis.simulation.simulation import NEEDED, Simulation
from jarvis.simulation.steps import StepBounds, step_bounds
from jarvis.simulation.stored import TABLES as SIMULATION_TABLES

MAX_RANKS, MAX_NODES = 64, 8_000_000
"""More ranks, or more moments of all of them, are not replayed together: they need about 1 GB."""

MIN_SLOWNESS = 0.002
"""Kernels that take longer by a smaller part are as fast as the median."""


class Method(StrEnum):
    """How the gain of a step is known."""

    REPLAY = "replay"
    BOUNDS = "bounds"


class StepGain(NamedTuple):
    """What the median step gains: at least and at most, in ms."""

    low_ms: float
    high_ms: float

    @property
    def exact_ms(self) -> float | None:
        """The gain, where both ends are equal."""
        return self.low_ms if self.low_ms == self.high_ms else None


@dataclass(frozen=True)
class Evidence:
    """What the changes of ranks follow from: tables of the join, and the speed of the ranks.

    ``kernels`` are those of instances with ``instance_id``.
    """

    kernels: pl.DataFrame
    instances: pl.DataFrame
    lateness: pl.DataFrame
    causes: pl.DataFrame
    speed: Mapping[int, float]

    @property
    def is_waiting_known(self) -> bool:
        """Whether waiting of any kind of collective could be computed."""
        return bool(self.kernels[C.wait_ns].count())


class NotJoinedError(Exception):
    """The recordings of the ranks cannot be replayed together."""


class JointSteps:
    """The steps of all ranks, replayed together.

    Args:
        members: The ranks.
        evidence: The tables of the join.
        clock: The common clock.

    Raises:
        NotJoinedError: The recordings cannot be replayed together.
    """

    def __init__(self, members: Sequence[Member], evidence: Evidence, clock: Clock) -> None:
        if len(members) > MAX_RANKS:
            raise NotJoinedError
        self.members = [
            member for member in members if member.rank in clock.offset_ns and _is_simulated(member)
        ]
        if len(self.members) < 2:
            raise NotJoinedError
        self.evidence = evidence
        self._steps: list[tuple[StepBounds, Sequence[int]]] = []
        clocks = [
            RankClock(
                shift_ns=member.base_ns - clock.offset_ns[member.rank],
                drift_ppm=clock.drift_ppm.get(member.rank, 0.0),
                origin_ns=member.origin_ns,
            )
            for member in self.members
        ]
        try:
            self.joint: Joint = joint_graph(self._graphs(), clocks, self._kernels())
        except CycleError:
            raise NotJoinedError from None
        self._recorded = self._durations(self.joint.time)

    def _graphs(self) -> Iterator[Graph]:
        nodes = 0
        for member in self.members:
            simulation = _simulation(member)
            nodes += simulation.graph.time.size
            if nodes > MAX_NODES:
                raise NotJoinedError
            steps = member.tables["steps"]
            numbers = steps[C.number].to_list() if C.number in steps.columns else []
            self._steps.append((step_bounds(simulation.graph, steps), numbers))
            yield simulation.graph

    def _kernels(self) -> pl.DataFrame:
        """Return the kernels that join the ranks (``joint_graph``)."""
        positions = {member.rank: at for at, member in enumerate(self.members)}
        known = self.evidence.instances.filter(
            pl.col(C.clock_quality) != Quality.UNKNOWN.value, ~pl.col(C.is_cut)
        )
        kernels = self.evidence.kernels.join(
            known.select(C.instance_id, C.transfer_is_bound, C.floor_us), on=C.instance_id
        )
        is_joined = pl.col(C.rank).is_in(list(positions))
        return (
            kernels.with_columns(
                (~pl.col(C.transfer_is_bound) & is_joined.all().over(C.instance_id)).alias(
                    "is_complete"
                )
            )
            .filter(is_joined)
            .select(
                C.instance_id,
                pl.col(C.rank).replace_strict(positions, return_dtype=pl.Int64).alias("position"),
                C.uid,
                "is_complete",
                (pl.col(C.floor_us) * 1e3).round().cast(pl.Int64).alias("floor_ns"),
            )
        )

    def gain(
        self, changes: Mapping[int, Sequence[Change]], transfer_factor: Float64s | None = None
    ) -> StepGain:
        """Return the gain of the median step.

        Args:
            changes: The changes of each rank.
            transfer_factor: How many times as long the transfer of each joined collective takes.
        """
        changed = self.changed(changes)
        found = [
            self._gain_ms(changed, transfer_factor, with_absent=with_absent)
            for with_absent in ((False,) if self.joint.is_complete else (False, True))
        ]
        return StepGain(min(found), max(found))

    @property
    def step_ms(self) -> float:
        """The recorded time of the median step, the median of the ranks."""
        of_steps = self._recorded.group_by(C.step).agg(pl.col("ns").median())
        median_ns: float = of_steps.select(pl.col("ns").median().fill_null(0.0)).item()
        return median_ns / 1e6

    def changed(self, changes: Mapping[int, Sequence[Change]]) -> dict[int, Int64s]:
        """Return what the changes of each rank add to the weights of its graph, by position."""
        found = {}
        for position, member in enumerate(self.members):
            if own := changes.get(member.rank):
                simulation = _simulation(member)
                weights = changed_weights(simulation.index, simulation, own)
                found[position] = weights - simulation.graph.weight
        return found

    def _gain_ms(
        self,
        changed: Mapping[int, Int64s],
        transfer_factor: Float64s | None,
        *,
        with_absent: bool,
    ) -> float:
        times = self.joint.replay(changed, transfer_factor, with_absent=with_absent)
        both = self._recorded.join(self._durations(times), on=[C.rank, C.step], suffix="_changed")
        of_ranks = pl.col("ns") - pl.col("ns_changed")
        of_steps = both.group_by(C.step).agg(of_ranks.median().alias("ns"))
        median_ns: float = of_steps.select(pl.col("ns").median().fill_null(0.0)).item()
        return median_ns / 1e6

    def _durations(self, times: Int64s) -> pl.DataFrame:
        """Return ``rank, step, ns`` of each step."""
        frames = []
        for position, (member, (bounds, numbers)) in enumerate(
            zip(self.members, self._steps, strict=True)
        ):
            durations = np.diff(bounds(self.joint.of_rank(times, position)))
            is_numbered = len(numbers) == durations.size and None not in numbers
            steps = numbers if is_numbered else range(durations.size)
            frames.append(
                pl.DataFrame(
                    {C.rank: member.rank, C.step: list(steps), "ns": durations},
                    schema={C.rank: pl.Int64, C.step: pl.Int64, "ns": pl.Int64},
                )
            )
        return pl.concat(frames)

    def as_median(self, rank: int) -> StepGain:
        """Return the gain if a rank were as the median of the ranks: its kernels as fast, and idle
        for as long as those in the middle where it was late."""
        changes = self.to_median(rank)
        return self.gain({rank: changes}) if changes else StepGain(0.0, 0.0)

    def all_as_median(self) -> StepGain:
        """Return the gain if all ranks were as the median."""
        return self.gain({member.rank: self.to_median(member.rank) for member in self.members})

    def scaled_compute(self, rank: int, factor: float) -> StepGain:
        """Return the gain if the kernels of a rank take ``factor`` times as long."""
        return self.gain({rank: [ScaleGpu(work=Work(category=COMPUTE), factor=factor)]})

    def to_median(self, rank: int) -> list[Change]:
        """Return the changes that make a rank as the median of the ranks."""
        member = next(member for member in self.members if member.rank == rank)
        return [*self.as_fast(rank), *self._as_idle(member)]

    def as_fast(self, rank: int) -> list[Change]:
        """Return the change of the kernels of a rank to the speed of the median."""
        ratio = self.evidence.speed.get(rank, 1.0)
        if ratio <= 1 + MIN_SLOWNESS:
            return []
        return [ScaleGpu(work=Work(category=COMPUTE), factor=1 / ratio)]

    def _as_idle(self, member: Member) -> Iterator[Change]:
        """Yield changes of the host time in the gaps that made a rank late.

        A delay counts once: of the instances since the ranks were last held together, at the one
        where the rank is latest.
        """
        own = self.evidence.kernels.filter(pl.col(C.rank) == member.rank)
        begin = pl.col("own_start_ns") + member.origin_ns
        arrivals = dict(own.select(C.instance_id, begin).iter_rows())
        ends = dict(
            own.select(C.instance_id, begin + pl.col(C.end_ns) - pl.col(C.start_ns)).iter_rows()
        )
        late = (
            self.evidence.lateness.filter(pl.col(C.rank) == member.rank, is_comparable())
            .sort(C.lateness_ns, C.instance_id, descending=[True, False])
            .unique(C.held_instance, keep="first", maintain_order=True)
        )
        causes = self.evidence.causes.filter(
            pl.col(C.state) == State.IDLE.value,
            pl.col(C.detail) != IdleCause.COMMUNICATION.value,
            pl.col(C.extra_ns) > 0,
        )
        gaps = member.tables["idle_gaps"].with_columns(
            (pl.col(C.start_ns) + pl.col(C.dur_ns)).alias(C.end_ns)
        )
        threads = _simulation(member).threads
        for instance, held_by in late.select(C.instance_id, C.held_instance).iter_rows():
            first_ns, last_ns = ends.get(held_by, min(arrivals.values())), arrivals[instance]
            inside = gaps.filter(pl.col(C.start_ns) < last_ns, pl.col(C.end_ns) > first_ns)
            of_instance = causes.filter(pl.col(C.instance_id) == instance)
            for cause, state_ns, usual_ns in of_instance.select(
                C.detail, C.state_ns, C.yardstick_ns
            ).iter_rows():
                spans = inside.filter(pl.col(C.cause) == cause).select(
                    pl.col(C.start_ns).clip(lower_bound=first_ns),
                    pl.col(C.end_ns).clip(upper_bound=last_ns),
                )
                yield ScaleHost(
                    spans=tuple(
                        Span(thread=thread, start_ns=start_ns, end_ns=end_ns)
                        for thread in threads
                        for start_ns, end_ns in spans.iter_rows()
                    ),
                    factor=usual_ns / state_ns,
                )

    def scaled_transfer(self, factors: Mapping[int, float]) -> StepGain:
        """Return the gain if transfers take so many times as long, by instance."""
        of_all = [factors.get(instance, 1.0) for instance in self.joint.instances.tolist()]
        return self.gain(NO_RANKS, np.array(of_all))


def joint_steps(members: Sequence[Member], evidence: Evidence, clock: Clock) -> JointSteps | None:
    """Return the ranks replayed together; None if that is not possible."""
    try:
        return JointSteps(members, evidence, clock)
    except NotJoinedError:
        return None


def _is_simulated(member: Member) -> bool:
    info = member.simulation
    is_known = info is not None and info.quality.grade is not Grade.NOT_SIMULATED
    return is_known and {*NEEDED, *SIMULATION_TABLES} <= member.tables.keys()


def _simulation(member: Member) -> Simulation:
    """Return the simulation of a rank, read again each time: those of many ranks are large."""
    return Simulation.of(member.tables, member.simulation)


def gains(
    members: Sequence[Member],
    evidence: Evidence,
    joint: JointSteps | None,
    bounds: Mapping[int, StepGain],
) -> pl.DataFrame:
    """Return ``rank, gain_low_ms, gain_ms, gain_high_ms, gain_method``: what the median step gains
    if a rank were as the median; null where waiting is not known.

    Args:
        members: The ranks.
        evidence: The tables of the join.
        joint: The ranks replayed together; None if that is not possible.
        bounds: Result of ``gain_bounds``, for ranks that are not replayed.
    """
    rows = []
    for member in members:
        if joint is not None and member in joint.members:
            found: StepGain | None = joint.as_median(member.rank)
            method = Method.REPLAY
        else:
            found, method = bounds.get(member.rank, StepGain(0.0, 0.0)), Method.BOUNDS
        if not evidence.is_waiting_known:
            found = None
        rows.append(
            {
                C.rank: member.rank,
                C.gain_low_ms: found and found.low_ms,
                C.gain_ms: found and found.exact_ms,
                C.gain_high_ms: found and found.high_ms,
                C.gain_method: found and method.value,
            }
        )
    return pl.DataFrame(rows, schema=_GAINS)


_GAINS = pl.Schema(
    {
        C.rank: pl.Int64,
        C.gain_low_ms: pl.Float64,
        C.gain_ms: pl.Float64,
        C.gain_high_ms: pl.Float64,
        C.gain_method: pl.String,
    }
)


def gain_bounds(
    kernels: pl.DataFrame, instances: pl.DataFrame, batches: Sequence[Batch]
) -> dict[int, StepGain]:
    """Return what the median step gains by rank if it never arrives last, by exposed waiting.

    At most what the rank makes one other rank wait for, at least what it makes all of them wait
    for beyond the rank that arrives before it, where they are held together.

    Args:
        kernels: Kernels of instances with ``instance_id`` (``instances.waiting``), by rank.
        instances: Table ``instances``.
        batches: The ranks.
    """
    inner = instances.filter(~pl.col(C.is_edge), pl.col(C.step).is_not_null())
    steps = inner[C.step].n_unique()
    late = pl.col(C.last_rank).alias("late")
    blamed = inner.select(C.instance_id, C.step, late, C.margin_us).drop_nulls("late")
    before_ns = pl.col(C.wait_ns) - (pl.col(C.margin_us) * 1e3)
    beyond = (pl.col(C.exposed_wait_ns) - before_ns.clip(lower_bound=0)).clip(lower_bound=0)
    is_held = pl.col("held").mean() >= HELD_SHARE

    def waits(kernels: pl.DataFrame) -> pl.DataFrame:
        joined = kernels.join(blamed, on=C.instance_id)
        return joined.filter(pl.col(C.rank) != pl.col("late"))

    kernels = kernels.select(C.instance_id, C.rank, C.wait_ns, C.exposed_wait_ns, "held")

    # In parts: what each rank waits for each other one in all steps would not fit into memory.
    lowest = pl.concat(
        waits(part)
        .group_by("late", C.step, C.instance_id)
        .agg(pl.when(is_held).then(beyond.min()).otherwise(0.0).alias("low"))
        for part in by_instance(kernels)
    )
    highest = pl.concat(
        waits(batch.rows(kernels))
        .group_by("late", C.step, C.rank)
        .agg(pl.col(C.exposed_wait_ns).sum().alias("high"))
        .group_by("late", C.step)
        .agg(pl.col("high").max())
        for batch in batches
    )
    low = lowest.sort(C.instance_id).group_by("late", C.step).agg(pl.col("low").sum())
    high = highest.group_by("late", C.step).agg(pl.col("high").max())
    found = {}
    both = low.join(high, on=["late", C.step]).sort("late", C.step)
    for (rank,), rows in both.group_by("late", maintain_order=True):
        lows, highs = (
            np.append(rows[name].to_numpy() / 1e6, np.zeros(steps - rows.height))
            for name in ("low", "high")
        )
        found[int(str(rank))] = StepGain(float(np.median(lows)), float(np.median(highs)))
    return found


NO_RANKS: Mapping[int, Sequence[Change]] = {}
