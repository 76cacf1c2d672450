"""Operations of a target against those of a reference: what the hardware explains, what not.

A ratio is the target's time for a call over the reference's.
"""

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.schemas import conform

TOLERANCE = 1.2
"""A call is unexpectedly slow when its ratio exceeds the expected one by more than this factor."""

MATCH_KEYS = ("name", "input_dims", "input_types")
"""Operations match by name, shapes and dtypes; strides and threads may differ."""


def expected_ratio(
    bound: str | None, compute: str | None, target: HardwareSpec, reference: HardwareSpec
) -> float | None:
    """The ratio that the figures of the two GPUs explain; None where one is unknown.

    Memory-bound work scales with bandwidth, compute-bound work with the peak of its precision.
    """
    if bound == "memory":
        return reference.mem_bw_gbps / target.mem_bw_gbps
    if bound == "compute" and compute is not None:
        target_peak = target.peak_tflops(compute)
        reference_peak = reference.peak_tflops(compute)
        if target_peak and reference_peak:
            return reference_peak / target_peak
    return None


def compare_operations(
    target: pl.DataFrame,
    reference: pl.DataFrame,
    target_hardware: HardwareSpec | None,
    reference_hardware: HardwareSpec | None,
) -> pl.DataFrame:
    """Operations that both ``operations`` tables have (schema: ``comparison``), most time first.

    Rows that differ in nothing but strides or thread count as one, on either side.
    """
    paired = _per_call(target).join(
        _per_call(reference).select(
            *MATCH_KEYS,
            reference_calls="operation_count",
            reference_time_us_mean="kernel_time_us_mean",
        ),
        on=list(MATCH_KEYS),
        nulls_equal=True,
        maintain_order="left",
    )
    expected = [
        None
        if target_hardware is None or reference_hardware is None
        else expected_ratio(bound, compute, target_hardware, reference_hardware)
        for bound, compute in paired.select("bound", "compute").iter_rows()
    ]
    ratio = pl.col("kernel_time_us_mean") / pl.col("reference_time_us_mean")
    compared = paired.with_columns(
        time_ratio=ratio, expected_ratio=pl.Series(expected, dtype=pl.Float64)
    ).with_columns(
        is_unexpected=pl.col("time_ratio") > TOLERANCE * pl.col("expected_ratio"),
        unexpected_us=pl.col("kernel_time_us")
        * (1 - pl.col("expected_ratio") / pl.col("time_ratio")).clip(lower_bound=0),
    )
    return conform(compared, "comparison")


def _per_call(operations: pl.DataFrame) -> pl.DataFrame:
    """Rows by match keys with what one call takes; without GPU time nothing is compared."""
    calls, time = pl.col("operation_count").sum(), pl.col("kernel_time_us").sum()
    return (
        operations.group_by(*MATCH_KEYS, maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in ("uid", "category", "bound", "compute")),
            operation_count=calls,
            kernel_time_us=time,
            kernel_time_us_mean=time / calls,
        )
        .filter(pl.col("kernel_time_us") > 0)
        .sort("kernel_time_us", "uid", descending=[True, False])
    )
