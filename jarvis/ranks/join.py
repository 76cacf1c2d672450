"""From the tables of several ranks to those of a distributed run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl

from jarvis.core.memory_tuning import return_freed_memory, return_large_arrays
from jarvis.ranks.bubbles import bubbles
from jarvis.ranks.categories import rank_categories
from jarvis.ranks.clock import Clock, Quality, common_clock, with_quality
from jarvis.ranks.communicators import with_communicators
from jarvis.ranks.events import CALL, TRANSFER_NS, Events, communication_events
from jarvis.ranks.gain import Evidence, JointSteps, gain_bounds, gains, joint_steps
from jarvis.ranks.instances import by_rank, instances, renumbered, waiting
from jarvis.ranks.lateness import lateness
from jarvis.ranks.matching import Reason, match
from jarvis.ranks.members import RANK, Batch, Member, in_batches
from jarvis.ranks.nodes import UNKNOWN_CLUSTER, Cluster, node_size, nodes, with_links
from jarvis.ranks.pairs import pairs, sent_events
from jarvis.ranks.roles import places, stages_of, with_roles
from jarvis.ranks.speed import read_work, speed_ratios, work_per_step
from jarvis.ranks.steps import rank_steps
from jarvis.run.store import write_parquet
from jarvis.schemas import conform
from jarvis.schemas.names import C

_TIME_NS = (pl.col(C.end_ns) - pl.col(C.start_ns)).sum()


@dataclass(frozen=True)
class RankTables(Mapping[str, pl.DataFrame]):
    """The tables of a distributed run (``schemas.ranks``).

    In memory they are smaller, with ids for texts and for what many kernels have in common: they
    get the columns and types of their schemas when they are asked for, or written.
    """

    small: Mapping[str, pl.DataFrame]
    calls: pl.DataFrame

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Return a table."""
        return self._whole(name).collect()

    def write(self, name: str, path: Path) -> None:
        """Write a table; raise as ``write_parquet``."""
        write_parquet(self._whole(name), path)

    def _whole(self, name: str) -> pl.LazyFrame:
        rows = self.small[name].lazy()
        if name == "instance_ranks":
            sizes = self.calls.select(
                pl.int_range(pl.len(), dtype=pl.Int32).alias(CALL), C.in_bytes, C.out_bytes
            )
            rows = rows.with_columns(TRANSFER_NS).join(
                sizes.lazy(), on=CALL, how="left", maintain_order="left"
            )
        return conform(rows, name)

    def height(self, name: str) -> int:
        """Return the number of rows of a table, without making it."""
        return self.small[name].height

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.small)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self.small)


@dataclass(frozen=True)
class Joined:
    """The tables of a distributed run (``schemas.ranks``), and the clock they are based on.

    ``joint`` are the steps of all ranks replayed together, None if that is not possible;
    ``speed`` is ``speed_ratios`` of the ranks, ``work`` their ``work_per_step``.
    """

    tables: RankTables
    clock: Clock
    speed: pl.DataFrame
    work: pl.DataFrame
    joint: JointSteps | None

    @property
    def is_waiting_known(self) -> bool:
        """Whether waiting of any kind of collective could be computed."""
        quality = self.tables["clocks"][C.clock_quality]
        return bool((quality != Quality.UNKNOWN.value).any())


