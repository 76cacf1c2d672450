"""Which kernels of different ranks are one collective.

By the recorded sequence number where all ranks have it; else by the order in the communicator,
from the first step that all ranks recorded. Where kinds or sizes of a rank do not fit, its kernels
are aligned with those of the rank that has most, by the longest common subsequence whose ends also
agree best.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.ranks.alignment import aligned, best_lag
from jarvis.schemas.names import C

Int64s = NDArray[np.int64]

LEAST_MATCHED = 0.8
"""Part of the kernels of a rank that has to fit those of the others."""

SAME_SIZE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier")
"""Kinds with messages of the same size on all ranks."""


_USED = (
    "event",
    C.rank,
    C.comm_id,
    C.seq,
    C.step,
    C.stream,
    C.launch_start_ns,
    C.end_ns,
)


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


@dataclass(frozen=True)
class Matching:
    """``events``: ``event, comm_id, slot, match`` of matched kernels, of which those with the same
    ``comm_id, slot`` are one collective. ``unmatched``: ``event, reason``."""

    events: pl.DataFrame
    unmatched: pl.DataFrame


_TEXT = pl.Categorical()
_MATCHED = pl.Schema(
    [("event", pl.Int64()), (C.comm_id, _TEXT), ("slot", pl.Int64()), (C.match, _TEXT)]
)
_UNMATCHED = pl.Schema({"event": pl.Int64, C.reason: pl.String})


def match(events: pl.DataFrame) -> Matching:
    """Return which of the events (``communication_events`` with ``comm_id``) are one collective."""
    keyed = events.select(*_USED, _signature().alias("signature"), _pair().alias("pair"))
    found: list[pl.DataFrame] = []
    rest: list[pl.DataFrame] = []
    groups = keyed.partition_by(C.comm_id, "pair", maintain_order=True)
    for number, group in enumerate(groups):
        for matched, unmatched in _matched(group):
            slots = matched.with_columns(pl.col("slot") * len(groups) + number)
            found.append(slots.select(list(_MATCHED)).cast(_MATCHED))
            rest.append(unmatched.select(list(_UNMATCHED)).cast(_UNMATCHED))
    return Matching(
        pl.concat(found) if found else pl.DataFrame(schema=_MATCHED),
        (pl.concat(rest) if rest else pl.DataFrame(schema=_UNMATCHED)).sort("event"),
    )


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


def _matched(group: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    if group[C.rank].n_unique() < 2:
        yield (
            group.clear().with_columns(slot=pl.lit(0), match=pl.lit("")),
            _unmatched(group, Reason.NO_PARTNER),
        )
    elif group[C.seq].null_count() == 0:
        yield _by_sequence_number(group)
    else:
        yield _by_order(group)


def _unmatched(events: pl.DataFrame, reason: Reason) -> pl.DataFrame:
    return events.select("event", pl.lit(reason.value).alias(C.reason))


def _by_sequence_number(group: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Match by sequence number, of which grouped calls share one: they match by order."""
    place = pl.int_range(pl.len()).over(C.rank, C.seq)
    key = pl.struct(C.seq, "place")
    ordered = group.with_columns(place.alias("place"))
    is_shared = pl.col(C.rank).n_unique().over(C.seq, "place") > 1
    shared = ordered.with_columns(is_shared.alias("is_shared"))
    matched = shared.filter("is_shared").with_columns(
        (key.rank("dense") - 1).alias("slot"), pl.lit(Match.SEQ.value).alias(C.match)
    )
    alone = shared.filter(~pl.col("is_shared"))
    first, last = matched[C.seq].min(), matched[C.seq].max()
    reason = (
        pl.when(pl.col(C.seq) < first)
        .then(pl.lit(Reason.BEFORE.value))
        .when(pl.col(C.seq) > last)
        .then(pl.lit(Reason.AFTER.value))
        .otherwise(pl.lit(Reason.NO_PARTNER.value))
    )
    return matched, alone.select("event", reason.alias(C.reason))


@dataclass(frozen=True)
class _Sequence:
    """The kernels of a communicator on one rank, in order."""

    rank: int
    events: Int64s
    signatures: Int64s
    ends_ns: Int64s

    def __len__(self) -> int:
        return len(self.events)


