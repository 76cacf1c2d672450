"""One clock for all ranks, from the ends of matched collectives.

In a collective that cannot finish before all ranks have come, all leave nearly together. The offset
of a clock is the median of what its ends differ from those of the others. Collectives that agree
best decide; how well each kind agrees says whether its waiting can be known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import polars as pl

from jarvis.core.memory_tuning import return_freed_memory
from jarvis.ranks.drift import MAX_PPM, drifts_ppm
from jarvis.ranks.ends import Bools, Ends, Floats, Int32s
from jarvis.ranks.events import CALL, Events
from jarvis.ranks.parts import by_instance
from jarvis.schemas.names import C

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
_AGREEING_NS, _AGREEING_TIMES = 10_000.0, 4.0
_FINE_NS, _FINE_SHARE, _USABLE_SHARE = 10_000.0, 0.02, 0.25
_BOUND_NS = 5_000
_TOGETHER_SHARE = 0.1
"""Part of the sends of a pair that may have ends that are too near each other, as others match."""

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
    instances in which a rank leaves before another arrives. ``median_ns`` and ``p95_ns`` are of
    what the ends disagree that the offsets are based on.
    """

    offset_ns: Mapping[int, int]
    error_ns: Mapping[int, float]
    drift_ppm: Mapping[int, float]
    groups: pl.DataFrame
    broken: pl.Series
    p95_ns: float | None
    median_ns: float | None = None


def common_clock(events: Events, origin_ns: Mapping[int, int]) -> tuple[Clock, pl.DataFrame]:
    """Return the clocks of the ranks, and the kernels with ``start_ns, end_ns`` on the common clock
    and ``own_start_ns``.

    Args:
        events: Matched kernels, with ``instance``.
        origin_ns: What the times of each rank count from.
    """
    named = events.calls.select(C.comm_id, C.kind).unique(maintain_order=True)
    named = named.with_row_index(_GROUP).cast({_GROUP: pl.Int32})
    of_calls = events.calls.join(
        named, on=[C.comm_id, C.kind], how="left", nulls_equal=True, maintain_order="left"
    ).select(
        _GROUP,
        pl.col(C.kind).is_in(CANDIDATES).fill_null(value=False).alias("is_candidate"),
        (pl.col(C.rank) == pl.col(C.src_rank)).alias("is_sent"),
        (pl.col(C.rank) == pl.col(C.dst_rank)).alias("is_received"),
    )
    ends = _ends(events.kernels, of_calls)
    is_together = ~np.isin(ends.instance, _early_sends(events.kernels, of_calls))
    together = ends if is_together.all() else ends[is_together]
    used = _agreeing_groups(together, named)
    chosen = together.of_groups(used)
    drift = drifts_ppm(chosen)
    if drift:
        ends, chosen = _without_drift(ends, drift), _without_drift(chosen, drift)
    offsets = _offsets(chosen, origin_ns)
    residuals = _residuals(ends, offsets)
    is_used = np.isin(ends.group, used)
    is_known = ~np.isin(ends.instance, _left_early(events.kernels, of_calls, offsets, drift))
    errors_ns, components, group = (
        _errors(chosen, residuals[is_used & is_together]),
        chosen.components,
        ends.group,
    )
    # These are as large as all kernels.
    del ends, together, chosen, is_together
    return_freed_memory()
    disagreement = _magnitudes(residuals, is_known, is_used)
    clock = Clock(
        offset_ns={
            rank: round(offsets[rank]) + origin_ns[rank] - origin_ns[components[0][0]]
            for rank in next(iter(components), ())
        },
        error_ns=errors_ns,
        drift_ppm=drift,
        groups=_spreads(group, residuals, is_known, named).with_columns(
            pl.col(_GROUP).is_in(used).alias(C.is_used)
        ),
        broken=pl.Series(dtype=pl.Int32),
        p95_ns=_quantile(disagreement),
        median_ns=_quantile(disagreement, 0.5),
    )
    del disagreement, residuals, is_used, is_known, group
    placed = _on_common_clock(events.kernels, offsets, drift, origin_ns)
    groups, broken = _qualities(placed, of_calls, clock.groups)
    return replace(clock, groups=groups, broken=broken), placed


_GROUP = "comm_kind"
"""Column: number of a kind in its communicator."""


def _ends(kernels: pl.DataFrame, of_calls: pl.DataFrame) -> Ends:
    """Return the ends from which a clock may follow: of kinds in which ranks may leave together,
    of instances with several of them."""
    calls = kernels[CALL].to_numpy()
    is_used = of_calls["is_candidate"].to_numpy()[calls] & ~kernels[C.is_cut].to_numpy()
    instance = kernels[C.instance_id].to_numpy()
    is_used &= (np.bincount(instance, is_used) > 1)[instance]
    return Ends(
        instance=instance[is_used],
        rank=kernels[C.rank].to_numpy()[is_used],
        group=of_calls[_GROUP].to_numpy()[calls[is_used]],
        end_ns=kernels[C.end_ns].to_numpy()[is_used].astype(np.float64),
    )


