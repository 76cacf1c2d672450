"""One clock for all ranks, from the ends of matched collectives.

In a collective that cannot finish before all ranks have come, all leave nearly together. The offset
of a clock is the median of what its ends differ from those of the others. Collectives that agree
best decide; how well each kind agrees says whether its waiting can be known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.ranks.drift import drifts_ppm
from jarvis.ranks.events import Events
from jarvis.ranks.members import RANK
from jarvis.schemas.names import C

Floats = NDArray[np.float64]

SYNCHRONIZING = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_to_all_v",
    "barrier",
    "notify",
    "dispatch",
)
"""Kinds that no rank leaves before all have come."""

CANDIDATES = (*SYNCHRONIZING, "send_recv", "unknown")
"""Kinds whose ends may agree: NCCL runs several of the above under other names."""

MIN_INSTANCES = 3
_MAX_SWEEPS = 50
_STILL_NS = 50.0
_AGREEING_NS, _AGREEING_TIMES = 10_000.0, 4.0
_FINE_NS, _FINE_SHARE, _USABLE_SHARE = 10_000.0, 0.02, 0.25
_BOUND_NS = 5_000
_MAX_BROKEN = 0.05
NORMAL = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""


class Quality(StrEnum):
    """How well the ends of a kind agree in a communicator."""

    FINE = "fine"
    USABLE = "usable"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Clock:
    """The clocks of the ranks.

    ``offset_ns``, ``drift_ppm`` and ``error_ns`` are by rank; ranks without a common collective
    with the first one have no offset. ``groups`` is the table ``clocks``; ``broken`` are the
    instances in which a rank leaves before another arrives.
    """

    offset_ns: Mapping[int, int]
    error_ns: Mapping[int, float]
    drift_ppm: Mapping[int, float]
    groups: pl.DataFrame
    broken: pl.Series
    p95_ns: float | None


def common_clock(events: Events, origin_ns: Mapping[int, int]) -> tuple[Clock, pl.DataFrame]:
    """Return the clocks of the ranks, and the kernels with ``start_ns, end_ns`` on the common clock
    and ``own_start_ns``.

    Args:
        events: Matched kernels, with ``instance``.
        origin_ns: What the times of each rank count from.
    """
    end = pl.col(C.end_ns).cast(pl.Float64).alias("end")
    ends = (
        events.kernels.select(C.instance_id, C.rank, end, C.is_cut)
        .hstack(events.of_calls(C.comm_id, C.kind))
        .filter(pl.col(C.kind).is_in(CANDIDATES), ~pl.col(C.is_cut))
        .drop(C.is_cut)
    )
    ends = ends.filter(pl.len().over(C.instance_id) > 1)
    used = _agreeing_groups(ends)
    chosen = ends.join(used, on=[C.comm_id, C.kind], how="semi")
    drift = drifts_ppm(_residuals(chosen, _offsets(chosen)), chosen)
    chosen = _without_drift(chosen, drift)
    offsets = _offsets(chosen, origin_ns)
    placed = _on_common_clock(events.kernels, offsets, drift, origin_ns)
    residuals = _residuals(_without_drift(ends, drift), offsets)
    of_calls = events.of_calls(C.comm_id, C.kind, C.src_rank, C.dst_rank)
    arrivals = placed.select(C.instance_id, C.rank, C.start_ns, C.end_ns).hstack(of_calls)
    groups, broken = _qualities(arrivals, residuals, used)
    del arrivals, of_calls
    of_used = residuals.join(used, on=[C.comm_id, C.kind], how="semi")
    connected = next(iter(_components(chosen)), [])
    clock = Clock(
        offset_ns={
            rank: round(offsets[rank]) + origin_ns[rank] - origin_ns[connected[0]]
            for rank in connected
        },
        error_ns=_errors(of_used),
        drift_ppm=drift,
        groups=groups,
        broken=broken,
        p95_ns=_p95_ns(of_used.drop("offset", "residual"), offsets),
    )
    return clock, placed


def with_quality(calls: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Return calls with ``clock_quality``, that of their kind in their communicator."""
    quality = pl.col(C.clock_quality).cast(pl.Categorical)
    groups = clock.groups.select(C.comm_id, C.kind, quality)
    return calls.join(groups, on=[C.comm_id, C.kind], how="left", maintain_order="left")