def join(members: Sequence[Member], world_size: int, cluster: Cluster = UNKNOWN_CLUSTER) -> Joined:
    """Return the tables of the ranks of a job.

    Args:
        members: The ranks, each once.
        world_size: Number of ranks of the job.
        cluster: What the user says about the nodes; by default, a node has the GPUs that the
            first rank saw.
    """
    return_large_arrays()
    batches = in_batches(members)
    members = [member for batch in batches for member in batch.members]
    events = communication_events(batches)
    signatures, products = read_work(batches, events.kernels)
    speed = speed_ratios(signatures)
    del signatures
    calls, communicators = with_communicators(events.calls, world_size)
    events = Events(events.kernels, calls)
    communicators = with_links(communicators, members, cluster)
    communicators = with_roles(communicators, events, members, node_size(members, cluster))
    work = work_per_step(products, stages_of(communicators))
    del products
    sums, of_communicators, sent = _sums(events), _of_communicators(events), sent_events(events)
    origins = {
        member.rank: member.base_ns + batch.origin_ns[member.rank]
        for batch in batches
        for member in batch.members
    }
    kernels = events.kernels.drop(C.launch_start_ns).hstack(match(events))
    del events
    # After each large stage: Polars cannot use what NumPy has freed.
    return_freed_memory()
    seq = _sequence_numbers(kernels)
    clock, placed, unmatched = _on_common_clock(kernels.drop(C.seq), calls, origins)
    del kernels
    return_freed_memory()
    calls = with_quality(calls, clock)
    measured = waiting(Events(placed, calls), batches)
    del placed
    return_freed_memory()
    found = instances(Events(measured, calls), communicators, clock, seq)
    numbered = renumbered(measured, found).drop(C.match, C.reason, C.is_cut)
    del measured
    return_freed_memory()
    sums_of_waits = by_rank(numbered, found).values()
    waits = bubbles(numbered, found, communicators, batches)
    between = pairs(sent, communicators, numbered)
    bounds = gain_bounds(numbered, found, batches)
    packed = _pack(numbered, (C.uid, CALL, C.step, C.exposed_wait_ns, C.exposed_transfer_ns))
    return_freed_memory()
    late, causes, operations, computing = lateness(numbered, found, communicators, batches)
    return_freed_memory()
    _unpack(packed, numbered)
    evidence = Evidence(
        kernels=numbered,
        instances=found,
        lateness=late,
        causes=causes,
        speed=dict(speed.select(C.rank, C.speed_ratio).iter_rows()),
    )
    joint = joint_steps(members, evidence, clock)
    of_ranks = (
        *(sums, *sums_of_waits),
        places(communicators, [member.rank for member in members]),
        *(speed, gains(members, evidence, joint, bounds)),
    )
    ranks = _ranks(batches, of_ranks, clock, nodes(members, cluster))
    marked = rank_steps(numbered, found, late, waits, batches)
    shown = numbered.drop("own_start_ns", C.step, "held")
    del numbered, evidence
    in_order = _by_instance(shown)
    tables = {
        "ranks": ranks,
        "communicators": _communicators(communicators, of_communicators, found),
        "instances": found,
        "instance_ranks": in_order,
        "unmatched": _unmatched(Events(unmatched, calls)),
        "clocks": clock.groups,
        "rank_steps": marked,
        "rank_categories": rank_categories(computing, members, stages_of(communicators)),
        "lateness": late,
        "lateness_causes": causes,
        "lateness_operations": operations,
        "pairs": between,
    }
    speed, work = (rows.with_columns(pl.col(C.rank).cast(pl.Int64)) for rows in (speed, work))
    return Joined(RankTables(tables, calls), clock, speed, work, joint)


def _on_common_clock(
    kernels: pl.DataFrame, calls: pl.DataFrame, origins: Mapping[int, int]
) -> tuple[Clock, pl.DataFrame, pl.DataFrame]:
    """Return the clock, the kernels of instances on it, and those that belong to no instance.

    Args:
        kernels: All kernels, matched.
        calls: Their calls.
        origins: What the times of each rank count from.
    """
    is_matched = pl.col(C.instance_id).is_not_null()
    unmatched = kernels.filter(~is_matched)
    kernels = kernels.filter(is_matched)
    clock, placed = common_clock(Events(kernels, calls), origins)
    if clock.broken.len():
        is_broken = pl.col(C.instance_id).is_in(clock.broken.implode())
        reason = pl.lit(Reason.BOUNDS.value, kernels.schema[C.reason]).alias(C.reason)
        unmatched = pl.concat([unmatched, kernels.filter(is_broken).with_columns(reason)])
        kernels = kernels.filter(~is_broken)
        clock, placed = common_clock(Events(kernels, calls), origins)
    return clock, placed, unmatched


def _by_instance(kernels: pl.DataFrame) -> pl.DataFrame:
    """Move the columns of kernels to a table ordered by instance.

    One at a time: all of them twice would not fit into memory.
    """
    order = np.argsort(kernels[C.instance_id].to_numpy(), kind="stable").astype(np.uint32)
    return_freed_memory()
    return pl.DataFrame([kernels.drop_in_place(name).gather(order) for name in kernels.columns])


