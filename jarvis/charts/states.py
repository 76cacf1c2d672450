"""What an efficiency is called against the highlight threshold, the target and the peak."""

import polars as pl

from jarvis import impact
from jarvis.charts.palette import STATES


def state(target_pct: float, below_pct: float) -> pl.Expr:
    """One of STATES for each row, from its ``pct_roofline``."""
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
