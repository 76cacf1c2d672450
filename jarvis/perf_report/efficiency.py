"""Efficiency of operations relative to the hardware's roofline, or why it is not known.

The roofline time of a call is the longer of FLOPs / compute peak and bytes / bandwidth peak. There
is no substitute for a peak that the hardware description lacks.
"""

from collections.abc import Mapping

import polars as pl

from jarvis.core.expressions import first_of
from jarvis.hardware import HardwareSpec
from jarvis.perf_report.roofline import peak_tflops
from jarvis.schemas.names import C

MEMORY_ONLY = "memory only"
"""The bound if the compute peak is not known: the efficiency is only a lower limit."""

# The peak for a wider type is a lower limit of that for a narrower one. It can prove that a call is
# memory bound; it is never used as a peak.
_WIDER = {
    "fp4": ("fp6", "fp8", "fp16", "bf16", "tf32", "fp32", "fp64"),
    "fp6": ("fp8", "fp16", "bf16", "tf32", "fp32", "fp64"),
    "fp8": ("fp16", "bf16", "tf32", "fp32", "fp64"),
    "fp16": ("tf32", "fp32", "fp64"),
    "bf16": ("tf32", "fp32", "fp64"),
    "tf32": ("fp32", "fp64"),
    "fp32": ("fp64",),
}

NO_MODEL = "No perf model covers this operator."
NO_HARDWARE = "No hardware description is selected, so no peak is known."
NO_BYTES = "The bytes of this call are not known, so it has no roofline."
NO_COMPUTE = (
    "It is not known which compute peak applies to this call; the efficiency considers only "
    "memory and is a lower limit."
)
OVER_LINK = (
    "Copies to and from the host cross a link whose bandwidth is not described; the bandwidth of "
    "the GPU's memory does not apply."
)
NO_TIME = "The GPU work of this operation has no duration."
FAILED = "The perf model failed: {}."
NO_PEAK = (
    "{} has no compute peak for {}; the efficiency considers only memory and is a lower limit."
)
MEMORY_DECIDES = (
    "{} has no compute peak for {}; even at its peak for {} computing takes less time than moving "
    "the data, so the call is memory bound."
)


def with_efficiency(operations: pl.DataFrame, hardware: HardwareSpec | None) -> pl.DataFrame:
    """Return operations with rates, peaks, roofline time, bound and efficiency.

    Unknown values are null, with the reason in ``roofline_note``.

    Args:
        operations: ``operation_count, kernel_time_us, modelled, failure, uncovered, flops, bytes``
            (of one call) ``, compute, crosses_link``.
    """
    count, time_us = pl.col(C.operation_count), pl.col(C.kernel_time_us)
    timed = pl.when(time_us > 0).then(time_us)
    rated = operations.with_columns(
        **{
            C.flops_per_byte: pl.when(pl.col(C.bytes) > 0).then(pl.col(C.flops) / pl.col(C.bytes)),
            C.tflops_per_s: count * pl.col(C.flops) / timed / 1e6,
            C.tb_per_s: count * pl.col(C.bytes) / timed / 1e6,
        },
    )
    if hardware is None:
        unknown = {
            name: pl.lit(None, pl.Float64)
            for name in (C.peak_tflops, C.peak_tb_per_s, C.roofline_time_us, C.pct_roofline)
        }
        return rated.with_columns(
            **unknown,
            **{
                C.bound: pl.lit(None, pl.String),
                C.roofline_note: pl.coalesce(_model_note(), pl.lit(NO_HARDWARE)),
            },
        )
    priced = _with_roofline(rated, hardware)
    return priced.with_columns(
        (100 * count * pl.col(C.roofline_time_us) / timed).alias(C.pct_roofline),
        _note(hardware).alias(C.roofline_note),
    ).drop("at_least", "at_least_tflops")


