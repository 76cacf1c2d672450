"""The tables of a run against another hardware: what depends on peaks anew, the rest as stored.

The trace is not needed: ``operation_models`` and ``roofline_calls`` have what the rooflines stand
on and the other tables do not say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl
import polars.selectors as cs

from jarvis.core.errors import MissingTableError
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import Registry
from jarvis.perf_report.calls import statistics
from jarvis.perf_report.operations import reprojected
from jarvis.perf_report.roofline import sheet_metrics
from jarvis.perf_report.timeline.gpu import Totals
from jarvis.schemas import SPREAD, conform
from jarvis.tracelens.roofline_sheets import ROOFLINE_CALL

UNIFIED = "unified_perf_summary"
NEEDED = ("operation_models", "roofline_calls")
"""Tables without which there is no other hardware."""


@dataclass(frozen=True)
class StoredReport:
    """The performance report of a stored run under ``hardware``.

    ``stored`` are the run's tables, ``roofline_names`` the roofline sheets among them.
    ``absent_tables``: as in the manifest of the run.
    """

    stored: Mapping[str, pl.DataFrame]
    roofline_names: tuple[str, ...]
    totals: Totals
    hardware: HardwareSpec | None
    registry: Registry
    absent_tables: Mapping[str, str]

    def table(self, name: str) -> pl.DataFrame:
        """A table by name; MissingTableError where the run has none."""
        if name not in self.stored:
            raise MissingTableError(name, f"there are {', '.join(self.stored)}")
        return self._anew[name] if name in self._anew else self.stored[name]

    @property
    def roofline_sheets(self) -> dict[str, pl.DataFrame]:
        """The roofline sheets by name."""
        return {name: self._anew[name] for name in self.roofline_names}

    @cached_property
    def _anew(self) -> dict[str, pl.DataFrame]:
        """The tables in which peaks stand."""
        rows = reprojected(
            self.stored["operations"], self.stored["operation_models"], self.hardware
        )
        sheets = {name: self._sheet(name, "roofline") for name in self.roofline_names}
        return {
            "operations": conform(rows, "operations"),
            UNIFIED: self._sheet(UNIFIED, UNIFIED),
            **sheets,
        }

    def _sheet(self, name: str, schema: str) -> pl.DataFrame:
        """A sheet with the roofline columns of the hardware, or without where it has none."""
        bare = self.stored[name].drop(cs.starts_with("roofline_", "pct_roofline"))
        calls = self.stored["roofline_calls"].filter(pl.col("sheet") == name)
        priced = sheet_metrics(calls.select(ROOFLINE_CALL), self.hardware)
        if "pct_roofline" not in priced.columns:
            return bare
        rooflines = priced.group_by("row", maintain_order=True).agg(
            *(pl.col(c).drop_nulls().first() for c in ("roofline_time_us", "roofline_bound")),
            *statistics("pct_roofline", "pct_roofline", SPREAD),
        )
        rows = bare.with_columns(row=pl.int_range(pl.len())).join(
            rooflines, on="row", how="left", maintain_order="left"
        )
        return conform(rows, schema)
