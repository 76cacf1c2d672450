"""How long the ranks of a pipeline stage wait for other stages."""

from collections.abc import Sequence

import polars as pl

from jarvis.perf_report.intervals import added_parts, covered_until
from jarvis.ranks.events import Member
from jarvis.ranks.roles import stages_of
from jarvis.schemas.names import C

_SCHEMA = pl.Schema({C.rank: pl.Int64, C.step: pl.Int64, C.bubble_ms: pl.Float64})


def bubbles(
    kernels: pl.DataFrame,
    instances: pl.DataFrame,
    communicators: pl.DataFrame,
    members: Sequence[Member],
) -> pl.DataFrame:
    """Return ``rank, step, bubble_ms``: how long a rank waits, without computing, in collectives
    that also have ranks of another stage. Simultaneous waiting counts once.

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
        covered = covered_until(compute, ends) - covered_until(compute, begins)
        rows.append((rank, step, int((ends - begins - covered).sum()) / 1e6))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
