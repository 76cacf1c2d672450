"""The marked steps of each rank, with what they wait for."""

from collections.abc import Sequence

import polars as pl

from jarvis.perf_report.timeline.steps import IDLE_PARTS, StepSource
from jarvis.ranks.members import Batch
from jarvis.schemas.names import C

_KEY = [C.rank, C.step]
_PARTS = {
    C.dur_ns: C.duration_ms,
    C.compute_ns: C.compute_ms,
    C.exposed_comm_ns: C.exposed_comm_ms,
    C.exposed_copy_ns: C.exposed_copy_ms,
}


def rank_steps(
    kernels: pl.DataFrame,
    instances: pl.DataFrame,
    lateness: pl.DataFrame,
    bubbles: pl.DataFrame,
    batches: Sequence[Batch],
) -> pl.DataFrame:
    """Return the table ``rank_steps``.

    Args:
        kernels: Kernels of instances with ``instance_id`` (``instances.waiting``), by rank and
            time.
        instances: Table ``instances``.
        lateness: Table ``lateness``.
        bubbles: Waiting for other stages (``bubbles``).
        batches: The ranks.
    """
    inner = instances.filter(~pl.col(C.is_edge)).select(C.instance_id)
    return pl.concat(
        _of_batch(batch.rows(kernels), inner, lateness, bubbles, batch) for batch in batches
    )


def _of_batch(
    kernels: pl.DataFrame,
    inner: pl.DataFrame,
    lateness: pl.DataFrame,
    bubbles: pl.DataFrame,
    batch: Batch,
) -> pl.DataFrame:
    """Return the rows of the ranks of a batch.

    Args:
        kernels: Their kernels.
        inner: ``instance_id`` of the instances that are no edges.
        lateness: Table ``lateness``.
        bubbles: Waiting for other stages.
        batch: The ranks.
    """
    steps = _steps(batch).sort(C.rank, "own_ns")
    shift = pl.col(C.start_ns) - pl.col("own_start_ns")
    run = pl.struct(C.rank, shift.alias("shift"))
    is_end = (run != run.shift()) | (run != run.shift(-1))
    shifts = (
        kernels.lazy()
        .filter(is_end.fill_null(value=True))
        .select(C.rank, pl.col("own_start_ns").alias("own_ns"), shift.alias("shift"))
        .sort("own_ns")
        .collect()
    )
    # The clock of a rank may drift, so that the nearest kernel gives the shift.
    nearest = steps.sort("own_ns").join_asof(
        shifts, on="own_ns", by=C.rank, strategy="nearest", check_sortedness=False
    )
    waits = (
        kernels.lazy()
        .select(*_KEY, C.instance_id, C.wait_ns, C.exposed_wait_ns, C.exposed_transfer_ns)
        .join(inner.lazy(), on=C.instance_id, how="semi")
        .drop_nulls(C.wait_ns)
        .group_by(_KEY)
        .agg(
            (pl.col(C.exposed_wait_ns).sum() / 1e6).alias(C.exposed_wait_ms),
            (pl.col(C.exposed_transfer_ns).sum() / 1e6).alias(C.exposed_transfer_ms),
        )
        .collect()
    )
    late = (
        lateness.join(kernels.select(C.instance_id, *_KEY), on=[C.instance_id, C.rank])
        .group_by(_KEY)
        .agg((pl.col(C.new_ns).sum() / 1e6).alias(C.lateness_ms))
    )
    return (
        nearest.join(waits, on=_KEY, how="left")
        .join(late, on=_KEY, how="left")
        .join(bubbles, on=_KEY, how="left")
        .with_columns(
            (pl.col("own_ns") + pl.col("shift")).alias(C.start_ns),
            pl.col(C.lateness_ms).fill_null(0.0),
        )
        .sort(C.rank, "own_ns")
    )


def _steps(batch: Batch) -> pl.DataFrame:
    """Return the marked steps of ranks, with ``own_ns``, their start after its origin."""
    columns = (C.step, C.number, C.source, C.start_ns, C.launch_lead_us, *_PARTS, *IDLE_PARTS)
    steps = batch.read("steps", *columns).filter(pl.col(C.source) != StepSource.RECORDING.value)
    origin_ns = pl.col(C.rank).replace_strict(batch.origin_ns, return_dtype=pl.Int64)
    return steps.select(
        C.rank,
        pl.coalesce(C.number, C.step).cast(pl.Int32).alias(C.step),
        (pl.col(C.start_ns) - origin_ns).alias("own_ns"),
        C.launch_lead_us,
        *((pl.col(part) / 1e6).alias(name) for part, name in _PARTS.items()),
        (pl.sum_horizontal(IDLE_PARTS, ignore_nulls=False) / 1e6).alias(C.idle_ms),
    )
