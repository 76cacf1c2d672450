"""Overlap of the kernels of a call with work of other streams."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.errors import TooManyOverlapsError
from jarvis.perf_report.calls import statistics, with_kernel_details
from jarvis.perf_report.intervals import END, busy_ns
from jarvis.perf_report.work import GpuWork
from jarvis.schemas import SPREAD
from jarvis.schemas.names import C

OVERLAP_SUFFIX = "_kl_overlap"
"""Name suffix of a sheet with overlap information."""

MIN_OVERLAP_NS = 1_000
"""Minimum duration of an overlap."""

ALWAYS_ALLOWED_PAIRS = 500_000
MAX_PAIRS_PER_EVENT = 50
"""Maximum pairs per event: n overlapping events have n x n pairs; recordings have few streams."""


@dataclass(frozen=True)
class Overlaps:
    """Overlap by call.

    ``calls``: ``uid, overlapping_kernel_names`` (in order of overlap start) and ``overlap_pct``,
    the overlapped fraction of the call's busy time rounded to two digits; only calls with overlap.
    ``partners``: ``owner_uid, name, stream, dur_ns``: the overlapping work by name, with its mean
    duration rounded to 10 ns.
    """

    calls: pl.DataFrame
    partners: pl.DataFrame


def overlapping_pairs(work: GpuWork) -> pl.DataFrame:
    """Return ``gpu_uid, ts_ns, dur_ns`` (of the overlap) ``, name, stream, partner_dur_ns``.

    There is a row for each event of a pair, with the other one as its partner. Events are those of
    the timeline; two on the same known stream are not a pair.

    Raises:
        TooManyOverlapsError: There are too many pairs.
    """
    events = work.window.filter(pl.col(C.dur_ns) >= MIN_OVERLAP_NS).select(
        C.uid, C.name, C.stream, C.ts_ns, C.dur_ns, END.alias(C.end_ns)
    )
    _check_pairs(events)
    pairs = (
        events.join_where(
            events,
            pl.col(C.ts_ns) < pl.col("end_ns_right"),
            pl.col("ts_ns_right") < pl.col(C.end_ns),
            suffix="_right",
        )
        .filter(
            (pl.col(C.uid) != pl.col("uid_right"))
            & (pl.col(C.stream) != pl.col("stream_right")).fill_null(True)
        )
        .with_columns(
            begin_ns=pl.max_horizontal(C.ts_ns, "ts_ns_right"),
            **{
                C.overlap_ns: pl.min_horizontal(C.end_ns, "end_ns_right")
                - pl.max_horizontal(C.ts_ns, "ts_ns_right")
            },
        )
        .filter(pl.col(C.overlap_ns) >= MIN_OVERLAP_NS)
    )
    return pairs.sort("begin_ns", "uid_right").select(
        pl.col(C.uid).alias(C.gpu_uid),
        pl.col("begin_ns").alias(C.ts_ns),
        pl.col(C.overlap_ns).alias(C.dur_ns),
        pl.col("name_right").alias(C.name),
        pl.col("stream_right").alias(C.stream),
        partner_dur_ns="dur_ns_right",
    )


def _check_pairs(events: pl.DataFrame) -> None:
    """Raise TooManyOverlapsError if too many events overlap, on any streams."""
    starts, ends = (events[name].sort().to_numpy() for name in (C.ts_ns, C.end_ns))
    started_before_end = int(np.searchsorted(starts, ends).sum())
    ended_before_start = int(np.searchsorted(ends, starts, side="right").sum())
    pairs = started_before_end - ended_before_start
    if pairs > max(ALWAYS_ALLOWED_PAIRS, MAX_PAIRS_PER_EVENT * events.height):
        raise TooManyOverlapsError(pairs)


def overlaps(work: pl.DataFrame, pairs: pl.DataFrame) -> Overlaps:
    """Return the overlaps of calls.

    Args:
        work: ``owner_uid, gpu_uid, ts_ns, dur_ns`` of their GPU work.
        pairs: ``overlapping_pairs``.
    """
    of_calls = work.select(C.owner_uid, C.gpu_uid, kernel_ts_ns=C.ts_ns).join(pairs, on=C.gpu_uid)
    of_calls = of_calls.sort(C.owner_uid, "kernel_ts_ns", C.ts_ns, maintain_order=True)
    names = of_calls.group_by(C.owner_uid, maintain_order=True).agg(
        pl.col(C.name).unique(maintain_order=True).alias(C.overlapping_kernel_names)
    )
    busy = busy_ns(work, [C.owner_uid])
    overlapped = busy_ns(of_calls, [C.owner_uid, C.gpu_uid]).group_by(C.owner_uid)
    calls = (
        names.join(busy, on=C.owner_uid)
        .join(overlapped.agg(pl.col(C.busy_ns).sum().alias(C.overlap_ns)), on=C.owner_uid)
        .select(
            C.overlapping_kernel_names,
            pl.col(C.owner_uid).alias(C.uid),
            overlap_pct=(pl.col(C.overlap_ns) / pl.col(C.busy_ns)).round(2),
        )
    )
    partners = of_calls.group_by(C.owner_uid, C.name, maintain_order=True).agg(
        pl.col(C.stream).first(),
        ((pl.col("partner_dur_ns").mean() / 10).round().cast(pl.Int64) * 10).alias(C.dur_ns),
    )
    return Overlaps(calls, partners)


def with_overlaps(calls: pl.DataFrame, overlap: Overlaps) -> pl.DataFrame:
    """Return calls with ``overlapping_kernel_names`` and ``overlap_pct``, null without overlap."""
    return calls.join(overlap.calls, on=C.uid, how="left", maintain_order="left")


def overlap_statistics(calls: pl.DataFrame) -> list[pl.Expr]:
    """Return aggregations of ``overlap_pct``, if the calls have it."""
    has_overlap = "overlap_pct" in calls.columns
    return statistics(["overlap_pct"], SPREAD) if has_overlap else []


def with_overlap_details(
    groups: pl.DataFrame, calls: pl.DataFrame, overlap: Overlaps | None
) -> pl.DataFrame:
    """Return groups with ``overlapping_kernels`` and ``trunc_overlapping_kernels``.

    Without ``overlap`` groups are unchanged. ``calls``: ``uid, call, group``, as in
    ``with_kernel_details``.
    """
    if overlap is None:
        return groups
    names = (C.overlapping_kernels, C.trunc_overlapping_kernels)
    return with_kernel_details(groups, calls, overlap.partners, names)