def _agreeing_groups(ends: pl.DataFrame) -> pl.DataFrame:
    """Return ``comm_id, kind`` of the kinds whose ends agree best, and of those that connect ranks
    which no better one connects."""
    groups = []
    for (comm_id, kind), group in ends.group_by(C.comm_id, C.kind, maintain_order=True):
        residuals = _residuals(group, _offsets(group))["residual"].abs()
        is_few = group[C.instance_id].n_unique() < MIN_INSTANCES
        groups.append((is_few, residuals.median(), str(comm_id), str(kind), group))
    groups.sort(key=lambda entry: entry[:4])
    used: list[tuple[str, str]] = []
    chosen = ends.clear()
    offsets: dict[int, float] = {}
    components: list[set[int]] = []
    limit_ns = 0.0
    for is_few, _, comm_id, kind, group in groups:
        p95_ns = _p95_ns(group, offsets or _offsets(group))
        own = set(group[C.rank].unique())
        joins = not any(own <= connected for connected in components)
        agrees = not is_few and p95_ns is not None and p95_ns <= limit_ns
        if joins or agrees:
            if not used:
                limit_ns = max(_AGREEING_NS, _AGREEING_TIMES * (p95_ns or 0.0))
            used.append((comm_id, kind))
            chosen = pl.concat([chosen, group])
        if joins:
            offsets, components = _offsets(chosen), [set(each) for each in _components(chosen)]
    ids = {C.comm_id: pl.Categorical, C.kind: pl.Categorical}
    return pl.DataFrame(used, schema=ids, orient="row")


def _p95_ns(ends: pl.DataFrame, offsets: Mapping[int, float]) -> float | None:
    return _quantile(_residuals(ends, offsets)["residual"].abs(), 0.95)


def _offsets(ends: pl.DataFrame, origin_ns: Mapping[int, int] | None = None) -> dict[int, float]:
    """Return what the clock of each rank is ahead of that of the first rank, in ns.

    Ranks that no collective connects with it keep the recorded time of the first one of them.
    """
    offsets: dict[int, float] = {}
    for ranks in _components(ends):
        own = ends.filter(pl.col(C.rank).is_in(ranks))
        found = _swept(own, _started(own, ranks))
        first = found[ranks[0]]
        if origin_ns is not None and offsets:
            first += origin_ns[ranks[0]] - origin_ns[min(offsets)]
        offsets |= {rank: value - first for rank, value in found.items()}
    return offsets


def _components(ends: pl.DataFrame) -> list[list[int]]:
    """Return the sets of ranks that collectives connect, the one with the first rank first."""
    parent = {rank: rank for rank in ends[C.rank].unique().sort()}

    def root(rank: int) -> int:
        while parent[rank] != rank:
            parent[rank] = parent[parent[rank]]
            rank = parent[rank]
        return rank

    first = pl.col(C.rank).min().over(C.instance_id).alias("first")
    for rank, other in ends.select(C.rank, first).unique().sort(C.rank, "first").iter_rows():
        low, high = sorted((root(rank), root(other)))
        parent[high] = low
    found: dict[int, list[int]] = {}
    for rank in parent:
        found.setdefault(root(rank), []).append(rank)
    return [found[key] for key in sorted(found)]


def _started(ends: pl.DataFrame, ranks: Sequence[int]) -> dict[int, float]:
    """Return first estimates: medians of pairwise differences along a breadth-first walk."""
    largest = ends.group_by(C.rank).len().sort("len", C.rank, descending=[True, False])[C.rank][0]
    offsets, waiting = {int(largest): 0.0}, [int(largest)]
    remaining = set(ranks) - {int(largest)}
    while waiting and remaining:
        at = waiting.pop(0)
        own = ends.filter(pl.col(C.rank) == at).select(C.instance_id, own="end")
        pairs = ends.filter(pl.col(C.rank).is_in(sorted(remaining))).join(own, on=C.instance_id)
        found = (
            pairs.group_by(C.rank)
            .agg((pl.col("end") - pl.col("own")).median().alias("offset"), pl.len())
            .sort("len", C.rank, descending=[True, False])
        )
        for rank, offset in found.select(C.rank, "offset").iter_rows():
            offsets[rank] = offsets[at] + offset
            waiting.append(rank)
            remaining.discard(rank)
    return offsets


