"""The memory bandwidth that this trace's simple operators reach on large tensors.

A kernel far below it is slow itself; a baseline far below the peak means that the hardware, or how
it is used, limits everything that is bound by memory.
"""

from dataclasses import dataclass

import polars as pl

from jarvis import impact
from jarvis.analyses.access import access
from jarvis.perf_report.timeline.gpu import copy_direction
from jarvis.schemas.names import C

BASELINE_OPS = ("aten::add_", "aten::mul", "aten::copy_")
"""Simple operators: the hardware can sustain the bandwidth that they reach."""

BASELINE_BYTES = 8 * 2**20
"""Calls that move less measure launch cost rather than bandwidth."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Bandwidth of BASELINE_OPS in rows that move at least BASELINE_BYTES per call.

    ``tb_per_s`` and ``efficiency_pct`` are means weighted by GPU time, the latter None without a
    known peak; ``best_efficiency_pct`` is that of the best row. ``uids`` are the rows, ``calls``
    and ``time_us`` their sums, ``contiguous_pct`` the share of this time in rows with contiguous
    operands.
    """

    tb_per_s: float
    efficiency_pct: float | None
    best_efficiency_pct: float | None
    uids: tuple[int, ...]
    calls: int
    time_us: float
    contiguous_pct: float

    @property
    def mean_call_us(self) -> float:
        """Return the mean GPU time of a call in µs."""
        return self.time_us / self.calls


def measure_baseline(operations: pl.DataFrame) -> Baseline | None:
    """Return the baseline of an operations table; None if no simple operator moves enough."""
    large = baseline_rows(operations)
    time_us = float(large[C.kernel_time_us].sum())
    if time_us <= 0:
        return None
    calls = large.select(C.name, C.input_dims, C.input_strides).rows()
    is_contiguous = pl.Series([access(*call) == "contiguous" for call in calls], dtype=pl.Boolean)
    efficiency = pl.col(C.pct_roofline)
    return Baseline(
        tb_per_s=_weighted(large, C.tb_per_s),
        efficiency_pct=_weighted(large, C.pct_roofline) if _has_peak(large) else None,
        best_efficiency_pct=large.select(efficiency.max()).item(),
        uids=tuple(large[C.uid]),
        calls=int(large[C.operation_count].sum()),
        time_us=time_us,
        contiguous_pct=impact.share_pct(
            float(large.filter(is_contiguous)[C.kernel_time_us].sum()), time_us
        ),
    )


def baseline_rows(operations: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of simple operators that move enough within the GPU, without anomalies."""
    large = operations.filter(
        pl.col(C.name).is_in(BASELINE_OPS)
        & (pl.col(C.bytes) >= BASELINE_BYTES)
        & pl.col(C.tb_per_s).is_not_null()
        & ~(pl.col(C.pct_roofline) > impact.ANOMALY_PCT).fill_null(value=False)
    )
    kernels = large.select(C.uid, C.kernels).explode(C.kernels)
    names = kernels.select(C.uid, pl.col(C.kernels).struct.field(C.name).alias(C.name))
    over_the_link = names.filter(copy_direction().is_in(["H2D", "D2H"]))
    return large.join(over_the_link, on=C.uid, how="anti")


def plain_mean_tb_per_s(operations: pl.DataFrame) -> float | None:
    """Return the unweighted mean over all rows of BASELINE_OPS in TB/s; None without rows.

    Small tensors lower it, so it is shown beside the baseline but not used in decisions.
    """
    simple = operations.filter(pl.col(C.name).is_in(BASELINE_OPS))
    mean: float | None = simple.select(pl.col(C.tb_per_s).mean()).item()
    return mean


def _has_peak(rows: pl.DataFrame) -> bool:
    return rows[C.pct_roofline].null_count() == 0


def _weighted(rows: pl.DataFrame, column: str) -> float:
    time_us = rows[C.kernel_time_us]
    return float((rows[column] * time_us).sum()) / float(time_us.sum())
