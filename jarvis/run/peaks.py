"""Operations of a run without a compute peak under another description of a GPU."""

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.run.run import Run


def without_peak(run: Run, hardware: HardwareSpec) -> pl.DataFrame:
    """Return the precisions of a run's operations for which ``hardware`` has no peak.

    Returns ``compute, operations, names, kernel_time_us, percent_of_compute`` by time; ``names``
    are those of the operations with most time.
    """
    rows = run.table("operations").filter(
        pl.col("flops") > 0,
        pl.col("compute").is_not_null(),
        ~pl.col("compute").is_in(list(hardware.max_achievable_tflops)),
    )
    return (
        rows.group_by("compute", maintain_order=True)
        .agg(
            operations=pl.len().cast(pl.Int64),
            names=pl.col("name").unique(maintain_order=True),
            kernel_time_us=pl.col("kernel_time_us").sum(),
            percent_of_compute=pl.col("percent_of_compute").sum(),
        )
        .sort("kernel_time_us", "compute", descending=[True, False])
    )
