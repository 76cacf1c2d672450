"""From the tables of several ranks to those of a distributed run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from jarvis.ranks.bubbles import bubbles
from jarvis.ranks.clock import Clock, Quality, common_clock
from jarvis.ranks.communicators import with_communicators
from jarvis.ranks.events import Member, communication_events
from jarvis.ranks.gain import Evidence, JointSteps, gains, joint_steps
from jarvis.ranks.instances import by_rank, instances, kernels
from jarvis.ranks.lateness import lateness
from jarvis.ranks.matching import Reason, match
from jarvis.ranks.nodes import node_size, with_links
from jarvis.ranks.pairs import pairs, sent_events
from jarvis.ranks.roles import places, stages_of, with_roles
from jarvis.ranks.speed import speed_ratios, work_per_step
from jarvis.ranks.steps import rank_steps
from jarvis.schemas import conform
from jarvis.schemas.names import C

_FOR_MATCHING = (C.stream, C.in_split_size, C.launch_start_ns, C.launch_tid)
"""Columns that are needed until the kernels are matched."""

_FOR_INSTANCES = (
    *(C.kind, C.library, C.dtype, C.group_size, C.seq),
    *(C.comm_id, C.match, C.is_cut, C.src_rank, C.dst_rank),
)
"""Columns that are needed until they are part of the instances."""

_UNMATCHED = (
    *(C.rank, C.uid, C.comm_id, C.kind, C.start_ns, C.reason),
    pl.col(C.in_bytes).alias(C.bytes),
)
_COMM_MS = ((pl.col(C.end_ns) - pl.col(C.start_ns)).sum() / 1e6).alias(C.comm_ms)


@dataclass(frozen=True)
class Joined:
    """The tables of a distributed run (``schemas.ranks``), and the clock they are based on.

    ``joint`` are the steps of all ranks replayed together, None if that is not possible;
    ``speed`` is ``speed_ratios`` of the ranks, ``work`` their ``work_per_step``.
    """

    tables: Mapping[str, pl.DataFrame]
    clock: Clock
    speed: pl.DataFrame
    work: pl.DataFrame
    joint: JointSteps | None

    @property
    def is_waiting_known(self) -> bool:
        """Whether waiting of any kind of collective could be computed."""
        quality = self.tables["clocks"][C.clock_quality]
        return bool((quality != Quality.UNKNOWN.value).any())


def join(members: Sequence[Member], world_size: int, gpus_per_node: int | None = None) -> Joined:
    """Return the tables of the ranks of a job.

    Args:
        members: The ranks, each once.
        world_size: Number of ranks of the job.
        gpus_per_node: Ranks of a node, by default the GPUs that the first rank saw.
    """
    members = sorted(members, key=lambda member: member.rank)
    events, communicators = with_communicators(communication_events(members), world_size)
    communicators = with_links(communicators, members, gpus_per_node)
    communicators = with_roles(communicators, events, members, node_size(members, gpus_per_node))
    matching = match(events)
    sums, of_communicators, sent = _sums(events), _of_communicators(events), sent_events(events)
    unmatched = [events.join(matching.unmatched, on="event").select(_UNMATCHED)]
    placed = matching.events.sort("event")
    instance = (pl.col("slot").rank("dense") - 1).alias("instance")
    matched = events.drop("event", *_FOR_MATCHING)[placed["event"]].hstack(
        placed.select(instance, C.match)
    )
    del events, matching, placed
    origins = {member.rank: member.base_ns + member.origin_ns for member in members}
    clock = common_clock(matched, origins)
    if clock.broken.len():
        is_broken = pl.col("instance").is_in(clock.broken.implode())
        reason = pl.lit(Reason.BOUNDS.value).alias(C.reason)
        unmatched.append(matched.filter(is_broken).with_columns(reason).select(_UNMATCHED))
        matched = matched.filter(~is_broken)
        clock = common_clock(matched, origins)
    del matched
    measured = kernels(clock.events, members)
    clock = replace(clock, events=clock.events.clear())
    found = instances(measured, communicators, clock)
    numbers = found.sort("instance")[C.instance_id]
    numbered = measured.drop(_FOR_INSTANCES).with_columns(
        numbers.gather(measured["instance"]).alias(C.instance_id)
    )
    del measured
    late, causes = lateness(numbered, found, communicators, members)
    waits = bubbles(numbered, found, communicators, members)
    speed = speed_ratios(members)
    evidence = Evidence(
        kernels=numbered,
        instances=found,
        lateness=late,
        causes=causes,
        speed=dict(speed.select(C.rank, C.speed_ratio).iter_rows()),
    )
    joint = joint_steps(members, evidence, clock)
    ranks = _ranks(members, sums, numbered, found, clock)
    in_groups = places(communicators, [member.rank for member in members])
    for part in (in_groups, speed, gains(members, evidence, joint)):
        ranks = ranks.join(part, on=C.rank, how="left", maintain_order="left")
    marked = rank_steps(numbered, found, late, waits, members)
    between = pairs(sent, communicators, numbered)
    in_order = numbered.drop("own_start_ns", C.step, "held").sort(C.instance_id, C.rank)
    del numbered, evidence
    tables = {
        "ranks": ranks,
        "communicators": _communicators(communicators, of_communicators, found),
        "instances": found,
        "instance_ranks": in_order,
        "unmatched": pl.concat(unmatched).sort(C.rank, C.start_ns, C.uid),
        "clocks": clock.groups,
        "rank_steps": marked,
        "lateness": late,
        "lateness_causes": causes,
        "pairs": between,
    }
    conformed = {name: conform(table, name) for name, table in tables.items()}
    return Joined(conformed, clock, speed, work_per_step(members, stages_of(communicators)), joint)


def _sums(events: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each rank in collectives."""
    return events.group_by(C.rank).agg(_COMM_MS)


