"""The GPU events that the timeline counts, for analyses of single events."""

import polars as pl

from jarvis.schemas.names import C


def timeline_window(gpu_work: pl.DataFrame) -> pl.DataFrame:
    """Return the linked GPU events, or all if none is linked, like ``gpu_timeline``."""
    linked = gpu_work.filter(C.linked)
    return gpu_work if linked.is_empty() else linked