def _swept(ends: pl.DataFrame, offsets: dict[int, float]) -> dict[int, float]:
    """Return estimates improved until none moves: each is the median of its differences from the
    medians of all."""
    instances, instance = np.unique(ends[C.instance_id].to_numpy(), return_inverse=True)
    ranks, rank = np.unique(ends[C.rank].to_numpy(), return_inverse=True)
    end = ends["end"].to_numpy()
    offset = np.array([offsets[int(r)] for r in ranks])
    for _ in range(_MAX_SWEEPS):
        middle = _medians(end - offset[rank], instance, instances.size)
        moved = _medians(end - middle[instance], rank, ranks.size)
        step = np.abs(moved - offset).max(initial=0.0)
        offset = moved
        if step < _STILL_NS:
            break
    return {int(r): float(value) for r, value in zip(ranks, offset, strict=True)}


def _medians(values: Floats, group: NDArray[np.int64], groups: int) -> Floats:
    """Return the median of each group; every group has values."""
    counts = np.bincount(group, minlength=groups)
    begins = np.cumsum(counts) - counts
    ordered = values[np.lexsort((values, group))]
    medians: Floats = (ordered[begins + (counts - 1) // 2] + ordered[begins + counts // 2]) / 2
    return medians


def _residuals(ends: pl.DataFrame, offsets: Mapping[int, float]) -> pl.DataFrame:
    """Return the ends of ranks with an offset, with ``residual``: what is left of their difference
    from the median of the instance."""
    known = pl.DataFrame(
        {C.rank: list(offsets), "offset": list(offsets.values())},
        schema={C.rank: RANK, "offset": pl.Float64},
    )
    placed = pl.col("end") - pl.col("offset")
    return ends.join(known, on=C.rank, maintain_order="left").with_columns(
        (placed - placed.median().over(C.instance_id)).alias("residual")
    )


def _without_drift(ends: pl.DataFrame, drift: Mapping[int, float]) -> pl.DataFrame:
    if not drift:
        return ends
    return ends.with_columns(pl.col("end") - pl.col("end") * _ppm(drift) / 1e6)


def _ppm(drift: Mapping[int, float]) -> pl.Expr:
    return pl.col(C.rank).replace_strict(dict(drift), default=0.0, return_dtype=pl.Float64)


def _on_common_clock(
    events: pl.DataFrame,
    offsets: Mapping[int, float],
    drift: Mapping[int, float],
    origin_ns: Mapping[int, int],
) -> pl.DataFrame:
    """Return events whose times count from the first event of all ranks, durations unchanged.

    Ranks without an offset keep their recorded times.
    """
    ranks = sorted(offsets)
    base = origin_ns[ranks[0]] if ranks else min(origin_ns.values(), default=0)
    shift = {
        rank: -round(offsets[rank]) if rank in offsets else origin_ns[rank] - base
        for rank in origin_ns
    }
    correction = (
        pl.col(C.rank).replace_strict(shift, return_dtype=pl.Int64)
        - (pl.col(C.end_ns) * _ppm(drift) / 1e6).round().cast(pl.Int64)
        if drift
        else pl.col(C.rank).replace_strict(shift, return_dtype=pl.Int64)
    )
    placed = events.with_columns(
        pl.col(C.start_ns).alias("own_start_ns"),
        *((pl.col(time) + correction).alias(time) for time in (C.start_ns, C.end_ns)),
    )
    first = placed[C.start_ns].min()
    least = first if isinstance(first, int) else 0
    return placed.with_columns(pl.col(C.start_ns, C.end_ns) - least)


def _qualities(
    placed: pl.DataFrame, residuals: pl.DataFrame, used: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series]:
    """Return the table ``clocks``, and the instances in which a rank leaves before another one
    arrives."""
    sent_ns = pl.col(C.start_ns).filter(pl.col(C.rank) == pl.col(C.src_rank)).max()
    received_ns = pl.col(C.end_ns).filter(pl.col(C.rank) == pl.col(C.dst_rank)).min()
    # A sender may leave before its receiver comes, but no receiver before the sender has begun.
    early_ns = pl.coalesce(sent_ns - received_ns, pl.col(C.start_ns).max() - pl.col(C.end_ns).min())
    instances = placed.group_by(C.comm_id, C.kind, C.instance_id).agg(
        (pl.col(C.start_ns).max() - pl.col(C.start_ns).min()).alias("skew"),
        (early_ns > _BOUND_NS).alias("is_broken"),
    )
    is_synchronizing = pl.col(C.kind).is_in(CANDIDATES)
    share = pl.col("is_broken").mean().over(C.comm_id, C.kind)
    broken = instances.filter(is_synchronizing & pl.col("is_broken") & (share <= _MAX_BROKEN))
    spread = residuals.group_by(C.comm_id, C.kind).agg(
        pl.col("residual").abs().median().alias("residual"),
        pl.col("residual").abs().quantile(0.95, "linear").alias("p95"),
    )
    groups = (
        instances.group_by(C.comm_id, C.kind)
        .agg(
            pl.len().alias(C.instance_count),
            pl.col("skew").median().alias("skew"),
            pl.col("is_broken").mean().alias("broken"),
        )
        .join(spread, on=[C.comm_id, C.kind], how="left")
        .join(used.with_columns(pl.lit(1).alias(C.is_used)), on=[C.comm_id, C.kind], how="left")
        .sort(C.comm_id, C.kind)
    )
    quality = [
        quality_of(kind, count, residual_p95, skew, broken_share)
        for kind, count, residual_p95, skew, broken_share in groups.select(
            C.kind, C.instance_count, "p95", "skew", "broken"
        ).iter_rows()
    ]
    table = groups.with_columns(
        pl.col(C.is_used).is_not_null(),
        (pl.col("residual") / 1e3).alias(C.residual_us),
        (pl.col("p95") / 1e3).alias(C.p95_us),
        (pl.col("skew") / 1e3).alias(C.skew_us),
        pl.Series(C.clock_quality, [str(q) for q, _ in quality], pl.String),
        pl.Series(C.reason, [reason for _, reason in quality], pl.String),
    )
    return table, broken[C.instance_id]


def quality_of(
    kind: str, instances: int, p95_ns: float | None, skew_ns: float, broken: float
) -> tuple[Quality, str | None]:
    """Return how well the ends of a kind agree, and why they do not.

    Args:
        kind: The kind.
        instances: How many instances two ranks or more have.
        p95_ns: The 95th percentile of what ends disagree; None without a common clock.
        skew_ns: Median time from the first to the last arrival.
        broken: Part of the instances in which a rank leaves before another one arrives.
    """
    if kind not in CANDIDATES:
        return Quality.UNKNOWN, f"A rank may leave a {kind} before the others arrive."
    if instances < MIN_INSTANCES:
        return Quality.UNKNOWN, f"{instances} of at least {MIN_INSTANCES} instances are there."
    if p95_ns is None:
        return Quality.UNKNOWN, "The ranks have no collective in common with the others."
    if broken > _MAX_BROKEN:
        return Quality.UNKNOWN, (
            f"In {broken:.0%} of the instances a rank leaves before another one arrives, so "
            "these are not the same collectives."
        )
    if p95_ns <= max(_FINE_NS, _FINE_SHARE * skew_ns):
        return Quality.FINE, None
    if p95_ns <= _USABLE_SHARE * skew_ns:
        return Quality.USABLE, None
    return Quality.UNKNOWN, (
        f"Ends of matched collectives differ by {p95_ns / 1e3:,.0f} µs: these are not the same "
        "steps, not the same collectives, or ranks do not leave together."
    )


def _errors(residuals: pl.DataFrame) -> dict[int, float]:
    """Return the standard error of the offset of each rank, in ns."""
    found = residuals.group_by(C.rank).agg(
        (NORMAL * (pl.col("residual") - pl.col("residual").median()).abs().median()).alias("mad"),
        pl.len(),
    )
    return {rank: mad / float(np.sqrt(count)) for rank, mad, count in found.iter_rows()}


def _quantile(values: pl.Series, at: float) -> float | None:
    return values.quantile(at, "linear")
