"""The GPU events that the timeline counts, for analyses of single events."""

import polars as pl

from jarvis.perf_report.communication_names import STAGING, communication_kind
from jarvis.perf_report.work import COMPUTE
from jarvis.schemas.names import C


def timeline_window(gpu_work: pl.DataFrame) -> pl.DataFrame:
    """Return the linked GPU events, or all if none is linked, like ``gpu_timeline``."""
    linked = gpu_work.filter(C.linked)
    return gpu_work if linked.is_empty() else linked


def staging_ms(gpu_work: pl.DataFrame) -> float:
    """Return the time in ms of the copies into and out of the buffers of collectives."""
    window = timeline_window(gpu_work)
    is_staging = (pl.col(C.kind) == COMPUTE) & (communication_kind(pl.col(C.name)) == STAGING)
    return int(window.filter(is_staging)[C.dur_ns].sum()) / 1e6
