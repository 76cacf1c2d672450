"""Gaps between GPU work, which a histogram of idle time needs."""

import polars as pl


def idle_gaps_us(window: pl.DataFrame) -> pl.Series:
    """The gaps in µs in which none of the GPU events of ``window`` (``ts_ns``, ``dur_ns``) runs.

    They add up to the idle time of the GPU timeline when ``window`` is what the timeline counts.
    """
    start, end = pl.col("ts_ns"), pl.col("ts_ns") + pl.col("dur_ns")
    gaps = window.sort("ts_ns").select(gap_ns=start - end.cum_max().shift(1))
    return gaps.filter(pl.col("gap_ns") > 0)["gap_ns"] / 1000
