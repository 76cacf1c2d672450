"""The performance report with TraceLens's sheets and options."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from jarvis import perf_report
from jarvis.perf_report import PerfReport, launchers
from jarvis.perf_report.calls import HostCalls, host_calls
from jarvis.perf_report.timeline import gpu
from jarvis.perf_report.work import KIND, TRACELENS_KIND, GpuWork, gpu_work
from jarvis.schemas import conform, conformed, dtypes
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.tracelens import call_stacks, coll_analysis, kernel_summary, ops_sheets, overlap, sheets
from jarvis.tracelens.ops_sheets import unified_perf_summary
from jarvis.tracelens.options import DEFAULT_OPTIONS, ReportOptions
from jarvis.tracelens.pseudo_ops import kernel_pseudo_ops, with_pseudo_ops, without_carried
from jarvis.tracelens.roofline_sheets import RooflineSheets, roofline_calls, roofline_sheets

if TYPE_CHECKING:
    from jarvis.tracelens.trace_diff import TraceDiff

SHEET_TABLES = (
    "ops_summary_by_category",
    "ops_unique_args",
    "unified_perf_summary",
    "coll_analysis",
    "roofline_calls",
)
"""Tables in addition to those of ``perf_report``."""

TABLES = (*perf_report.TABLES, *SHEET_TABLES)
"""Tables of every report; roofline sheets with rows are added."""

OPTIONAL_TABLES = (
    "diff_stats",
    "kernel_summary",
    "short_kernel_histogram",
    "short_kernels_summary",
)
"""Tables that are sheets only with certain options, or a compared trace."""


@dataclass(frozen=True)
class TraceLensReport(PerfReport):
    """The tables of ``PerfReport`` and TraceLens's sheets.

    ``tracelens_models_only`` restricts the sheets to the perf models of TraceLens and takes for
    communication what TraceLens does. ``options`` add sheets and columns. ``comparison`` is a trace
    with which this one is compared.
    """

    tracelens_models_only: bool = False
    options: ReportOptions = DEFAULT_OPTIONS
    comparison: Trace | None = None

    @conformed
    def gpu_timeline(self) -> pl.DataFrame:
        """The sheet ``gpu_timeline``."""
        return gpu.gpu_timeline(self._work, self._gpu_totals, self.options.micro_idle_thresh_us)

    @cached_property
    def ops_summary(self) -> pl.DataFrame:
        """The sheet ``ops_summary``."""
        rows = launchers.ops_summary(self._launchers)
        if self.options.inference:
            rows = rows.with_columns(pl.col(C.count).alias(C.subtree_kernel_time_count)).drop(
                C.subtree_kernel_time_ms
            )
        return self._top_ops(conform(rows, "ops_summary"))

    @conformed
    def ops_summary_by_category(self) -> pl.DataFrame:
        """The sheet ``ops_summary_by_category``."""
        return ops_sheets.ops_summary_by_category(self._launchers)

    @cached_property
    def ops_unique_args(self) -> pl.DataFrame:
        """The sheet ``ops_unique_args``."""
        return self._ops_unique_args(None)

    @cached_property
    def unified_perf_summary(self) -> pl.DataFrame:
        """The sheet ``unified_perf_summary``."""
        return self._unified_perf_summary(None)

    @conformed
    def diff_stats(self) -> pl.DataFrame:
        """The sheet ``diff_stats``; without rows if there is no compared trace."""
        if self._trace_diff is None:
            return pl.DataFrame(schema=dtypes("diff_stats"))
        return self._trace_diff.diff_stats()

    @cached_property
    def overlap_sheets(self) -> dict[str, pl.DataFrame]:
        """``ops_unique_args`` and ``unified_perf_summary`` with overlap information."""
        direct = self._direct.rename({C.uid: C.gpu_uid})
        pairs = overlap.overlapping_pairs(self._work)
        return {
            "ops_unique_args": self._ops_unique_args(overlap.overlaps(direct, pairs)),
            "unified_perf_summary": self._unified_perf_summary(
                overlap.overlaps(self._unified.work, pairs)
            ),
        }

    @cached_property
    def roofline_sheets(self) -> dict[str, pl.DataFrame]:
        """The roofline sheets that have rows, by name."""
        return self._roofline_sheets.tables

    @cached_property
    def roofline_calls(self) -> pl.DataFrame:
        """The calls with costs of the sheets, for rooflines of other hardware."""
        rows = self.unified_perf_summary.select(
            pl.col(C.ex_uid).alias(C.operation_uid), pl.int_range(pl.len()).alias(C.row)
        )
        calls = self._grouped.calls.with_columns(pl.lit("unified_perf_summary").alias(C.sheet))
        unified_calls = roofline_calls(calls, rows, on=C.operation_uid)
        parts = (unified_calls, self._roofline_sheets.calls)
        return pl.concat(conform(part, "roofline_calls") for part in parts)

    @conformed
    def kernel_summary(self) -> pl.DataFrame:
        """The sheet ``kernel_summary``."""
        return kernel_summary.kernel_summary(
            self._kernels, self._timeline_ms, self._trace.info.gpu_only
        )

    @conformed
    def short_kernel_histogram(self) -> pl.DataFrame:
        """The sheet ``short_kernel_histogram``."""
        bins = self.options.short_kernel_histogram_bins
        return kernel_summary.short_kernel_histogram(self._short_kernels, bins)

    @conformed
    def short_kernels_summary(self) -> pl.DataFrame:
        """The sheet ``short_kernels_summary``."""
        return kernel_summary.short_kernels_summary(
            self._short_kernels,
            self._timeline_ms,
            self._trace.info.gpu_only,
            self.options.topk_short_kernels,
        )

    @conformed
    def coll_analysis(self) -> pl.DataFrame:
        """The sheet ``coll_analysis``."""
        return coll_analysis.coll_analysis(self._work)

    @cached_property
    def _timeline_ms(self) -> float:
        """Total time of the GPU timeline, without recomputed work if that is separate."""
        total = pl.col(C.type) == "total_time"
        milliseconds: float = self.gpu_timeline.filter(total)[C.time_ms].item(0)
        return milliseconds

    def sheets(self) -> dict[str, pl.DataFrame]:
        """Return all sheets with rows, with TraceLens's names, labels and order, and flat cells."""
        return sheets.sheets(self.sheet_tables())

    def sheet_tables(self) -> dict[str, pl.DataFrame]:
        """Return the tables of the sheets in report order, with our column names and list cells.

        A trace without host ops has only the timeline and optional sheets about kernels.
        """
        tables = {"gpu_timeline": self.gpu_timeline}
        if not self._trace.info.gpu_only:
            for name in ("ops_summary_by_category", "ops_summary"):
                tables[name] = self.table(name)
            for name in ("ops_unique_args", "unified_perf_summary"):
                tables[name] = self.table(name)
                if name == "unified_perf_summary" and self.comparison is not None:
                    tables["diff_stats"] = self.diff_stats
                if self.options.include_overlap_info:
                    tables[name + overlap.OVERLAP_SUFFIX] = self.overlap_sheets[name]
            tables |= self.roofline_sheets
        if self.options.enable_kernel_summary:
            tables["kernel_summary"] = self.kernel_summary
        if self.options.short_kernel_study:
            tables["short_kernel_histogram"] = self.short_kernel_histogram
            tables["short_kernels_summary"] = self.short_kernels_summary
        if not (self._trace.info.gpu_only or self._omits_collectives):
            tables["coll_analysis"] = self.coll_analysis
        return tables

    @property
    def _omits_collectives(self) -> bool:
        of_tracelens = self.options.inference and self.tracelens_models_only
        return self.options.disable_coll_analysis or of_tracelens

    def table(self, name: str) -> pl.DataFrame:
        """Return a table by name, including OPTIONAL_TABLES; raise MissingTableError if unknown."""
        if name in SHEET_TABLES or name in OPTIONAL_TABLES:
            table: pl.DataFrame = getattr(self, name)
            return table
        if name not in TABLES and name in self.roofline_sheets:
            return self.roofline_sheets[name]
        return super().table(name)

    def table_names(self) -> tuple[str, ...]:
        """Return the valid names for ``table``."""
        return (*TABLES, *OPTIONAL_TABLES, *self.roofline_sheets)

    def _ops_unique_args(self, overlaps: overlap.Overlaps | None) -> pl.DataFrame:
        launched = self._launchers
        if self.options.group_by_num_kernels:
            launched = launched.with_columns(pl.col("direct_kernel_count").alias(C.num_kernels))
        rows = ops_sheets.ops_unique_args(launched, self._launched, overlaps)
        if not self.options.include_first_occurrence_time:
            rows = rows.drop(C.first_occurrence_time)
        return self._top_ops(conform(rows, "ops_unique_args"))

    def _unified_perf_summary(self, overlaps: overlap.Overlaps | None) -> pl.DataFrame:
        calls = self._unified
        if self.options.enable_pseudo_ops:
            calls = replace(calls, calls=without_carried(calls.calls))
        if self.options.needs_python_tree:
            calls = call_stacks.with_stack_owners(calls)
        rows = unified_perf_summary(calls, self.hardware, self.tracelens_models_only, overlaps)
        if self.options.needs_python_tree:
            owners = rows["stack_owners"].explode().drop_nulls().cast(pl.Int64)
            rows = call_stacks.with_call_stacks(rows, self._stacks(owners))
        if self.options.include_call_stack:
            rows = call_stacks.with_entry_points(rows).drop(C.kernel_call_stacks)
        if self._trace_diff is not None and overlaps is None:
            rows = self._trace_diff.with_comparison(rows, self._unified)
        return self._top_ops(conform(rows, "unified_perf_summary"))

    def _top_ops(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.head(self.options.topk_ops or rows.height)

    @cached_property
    def _trace(self) -> Trace:
        return with_pseudo_ops(self.trace) if self.options.enable_pseudo_ops else self.trace

    @cached_property
    def _trace_diff(self) -> "TraceDiff | None":
        if self.comparison is None:
            return None
        from jarvis.tracelens.trace_diff import TraceDiff  # loads compiled kernels

        has_pseudo_ops = self.options.enable_pseudo_ops
        other = with_pseudo_ops(self.comparison) if has_pseudo_ops else self.comparison
        return TraceDiff(self._trace, other)

    @cached_property
    def _work(self) -> GpuWork:
        work = gpu_work(
            self._trace,
            with_python=self.options.needs_python_tree,
            counts_unlinked=self.options.include_unlinked_kernels,
            kind=TRACELENS_KIND if self.tracelens_models_only else KIND,
        )
        if self.options.detect_recompute:
            work = ops_sheets.marked_work(work, self._recomputed)
        return work

    @cached_property
    def _calls(self) -> HostCalls:
        return host_calls(
            self._trace,
            with_python=self.options.needs_python_tree,
            recomputed=self._recomputed if self.options.detect_recompute else None,
        )

    @cached_property
    def _launchers(self) -> pl.DataFrame:
        found = launchers.launchers(self._work, self._calls, self._launched, self.registry)
        if not self.options.group_by_parent_module:
            return found
        return call_stacks.with_modules(found, self._stacks(found[C.uid]))

    @cached_property
    def _launched(self) -> pl.DataFrame:
        """``direct_work``; in the inference layout of the op around a pseudo op of one kernel."""
        if not (self.options.inference and self.options.enable_pseudo_ops):
            return self._direct
        pseudo = kernel_pseudo_ops(self._trace.cpu_ops, self.trace.event_count)
        around = self._work.call_tree.filter(pl.col(C.uid).is_in(pseudo.implode())).select(
            pl.col(C.uid).alias(C.owner_uid), around=C.launcher_uid
        )
        owners = self._direct.join(around, on=C.owner_uid, how="left", maintain_order="left")
        return owners.with_columns(pl.coalesce("around", C.owner_uid).alias(C.owner_uid)).drop(
            "around"
        )

    @cached_property
    def _recomputed(self) -> pl.Series:
        return ops_sheets.recomputed_uids(self._trace)

    @cached_property
    def _kernels(self) -> pl.DataFrame:
        return kernel_summary.kernels(self._work, self._calls, self._direct, self.registry)

    @cached_property
    def _short_kernels(self) -> pl.DataFrame:
        threshold_us = self.options.short_kernel_threshold_us
        return kernel_summary.shorter_than(self._kernels, threshold_us)

    @cached_property
    def _roofline_sheets(self) -> RooflineSheets:
        calls = self._calls
        if self.options.enable_pseudo_ops:
            calls = replace(calls, cpu_ops=without_carried(calls.cpu_ops))
        return roofline_sheets(
            calls,
            self._costs,
            self._trace.backwards,
            self._work,
            self.hardware,
            self.options,
            self.tracelens_models_only,
            self.registry,
        )
