"""Idle gaps between GPU events."""

import polars as pl


def idle_gaps_us(window: pl.DataFrame) -> pl.Series:
    """Return the gaps in µs between the GPU events of ``window`` (``ts_ns``, ``dur_ns``).

    If ``window`` has the events that the GPU timeline counts, they sum to its idle time.
    """
    start, end = pl.col("ts_ns"), pl.col("ts_ns") + pl.col("dur_ns")
    gaps = window.sort("ts_ns").select(gap_ns=start - end.cum_max().shift(1))
    return gaps.filter(pl.col("gap_ns") > 0)["gap_ns"] / 1000