def _with_roofline(rated: pl.DataFrame, hardware: HardwareSpec) -> pl.DataFrame:
    peaks = hardware.max_achievable_tflops
    limits = {compute: _lower_limit(compute, peaks) for compute in rated[C.compute].drop_nulls()}
    flops = pl.col(C.flops)
    compute_us = pl.when(flops == 0).then(0.0).otherwise(flops / pl.col(C.peak_tflops) / 1e6)
    bytes_in_memory = pl.when(~_crosses_link()).then(C.bytes)
    memory_us = bytes_in_memory / hardware.mem_bw_gbps / 1e3
    memory_decides = flops / pl.col("at_least_tflops") / 1e6 <= memory_us
    side_us = pl.when(pl.col(C.peak_tflops).is_null() & (flops > 0)).then(memory_us)
    both_us = pl.when(compute_us.is_not_null() & memory_us.is_not_null()).then(
        pl.max_horizontal(compute_us, memory_us)
    )
    is_compute = compute_us >= memory_us
    return rated.with_columns(
        **{
            C.peak_tflops: peak_tflops(hardware, C.compute),
            C.peak_tb_per_s: pl.when(bytes_in_memory.is_not_null()).then(hardware.tb_per_s),
        },
        at_least=_looked_up({c: key for c, (key, _) in limits.items()}, pl.String()),
        at_least_tflops=_looked_up({c: peak for c, (_, peak) in limits.items()}, pl.Float64()),
    ).with_columns(
        **{
            C.roofline_time_us: pl.coalesce(both_us, side_us),
            C.bound: first_of(
                {
                    "compute": is_compute & both_us.is_not_null(),
                    "memory": both_us.is_not_null() | (side_us.is_not_null() & memory_decides),
                    MEMORY_ONLY: side_us.is_not_null(),
                }
            ),
        },
    )


def _crosses_link() -> pl.Expr:
    return pl.col(C.crosses_link).fill_null(value=False)


def _lower_limit(compute: str, peaks: dict[str, float]) -> tuple[str | None, float | None]:
    """Return the highest peak of the same unit for a wider type, as ``(key, TFLOPS)``."""
    unit, _, precision = compute.partition("_")
    wider = [f"{unit}_{p}" for p in _WIDER.get(precision, ()) if f"{unit}_{p}" in peaks]
    best = max(wider, key=peaks.__getitem__, default=None)
    return best, None if best is None else peaks[best]


def _looked_up(table: Mapping[str, object], dtype: pl.DataType) -> pl.Expr:
    return pl.col(C.compute).replace_strict(table, default=None, return_dtype=dtype)


def _model_note() -> pl.Expr:
    return pl.coalesce(
        pl.when(~pl.col(C.modelled)).then(
            pl.coalesce(pl.col(C.uncovered).cast(pl.String), pl.lit(NO_MODEL))
        ),
        pl.when(pl.col(C.failure).is_not_null()).then(
            pl.format(FAILED, pl.col(C.failure).cast(pl.String).str.strip_chars_end("."))
        ),
    )


def _note(hardware: HardwareSpec) -> pl.Expr:
    title = pl.lit(hardware.title)
    without_peak = pl.col(C.peak_tflops).is_null() & (pl.col(C.flops) > 0)
    decided = pl.col(C.bound) != MEMORY_ONLY
    return pl.coalesce(
        _model_note(),
        pl.when(pl.col(C.bytes).is_null()).then(pl.lit(NO_BYTES)),
        pl.when(_crosses_link()).then(pl.lit(OVER_LINK)),
        pl.when(without_peak & (pl.col(C.compute) == "")).then(pl.lit(NO_COMPUTE)),
        pl.when(without_peak & decided).then(
            pl.format(MEMORY_DECIDES, title, "compute", "at_least")
        ),
        pl.when(without_peak).then(pl.format(NO_PEAK, title, "compute")),
        pl.when(pl.col(C.kernel_time_us) <= 0).then(pl.lit(NO_TIME)),
    )
