"""The figures of matched collectives: who arrived when, waiting, transfer, bandwidth."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.perf_report.intervals import added_parts, covered_until
from jarvis.ranks.clock import Clock, Quality
from jarvis.ranks.events import Member
from jarvis.ranks.holding import holding_kernels
from jarvis.ranks.pairs import ALL_TO_ALL_V
from jarvis.schemas.names import C

Int64s = NDArray[np.int64]

_HALF_RINGS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
MAX_FLOOR_BYTES = 64 << 10
"""Larger messages do not show the latency of a collective."""

_MIN_TRANSFER_NS = 1_000
_MIN_TRANSFER_SHARE = 0.01
_ERRORS = 3
"""Times the error of the clocks below which a transfer is noise."""


def kernels(events: pl.DataFrame, members: Sequence[Member]) -> pl.DataFrame:
    """Return the kernels of instances with ``wait_ns, transfer_ns``, their exposed parts, and
    ``held``.

    A kernel waits until the last recorded rank arrives; the rest of its duration is transfer, so
    the two add up to it exactly. Kinds on whose ends no clock can be based have none of them, nor
    have sends that end before the receiver arrives: what the sender waited for is not known. A
    rank is ``held`` by a kernel during whose end it computes nothing, so that it goes on only
    after it.

    Args:
        events: Matched kernels on the common clock (``Clock.events``), by rank.
        members: The ranks.
    """
    last = pl.col(C.start_ns).max().over("instance")
    wait = (pl.min_horizontal(C.end_ns, last) - pl.col(C.start_ns)).clip(lower_bound=0)
    is_left = (pl.col(C.end_ns).min().over("instance") < last) & pl.col(C.src_rank).is_not_null()
    is_known = (pl.col(C.clock_quality) != Quality.UNKNOWN.value) & ~is_left
    waiting = events.with_columns(
        pl.when(is_known).then(wait).alias(C.wait_ns),
        pl.when(is_known).then(pl.col(C.end_ns) - pl.col(C.start_ns) - wait).alias(C.transfer_ns),
    )
    parts = [pl.DataFrame(schema=_EXPOSED)]
    for member in members:
        first, after = (
            waiting[C.rank].search_sorted(member.rank, side=side) for side in ("left", "right")
        )
        parts.append(_exposed(waiting[first:after], member))
    return waiting.hstack(pl.concat(parts))


_EXPOSED = pl.Schema(
    {C.exposed_wait_ns: pl.Int64, C.exposed_transfer_ns: pl.Int64, "held": pl.Boolean}
)


def _exposed(rows: pl.DataFrame, member: Member) -> pl.DataFrame:
    """Return the parts of waiting and transfer of a rank without compute (``_EXPOSED``)."""
    compute = member.compute()
    starts = rows["own_start_ns"].to_numpy() + member.origin_ns
    ends = starts + (rows[C.end_ns] - rows[C.start_ns]).to_numpy()
    until = starts + rows[C.wait_ns].fill_null(0).to_numpy()
    before = [covered_until(compute, times) for times in (starts, until, ends)]
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


def instances(kernels: pl.DataFrame, communicators: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Return one row for each collective, by time, with the key ``instance``.

    Args:
        kernels: Kernels of ``kernels``.
        communicators: Table of ``with_communicators``.
        clock: The common clock.
    """
    last = pl.col(C.start_ns).max()
    arrivals = pl.col(C.start_ns).top_k(2)
    ranks = pl.col(C.rank).sort_by([C.start_ns, C.rank], descending=[True, False])
    wait = pl.col(C.wait_ns)
    rows = kernels.group_by("instance").agg(
        *(pl.col(column).first() for column in (C.comm_id, C.kind, C.library, C.dtype)),
        *(pl.col(column).first() for column in (C.match, C.clock_quality)),
        *(pl.col(column).first() for column in (C.src_rank, C.dst_rank)),
        pl.col(C.seq).min(),
        pl.col(C.step).drop_nulls().mode().min().alias(C.step),
        _message_bytes().alias(C.bytes),
        pl.col(C.in_bytes).max().alias("busiest_bytes"),
        pl.col(C.start_ns).min().alias(C.first_ns),
        last.alias(C.last_ns),
        ranks.first().alias("latest"),
        ranks.get(1, null_on_oob=True).alias(C.second_rank),
        (arrivals.max() - arrivals.min()).alias("margin"),
        pl.when(wait.null_count() == 0).then(wait.sum() / 1e3).alias(C.wait_us),
        pl.when(wait.null_count() == 0)
        .then(pl.col(C.exposed_wait_ns).sum() / 1e3)
        .alias(C.exposed_wait_us),
        (pl.col(C.transfer_ns).median() / 1e3).alias(C.transfer_us),
        (pl.col(C.end_ns) - pl.col(C.start_ns)).max().alias("longest"),
        (pl.col(C.end_ns).max() - pl.col(C.end_ns).min()).alias("spread"),
        pl.col(C.rank).alias("present"),
        pl.col(C.is_cut).any(),
    )
    rows = rows.join(communicators.select(C.comm_id, C.size, "members"), on=C.comm_id, how="left")
    is_pair = pl.col(C.src_rank).is_not_null()
    pair = pl.concat_list(C.src_rank, C.dst_rank)
    rows = rows.with_columns(
        pl.when(is_pair).then(pair).otherwise("members").alias("members"),
        pl.when(is_pair).then(2).otherwise(C.size).alias(C.size),
    )
    missing = pl.col("members").list.set_difference("present").list.sort()
    is_complete = pl.col("present").list.len() >= pl.col(C.size)
    tie_ns = _tie_ns(kernels, clock)
    is_known = pl.col(C.clock_quality) != Quality.UNKNOWN.value
    rows = rows.sort(C.last_ns, C.comm_id, "instance").with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias(C.instance_id),
        missing.alias(C.missing_ranks),
        (~is_complete).alias(C.transfer_is_bound),
        pl.when(is_known & (pl.col("margin") > tie_ns)).then("latest").alias(C.last_rank),
        pl.when(is_known).then(C.second_rank).alias(C.second_rank),
        pl.when(is_known).then(pl.col("margin") / 1e3).alias(C.margin_us),
        pl.when(is_known).then((pl.col(C.last_ns) - pl.col(C.first_ns)) / 1e3).alias(C.skew_us),
        (pl.col("spread") / 1e3).alias(C.end_spread_us),
        pl.int_range(pl.len(), dtype=pl.Int64).over(C.comm_id).alias(C.index),
    )
    rows = rows.with_columns(_is_edge(rows, kernels).alias(C.is_edge))
    return _with_bandwidth(rows, clock)


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
    holding = holding_kernels(kernels)
    first = holding.group_by(C.rank).agg(pl.col(C.end_ns).min().alias("held_ns"))
    arrivals = kernels.join(first, on=C.rank, how="left").with_columns(
        (pl.col(C.start_ns) >= pl.col("held_ns")).fill_null(value=False).alias("was_held")
    )
    edges = arrivals.group_by("instance").agg((pl.col("was_held").mean() < 0.5).alias("is_unheld"))
    joined = rows.join(edges, on="instance", how="left", maintain_order="left")
    return joined["is_unheld"] | joined[C.is_cut]


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
    )


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
