"""Inputs of an analysis: a trace or a report that was just read, or a stored run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import polars as pl

from jarvis.extensions import Extensions
from jarvis.perf_report import CallPath
from jarvis.pipeline.steps import IMPORT_STEPS, REPROJECTION_STEPS, STEPS
from jarvis.run import Run, main_call_paths
from jarvis.trace import TraceInfo
from jarvis.trace_health import TABLE as HEALTH
from jarvis.trace_health import report_health, trace_health
from jarvis.tracelens.imported import ImportedReport
from jarvis.tracelens.report import TraceLensReport
from jarvis.tracelens.sheets import sheet_names
from jarvis.tracelens.stored_report import StoredReport

Paths = Mapping[str, Mapping[int, CallPath]]
"""Call paths of the main operations, by category and uid."""


class AnalysisInput(Protocol):
    """A report with the chosen hardware, and the other data that a run stores.

    ``steps`` are those of the whole analysis. The properties are computed lazily.
    """

    steps: ClassVar[tuple[str, ...]]

    @property
    def report(self) -> TraceLensReport | StoredReport | ImportedReport:
        """Return the tables."""

    @property
    def info(self) -> TraceInfo:
        """Return the information that the trace, or the report in its place, has about itself."""

    @property
    def extensions(self) -> Extensions:
        """Return the analyses to run, and the notes and failures of extensions."""

    @property
    def sheets(self) -> tuple[str, ...]:
        """Return the names of the report's sheets, in order."""

    @property
    def health(self) -> pl.DataFrame:
        """Return the table of facts about the input."""

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        """Return the call paths for the operations of each category."""


@dataclass(frozen=True, slots=True)
class TraceInput:
    """A trace that was just read."""

    report: TraceLensReport
    info: TraceInfo
    extensions: Extensions
    steps: ClassVar[tuple[str, ...]] = STEPS

    @property
    def sheets(self) -> tuple[str, ...]:
        """Return the sheets that the trace fills."""
        return tuple(sheet_names(self.report.sheet_tables()))

    @property
    def health(self) -> pl.DataFrame:
        """Return facts about the trace."""
        return trace_health(self.report.trace)

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        """Return the call paths from the call tree."""
        return main_call_paths(self.report, classified)


@dataclass(frozen=True, slots=True)
class ReportInput:
    """A performance report instead of a trace; it has no call paths."""

    report: ImportedReport
    info: TraceInfo
    extensions: Extensions
    steps: ClassVar[tuple[str, ...]] = IMPORT_STEPS

    @property
    def sheets(self) -> tuple[str, ...]:
        """Return the sheets that were read."""
        return tuple(sheet_names(self.report.sheets))

    @property
    def health(self) -> pl.DataFrame:
        """Return facts about the report."""
        return report_health(self.report)

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        """Return no call paths."""
        return {}


@dataclass(frozen=True, slots=True)
class StoredInput:
    """A stored run; everything independent of the hardware is used as stored."""

    report: StoredReport | ImportedReport
    run: Run
    extensions: Extensions
    steps: ClassVar[tuple[str, ...]] = REPROJECTION_STEPS

    @property
    def info(self) -> TraceInfo:
        """Return the stored information."""
        return self.run.manifest.trace

    @property
    def sheets(self) -> tuple[str, ...]:
        """Return the stored sheets."""
        return self.run.manifest.sheets

    @property
    def health(self) -> pl.DataFrame:
        """Return the stored facts."""
        return self.run.table(HEALTH)

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        """Return the stored call paths."""
        return self.run.paths_by_category
