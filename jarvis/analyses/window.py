"""The GPU events that the timeline counts, for analyses of single events."""

import polars as pl

from jarvis.perf_report.communication_names import stages
from jarvis.perf_report.work import COMPUTE
from jarvis.schemas.names import C


def timeline_window(gpu_work: pl.DataFrame) -> pl.DataFrame:
    """Return the linked GPU events, or all if none is linked, like ``gpu_timeline``."""
    linked = gpu_work.filter(C.linked)
    return gpu_work if linked.is_empty() else linked


def staging_ms(gpu_work: pl.DataFrame, operations: pl.DataFrame | None) -> float:
    """Return the time in ms of the copies into and out of the buffers of collectives.

    ``operations`` show which copies FSDP launches.
    """
    uids = pl.Series(dtype=pl.Int64)
    if operations is not None and C.is_in_fsdp in operations.columns:
        uids = operations.filter(C.is_in_fsdp)[C.uid]
    in_fsdp = pl.col(C.operation_uid).is_in(uids.implode())
    is_staging = (pl.col(C.kind) == COMPUTE) & stages(pl.col(C.name), in_fsdp)
    return int(timeline_window(gpu_work).filter(is_staging)[C.dur_ns].sum()) / 1e6
