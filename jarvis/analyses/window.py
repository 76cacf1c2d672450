"""The GPU events that the timeline counts, for analyses that look at single events."""

import polars as pl


def timeline_window(gpu_work: pl.DataFrame) -> pl.DataFrame:
    """The linked GPU events, or all where none is linked: the same rule as ``gpu_timeline``."""
    linked = gpu_work.filter("linked")
    return gpu_work if linked.is_empty() else linked
