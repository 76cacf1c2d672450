"""The tables of a stored run re-projected onto other hardware.

Tables that depend on peaks are recomputed, others are as stored. The trace is not needed:
``operation_models`` and ``roofline_calls`` have the inputs of the rooflines.
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
from jarvis.schemas.names import C
from jarvis.tracelens.roofline_sheets import ROOFLINE_CALL

UNIFIED = "unified_perf_summary"
NEEDED = ("operation_models", "roofline_calls")
"""Tables required for re-projection."""


@dataclass(frozen=True)
class StoredReport:
    """The performance report of a stored run for ``hardware``.

    ``stored`` are the run's tables, ``roofline_names`` the roofline sheets among them.
    ``absent_tables`` are those of the run's manifest.
    """

    stored: Mapping[str, pl.DataFrame]
    roofline_names: tuple[str, ...]
    totals: Totals
    hardware: HardwareSpec | None
    registry: Registry
    absent_tables: Mapping[str, str]

    def table(self, name: str) -> pl.DataFrame:
        """Return a table by name; raise MissingTableError if the run does not have it."""
        if name not in self.stored:
            raise MissingTableError(name, f"there are {', '.join(self.stored)}")
        return self._reprojected[name] if name in self._reprojected else self.stored[name]

    def table_names(self) -> tuple[str, ...]:
        """Return the valid names for ``table``."""
        return tuple(self.stored)

    @property
    def roofline_sheets(self) -> dict[str, pl.DataFrame]:
        """The roofline sheets by name."""
        return {name: self._reprojected[name] for name in self.roofline_names}

    @cached_property
    def _reprojected(self) -> dict[str, pl.DataFrame]:
        """The tables that depend on peaks."""
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
        """Return a sheet with the roofline columns of the hardware, if it has any peak."""
        bare = self.stored[name].drop(cs.starts_with("roofline_", "pct_roofline"))
        calls = self.stored["roofline_calls"].filter(pl.col(C.sheet) == name)
        priced = sheet_metrics(calls.select(ROOFLINE_CALL), self.hardware)
        if C.pct_roofline not in priced.columns:
            return bare
        rooflines = priced.group_by(C.row, maintain_order=True).agg(
            *(pl.col(c).drop_nulls().first() for c in (C.roofline_time_us, C.roofline_bound)),
            *statistics([C.pct_roofline], SPREAD),
        )
        rows = bare.with_columns(pl.int_range(pl.len()).alias(C.row)).join(
            rooflines, on=C.row, how="left", maintain_order="left"
        )
        return conform(rows, schema)
