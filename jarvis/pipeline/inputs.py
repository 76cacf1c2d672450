"""What an analysis is made from: a trace or a report that was just read, or a stored run."""

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
    """A report against the chosen hardware, with what a run stores beside its tables.

    ``steps`` are those of the whole work. The properties are computed when they are asked for.
    """

    steps: ClassVar[tuple[str, ...]]

    @property
    def report(self) -> TraceLensReport | StoredReport | ImportedReport:
        """The tables."""

    @property
    def info(self) -> TraceInfo:
        """What the trace, or the report in its place, says about itself."""

    @property
    def extensions(self) -> Extensions:
        """The analyses to run, and the notes and failures of extensions."""

    @property
    def sheets(self) -> tuple[str, ...]:
        """The names of the report's sheets, in their order."""

    @property
    def health(self) -> pl.DataFrame:
        """The table of facts about the input."""

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
        """Those that the trace fills."""
        return tuple(sheet_names(self.report.sheet_tables()))

    @property
    def health(self) -> pl.DataFrame:
        """Facts about the trace."""
        return trace_health(self.report.trace)

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        """Return what the call tree holds."""
        return main_call_paths(self.report, classified)


@dataclass(frozen=True, slots=True)
class ReportInput:
    """A performance report in place of a trace; it has no call paths."""

    report: ImportedReport
    info: TraceInfo
    extensions: Extensions
    steps: ClassVar[tuple[str, ...]] = IMPORT_STEPS

    @property
    def sheets(self) -> tuple[str, ...]:
        """Those that were read."""
        return tuple(sheet_names(self.report.sheets))

    @property
    def health(self) -> pl.DataFrame:
        """Facts about the report."""
        return report_health(self.report)

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        """Return none."""
        return {}


@dataclass(frozen=True, slots=True)
class StoredInput:
    """A stored run; what does not depend on the hardware is as it was stored."""

    report: StoredReport | ImportedReport
    run: Run
    extensions: Extensions
    steps: ClassVar[tuple[str, ...]] = REPROJECTION_STEPS

    @property
    def info(self) -> TraceInfo:
        """That of the run."""
        return self.run.manifest.trace

    @property
    def sheets(self) -> tuple[str, ...]:
        """Those of the run."""
        return self.run.manifest.sheets

    @property
    def health(self) -> pl.DataFrame:
        """That of the run."""
        return self.run.table(HEALTH)

    def call_paths(self, classified: Mapping[str, pl.DataFrame]) -> Paths:
        """Return those of the run."""
        return self.run.paths_by_category
