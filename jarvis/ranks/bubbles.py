"""How long the ranks of a pipeline stage wait for other stages."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from jarvis.perf_report.intervals import added_parts, covered_until
from jarvis.ranks.members import RANK, Batch
from jarvis.ranks.roles import stages_of
from jarvis.schemas.names import C

_SCHEMA = pl.Schema({C.rank: RANK, C.step: pl.Int32, C.bubble_ms: pl.Float64})


def bubbles(
    kernels: pl.DataFrame,
    instances: pl.DataFrame,
    communicators: pl.DataFrame,
    batches: Sequence[Batch],
) -> pl.DataFrame:
    """Return ``rank, step, bubble_ms``: how long a rank waits, without computing, in collectives
    that also have ranks of another stage. Simultaneous waiting counts once.

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
    inner = instances.filter(~pl.col(C.is_edge))
    waits = (
        kernels.join(inner, on=C.instance_id, how="semi")
        .filter(
            (stage.drop_nulls().n_unique() > 1).over(C.instance_id),
            stage.is_not_null() & pl.col(C.wait_ns).is_not_null() & pl.col(C.step).is_not_null(),
        )
        .sort(C.rank, C.step)
    )
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
        parts = [added_parts(own) for own in groups]
        begins, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
        compute = batch.compute()
        covered = covered_until(compute, ends) - covered_until(compute, begins)
        bounds = np.cumsum([added.size for added, _ in parts])[:-1]
        bubble_ms = [own.sum() / 1e6 for own in np.split(ends - begins - covered, bounds)]
        keys = pl.concat(own[:1] for own in groups)
        rows.append(keys.select(C.rank, C.step, pl.Series(C.bubble_ms, bubble_ms)))
    return pl.concat(rows)