def with_quality(calls: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Return calls with ``clock_quality``, that of their kind in their communicator."""
    quality = pl.col(C.clock_quality).cast(pl.Categorical)
    groups = clock.groups.select(C.comm_id, C.kind, quality)
    return calls.join(groups, on=[C.comm_id, C.kind], how="left", maintain_order="left")


def _agreeing_groups(ends: Ends, named: pl.DataFrame) -> list[int]:
    """Return the kinds whose ends agree best, and those that connect ranks which no better one
    connects."""
    order = np.argsort(ends.group, kind="stable").astype(np.int32)
    bounds = np.cumsum(np.bincount(ends.group, minlength=named.height))
    groups = []
    for group, comm_id, kind in named.iter_rows():
        rows = order[bounds[group - 1] if group else 0 : bounds[group]]
        if rows.size:
            own = ends[rows]
            residual_ns = _quantile(np.abs(own.residuals(own.offsets)), 0.5)
            is_few = own.instances[1].counts.size < MIN_INSTANCES
            groups.append((is_few, residual_ns, comm_id, kind, group, rows))
    groups.sort(key=lambda entry: entry[:4])
    used: list[int] = []
    offsets: dict[int, float] = {}
    components: list[set[int]] = []
    limit_ns = 0.0
    for is_few, _, _, _, group, rows in groups:
        own = ends[rows]
        p95_ns = _quantile(np.abs(_residuals(own, offsets or _offsets(own))))
        ranks = set(own.ranks[0].tolist())
        joins = not any(ranks <= connected for connected in components)
        agrees = not is_few and p95_ns is not None and p95_ns <= limit_ns
        if joins or agrees:
            if not used:
                limit_ns = max(_AGREEING_NS, _AGREEING_TIMES * (p95_ns or 0.0))
            used.append(group)
        if joins:
            chosen = ends.of_groups(used) if offsets else own
            offsets, components = _offsets(chosen), [set(each) for each in chosen.components]
    return used


def _offsets(ends: Ends, origin_ns: Mapping[int, int] | None = None) -> dict[int, float]:
    """Return what the clock of each rank is ahead of that of the first rank, in ns.

    Ranks that no collective connects with it keep the recorded time of the first one of them.
    """
    found = dict(zip(ends.ranks[0].tolist(), ends.offsets.tolist(), strict=True))
    if origin_ns is not None:
        for ranks in ends.components[1:]:
            ahead_ns = origin_ns[ranks[0]] - origin_ns[ends.components[0][0]]
            found |= {rank: found[rank] - ahead_ns for rank in ranks}
    return found


def _residuals(ends: Ends, offsets: Mapping[int, float]) -> Floats:
    """Return the residuals of the ends of ranks with an offset."""
    is_known = np.isin(ends.rank, list(offsets))
    known = ends if is_known.all() else ends[is_known]
    return known.residuals(np.array([offsets[rank] for rank in known.ranks[0].tolist()]))


def _sends(kernels: pl.DataFrame, of_calls: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of sends and receives, with ``is_sent`` and ``is_received``."""
    called = of_calls.select("is_sent", "is_received")[kernels[CALL]]
    is_pair = called.select(pl.any_horizontal(pl.all()).fill_null(value=False)).to_series()
    return kernels.hstack(called).filter(is_pair)


def _early_sends(kernels: pl.DataFrame, of_calls: pl.DataFrame) -> Int32s:
    """Return the sends whose sender leaves longer before the receiver than in others of the pair.

    No receiver leaves before its sender, whatever the clocks: the least difference of their ends is
    that of sends that both leave together. Clocks that drift change it, at most by MAX_PPM.
    """
    end, rank = pl.col(C.end_ns), pl.col(C.rank)
    sends = _sends(kernels, of_calls)
    drift = MAX_PPM / 1e6 * (end.max() - end.min())
    pairs = sends.group_by(C.instance_id).agg(
        end.filter("is_received").min() - end.filter("is_sent").max(),
        rank.filter("is_sent").first().alias(C.src_rank),
        rank.filter("is_received").first().alias(C.dst_rank),
    )
    usual = end.quantile(_TOGETHER_SHARE, "lower").over(C.src_rank, C.dst_rank)
    limit_ns = _AGREEING_NS + (sends.select(drift).item() or 0.0)
    found: Int32s = pairs.filter(end - usual > limit_ns)[C.instance_id].to_numpy()
    return found


def _left_early(
    kernels: pl.DataFrame,
    of_calls: pl.DataFrame,
    offsets: Mapping[int, float],
    drift: Mapping[int, float],
) -> Int32s:
    """Return the sends whose sender leaves before the receiver arrives: their ends are not the
    same moment."""
    ahead = pl.col(C.rank).replace_strict(dict(offsets), default=None, return_dtype=pl.Float64)
    times = (pl.col(name) * (1 - _ppm(drift) / 1e6) - ahead for name in (C.start_ns, C.end_ns))
    ends = _sends(kernels, of_calls).with_columns(times).group_by(C.instance_id)
    sent = pl.col(C.end_ns).filter("is_sent").max()
    received = pl.col(C.start_ns).filter("is_received").min()
    found: Int32s = ends.agg(sent < received).filter(C.end_ns)[C.instance_id].to_numpy()
    return found


def _without_drift(ends: Ends, drift: Mapping[int, float]) -> Ends:
    known, rank, _ = ends.ranks
    ppm = np.array([drift.get(each, 0.0) for each in known.tolist()])[rank]
    return replace(ends, end_ns=ends.end_ns - ends.end_ns * ppm / 1e6)


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
    placed: pl.DataFrame, of_calls: pl.DataFrame, named: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series]:
    """Return the table ``clocks``, and the instances in which a rank leaves before another one
    arrives."""
    called = of_calls.select(_GROUP, "is_sent", "is_received")
    sent_ns = pl.col(C.start_ns).filter(pl.col("is_sent")).max()
    received_ns = pl.col(C.end_ns).filter(pl.col("is_received")).min()
    # A sender may leave before its receiver comes, but no receiver before the sender has begun.
    early_ns = pl.coalesce(sent_ns - received_ns, pl.col(C.start_ns).max() - pl.col(C.end_ns).min())
    times = placed.select(C.instance_id, C.start_ns, C.end_ns, CALL)
    instances = pl.concat(
        part.hstack(called[part[CALL]])
        .group_by(_GROUP, C.instance_id)
        .agg(
            (pl.col(C.start_ns).max() - pl.col(C.start_ns).min()).alias("skew"),
            (early_ns > _BOUND_NS).alias("is_broken"),
        )
        for part in by_instance(times)
    ).join(named.select(_GROUP, C.comm_id, C.kind), on=_GROUP)
    is_synchronizing = pl.col(C.kind).is_in(CANDIDATES)
    share = pl.col("is_broken").mean().over(_GROUP)
    broken = instances.filter(is_synchronizing & pl.col("is_broken") & (share <= _MAX_BROKEN))
    groups = (
        instances.group_by(_GROUP)
        .agg(
            pl.len().alias(C.instance_count),
            pl.col("skew").median().alias("skew"),
            pl.col("is_broken").mean().alias("broken"),
        )
        .join(named, on=_GROUP)
        .sort(C.comm_id, C.kind)
    )
    quality = [
        quality_of(kind, count, residual_p95, skew, broken_share)
        for kind, count, residual_p95, skew, broken_share in groups.select(
            C.kind, C.instance_count, "p95", "skew", "broken"
        ).iter_rows()
    ]
    table = groups.with_columns(
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


def _errors(ends: Ends, residuals: Floats) -> dict[int, float]:
    """Return the standard error of the offset of each rank, in ns."""
    known, rank, medians = ends.ranks
    spread = medians(NORMAL * np.abs(residuals - medians(residuals)[rank]))
    return dict(zip(known.tolist(), (spread / np.sqrt(medians.counts)).tolist(), strict=True))


def _spreads(
    group: Int32s, residuals: Floats, is_known: Bools, named: pl.DataFrame
) -> pl.DataFrame:
    """Return groups with the median (``residual``) and the 95th percentile (``p95``) of their
    residuals; null without any."""
    order = np.argsort(group, kind="stable").astype(np.int32)
    rows = np.split(order, np.cumsum(np.bincount(group, minlength=named.height)))[:-1]
    of_groups = ((residuals[each], is_known[each]) for each in rows)
    parts = [_magnitudes(*each, np.ones(each[0].size, np.bool_)) for each in of_groups]
    return named.with_columns(
        pl.Series(name, [_quantile(part, at) for part in parts], pl.Float64)
        for name, at in (("residual", 0.5), ("p95", 0.95))
    )


def _magnitudes(residuals: Floats, is_known: Bools, is_chosen: Bools) -> Floats:
    """Return the magnitudes of the chosen residuals that are known; of all chosen ones where these
    are too few to judge by."""
    is_both = is_chosen & is_known
    found = residuals[is_both if np.count_nonzero(is_both) >= 2 * MIN_INSTANCES else is_chosen]
    return np.abs(found, out=found)


def _quantile(values: Floats, at: float = 0.95) -> float | None:
    return pl.Series(values).quantile(at, "linear")
