"""Which kernels of different ranks are one collective.

By the recorded sequence number where all ranks have it; else by the order in the communicator, in
each part of the steps that the same ranks recorded. Where kinds or sizes of a rank do not fit, its
kernels are aligned with those of the rank that has most, by the longest common subsequence whose
ends also agree best.
"""

from enum import StrEnum
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.ranks.alignment import aligned, best_lags
from jarvis.ranks.events import CALL, Events
from jarvis.schemas.names import C

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]

MIN_MATCHED_SHARE = 0.8
"""Part of the kernels of a rank that has to fit those of the others."""

SAME_SIZE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier")
"""Kinds with messages of the same size on all ranks."""


class Match(StrEnum):
    """How the kernels of an instance were found."""

    SEQ = "seq"
    ORDER = "order"
    RESYNCED = "resynced"


class Reason(StrEnum):
    """Why a kernel belongs to no instance."""

    NO_PARTNER = "no_partner"
    EXTRA = "extra"
    BEFORE = "before_common_window"
    AFTER = "after_common_window"
    SIGNATURE = "signature"
    BOUNDS = "bounds"


_WHY = list(Reason)


def _slot(reason: Reason) -> int:
    """Return what a kernel without a place in an instance has instead: a negative number."""
    return -1 - _WHY.index(reason)


def match(events: Events) -> pl.DataFrame:
    """Return, by kernel, ``instance``, equal for those that are one collective, ``match``, how they
    were found, and ``reason``, why a kernel belongs to none.

    Args:
        events: Events whose calls have ``comm_id``.
    """
    calls = events.calls.select(
        C.comm_id, C.stream, _signature().alias("signature"), _pair().alias("pair")
    )
    keys = [C.comm_id, "pair"]
    groups = calls.select(keys).unique(maintain_order=True).with_row_index("group")
    of_calls = calls.join(groups, on=keys, how="left", nulls_equal=True, maintain_order="left")
    group = of_calls["group"].gather(events.kernels[CALL]).to_numpy()
    order = np.argsort(group, kind="stable").astype(np.uint32)
    bounds = np.cumsum(np.bincount(group, minlength=groups.height))
    del group
    slots = np.empty(order.size, np.int32)
    how = np.zeros(order.size, np.uint8)
    count = 0
    for begin, end in pairwise([0, *bounds.tolist()]):
        rows = order[begin:end]
        kernels = events.kernels.select(CALL, *_USED)[rows]
        found, way = _matched(kernels.hstack(calls.select(C.stream, "signature")[kernels[CALL]]))
        is_placed = found >= 0
        is_instance = np.bincount(found[is_placed]) > 0
        found[is_placed] = (count - 1 + np.cumsum(is_instance))[found[is_placed]]
        count += int(np.count_nonzero(is_instance))
        slots[rows] = found
        how[rows] = list(Match).index(way)
    slot, is_matched = pl.col("slot"), pl.col("slot") >= 0
    return pl.DataFrame({"slot": slots, C.match: how}).select(
        pl.when(is_matched).then(slot).alias(C.instance_id),
        pl.when(is_matched).then(pl.col(C.match).cat.to(pl.Enum(Match))).alias(C.match),
        pl.when(~is_matched)
        .then((-1 - slot).cast(pl.UInt8).cat.to(pl.Enum(Reason)))
        .alias(C.reason),
    )


_USED = (C.rank, C.seq, C.step, C.launch_start_ns, C.end_ns)


def _signature() -> pl.Expr:
    has_size = pl.col(C.kind).is_in(SAME_SIZE)
    return pl.struct(
        C.kind,
        pl.when(has_size).then(C.dtype).alias("type"),
        pl.when(has_size).then(C.in_bytes).alias("size"),
    ).rank("dense")


def _pair() -> pl.Expr:
    """Return sender and receiver of point-to-point calls where they are known; null for others."""
    return pl.format("{}>{}", C.src_rank, C.dst_rank).cast(pl.Categorical)


def _matched(group: pl.DataFrame) -> tuple[Int64s, Match]:
    """Return the slots of the kernels of a communicator, and how they were found."""
    if group[C.rank].n_unique() < 2:
        return np.full(group.height, _slot(Reason.NO_PARTNER)), Match.ORDER
    if group[C.seq].null_count() == 0:
        return _by_sequence_number(group), Match.SEQ
    return _by_order(group)


def _by_sequence_number(group: pl.DataFrame) -> Int64s:
    """Match by sequence number, of which grouped calls share one: they match by order."""
    seq = group[C.seq].to_numpy()
    place = group.select(pl.int_range(pl.len()).over(C.rank, C.seq)).to_series().to_numpy()
    _, number = np.unique(seq, return_inverse=True)
    _, slots, counts = np.unique(
        number * (place.max() + 1) + place, return_inverse=True, return_counts=True
    )
    is_shared = counts > 1
    shared = seq[is_shared[slots]]
    found = np.where(is_shared, np.cumsum(is_shared) - 1, _slot(Reason.NO_PARTNER))[slots]
    if shared.size:
        found[seq < shared.min()] = _slot(Reason.BEFORE)
        found[seq > shared.max()] = _slot(Reason.AFTER)
    return found


