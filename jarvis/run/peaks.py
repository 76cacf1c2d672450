"""Operations of a run without a compute peak under another description of a GPU."""

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.run.run import Run
from jarvis.schemas.names import C


def without_peak(run: Run, hardware: HardwareSpec) -> pl.DataFrame:
    """Return the precisions of a run's operations for which ``hardware`` has no peak.

    Returns ``compute, operations, names, kernel_time_us, percent_of_compute`` by time; ``names``
    are those of the operations with most time.
    """
    rows = run.table("operations").filter(
        pl.col(C.flops) > 0,
        pl.col(C.compute).is_not_null(),
        ~pl.col(C.compute).is_in(list(hardware.max_achievable_tflops)),
    )
    return (
        rows.group_by(C.compute, maintain_order=True)
        .agg(
            operations=pl.len().cast(pl.Int64),
            names=pl.col(C.name).unique(maintain_order=True),
            **{
                C.kernel_time_us: pl.col(C.kernel_time_us).sum(),
                C.percent_of_compute: pl.col(C.percent_of_compute).sum(),
            },
        )
        .sort(C.kernel_time_us, C.compute, descending=[True, False])
    )