def _of_communicators(events: pl.DataFrame) -> pl.DataFrame:
    """Return what the kernels of each communicator have in common."""
    return events.group_by(C.comm_id).agg(
        pl.col(C.rank).n_unique().alias(C.traced_ranks),
        pl.col(C.kind).unique().cast(pl.String).sort().str.join(", ").alias(C.kinds),
        _COMM_MS,
    )


def _ranks(
    members: Sequence[Member],
    sums: pl.DataFrame,
    numbered: pl.DataFrame,
    found: pl.DataFrame,
    clock: Clock,
) -> pl.DataFrame:
    rows = pl.DataFrame([_rank(member, clock) for member in members], infer_schema_length=None)
    parts = by_rank(numbered, found)
    for part in (sums, *parts.values()):
        rows = rows.join(part, on=C.rank, how="left", maintain_order="left")
    zero_if_known = pl.col(C.wait_ms).is_not_null().any()
    return rows.with_columns(
        pl.col(C.comm_ms).fill_null(0.0),
        *(
            pl.when(zero_if_known).then(pl.col(column).fill_null(0)).alias(column)
            for column in (
                C.wait_ms,
                C.edge_wait_ms,
                C.exposed_wait_ms,
                C.exposed_transfer_ms,
                C.caused_wait_ms,
                C.caused_exposed_wait_ms,
                C.times_last,
            )
        ),
    )


def _rank(member: Member, clock: Clock) -> dict[str, object]:
    timeline = dict(member.tables["gpu_timeline"].select(C.type, C.time_ms).iter_rows())
    offset, error = clock.offset_ns.get(member.rank), clock.error_ns.get(member.rank)
    return {
        C.rank: member.rank,
        C.analysis_id: member.analysis_id,
        C.file_name: member.name,
        C.device_name: member.info.device_name,
        C.host: member.info.host,
        C.clock_offset_us: None if offset is None else offset / 1e3,
        C.clock_error_us: None if offset is None or error is None else error / 1e3,
        C.clock_drift_ppm: clock.drift_ppm.get(member.rank, 0.0) if offset is not None else None,
        C.steps: member.info.steps,
        C.window_ms: timeline.get("total_time"),
        C.compute_ms: timeline.get("computation_time"),
        C.exposed_comm_ms: timeline.get("exposed_comm_time"),
        C.exposed_copy_ms: timeline.get("exposed_memcpy_time"),
        C.idle_ms: timeline.get("idle_time"),
    }


def _communicators(
    communicators: pl.DataFrame,
    kernels_of: pl.DataFrame,
    found: pl.DataFrame,
) -> pl.DataFrame:
    inner = ~pl.col(C.is_edge)
    instances_of = found.group_by(C.comm_id).agg(
        pl.len().alias(C.instance_count),
        pl.col(C.bytes).sum().alias(C.message_bytes),
        pl.when(pl.col(C.wait_us).count() > 0)
        .then(pl.col(C.wait_us).filter(inner).sum() / 1e3)
        .alias(C.wait_ms),
    )
    return (
        communicators.join(kernels_of, on=C.comm_id, how="left", maintain_order="left")
        .join(instances_of, on=C.comm_id, how="left", maintain_order="left")
        .with_columns(pl.col(C.instance_count, C.message_bytes).fill_null(0))
    )
