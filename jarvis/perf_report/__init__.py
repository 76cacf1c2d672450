"""The performance report of one trace: every table a cached property, nothing written back."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis.errors import MissingTableError
from jarvis.hardware import HardwareSpec
from jarvis.perf_report import (
    call_paths,
    collectives,
    gpu_timeline,
    operations,
    ops,
    roofline,
    sheets,
    unified,
)
from jarvis.perf_report.call_paths import CallPath, CallStacks
from jarvis.perf_report.calls import host_calls
from jarvis.perf_report.gpu_timeline import Totals
from jarvis.perf_report.roofline_sheets import roofline_sheets
from jarvis.perf_report.work import GpuWork, gpu_work
from jarvis.schemas import conform
from jarvis.trace import Trace

__all__ = ["TABLES", "CallPath", "PerfReport", "Totals"]

TABLES = (
    "gpu_timeline",
    "ops_summary_by_category",
    "ops_summary",
    "ops_unique_args",
    "unified_perf_summary",
    "coll_analysis",
    "operations",
    "gpu_work",
    "memory_copies",
    "collectives",
    "perf_model_failures",
)
"""The tables that every report has; roofline sheets come on top where they have rows."""


@dataclass(frozen=True)
class PerfReport:
    """What one trace says about performance, as tables (columns: ``jarvis.schemas``).

    ``tracelens_models_only`` keeps the sheets to the perf models that TraceLens has; with
    ``strict`` an error of a formula is raised instead of recorded.
    """

    trace: Trace
    hardware: HardwareSpec | None
    tracelens_models_only: bool = False
    strict: bool = False

    @cached_property
    def totals(self) -> Totals:
        """The parts of the GPU timeline in ms and in percent of the total."""
        return gpu_timeline.totals(self._work)

    @cached_property
    def gpu_timeline(self) -> pl.DataFrame:
        """The sheet ``gpu_timeline``."""
        return conform(gpu_timeline.gpu_timeline(self.totals), "gpu_timeline")

    @cached_property
    def ops_summary_by_category(self) -> pl.DataFrame:
        """The sheet ``ops_summary_by_category``."""
        return conform(ops.ops_summary_by_category(self._launchers), "ops_summary_by_category")

    @cached_property
    def ops_summary(self) -> pl.DataFrame:
        """The sheet ``ops_summary``."""
        return conform(ops.ops_summary(self._launchers), "ops_summary")

    @cached_property
    def ops_unique_args(self) -> pl.DataFrame:
        """The sheet ``ops_unique_args``."""
        return conform(ops.ops_unique_args(self._launchers, self._direct), "ops_unique_args")

    @cached_property
    def unified_perf_summary(self) -> pl.DataFrame:
        """The sheet ``unified_perf_summary``."""
        return unified.unified_perf_summary(
            self._unified, self.hardware, self.tracelens_models_only
        )

    @cached_property
    def roofline_sheets(self) -> dict[str, pl.DataFrame]:
        """The roofline sheets that have rows, by name."""
        return roofline_sheets(
            self._calls, self._costs, self.trace.backwards, self._work, self.hardware
        )

    @cached_property
    def coll_analysis(self) -> pl.DataFrame:
        """The sheet ``coll_analysis``."""
        return conform(collectives.coll_analysis(self._work), "coll_analysis")

    @cached_property
    def operations(self) -> pl.DataFrame:
        """What the analyses read: the rows of the unified sheet with the right values."""
        rows = operations.operations(
            self._grouped, self._calls, self._stacks, self.hardware, self.totals
        )
        return conform(rows, "operations")

    @cached_property
    def gpu_work(self) -> pl.DataFrame:
        """Every GPU event, with what launched it and the operation that it belongs to."""
        return conform(
            operations.gpu_work_table(self._work, self._grouped, self._calls), "gpu_work"
        )

    @cached_property
    def memory_copies(self) -> pl.DataFrame:
        """Copies by direction, in the window of the GPU timeline."""
        return conform(gpu_timeline.memory_copies(self._work), "memory_copies")

    @cached_property
    def collectives(self) -> pl.DataFrame:
        """Every communication kernel."""
        return conform(collectives.collectives(self._work), "collectives")

    @cached_property
    def perf_model_failures(self) -> pl.DataFrame:
        """Operations whose perf model raised an error."""
        return conform(operations.perf_model_failures(self._grouped), "perf_model_failures")

    def call_paths(self, uids: Sequence[int]) -> dict[int, CallPath]:
        """What is around and below each of these operations or host calls, by uid."""
        wanted = pl.col("uid").is_in(uids)
        unified_rows = self._grouped.calls.filter(wanted)
        others = self._calls.filter(
            wanted & ~pl.col("uid").is_in(unified_rows["uid"].implode())
        ).with_columns(source_uid="uid")
        rows = pl.concat([unified_rows, others], how="diagonal")
        work = pl.concat([self._grouped.work, self._work.below(others["uid"])], how="diagonal")
        return call_paths.call_paths(self._named_tree, self._stacks, rows, work)

    def sheets(self) -> dict[str, pl.DataFrame]:
        """All sheets that have rows, under TraceLens's names, labels and order; cells are flat.

        A trace without host ops has the timeline only.
        """
        if self.trace.info.gpu_only:
            return sheets.sheets({sheets.ALWAYS: self.table(sheets.ALWAYS)})
        tables = {name: self.table(name) for name in sheets.BEFORE_ROOFLINE}
        tables |= self.roofline_sheets
        tables |= {name: self.table(name) for name in sheets.AFTER_ROOFLINE}
        return sheets.sheets(tables)

    def table(self, name: str) -> pl.DataFrame:
        """A table of TABLES, or a roofline sheet, by name; MissingTableError for another one."""
        if name in TABLES:
            table: pl.DataFrame = getattr(self, name)
            return table
        if name in self.roofline_sheets:
            return self.roofline_sheets[name]
        raise MissingTableError(name, f"there are {', '.join([*TABLES, *self.roofline_sheets])}")

    @cached_property
    def _work(self) -> GpuWork:
        return gpu_work(self.trace)

    @cached_property
    def _calls(self) -> pl.DataFrame:
        return host_calls(self.trace)

    @cached_property
    def _direct(self) -> pl.DataFrame:
        return ops.direct_work(self._work)

    @cached_property
    def _launchers(self) -> pl.DataFrame:
        return ops.launchers(self._work, self._calls)

    @cached_property
    def _costs(self) -> pl.DataFrame:
        cpu_ops = self._calls.filter(pl.col("cat") == "cpu_op")
        return roofline.costs(cpu_ops, self._work.below(cpu_ops["uid"]), strict=self.strict)

    @cached_property
    def _grouped(self) -> unified.UnifiedCalls:
        return operations.grouped(self._unified)

    @cached_property
    def _named_tree(self) -> pl.DataFrame:
        return call_paths.named_tree(self.trace)

    @cached_property
    def _stacks(self) -> CallStacks:
        return call_paths.call_stacks(self._named_tree, self.trace.backwards)

    @cached_property
    def _unified(self) -> unified.UnifiedCalls:
        return unified.unified_calls(
            self._calls,
            self._costs,
            self.trace.backwards,
            self._work,
            self._direct,
            self.trace.events.height,
            self.strict,
        )
