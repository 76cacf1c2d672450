"""A performance report imported from its sheets instead of a trace."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import polars as pl

from jarvis.core.errors import MissingTableError
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import Registry
from jarvis.perf_report.call_tree.stacks import CallStacks
from jarvis.perf_report.operations import operation_models
from jarvis.perf_report.operations import operations as operations_table
from jarvis.perf_report.timeline.gpu import Totals
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.perf_report.unavailable import ABSENT
from jarvis.schemas import TABLES, conform, dtypes
from jarvis.schemas.names import C
from jarvis.trace import TraceInfo
from jarvis.tracelens.imported.operations import measured, unified_of_kernels, with_rooflines
from jarvis.tracelens.imported.sheets import (
    KERNEL_SUMMARY,
    OPS_UNIQUE_ARGS,
    TIMELINE,
    UNIFIED,
    typed_sheets,
)
from jarvis.tracelens.sheets import schema_of

__all__ = ["ImportedReport", "report_info", "typed_sheets"]

NO_ENTRY_POINT = "Not found"
"""Value of ``entry_point`` in a report for calls without an entry point."""

STATED = "report"
"""Model origin of FLOPs and bytes from the report, for calls without a model here."""

_OF_TIMELINE = {
    "compute_time_ms": ("computation_time",),
    "exposed_comm_time_ms": ("exposed_comm_time",),
    "exposed_memcpy_time_ms": ("exposed_memcpy_time",),
    "busy_time_ms": ("busy_time",),
    "total_comm_time_ms": ("total_comm_time",),
    "total_memcpy_time_ms": ("total_memcpy_time",),
}


@dataclass(frozen=True)
class ImportedReport:
    """The tables that the sheets of a report provide; those of ``ABSENT`` have no rows.

    ``read``: ``typed_sheets``. Costs come from the perf models of ``registry``, as in an analysis
    of the trace.
    """

    read: Mapping[str, pl.DataFrame]
    hardware: HardwareSpec | None
    registry: Registry

    absent_tables: ClassVar[Mapping[str, str]] = ABSENT

    @property
    def has_operations(self) -> bool:
        """Whether the report has operators, not only GPU events."""
        return UNIFIED in self.read

    @property
    def has_recompute(self) -> bool:
        """Whether recomputed work has a separate timeline."""
        return bool(self.read[TIMELINE][C.type].is_duplicated().any())

    @cached_property
    def totals(self) -> Totals:
        """The parts of the GPU timeline.

        If recomputed work has a separate timeline, the parts of both are added, and the total is
        that of the longer one.
        """
        times = (
            self.read[TIMELINE]
            .group_by(C.type)
            .agg(longest=pl.col(C.time_ms).max(), added=pl.col(C.time_ms).sum())
        )
        by_type = {row[C.type]: row for row in times.iter_rows(named=True)}
        total_ms = by_type["total_time"]["longest"] if "total_time" in by_type else 0.0
        parts = {
            name: sum(by_type[t]["added"] for t in types if t in by_type)
            for name, types in _OF_TIMELINE.items()
        }
        busy_ms = min(parts["busy_time_ms"], total_ms)
        return Totals(
            **{**parts, "busy_time_ms": busy_ms},
            total_time_ms=total_ms,
            idle_time_ms=total_ms - busy_ms,
            linked_pct=None,
            step=StepBounds(),
        )

    @cached_property
    def sheets(self) -> dict[str, pl.DataFrame]:
        """The sheets with the rooflines of ``hardware``."""
        return {
            name: with_rooflines(frame, self.hardware, schema_of(name))
            if name == UNIFIED or schema_of(name) == "roofline"
            else frame
            for name, frame in self.read.items()
        }

    @property
    def roofline_sheets(self) -> dict[str, pl.DataFrame]:
        """The roofline sheets by name."""
        return {name: f for name, f in self.sheets.items() if schema_of(name) == "roofline"}

    @cached_property
    def measured(self) -> pl.DataFrame:
        """The operations without hardware-dependent columns."""
        return measured(self._unified, self._sheet(OPS_UNIQUE_ARGS), self.registry)

    @cached_property
    def operations(self) -> pl.DataFrame:
        """The operations, as input of the analyses."""
        rows = operations_table(self.measured, CallStacks({}, {}), self.hardware, self.totals)
        stated = pl.when("is_stated").then(pl.lit(STATED)).otherwise(C.model_origin)
        marked = rows.with_columns(stated.alias(C.model_origin))
        if C.entry_point in self.measured.columns:
            point = pl.when(pl.col(C.entry_point) != NO_ENTRY_POINT).then(C.entry_point)
            points = self.measured.select(point, pl.col(C.operation_uid).alias(C.uid))
            marked = marked.drop(C.entry_point).join(
                points, on=C.uid, how="left", maintain_order="left"
            )
        return conform(marked, "operations")

    def table(self, name: str) -> pl.DataFrame:
        """Return a table by name; raise MissingTableError if no report has it."""
        if name == "operations":
            return self.operations
        if name == "operation_models":
            return conform(operation_models(self.measured), name)
        if name == "perf_model_failures":
            failed = self.operations.join(
                self.measured.select(C.failure, pl.col(C.operation_uid).alias(C.uid)), on=C.uid
            ).drop_nulls(C.failure)
            failures = conform(failed.rename({C.failure: C.reason}), name)
            return failures.unique(maintain_order=True)
        return self._unified if name == UNIFIED else self._sheet(name)

    def table_names(self) -> tuple[str, ...]:
        """Return the valid names for ``table``."""
        return (*TABLES, *(name for name in self.sheets if name not in TABLES))

    @cached_property
    def _unified(self) -> pl.DataFrame:
        """The unified sheet, or one derived from kernels only."""
        if self.has_operations or KERNEL_SUMMARY not in self.read:
            return self._sheet(UNIFIED)
        return unified_of_kernels(self.read[KERNEL_SUMMARY], self.registry)

    def _sheet(self, name: str) -> pl.DataFrame:
        if name in self.sheets:
            return self.sheets[name]
        if name not in ABSENT and schema_of(name) == "roofline":
            raise MissingTableError(name, f"there are {', '.join(self.sheets)}")
        return pl.DataFrame(schema=dtypes(name))


def report_info(path: Path, sha256: str, report: ImportedReport) -> TraceInfo:
    """Return the known metadata of the trace behind a report that was read from ``path``."""
    files = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
    return TraceInfo(
        form="report",
        file_name=path.name,
        path=str(path),
        sha256=sha256,
        size_bytes=sum(file.stat().st_size for file in files),
        origin="recorded",
        device_names=(),
        compute_units=None,
        rank=None,
        world_size=None,
        span_us=1000 * report.totals.total_time_ms,
        steps=0,
        event_counts={},
        gpu_only=not report.has_operations,
        has_shapes=report.has_operations,
        has_stacks=False,
    )