def _by_order(group: pl.DataFrame) -> tuple[Int64s, Match]:
    """Match by order in the steps that the same ranks recorded."""
    slots, part = _parts(group)
    rows, before, is_by_place = group.with_row_index("at"), 0, True
    for number in range(part.max() + 1):
        is_inside = (part == number) & (slots == 0)
        if not is_inside.any():
            continue
        inside = _in_order(rows if is_inside.all() else rows.filter(pl.Series(is_inside)))
        found, size, is_placed = _of_part(inside)
        slots[inside["at"].to_numpy()] = np.where(found < 0, found, found + before)
        before, is_by_place = before + size, is_by_place and is_placed
    return slots, Match.ORDER if is_by_place else Match.RESYNCED


def _of_part(inside: pl.DataFrame) -> tuple[Int64s, int, bool]:
    """Return the place of each kernel, else its slot without one; the number of places; and whether
    all match one by one."""
    _, starts, counts = np.unique(inside[C.rank].to_numpy(), return_index=True, return_counts=True)
    if starts.size < 2:
        return np.full(inside.height, _slot(Reason.NO_PARTNER)), 0, True
    signatures = inside["signature"].to_numpy().astype(np.int64)
    found, is_by_place = _places(signatures, inside[C.end_ns].to_numpy(), starts, counts)
    placed = found.clip(0)
    is_alone = (found >= 0) & (np.bincount(placed, found >= 0)[placed] < 2)
    found[is_alone] = _slot(Reason.NO_PARTNER)
    return found, int(counts.max()), is_by_place


def _parts(group: pl.DataFrame) -> tuple[Int64s, Int32s]:
    """Return 0 for kernels in steps that several ranks recorded, and the slots of the others; and
    the part of the steps to which each belongs: all that the same ranks recorded.

    If ranks have no steps, or none in common, all kernels are one part.
    """
    slots, part = np.zeros(group.height, np.int64), np.zeros(group.height, np.int32)
    bounds = group.group_by(C.rank).agg(
        first=pl.col(C.step).min(), last=pl.col(C.step).max(), known=pl.col(C.step).count()
    )
    if bounds["known"].min() == 0:
        return slots, part
    first, last = bounds["first"].to_numpy(), bounds["last"].to_numpy()
    cuts = np.unique(np.append(first, last + 1))
    recording = np.array([((first <= cut) & (cut <= last)).sum() for cut in cuts])
    if cuts.size == 2 or recording.max() < 2:
        return slots, part
    # A kernel that no step launches is where those around it are.
    step = pl.col(C.step).forward_fill().over(C.rank).fill_null(strategy="backward")
    steps = group.select(step).to_series().to_numpy()
    part = (np.searchsorted(cuts, steps, side="right") - 1).astype(np.int32)
    shared = np.flatnonzero(recording > 1)
    slots[recording[part] < 2] = _slot(Reason.NO_PARTNER)
    slots[part < shared[0]], slots[part > shared[-1]] = _slot(Reason.BEFORE), _slot(Reason.AFTER)
    return slots, part


def _in_order(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of each rank in the order of their stream, else of their launches."""
    launch = pl.col(C.launch_start_ns)
    is_mixed = (pl.col(C.stream).n_unique() > 1) & (launch.null_count() == 0)
    mixed = kernels.group_by(C.rank).agg(is_mixed.alias("is_mixed")).filter("is_mixed")[C.rank]
    if mixed.is_empty():
        return kernels
    return kernels.sort(C.rank, pl.when(pl.col(C.rank).is_in(mixed.implode())).then(launch), "at")


def _places(
    signatures: Int64s, ends_ns: Int64s, starts: Int64s, counts: Int64s
) -> tuple[Int64s, bool]:
    """Return the place of each kernel among those of the rank that has most, else its slot without
    one, and whether all match one by one.

    Args:
        signatures: The signature of each kernel, by rank in order.
        ends_ns: Their ends.
        starts: The first kernel of each rank.
        counts: The kernels of each rank.
    """
    reference = int(np.argmax(counts))
    most = slice(starts[reference], starts[reference] + counts[reference])
    expected, expected_ends_ns = signatures[most], ends_ns[most]
    places = np.arange(signatures.size) - np.repeat(starts, counts)
    is_fit = signatures == expected[places]
    fits = np.logical_and.reduceat(is_fit, starts)
    if (expected == expected[0]).all():
        by_lag = fits & (np.arange(starts.size) != reference)
        by_place = ~by_lag & fits
    else:
        by_lag, by_place = np.zeros_like(fits), fits & (counts == expected.size)
    is_by_place = bool((by_lag | by_place).all())
    for count in np.unique(counts[by_lag]):
        kernels = starts[by_lag & (counts == count)][:, None] + np.arange(count)
        lags = best_lags(ends_ns[kernels], expected_ends_ns)
        moved = places[kernels] + lags[:, None]
        is_there = (moved >= 0) & (moved < expected.size)
        places[kernels] = np.where(is_there, moved, _slot(Reason.EXTRA))
        is_by_place &= not lags.any()
    for rank in np.flatnonzero(~by_lag & ~by_place):
        own = slice(starts[rank], starts[rank] + counts[rank])
        slots = aligned(signatures[own], expected, ends_ns[own], expected_ends_ns)
        is_enough = (slots >= 0).mean() >= MIN_MATCHED_SHARE
        reason = Reason.EXTRA if is_enough else Reason.SIGNATURE
        places[own] = np.where((slots >= 0) & is_enough, slots, _slot(reason))
    return places, is_by_place