def _pack(rows: pl.DataFrame, columns: Sequence[str]) -> BytesIO:
    """Move columns of a table, which the next stage does not read, to a compressed one."""
    packed = BytesIO()
    taken = pl.DataFrame([rows.drop_in_place(name) for name in columns])
    taken.write_parquet(packed, compression="lz4", row_group_size=_PACKED_AT_ONCE, statistics=False)
    packed.seek(0)
    return packed


_PACKED_AT_ONCE = 1 << 17


def _unpack(packed: BytesIO, rows: pl.DataFrame) -> None:
    """Move the columns back that ``_pack`` took from a table."""
    for name in pl.read_parquet_schema(packed):
        packed.seek(0)
        rows.hstack(pl.read_parquet(packed, columns=[name]), in_place=True)
    packed.close()


def _sequence_numbers(kernels: pl.DataFrame) -> pl.Series:
    """Return the lowest sequence number by instance."""
    known = kernels.lazy().drop_nulls([C.instance_id, C.seq]).group_by(C.instance_id)
    lowest = known.agg(pl.col(C.seq).min()).collect()
    number: int = kernels.select(pl.col(C.instance_id).max().fill_null(-1)).item()
    found = pl.Series(C.seq, [None], kernels.schema[C.seq]).new_from_index(0, number + 1)
    return found.scatter(lowest[C.instance_id], lowest[C.seq])


def _sums(events: Events) -> pl.DataFrame:
    """Return the time of each rank in collectives."""
    return events.kernels.group_by(C.rank).agg((_TIME_NS / 1e6).alias(C.comm_ms))


def _of_communicators(events: Events) -> pl.DataFrame:
    """Return what the kernels of each communicator have in common."""
    times = events.kernels.group_by(CALL).agg(_TIME_NS.alias("ns"))
    return (
        events.calls.join(times, on=CALL)
        .group_by(C.comm_id)
        .agg(
            pl.col(C.rank).n_unique().alias(C.traced_ranks),
            pl.col(C.kind).unique().cast(pl.String).sort().str.join(", ").alias(C.kinds),
            (pl.col("ns").sum() / 1e6).alias(C.comm_ms),
        )
    )


def _unmatched(events: Events) -> pl.DataFrame:
    called = events.of_calls(C.comm_id, C.kind, pl.col(C.in_bytes).alias(C.bytes))
    return events.kernels.hstack(called).sort(C.rank, C.start_ns, C.uid)


def _ranks(
    batches: Sequence[Batch],
    parts: Sequence[pl.DataFrame],
    clock: Clock,
    node_of: Mapping[int, int],
) -> pl.DataFrame:
    """Return the table ``ranks``, from what is known of each rank in several parts."""
    described = [
        {**_rank(member, clock), C.node: node_of.get(member.rank)}
        for batch in batches
        for member in batch.members
    ]
    rows = pl.DataFrame(described, infer_schema_length=None).cast({C.rank: RANK})
    for part in (_timelines(batches), *parts):
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
    }


_TIMES = {
    "total_time": C.window_ms,
    "computation_time": C.compute_ms,
    "exposed_comm_time": C.exposed_comm_ms,
    "exposed_memcpy_time": C.exposed_copy_ms,
    "idle_time": C.idle_ms,
}


def _timelines(batches: Sequence[Batch]) -> pl.DataFrame:
    """Return the parts of the window of each rank."""
    rows = pl.concat(batch.read("gpu_timeline", C.type, C.time_ms) for batch in batches)

    def time_ms(kind: str) -> pl.Expr:
        return pl.col(C.time_ms).filter(pl.col(C.type) == kind).first()

    comm_ms = time_ms("total_comm_time")
    hidden = 100 * (1 - time_ms("exposed_comm_time") / comm_ms)
    return rows.group_by(C.rank).agg(
        *(time_ms(kind).alias(name) for kind, name in _TIMES.items()),
        pl.when(comm_ms > 0).then(hidden).alias(C.hidden_comm_pct),
    )


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
