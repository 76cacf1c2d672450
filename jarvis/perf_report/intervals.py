"""Lengths of unions of intervals: how long at least one of many GPU events runs.

Times are integer nanoseconds, so that no length is rounded.
"""

from collections.abc import Sequence

import polars as pl

START = pl.col("ts_ns")
END = pl.col("ts_ns") + pl.col("dur_ns")


def microseconds(nanoseconds: pl.Expr) -> pl.Expr:
    """Nanoseconds (whole or half, below 2**53) in µs: the double nearest to the exact quotient.

    Polars divides by a constant through its reciprocal, which can miss the last digit; by a
    column it divides.
    """
    exact = nanoseconds.cast(pl.Float64)
    return exact / (exact * 0 + 1e3)


def busy_ns(events: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """``ts_ns, dur_ns`` and the columns ``by`` -> ``by, busy_ns``: the union's length per group."""
    reached = END.cum_max().shift(1).over(by, order_by="ts_ns")
    fresh = pl.max_horizontal(END - pl.max_horizontal(START, reached), 0)
    return events.with_columns(fresh=fresh).group_by(by).agg(busy_ns=pl.col("fresh").sum())


def covered_ns(events: pl.DataFrame) -> int:
    """The length of the union of all ``ts_ns, dur_ns`` intervals; 0 without any."""
    total = busy_ns(events.select("ts_ns", "dur_ns", all=0), ["all"])
    return int(total["busy_ns"].sum())
