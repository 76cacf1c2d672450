"""Columns that a target efficiency adds to rows, and the state of each row."""

import polars as pl

from jarvis import impact
from jarvis.charts.palette import STATES
from jarvis.schemas import NUMBER, TEXT, Column

PROJECTED = (
    Column("state", "State", TEXT, meaning="efficiency against the highlight and the target"),
    Column("saved_us", "Saving (µs)", NUMBER, "µs", ",.1f", "kernel time minus that at the target"),
    Column("saved_ms", "Saving (ms)", NUMBER, "ms", ",.3f", "GPU time minus that at the target"),
    Column("gpu_time_ms", "GPU time (ms)", NUMBER, "ms", ",.3f", "kernel time of the category"),
    Column("title", "Category", TEXT, meaning="category of operations"),
)
"""Columns that rows have at a target efficiency, and those of the category charts."""


def state(target_pct: float, below_pct: float) -> pl.Expr:
    """Return the state (one of STATES) of each row, from its ``pct_roofline``."""
    efficiency = pl.col("pct_roofline")
    below_threshold, below_target, on_target, above_peak, not_available = STATES
    return (
        pl.when(~impact.is_judged())
        .then(pl.lit(not_available))
        .when(efficiency > impact.ANOMALY_PCT)
        .then(pl.lit(above_peak))
        .when(efficiency < below_pct)
        .then(pl.lit(below_threshold))
        .when(efficiency < target_pct)
        .then(pl.lit(below_target))
        .otherwise(pl.lit(on_target))
    )