def _by_order(group: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    inside, outside = _common_window(group)
    found: list[pl.DataFrame] = []
    sequences = [_sequence(rows) for rows in inside.partition_by(C.rank, maintain_order=True)]
    if len(sequences) < 2:
        empty = group.clear().with_columns(slot=pl.lit(0), match=pl.lit(""))
        return empty, pl.concat([outside, _unmatched(inside, Reason.NO_PARTNER)])
    reference = max(sequences, key=lambda sequence: (len(sequence), -sequence.rank))
    rest = [outside]
    is_all_equal = True
    for sequence in sequences:
        slots, is_by_place = _slots(sequence, reference)
        is_all_equal &= is_by_place
        is_matched = slots >= 0
        frame = pl.DataFrame({"event": sequence.events[is_matched], "slot": slots[is_matched]})
        found.append(frame)
        reason = Reason.EXTRA if is_matched.any() else Reason.SIGNATURE
        alone = pl.DataFrame({"event": sequence.events[~is_matched]}, schema={"event": pl.Int64})
        rest.append(_unmatched(alone, reason))
    is_alone = pl.len().over("slot") < 2
    placed = pl.concat(found).with_columns(is_alone.alias("is_alone"))
    rest.append(_unmatched(placed.filter("is_alone"), Reason.NO_PARTNER))
    how = Match.ORDER if is_all_equal else Match.RESYNCED
    result = placed.filter(~pl.col("is_alone")).with_columns(
        pl.lit(group[C.comm_id][0]).alias(C.comm_id), pl.lit(how.value).alias(C.match)
    )
    return result, pl.concat(rest)


def _common_window(group: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the kernels from the first to the last step that all ranks recorded, and the others.

    Without steps on all ranks the window has all kernels.
    """
    bounds = group.group_by(C.rank).agg(
        first=pl.col(C.step).min(), last=pl.col(C.step).max(), known=pl.col(C.step).count()
    )
    first, last = bounds["first"].max(), bounds["last"].min()
    if not (isinstance(first, int) and isinstance(last, int)):
        return group, _unmatched(group.clear(), Reason.BEFORE)
    if bounds["known"].min() == 0 or first > last:
        return group, _unmatched(group.clear(), Reason.BEFORE)
    # A kernel that no step launches is inside if those around it are.
    step = pl.col(C.step).forward_fill().over(C.rank).fill_null(strategy="backward")
    is_before, is_after = step < first, step > last
    return (
        group.filter(~is_before & ~is_after),
        pl.concat(
            [
                _unmatched(group.filter(is_before), Reason.BEFORE),
                _unmatched(group.filter(is_after), Reason.AFTER),
            ]
        ),
    )


def _sequence(rows: pl.DataFrame) -> _Sequence:
    """Return the kernels of one rank in the order of their stream, else of their launches."""
    if rows[C.stream].n_unique() > 1 and rows[C.launch_start_ns].null_count() == 0:
        rows = rows.sort(C.launch_start_ns, "event")
    return _Sequence(
        rank=rows[C.rank][0],
        events=rows["event"].to_numpy(),
        signatures=rows["signature"].to_numpy().astype(np.int64),
        ends_ns=rows[C.end_ns].to_numpy(),
    )


def _slots(sequence: _Sequence, reference: _Sequence) -> tuple[Int64s, bool]:
    """Return the place of each kernel in the reference, -1 without one, and whether they match one
    by one."""
    places = np.arange(len(sequence))
    if sequence is reference:
        return places, True
    own, other = sequence.signatures, reference.signatures
    if len(set(own.tolist()) | set(other.tolist())) == 1:
        lag = best_lag(sequence.ends_ns, reference.ends_ns)
        slots = places + lag
        return np.where((slots >= 0) & (slots < len(reference)), slots, -1), lag == 0
    if np.array_equal(own, other):
        return places, True
    slots = aligned(own, other, sequence.ends_ns, reference.ends_ns)
    is_enough = (slots >= 0).mean() >= LEAST_MATCHED
    return (slots if is_enough else np.full(len(sequence), -1)), False
