"""How long the ranks of a pipeline stage wait for other stages."""

from collections.abc import Sequence
from functools import partial

import polars as pl

from jarvis.perf_report.intervals import Int64s, added_parts, covered_until
from jarvis.ranks.events import Member
from jarvis.ranks.roles import stages_of
from jarvis.schemas.names import C

PHASES = (C.bubble_before_ms, C.bubble_between_ms, C.bubble_after_ms)
"""Waiting until the first micro-batch is received, after the last send or receive, and between."""

_SCHEMA = pl.Schema(
    {C.rank: pl.Int64, C.step: pl.Int64, **dict.fromkeys((C.bubble_ms, *PHASES), pl.Float64)}
)


def bubbles(
    kernels: pl.DataFrame,
    instances: pl.DataFrame,
    communicators: pl.DataFrame,
    members: Sequence[Member],
) -> pl.DataFrame:
    """Return ``rank, step, bubble_ms`` and PHASES: how long a rank waits, without computing, in
    collectives that also have ranks of another stage. Simultaneous waiting counts once.

    Args:
        kernels: Kernels of instances with ``instance_id`` (``instances.kernels``).
        instances: Table ``instances``.
        communicators: Table of ``with_roles``.
        members: The ranks.
    """
    stages = stages_of(communicators)
    stage = pl.col(C.rank).replace_strict(stages, default=None, return_dtype=pl.Int64)
    inner = instances.filter(~pl.col(C.is_edge))
    waits = (
        kernels.join(inner, on=C.instance_id, how="semi")
        .filter(
            (stage.drop_nulls().n_unique() > 1).over(C.instance_id),
            stage.is_not_null() & pl.col(C.wait_ns).is_not_null() & pl.col(C.step).is_not_null(),
        )
        .partition_by(C.rank, C.step, as_dict=True)
    )
    bounds = _bounds(kernels, instances) if waits else {}
    origins = {member.rank: member for member in members}
    rows = []
    for (rank, step), own in sorted(waits.items()):
        member = origins[rank]
        spans = own.select(
            (pl.col("own_start_ns") + member.origin_ns).alias(C.ts_ns),
            pl.col(C.wait_ns).alias(C.dur_ns),
        )
        begins, ends = added_parts(spans)
        compute = member.compute()
        waited_ms = partial(_free_ms, compute, begins, ends)
        low_ns, high_ns = begins.min(initial=0), ends.max(initial=0)
        whole_ms = waited_ms(low_ns, high_ns)
        phases: tuple[float | None, ...] = (None, None, None)
        if (rank, step) in bounds:
            first_ns, last_ns = (bound + member.origin_ns for bound in bounds[rank, step])
            before, after = waited_ms(low_ns, first_ns), waited_ms(last_ns, high_ns)
            phases = (before, whole_ms - before - after, after)
        rows.append((rank, step, whole_ms, *phases))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _free_ms(
    compute: pl.DataFrame, begins: Int64s, ends: Int64s, low_ns: int, high_ns: int
) -> float:
    """Return the time of spans between two times beside which nothing is computed."""
    first, last = (times.clip(low_ns, high_ns) for times in (begins, ends))
    covered = covered_until(compute, last) - covered_until(compute, first)
    return float((last - first - covered).sum()) / 1e6


def _bounds(
    kernels: pl.DataFrame, instances: pl.DataFrame
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return, by rank and step, when the first and the last send or receive have their
    micro-batch: a send when it starts, a receive when it ends; in own time."""
    sent = instances.filter(pl.col(C.src_rank).is_not_null()).select(C.instance_id, C.dst_rank)
    start = pl.col("own_start_ns")
    is_received = pl.col(C.dst_rank) == pl.col(C.rank)
    at = pl.when(is_received).then(start + pl.col(C.end_ns) - pl.col(C.start_ns)).otherwise(start)
    rows = (
        kernels.filter(pl.col(C.step).is_not_null())
        .join(sent, on=C.instance_id)
        .sort("own_start_ns")
        .group_by(C.rank, C.step)
        .agg(at.first().alias("first"), at.last().alias("last"))
    )
    return {(rank, step): (first, last) for rank, step, first, last in rows.iter_rows()}
