"""The performance report of one trace: every table a cached property, nothing written back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import polars as pl

from jarvis.core.errors import MissingTableError
from jarvis.perf_report import (
    call_paths,
    call_stacks,
    collectives,
    gpu_timeline,
    idle_gaps,
    kernel_summary,
    operations,
    ops,
    other_definitions,
    overlap,
    sheets,
    short_kernels,
    unified,
)
from jarvis.perf_report.call_paths import CallPath
from jarvis.perf_report.gpu_timeline import Totals
from jarvis.perf_report.ingredients import ReportContext
from jarvis.perf_report.report_options import DEFAULT_OPTIONS, ReportOptions
from jarvis.perf_report.roofline_sheets import roofline_calls
from jarvis.schemas import columns, conform

__all__ = [
    "DEFAULT_OPTIONS",
    "OPTIONAL_TABLES",
    "TABLES",
    "CallPath",
    "PerfReport",
    "ReportOptions",
    "Totals",
]

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
    "idle_gaps",
    "host_threads",
    "host_slices",
    "host_bins",
    "call_tree",
    "call_tree_operations",
    "other_definitions",
    "operation_models",
    "roofline_calls",
    "perf_model_failures",
    "fusion_chains",
    "fusion_steps",
    "attention_groups",
    "attention_steps",
)
"""The tables that every report has; roofline sheets come on top where they have rows."""

OPTIONAL_TABLES = (
    "diff_stats",
    "kernel_summary",
    "short_kernel_histogram",
    "short_kernels_summary",
)
"""Tables that are sheets only where the options, or another trace, ask for them."""


@dataclass(frozen=True)
class PerfReport(ReportContext):
    """What one trace says about performance, as tables (columns: ``jarvis.schemas``)."""

    absent_tables: ClassVar[Mapping[str, str]] = {}
    """A trace fills every table."""

    @cached_property
    def totals(self) -> Totals:
        """The parts of the GPU timeline in ms and in percent of the total."""
        return gpu_timeline.totals(self._work)

    @cached_property
    def gpu_timeline(self) -> pl.DataFrame:
        """The sheet ``gpu_timeline``."""
        table = gpu_timeline.gpu_timeline(self._work, self.options.micro_idle_thresh_us)
        return conform(table, "gpu_timeline")

    @cached_property
    def ops_summary_by_category(self) -> pl.DataFrame:
        """The sheet ``ops_summary_by_category``."""
        return conform(ops.ops_summary_by_category(self._launchers), "ops_summary_by_category")

    @cached_property
    def ops_summary(self) -> pl.DataFrame:
        """The sheet ``ops_summary``."""
        return self._top_ops(conform(ops.ops_summary(self._launchers), "ops_summary"))

    @cached_property
    def ops_unique_args(self) -> pl.DataFrame:
        """The sheet ``ops_unique_args``."""
        return self._ops_unique_args(None)

    @cached_property
    def unified_perf_summary(self) -> pl.DataFrame:
        """The sheet ``unified_perf_summary``."""
        return self._unified_perf_summary(None)

    @cached_property
    def diff_stats(self) -> pl.DataFrame:
        """The sheet ``diff_stats``; without rows where there is no other trace."""
        if self._trace_diff is None:
            return pl.DataFrame(schema={c.name: c.dtype for c in columns("diff_stats")})
        return conform(self._trace_diff.diff_stats(), "diff_stats")

    @cached_property
    def overlap_sheets(self) -> dict[str, pl.DataFrame]:
        """``ops_unique_args`` and ``unified_perf_summary`` with overlap information."""
        direct = self._direct.rename({"uid": "gpu_uid"})
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
        """The priced calls of the sheets, for rooflines of other hardware."""
        rows = self.unified_perf_summary.select(operation_uid="ex_uid", row=pl.int_range(pl.len()))
        calls = self._grouped.calls.with_columns(sheet=pl.lit("unified_perf_summary"))
        unified_calls = roofline_calls(calls, rows, on="operation_uid")
        parts = (unified_calls, self._roofline_sheets.calls)
        return pl.concat(conform(part, "roofline_calls") for part in parts)

    @cached_property
    def operation_models(self) -> pl.DataFrame:
        """What the efficiency of operations depends on besides the table ``operations``."""
        return conform(operations.operation_models(self._measured), "operation_models")

    @cached_property
    def kernel_summary(self) -> pl.DataFrame:
        """The sheet ``kernel_summary``."""
        rows = kernel_summary.kernel_summary(
            self._kernels, self._timeline_ms, self._trace.info.gpu_only
        )
        return conform(rows, "kernel_summary")

    @cached_property
    def short_kernel_histogram(self) -> pl.DataFrame:
        """The sheet ``short_kernel_histogram``."""
        bins = self.options.short_kernel_histogram_bins
        return conform(
            short_kernels.short_kernel_histogram(self._short_kernels, bins),
            "short_kernel_histogram",
        )

    @cached_property
    def short_kernels_summary(self) -> pl.DataFrame:
        """The sheet ``short_kernels_summary``."""
        rows = short_kernels.short_kernels_summary(
            self._short_kernels,
            self._timeline_ms,
            self._trace.info.gpu_only,
            self.options.topk_short_kernels,
        )
        return conform(rows, "short_kernels_summary")

    @cached_property
    def coll_analysis(self) -> pl.DataFrame:
        """The sheet ``coll_analysis``."""
        return conform(collectives.coll_analysis(self._work), "coll_analysis")

    @cached_property
    def operations(self) -> pl.DataFrame:
        """What the analyses read: the rows of the unified sheet with the right values."""
        is_example = pl.col("uid") == pl.col("operation_uid")
        examples = self._grouped.calls.select("source_uid", is_example=is_example)
        stacks = self._stacks(examples.filter("is_example")["source_uid"])
        rows = operations.operations(self._measured, stacks, self.hardware, self.totals)
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
    def idle_gaps(self) -> pl.DataFrame:
        """The gaps of the GPU timeline, each with its likely cause."""
        return conform(idle_gaps.idle_gaps(self._trace, self._work, self._calls), "idle_gaps")

    @cached_property
    def other_definitions(self) -> pl.DataFrame:
        """What other tools say of the GPU's time, and why."""
        found = other_definitions.other_definitions(self._trace, self._work, self.totals)
        return conform(found, "other_definitions")

    @cached_property
    def host_threads(self) -> pl.DataFrame:
        """The host's threads and what they do."""
        return conform(self._host_timeline.threads, "host_threads")

    @cached_property
    def host_slices(self) -> pl.DataFrame:
        """Single calls of the host, the longest of many."""
        return conform(self._host_timeline.slices, "host_slices")

    @cached_property
    def host_bins(self) -> pl.DataFrame:
        """What the host's threads do in equal spans of the recording."""
        return conform(self._host_timeline.bins, "host_bins")

    @cached_property
    def call_tree(self) -> pl.DataFrame:
        """GPU time by the calls that launched it."""
        return conform(self._call_tree[0], "call_tree")

    @cached_property
    def call_tree_operations(self) -> pl.DataFrame:
        """The operations that the kernels of the call tree belong to."""
        return conform(self._call_tree[1], "call_tree_operations")

    @cached_property
    def perf_model_failures(self) -> pl.DataFrame:
        """Operations whose perf model raised an error."""
        return conform(operations.perf_model_failures(self._grouped), "perf_model_failures")

    @cached_property
    def fusion_chains(self) -> pl.DataFrame:
        """Chains of operators that one kernel could replace."""
        return conform(self._fusion[0], "fusion_chains")

    @cached_property
    def fusion_steps(self) -> pl.DataFrame:
        """The operations at each position of the chains."""
        return conform(self._fusion[1], "fusion_steps")

    @cached_property
    def attention_groups(self) -> pl.DataFrame:
        """Attention that runs as single operators."""
        return conform(self._unfused_attention[0], "attention_groups")

    @cached_property
    def attention_steps(self) -> pl.DataFrame:
        """The operations at each position of unfused attention."""
        return conform(self._unfused_attention[1], "attention_steps")

    def call_paths(self, uids: Sequence[int]) -> dict[int, CallPath]:
        """What is around and below each of these operations or host calls, by uid."""
        unified_rows = self._grouped.calls.filter(pl.col("uid").is_in(uids))
        others = pl.Series(sorted(set(uids).difference(unified_rows["uid"])), dtype=pl.Int64)
        other_rows = self._calls.rows(others).with_columns(source_uid="uid")
        rows = pl.concat([unified_rows, other_rows], how="diagonal")
        below = self._work.below(others)
        of_rows = self._grouped.work.filter(pl.col("owner_uid").is_in(uids))
        work = pl.concat([of_rows, below], how="diagonal")
        tree, stacks = self._trace.python_call_tree, self._stacks(rows["source_uid"])
        return call_paths.call_paths(tree, self._python_calls, stacks, rows, work)

    def event_of_row(self, uid: int) -> int | None:
        """The host call that a row of the unified sheet stands for, by its uid; None for others."""
        found = self._grouped.calls.filter(uid=uid)["source_uid"]
        return None if found.is_empty() else int(found[0])

    def sheets(self) -> dict[str, pl.DataFrame]:
        """All sheets that have rows, under TraceLens's names, labels and order; cells are flat."""
        return sheets.sheets(self.sheet_tables())

    def sheet_tables(self) -> dict[str, pl.DataFrame]:
        """The tables of the sheets in report order, under our column names, lists as lists.

        A trace without host ops has the timeline, and what the options ask for about kernels.
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
        if not (self._trace.info.gpu_only or self.options.disable_coll_analysis):
            tables["coll_analysis"] = self.coll_analysis
        return tables

    def table(self, name: str) -> pl.DataFrame:
        """A table by name, also one of OPTIONAL_TABLES; MissingTableError for another name."""
        if name in TABLES or name in OPTIONAL_TABLES:
            table: pl.DataFrame = getattr(self, name)
            return table
        if name in self.roofline_sheets:
            return self.roofline_sheets[name]
        known = ", ".join([*TABLES, *OPTIONAL_TABLES, *self.roofline_sheets])
        raise MissingTableError(name, f"there are {known}")

    def _ops_unique_args(self, found: overlap.Overlaps | None) -> pl.DataFrame:
        launchers = self._launchers
        if self.options.group_by_num_kernels:
            launchers = launchers.with_columns(num_kernels="direct_kernel_count")
        rows = ops.ops_unique_args(launchers, self._direct, found)
        if not self.options.include_first_occurrence_time:
            rows = rows.drop("first_occurrence_time")
        return self._top_ops(conform(rows, "ops_unique_args"))

    def _unified_perf_summary(self, found: overlap.Overlaps | None) -> pl.DataFrame:
        calls = self._unified
        if self.options.needs_python_tree:
            calls = call_stacks.with_stack_owners(calls)
        rows = unified.unified_perf_summary(calls, self.hardware, self.tracelens_models_only, found)
        if self.options.needs_python_tree:
            owners = rows["stack_owners"].explode().drop_nulls().cast(pl.Int64)
            rows = call_stacks.with_call_stacks(rows, self._stacks(owners))
        if self.options.include_call_stack:
            rows = call_stacks.with_entry_points(rows).drop("kernel_call_stacks")
        if self._trace_diff is not None and found is None:
            rows = self._trace_diff.with_comparison(rows, self._unified)
        return self._top_ops(conform(rows, "unified_perf_summary"))

    def _top_ops(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.head(self.options.topk_ops or rows.height)

    @cached_property
    def _timeline_ms(self) -> float:
        """Total time of the GPU timeline; of its first table where recomputed work has its own."""
        total = pl.col("type") == "total_time"
        milliseconds: float = self.gpu_timeline.filter(total)["time_ms"].item(0)
        return milliseconds
