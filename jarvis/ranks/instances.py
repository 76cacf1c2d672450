"""The figures of matched collectives: who arrived when, waiting, transfer, bandwidth."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.core.memory_tuning import return_freed_memory
from jarvis.perf_report.intervals import added_parts, covered_until
from jarvis.ranks.clock import Clock, Quality
from jarvis.ranks.events import CALL, TRANSFER_NS, Events
from jarvis.ranks.holding import is_holding
from jarvis.ranks.members import RANK, Batch
from jarvis.ranks.pairs import ALL_TO_ALL_V
from jarvis.ranks.parts import by_instance, sums
from jarvis.schemas.names import C

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

_HALF_RINGS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
MAX_FLOOR_BYTES = 64 << 10
"""Larger messages do not show the latency of a collective."""

MIN_SIZES, _MAX_SIZES = 5, 200
"""Sizes of messages whose transfers show the latency if all are larger, and those that are read."""

_MIN_TRANSFER_NS = 1_000
_MIN_TRANSFER_SHARE = 0.01
_ERRORS = 3
"""Times the error of the clocks below which a transfer is noise."""


def waiting(events: Events, batches: Sequence[Batch]) -> pl.DataFrame:
    """Return the kernels of instances with ``wait_ns, transfer_ns``, their exposed parts, and
    ``held``.

    A kernel waits until the last recorded rank arrives; the rest of its duration is transfer, so
    the two add up to it exactly. Kinds on whose ends no clock can be based have none of them, nor
    have sends that end before the receiver arrives: what the sender waited for is not known. A
    rank is ``held`` by a kernel during whose end it computes nothing, so that it goes on only
    after it.

    Args:
        events: Matched kernels on the common clock, by rank; the calls have ``clock_quality``.
        batches: The ranks.
    """
    starts, ends, instance = (
        events.kernels[name].to_numpy() for name in (C.start_ns, C.end_ns, C.instance_id)
    )
    last = np.full(instance.max(initial=-1) + 1, np.iinfo(np.int64).min)
    np.maximum.at(last, instance, starts)
    first_end = np.full(last.size, np.iinfo(np.int64).max)
    np.minimum.at(first_end, instance, ends)
    wait = pl.min_horizontal(C.end_ns, pl.Series(last[instance])) - pl.col(C.start_ns)
    calls = events.of_calls(C.clock_quality, C.src_rank)
    is_left = pl.Series((first_end < last)[instance]) & calls[C.src_rank].is_not_null()
    is_known = (calls[C.clock_quality] != Quality.UNKNOWN.value) & ~is_left
    kernels = events.kernels.with_columns(
        pl.when(is_known).then(wait.clip(lower_bound=0)).alias(C.wait_ns)
    )
    parts = [_exposed(batch.rows(kernels), batch) for batch in batches]
    return kernels.hstack(pl.concat([pl.DataFrame(schema=_EXPOSED), *parts]))


_EXPOSED = pl.Schema(
    {C.exposed_wait_ns: pl.Int64, C.exposed_transfer_ns: pl.Int64, "held": pl.Boolean}
)


def _exposed(rows: pl.DataFrame, batch: Batch) -> pl.DataFrame:
    """Return the parts of waiting and transfer without compute of the ranks of a batch
    (``_EXPOSED``)."""
    compute = batch.compute()
    starts = rows.select(batch.placed(pl.col("own_start_ns"))).to_series().to_numpy()
    ends = starts + (rows[C.end_ns] - rows[C.start_ns]).to_numpy()
    until = starts + rows[C.wait_ns].fill_null(0).to_numpy()
    before = covered_until(compute, np.stack([starts, until, ends]))
    exposed_wait = until - starts - (before[1] - before[0])
    exposed_transfer = ends - until - (before[2] - before[1])
    is_known = pl.col(C.wait_ns).is_not_null()
    return rows.select(
        pl.when(is_known).then(pl.Series(exposed_wait, dtype=pl.Int64)).alias(C.exposed_wait_ns),
        pl.when(is_known)
        .then(pl.Series(exposed_transfer, dtype=pl.Int64))
        .alias(C.exposed_transfer_ns),
        pl.Series("held", _is_idle(compute, ends)),
    )


def _is_idle(compute: pl.DataFrame, times: Int64s) -> NDArray[np.bool_]:
    """Return whether no compute runs just before each time."""
    begins, ends = added_parts(compute)
    place = np.searchsorted(begins, times, side="left") - 1
    if not begins.size:
        return np.ones(times.size, np.bool_)
    idle: NDArray[np.bool_] = (place < 0) | (ends[np.maximum(place, 0)] < times)
    return idle


def instances(
    events: Events, communicators: pl.DataFrame, clock: Clock, seq: pl.Series
) -> pl.DataFrame:
    """Return one row for each collective, numbered by time; ``instance`` is the number that its
    kernels have.

    Args:
        events: Kernels of ``waiting``, and their calls.
        communicators: Table of ``with_communicators``.
        clock: The common clock.
        seq: The recorded sequence number by instance.
    """
    kernels = events.kernels
    parts = by_instance(kernels)
    rows = pl.concat(_instances(part, events.calls, communicators, seq) for part in parts)
    return_freed_memory()
    tie_ns = _tie_ns(kernels, clock)
    is_known = pl.col(C.clock_quality) != Quality.UNKNOWN.value
    order = rows.select(pl.arg_sort_by(C.last_ns, C.comm_id, C.instance_id)).to_series()
    # One column at a time: all of them twice would not fit into memory.
    rows = pl.DataFrame([rows.drop_in_place(name).gather(order) for name in rows.columns])
    rows = rows.rename({C.instance_id: "instance"}).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int32).alias(C.instance_id),
        pl.when(is_known & (pl.col("margin") > tie_ns)).then("latest").alias(C.last_rank),
        pl.when(is_known).then(C.second_rank).alias(C.second_rank),
        pl.when(is_known).then(pl.col("margin") / 1e3).alias(C.margin_us),
        pl.when(is_known).then((pl.col(C.last_ns) - pl.col(C.first_ns)) / 1e3).alias(C.skew_us),
        (pl.col("spread") / 1e3).alias(C.end_spread_us),
        pl.int_range(pl.len(), dtype=pl.Int64).over(C.comm_id).alias(C.index),
    )
    rows = rows.with_columns(_is_edge(rows, kernels).alias(C.is_edge))
    return _with_bandwidth(rows, clock)


def _instances(
    kernels: pl.DataFrame, calls: pl.DataFrame, communicators: pl.DataFrame, seq: pl.Series
) -> pl.DataFrame:
    """Return what the kernels of each instance have in common, and what is missing."""
    last = pl.col(C.start_ns).max()
    ranks = pl.col(C.rank).sort_by([C.start_ns, C.rank], descending=[True, False])
    wait = pl.col(C.wait_ns)
    called = (C.kind, C.group_size, C.in_bytes, C.out_bytes)
    rows = (
        kernels.hstack(calls.select(called)[kernels[CALL]])
        .group_by(C.instance_id, maintain_order=True)
        .agg(
            pl.col(CALL, C.match).first(),
            pl.col(C.step).drop_nulls().mode().min().alias(C.step),
            _message_bytes().alias(C.bytes),
            pl.max_horizontal(pl.col(C.in_bytes, C.out_bytes).max()).alias("busiest_bytes"),
            pl.col(C.start_ns).min().alias(C.first_ns),
            last.alias(C.last_ns),
            ranks.first().alias("latest"),
            ranks.get(1, null_on_oob=True).alias(C.second_rank),
            (last - pl.col(C.start_ns).top_k(2).min()).alias("margin"),
            pl.when(wait.null_count() == 0).then(wait.sum() / 1e3).alias(C.wait_us),
            pl.when(wait.null_count() == 0)
            .then(pl.col(C.exposed_wait_ns).sum() / 1e3)
            .alias(C.exposed_wait_us),
            (TRANSFER_NS.median() / 1e3).alias(C.transfer_us),
            (pl.col(C.end_ns) - pl.col(C.start_ns)).max().alias("longest"),
            (pl.col(C.end_ns).max() - pl.col(C.end_ns).min()).alias("spread"),
            pl.col(C.rank).alias("present"),
            pl.col(C.is_cut).any(),
        )
    )
    ends = (C.src_rank, C.dst_rank)
    rows = rows.hstack([seq.gather(rows[C.instance_id])])
    first = calls.select(C.comm_id, C.kind, C.library, C.dtype, C.clock_quality, *ends)[rows[CALL]]
    members = communicators.select(C.comm_id, C.size, pl.col("members").cast(pl.List(RANK)))
    rows = rows.drop(CALL).hstack(first).join(members, on=C.comm_id, how="left")
    is_pair = pl.col(C.src_rank).is_not_null()
    listed = pl.when(is_pair).then(pl.concat_list(ends)).otherwise("members")
    size = pl.when(is_pair).then(2).otherwise(C.size)
    return rows.with_columns(
        size.alias(C.size),
        (pl.col("present").list.len() < size).alias(C.transfer_is_bound),
        listed.list.set_difference("present").list.sort().alias(C.missing_ranks),
    ).drop("members", "present")


def _message_bytes() -> pl.Expr:
    """Return the size of a message as nccl-tests counts it; null if it is not known."""
    kind = pl.col(C.kind).first()
    sent, received, size = pl.col(C.in_bytes), pl.col(C.out_bytes), pl.col(C.group_size).max()
    return (
        pl.when(kind == "all_gather")
        .then(pl.coalesce(received.max(), sent.max() * size))
        .when(kind.is_in(["gather", "scatter"]))
        .then(pl.max_horizontal(sent.max(), received.max()))
        .when(kind == ALL_TO_ALL_V)
        .then(pl.when(sent.null_count() == 0).then(sent.sum()))
        .otherwise(sent.max())
    )


def _tie_ns(kernels: pl.DataFrame, clock: Clock) -> float:
    """Return the time within which arrivals are the same: errors of the clocks, and twice the
    resolution of the times, to which differences are rounded."""
    times = kernels.select(C.start_ns, C.end_ns)
    durations = (times[C.end_ns] - times[C.start_ns]) % 1000
    resolution_ns = 1_000 if (durations == 0).all() else 1
    error_ns = max(clock.error_ns.values(), default=0.0)
    return max(_ERRORS * error_ns, 2.0 * resolution_ns) + resolution_ns / 2


def _is_edge(rows: pl.DataFrame, kernels: pl.DataFrame) -> pl.Series:
    """Return which instances are before their ranks were held together, or cut.

    An instance holds its ranks together if most of the recorded ones go on only after it. Of the
    instances that follow, those are edges to which most ranks came without being held before.
    """
    instance, rank, start, end = (
        kernels[name].to_numpy() for name in (C.instance_id, C.rank, C.start_ns, C.end_ns)
    )
    held_ns = np.full(rank.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(held_ns, rank, np.where(is_holding(kernels), end, held_ns[0]))
    was_held = start >= held_ns[rank]
    share = sums(instance, was_held) / sums(instance).clip(1)
    return pl.Series(share < 0.5).gather(rows["instance"]) | rows[C.is_cut]


def _with_bandwidth(rows: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Return instances with ``floor_us, algo_gbs, bus_gbs``, which noise has not."""
    size = pl.col(C.size).cast(pl.Float64)
    factor = (
        pl.when(pl.col(C.kind) == "all_reduce")
        .then(2 * (size - 1) / size)
        .when(pl.col(C.kind).is_in(_HALF_RINGS))
        .then((size - 1) / size)
        .when(pl.col(C.kind).is_in(["broadcast", "reduce", "send_recv"]))
        .then(1.0)
    )
    transfer_ns = pl.col(C.transfer_us) * 1e3
    error_ns = max(clock.error_ns.values(), default=0.0)
    is_clear = (
        (transfer_ns >= _MIN_TRANSFER_NS)
        & (transfer_ns >= _ERRORS * error_ns)
        & (transfer_ns >= _MIN_TRANSFER_SHARE * pl.col("longest"))
    )
    algo = pl.when(is_clear).then(pl.col(C.bytes) / transfer_ns)
    busiest = pl.when(is_clear).then(pl.col("busiest_bytes") / transfer_ns)
    is_small = pl.col(C.bytes) <= MAX_FLOOR_BYTES
    floor = (
        pl.col(C.transfer_us)
        .filter(is_small & pl.col(C.transfer_us).is_not_null())
        .quantile(0.1, "linear")
        .over(C.comm_id, C.kind, C.library)
    )
    return rows.with_columns(
        algo.alias(C.algo_gbs),
        pl.when(pl.col(C.kind) == ALL_TO_ALL_V)
        .then(busiest)
        .otherwise(algo * factor)
        .alias(C.bus_gbs),
        floor.alias(C.floor_us),
    ).with_columns(pl.coalesce(C.floor_us, _intercept_us(rows)).alias(C.floor_us))


