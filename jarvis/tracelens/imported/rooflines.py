"""Rooflines of a sheet that was read back: the shares follow from its bandwidths.

Both the share of the roofline and TB/s of a call are a constant over its time, so that every
statistic of the one is that of the other by a factor.
"""

import polars as pl
import polars.selectors as cs

from jarvis.hardware import HardwareSpec
from jarvis.perf_report.collectives import MIB
from jarvis.perf_report.roofline import sheet_metrics
from jarvis.schemas import SPREAD, conform


def with_rooflines(sheet: pl.DataFrame, hardware: HardwareSpec | None, schema: str) -> pl.DataFrame:
    """A sheet with the roofline columns of ``hardware``, whatever it was written with; without
    where there is no peak for any row."""
    bare = sheet.drop(cs.starts_with("roofline_", "pct_roofline"))
    calls = bare.select(
        "compute_spec",
        flops=pl.col("gflops") * 1e9,
        bytes=pl.col("data_moved_mb") * MIB,
        kernel_time_us=pl.col("kernel_time_us_mean"),
    )
    priced = sheet_metrics(calls, hardware)
    if "pct_roofline" not in priced.columns:
        return bare
    # In percent of the roofline for each TB/s.
    factor = pl.when(pl.col("bytes") > 0).then(
        100 * pl.col("roofline_time_us") / (pl.col("bytes") / 1e6)
    )
    rooflines = priced.select("roofline_time_us", "roofline_bound", factor=factor)
    shares = {
        f"pct_roofline_{name}": pl.col("factor") * pl.col(f"tb_per_s_{name}") for name in SPREAD
    }
    return conform(bare.hstack(rooflines).with_columns(**shares), schema)
