"""Rooflines of an imported sheet, derived from its bandwidths.

The roofline percentage and TB/s of a call are both a constant / its time, so every statistic of the
one is that of the other times a factor.
"""

import polars as pl
import polars.selectors as cs

from jarvis.hardware import HardwareSpec
from jarvis.perf_report.collectives import MIB
from jarvis.perf_report.roofline import sheet_metrics
from jarvis.schemas import SPREAD, conform


def with_rooflines(sheet: pl.DataFrame, hardware: HardwareSpec | None, schema: str) -> pl.DataFrame:
    """Return a sheet with the roofline columns of ``hardware``, if it has a peak for any row.

    Existing roofline columns are replaced.
    """
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
    # Percent of the roofline per TB/s.
    factor = pl.when(pl.col("bytes") > 0).then(
        100 * pl.col("roofline_time_us") / (pl.col("bytes") / 1e6)
    )
    rooflines = priced.select("roofline_time_us", "roofline_bound", factor=factor)
    shares = {
        f"pct_roofline_{name}": pl.col("factor") * pl.col(f"tb_per_s_{name}") for name in SPREAD
    }
    return conform(bare.hstack(rooflines).with_columns(**shares), schema)
