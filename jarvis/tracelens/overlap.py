"""Overlap of the kernels of a call with work of other streams."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.errors import TooManyOverlapsError
from jarvis.perf_report.calls import statistics, with_kernel_details
from jarvis.perf_report.intervals import END, busy_ns
from jarvis.perf_report.work import GpuWork
from jarvis.schemas import SPREAD

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
    events = work.window.filter(pl.col("dur_ns") >= MIN_OVERLAP_NS).select(
        "uid", "name", "stream", "ts_ns", "dur_ns", end_ns=END
    )
    _check_pairs(events)
    pairs = (
        events.join_where(
            events,
            pl.col("ts_ns") < pl.col("end_ns_right"),
            pl.col("ts_ns_right") < pl.col("end_ns"),
            suffix="_right",
        )
        .filter(
            (pl.col("uid") != pl.col("uid_right"))
            & (pl.col("stream") != pl.col("stream_right")).fill_null(True)
        )
        .with_columns(
            begin_ns=pl.max_horizontal("ts_ns", "ts_ns_right"),
            overlap_ns=pl.min_horizontal("end_ns", "end_ns_right")
            - pl.max_horizontal("ts_ns", "ts_ns_right"),
        )
        .filter(pl.col("overlap_ns") >= MIN_OVERLAP_NS)
    )
    return pairs.sort("begin_ns", "uid_right").select(
        gpu_uid="uid",
        ts_ns="begin_ns",
        dur_ns="overlap_ns",
        name="name_right",
        stream="stream_right",
        partner_dur_ns="dur_ns_right",
    )


def _check_pairs(events: pl.DataFrame) -> None:
    """Raise TooManyOverlapsError if too many events overlap, on any streams."""
    starts, ends = (events[name].sort().to_numpy() for name in ("ts_ns", "end_ns"))
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
    of_calls = work.select("owner_uid", "gpu_uid", kernel_ts_ns="ts_ns").join(pairs, on="gpu_uid")
    of_calls = of_calls.sort("owner_uid", "kernel_ts_ns", "ts_ns", maintain_order=True)
    names = of_calls.group_by("owner_uid", maintain_order=True).agg(
        overlapping_kernel_names=pl.col("name").unique(maintain_order=True)
    )
    busy = busy_ns(work, ["owner_uid"])
    overlapped = busy_ns(of_calls, ["owner_uid", "gpu_uid"]).group_by("owner_uid")
    calls = (
        names.join(busy, on="owner_uid")
        .join(overlapped.agg(overlap_ns=pl.col("busy_ns").sum()), on="owner_uid")
        .select(
            "overlapping_kernel_names",
            uid="owner_uid",
            overlap_pct=(pl.col("overlap_ns") / pl.col("busy_ns")).round(2),
        )
    )
    partners = of_calls.group_by("owner_uid", "name", maintain_order=True).agg(
        pl.col("stream").first(),
        dur_ns=(pl.col("partner_dur_ns").mean() / 10).round().cast(pl.Int64) * 10,
    )
    return Overlaps(calls, partners)


def with_overlaps(calls: pl.DataFrame, overlap: Overlaps) -> pl.DataFrame:
    """Return calls with ``overlapping_kernel_names`` and ``overlap_pct``, null without overlap."""
    return calls.join(overlap.calls, on="uid", how="left", maintain_order="left")


def overlap_statistics(calls: pl.DataFrame) -> list[pl.Expr]:
    """Return aggregations of ``overlap_pct``, if the calls have it."""
    has_overlap = "overlap_pct" in calls.columns
    return statistics("overlap_pct", "overlap_pct", SPREAD) if has_overlap else []


def with_overlap_details(
    groups: pl.DataFrame, calls: pl.DataFrame, overlap: Overlaps | None
) -> pl.DataFrame:
    """Return groups with ``overlapping_kernels`` and ``trunc_overlapping_kernels``.

    Without ``overlap`` groups are unchanged. ``calls``: ``uid, call, group``, as in
    ``with_kernel_details``.
    """
    if overlap is None:
        return groups
    names = ("overlapping_kernels", "trunc_overlapping_kernels")
    return with_kernel_details(groups, calls, overlap.partners, names)