def _intercept_us(rows: pl.DataFrame) -> pl.Series:
    """Return the transfer of a message without bytes by instance, where its communicator, kind and
    library have messages of MIN_SIZES sizes: the intercept of a Theil-Sen line."""
    key = [C.comm_id, C.kind, C.library]
    sizes = (
        rows.drop_nulls([C.bytes, C.transfer_us])
        .group_by(*key, C.bytes)
        .agg(pl.col(C.transfer_us).median())
        .sort(*key, C.bytes)
        .group_by(key, maintain_order=True)
        .agg(C.bytes, C.transfer_us)
        .filter(pl.col(C.bytes).list.len() >= MIN_SIZES)
    )
    lines = [
        _intercept(np.array(x, np.float64), np.array(y))
        for x, y in sizes.select(C.bytes, C.transfer_us).iter_rows()
    ]
    found = sizes.select(*key, pl.Series("intercept", lines, pl.Float64))
    return rows.select(key).join(
        found, on=key, how="left", nulls_equal=True, maintain_order="left"
    )["intercept"]


def _intercept(x: Floats, y: Floats) -> float | None:
    """Return where the line with the median slope between all points meets zero, if above it."""
    chosen = np.linspace(0, x.size - 1, min(x.size, _MAX_SIZES)).astype(np.int64)
    x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(x.size, 1)
    slope = np.median((y[second] - y[first]) / (x[second] - x[first]))
    found = float(np.median(y - slope * x))
    return found if found > 0 else None


