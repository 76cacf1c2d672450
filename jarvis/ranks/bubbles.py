"""How long the ranks of a pipeline stage wait for other stages."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.intervals import added_parts, covered_during
from jarvis.ranks.members import RANK, Batch
from jarvis.ranks.roles import stages_of
from jarvis.schemas.names import C

PHASES = (C.bubble_before_ms, C.bubble_between_ms, C.bubble_after_ms)
"""Waiting until the first micro-batch is received, after the last send or receive, and between."""

_SCHEMA = pl.Schema(
    {C.rank: RANK, C.step: pl.Int32, **dict.fromkeys((C.bubble_ms, *PHASES), pl.Float64)}
)


def bubbles(
    kernels: pl.DataFrame,
    instances: pl.DataFrame,
    communicators: pl.DataFrame,
    batches: Sequence[Batch],
) -> pl.DataFrame:
    """Return ``rank, step, bubble_ms`` and PHASES: how long a rank waits, without computing, in
    collectives that also have ranks of another stage. Simultaneous waiting counts once.

    Args:
        kernels: Kernels of instances with ``instance_id`` (``instances.waiting``).
        instances: Table ``instances``.
        communicators: Table of ``with_roles``.
        batches: The ranks.
    """
    stages = stages_of(communicators)
    rows = [pl.DataFrame(schema=_SCHEMA)]
    if not stages:
        return rows[0]
    stage = pl.col(C.rank).replace_strict(stages, default=None, return_dtype=pl.Int64)
    # A stage waits for its first micro-batch, whatever its ranks did before the recording.
    is_sent = pl.col(C.src_rank).is_not_null() & ~pl.col(C.is_cut)
    inner = instances.filter(~pl.col(C.is_edge) | is_sent)
    waits = (
        kernels.join(inner, on=C.instance_id, how="semi")
        .filter(
            (stage.drop_nulls().n_unique() > 1).over(C.instance_id),
            stage.is_not_null() & pl.col(C.wait_ns).is_not_null() & pl.col(C.step).is_not_null(),
        )
        .sort(C.rank, C.step)
    )
    micro_batches = _micro_batches(kernels, instances)
    for batch in batches:
        spans = batch.rows(waits).select(
            C.rank,
            C.step,
            batch.placed(pl.col("own_start_ns")).alias(C.ts_ns),
            pl.col(C.wait_ns).alias(C.dur_ns),
        )
        groups = spans.partition_by(C.rank, C.step, maintain_order=True)
        if not groups:
            continue
        keys = pl.concat(own[:1] for own in groups).select(C.rank, C.step)
        found = keys.join(micro_batches, on=keys.columns, how="left", maintain_order="left")
        placed = found.select(batch.placed(pl.col("first", "last")))
        first, last = (placed[name].fill_null(0).to_numpy() for name in placed.columns)
        parts = [added_parts(own) for own in groups]
        at = np.repeat(np.arange(len(parts)), [added.size for added, _ in parts])
        begins, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
        waited_ms = partial(_free_ms, batch.compute(), at, len(parts))
        before = waited_ms(np.minimum(begins, first[at]), np.minimum(ends, first[at]))
        after = waited_ms(np.maximum(begins, last[at]), np.maximum(ends, last[at]))
        whole, is_known = waited_ms(begins, ends), placed["first"].is_not_null()
        phases = zip(PHASES, (before, whole - before - after, after), strict=True)
        rows.append(
            keys.with_columns(
                whole.alias(C.bubble_ms),
                *(pl.when(is_known).then(ms).alias(name) for name, ms in phases),
            )
        )
    return pl.concat(rows)


def _free_ms(
    compute: pl.DataFrame, groups: Int64s, count: int, begins: Int64s, ends: Int64s
) -> pl.Series:
    """Return the time of the spans of each group beside which nothing is computed."""
    covered = covered_during(compute, begins, ends)
    return pl.Series(np.bincount(groups, ends - begins - covered, count) / 1e6)


def _micro_batches(kernels: pl.DataFrame, instances: pl.DataFrame) -> pl.DataFrame:
    """Return ``rank, step, first, last``: when the first and the last send or receive have their
    micro-batch: a send when it starts, a receive when it ends; in own time."""
    sent = instances.filter(pl.col(C.src_rank).is_not_null()).select(C.instance_id, C.dst_rank)
    start = pl.col("own_start_ns")
    is_received = pl.col(C.dst_rank) == pl.col(C.rank)
    at = pl.when(is_received).then(start + pl.col(C.end_ns) - pl.col(C.start_ns)).otherwise(start)
    return (
        kernels.filter(pl.col(C.step).is_not_null())
        .join(sent, on=C.instance_id)
        .sort("own_start_ns")
        .group_by(C.rank, C.step)
        .agg(at.first().alias("first"), at.last().alias("last"))
    )
