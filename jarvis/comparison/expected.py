"""Ratios of target time to reference time that the peaks of two GPUs explain."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from jarvis.comparison.sides import Role
from jarvis.hardware import HardwareSpec
from jarvis.impact import KERNEL_FLOOR_US, SHORT_CALL_US, TINY_ROOFLINE_US
from jarvis.perf_report.efficiency import OVER_LINK
from jarvis.schemas.names import C


@dataclass(frozen=True, slots=True)
class HardwareRatios:
    """Time ratios that two GPUs explain.

    Memory-bound work scales with bandwidth, compute-bound work with the peak of its precision.
    """

    target: HardwareSpec
    reference: HardwareSpec

    @property
    def is_same(self) -> bool:
        """Whether both sides ran on the same GPU with the same peaks, which explain nothing."""
        return self.target == self.reference

    @property
    def memory(self) -> float:
        """The ratio of memory-bound work."""
        return self.reference.mem_bw_gbps / self.target.mem_bw_gbps

    def compute(self, compute: str | None) -> float | None:
        """Return the ratio of compute-bound work on this unit and precision; None without peaks."""
        target_peak = self.target.peak_tflops(compute or "")
        reference_peak = self.reference.peak_tflops(compute or "")
        if target_peak is None or reference_peak is None:
            return None
        return reference_peak / target_peak

    def bounds(self) -> tuple[float, float]:
        """Return the lowest and the highest ratio over all peaks of both GPUs."""
        shared = self.target.max_achievable_tflops.keys() & self.reference.max_achievable_tflops
        known = [self.memory, *filter(None, map(self.compute, shared))]
        return min(known), max(known)

    def of(self, bound: str | None, compute: str | None) -> float | None:
        """Return the ratio of work with this bound; None if it is not a single number."""
        if bound == "memory":
            return self.memory
        return self.compute(compute) if bound == "compute" else None


def log_ratios(operations: pl.DataFrame, ratios: HardwareRatios | None) -> pl.DataFrame:
    """Return ``operations`` with ``log_least, log_most``: logarithms of the expected ratios.

    They are equal if the bound is known, and null if no peak applies: without hardware, for copies
    over the link to the host, and for communication. On one GPU all of them are 0: the same times
    are expected of copies and communication too.
    """
    if ratios is None:
        unknown = pl.lit(None, pl.Float64)
        return operations.with_columns(unknown.alias(C.log_least), unknown.alias(C.log_most))
    if ratios.is_same:
        return operations.with_columns(
            pl.lit(0.0).alias(C.log_least), pl.lit(0.0).alias(C.log_most)
        )
    least, most = ratios.bounds()
    kinds = operations.select(C.bound, C.compute).unique()
    known = pl.Series("known", [ratios.of(*kind) for kind in kinds.iter_rows()], pl.Float64)
    is_elsewhere = (pl.col(C.roofline_note) == OVER_LINK) | (pl.col(C.comm_time_us) > 0)
    rows = operations.join(
        kinds.with_columns(known),
        on=[C.bound, C.compute],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    applies = ~is_elsewhere.fill_null(value=False)
    return rows.with_columns(
        pl.when(applies).then(pl.coalesce("known", pl.lit(least)).log()).alias(C.log_least),
        pl.when(applies).then(pl.coalesce("known", pl.lit(most)).log()).alias(C.log_most),
    ).drop("known")


def hardware_ratios(
    target: HardwareSpec | None, reference: HardwareSpec | None
) -> HardwareRatios | None:
    """Return the ratios of two GPUs, or None if either is not known."""
    return None if target is None or reference is None else HardwareRatios(target, reference)


def is_launch_bound(side: str) -> pl.Expr:
    """Return whether a call is launch bound on a side, ``"target"`` or ``"reference"``.

    The time of such a call scales neither with bandwidth nor with compute peaks.
    """
    roofline_us = pl.col(f"{side}_roofline_us_per_call")
    is_at_floor = (roofline_us < KERNEL_FLOOR_US).fill_null(value=True)
    return (pl.col(f"{side}_us_per_call") < SHORT_CALL_US) & is_at_floor


def has_tiny_roofline() -> pl.Expr:
    """Return whether the roofline of a call is too short on either side to explain a ratio."""
    return pl.any_horizontal(
        (pl.col(f"{side}_roofline_us_per_call") < TINY_ROOFLINE_US).fill_null(value=False)
        for side in ("target", "reference")
    )


def roofline_us(row: Mapping[str, Any], role: Role) -> float | None:
    """Return the roofline time of one call of a row of ``comparison_operations`` in µs."""
    prefix = "" if role is Role.TARGET else "reference_"
    efficiency: float | None = row[f"{prefix}efficiency_pct"]
    us_per_call: float = row[f"{role.value}_us_per_call"]
    return None if efficiency is None else efficiency / 100 * us_per_call