def renumbered(kernels: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return kernels with the numbers of ``instances``."""
    old = rows["instance"].to_numpy()
    number = np.empty(old.max(initial=-1) + 1, np.int32)
    number[old] = rows[C.instance_id].to_numpy()
    return kernels.with_columns(pl.Series(C.instance_id, number[kernels[C.instance_id].to_numpy()]))


def by_rank(kernels: pl.DataFrame, rows: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """Return sums of waiting by ``own`` rank and by the rank that it waited for (``caused``)."""
    facts = rows.select(C.instance_id, C.is_edge, C.last_rank).lazy()
    joined = kernels.lazy().join(facts, on=C.instance_id)
    inner = joined.filter(~pl.col(C.is_edge))

    def ms(column: str) -> pl.Expr:
        return pl.col(column).sum() / 1e6

    own = inner.group_by(C.rank).agg(
        pl.when(pl.col(C.wait_ns).count() > 0).then(ms(C.wait_ns)).alias(C.wait_ms),
        ms(C.exposed_wait_ns).alias(C.exposed_wait_ms),
        ms(C.exposed_transfer_ns).alias(C.exposed_transfer_ms),
    )
    edge = joined.filter(C.is_edge).group_by(C.rank).agg(ms(C.wait_ns).alias(C.edge_wait_ms))
    caused = (
        inner.drop_nulls(C.last_rank)
        .group_by(pl.col(C.last_rank).alias(C.rank))
        .agg(
            ms(C.wait_ns).alias(C.caused_wait_ms),
            ms(C.exposed_wait_ns).alias(C.caused_exposed_wait_ms),
            pl.col(C.instance_id).n_unique().cast(pl.Int64).alias(C.times_last),
        )
    )
    parts = {"own": own, "edge": edge, "caused": caused}
    return {name: part.collect() for name, part in parts.items()}
