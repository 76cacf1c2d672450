"""Shared input of the findings of a comparison, and the names of their evidence."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis import impact
from jarvis.comparison.aggregates import lowering
from jarvis.comparison.expected import HardwareRatios
from jarvis.comparison.matching import KEYS
from jarvis.comparison.operations import Paired
from jarvis.comparison.sides import Role
from jarvis.findings import Impact, Priority
from jarvis.schemas.names import C

TARGET_TIME = "gpu_time_ms"
REFERENCE_TIME = "reference_gpu_time_ms"
ATTAINABLE_TIME = "attainable_ms"
UNEXPLAINED_TIME = "unexplained_ms"
SLOWER_PCT, EXPECTED_PCT = "slower_pct", "expected_pct"
CALLS = "calls"
LAUNCHES, REFERENCE_LAUNCHES = "launches_per_call", "reference_launches_per_call"
SHARE_PCT = "compute_pct"
ARGUMENTS = "arguments"
KERNEL, REFERENCE_KERNEL = "kernel", "reference_kernel"
"""Names of evidence. ``REFERENCE_TIME`` is for as many calls as the target makes."""


@dataclass(frozen=True)
class FindingInput:
    """Shared input of the findings of a comparison."""

    paired: Paired
    tolerance: float

    @cached_property
    def compute_ms(self) -> float:
        return self.paired.target.compute_ms

    @cached_property
    def total_ms(self) -> float:
        return self.paired.target.timeline_ms("total_time") or self.compute_ms

    @cached_property
    def lowering(self) -> pl.DataFrame:
        """The kernels of each pair on each side, longest first."""
        return lowering(self.paired, self.paired.pairs)

    @cached_property
    def category_ms(self) -> dict[str | None, float]:
        rows = self.paired.rows[Role.TARGET].group_by(C.category)
        return dict(rows.agg(pl.col(C.kernel_time_us).sum() / 1e3).iter_rows())

    @cached_property
    def argument_lists(self) -> dict[str, int]:
        """The number of different argument lists of each operator on the target."""
        rows = self.paired.rows[Role.TARGET].unique(KEYS)
        return dict(rows.group_by(C.name).len().iter_rows())

    @cached_property
    def top_uids(self) -> frozenset[int]:
        top = self.paired.target.tables.get("top_operations")
        return (
            frozenset() if top is None else frozenset(top["operation_uids"].explode().drop_nulls())
        )

    def is_relevant(self, time_ms: float, saved_ms: float) -> bool:
        """Return whether a saving is large enough for a finding."""
        return (
            impact.share_pct(time_ms, self.compute_ms) >= impact.RELEVANT_COMPUTE_PCT
            and impact.share_pct(saved_ms, self.compute_ms) >= impact.MIN_SAVED_COMPUTE_PCT
            and saved_ms >= impact.MIN_SAVED_MS
        )

    def priorities(
        self, category: str | None, gain: Impact, uids: set[int], *, efficiency_pct: float | None
    ) -> dict[str, Priority]:
        compute_pct = impact.share_pct(gain.time_ms, self.compute_ms)
        final = impact.final_priority(
            is_top_operation=not self.top_uids.isdisjoint(uids),
            compute_pct=compute_pct,
            category_pct=impact.share_pct(gain.time_ms, self.category_ms.get(category, 0.0)),
            efficiency_pct=efficiency_pct,
            saved_compute_pct=gain.compute_pct.mid,
            saved_ms=gain.saved_ms.mid,
        )
        local = impact.local_priority(compute_pct=compute_pct, efficiency_pct=efficiency_pct)
        return {"priority": final, "priority_local": local}

    @property
    def highest_ratio(self) -> float:
        """The highest ratio that the hardware explains; at least 1, and 1 if it is not known."""
        ratios: HardwareRatios | None = self.paired.ratios
        return 1.0 if ratios is None else max(1.0, ratios.bounds()[1])
