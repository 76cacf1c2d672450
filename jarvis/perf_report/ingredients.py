"""What the tables of a report are made of, each part computed once."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report import (
    attention_groups,
    attention_inputs,
    fusion_chains,
    fusion_epilogues,
    fusion_tables,
    gpu_call_tree,
    gpu_call_tree_views,
    host_stacks,
    kernel_summary,
    launch_order,
    operations,
    ops,
    recompute,
    roofline,
    short_kernels,
    unified,
)
from jarvis.perf_report.annotations import step_annotations
from jarvis.perf_report.calls import HostCalls, host_calls
from jarvis.perf_report.host_stacks import CallStacks
from jarvis.perf_report.host_timeline import HostTimeline
from jarvis.perf_report.pseudo_ops import with_pseudo_ops
from jarvis.perf_report.report_options import DEFAULT_OPTIONS, ReportOptions
from jarvis.perf_report.roofline_sheets import RooflineSheets, roofline_sheets
from jarvis.perf_report.work import GpuWork, gpu_work
from jarvis.trace import Trace

if TYPE_CHECKING:
    from jarvis.perf_report.trace_diff import TraceDiff


@dataclass(frozen=True)
class ReportContext:
    """A trace with the choices of a report, and what several of its tables need.

    ``tracelens_models_only`` keeps the sheets to the perf models that TraceLens has; with
    ``strict`` an error of a formula is raised instead of recorded. ``options`` add sheets and
    columns. ``registry`` knows the perf models and the categories. ``comparison`` is a trace that
    the report sets beside this one.
    """

    trace: Trace
    hardware: HardwareSpec | None
    tracelens_models_only: bool = False
    strict: bool = False
    options: ReportOptions = DEFAULT_OPTIONS
    registry: Registry = BUILTIN
    comparison: Trace | None = None

    @cached_property
    def _trace(self) -> Trace:
        return with_pseudo_ops(self.trace) if self.options.enable_pseudo_ops else self.trace

    @cached_property
    def _trace_diff(self) -> "TraceDiff | None":
        if self.comparison is None:
            return None
        from jarvis.perf_report.trace_diff import TraceDiff  # with compiled kernels of its own

        has_pseudo_ops = self.options.enable_pseudo_ops
        other = with_pseudo_ops(self.comparison) if has_pseudo_ops else self.comparison
        return TraceDiff(self._trace, other)

    @cached_property
    def _work(self) -> GpuWork:
        work = gpu_work(
            self._trace,
            with_python=self.options.needs_python_tree,
            counts_unlinked=self.options.include_unlinked_kernels,
        )
        if self.options.detect_recompute:
            work = recompute.marked_work(work, self._recomputed)
        return work

    @cached_property
    def _calls(self) -> HostCalls:
        return host_calls(
            self._trace,
            with_python=self.options.needs_python_tree,
            recomputed=self._recomputed if self.options.detect_recompute else None,
        )

    @cached_property
    def _host_timeline(self) -> HostTimeline:
        return HostTimeline(self._trace)

    @cached_property
    def _call_tree(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        tree = gpu_call_tree.gpu_call_tree(
            self._trace.python_call_tree,
            self._python_calls,
            self._trace.backwards,
            self._work.events,
            self._grouped,
        )
        return gpu_call_tree_views.call_tree_tables(tree)

    @cached_property
    def _recomputed(self) -> pl.Series:
        return recompute.recomputed_uids(self._trace)

    @cached_property
    def _kernels(self) -> pl.DataFrame:
        return kernel_summary.kernels(self._work, self._calls, self._direct, self.registry)

    @cached_property
    def _short_kernels(self) -> pl.DataFrame:
        threshold_us = self.options.short_kernel_threshold_us
        return short_kernels.shorter_than(self._kernels, threshold_us)

    @cached_property
    def _direct(self) -> pl.DataFrame:
        return ops.direct_work(self._work)

    @cached_property
    def _launchers(self) -> pl.DataFrame:
        return ops.launchers(self._work, self._calls, self._direct, self.registry)

    @cached_property
    def _costs(self) -> pl.DataFrame:
        cpu_ops = self._trace.cpu_ops
        return roofline.costs(
            cpu_ops,
            self._work,
            strict=self.strict,
            annotations=step_annotations(cpu_ops, self._trace.annotations),
            registry=self.registry,
        )

    @cached_property
    def _measured(self) -> pl.DataFrame:
        return operations.measured(self._grouped, self._calls)

    @cached_property
    def _grouped(self) -> unified.UnifiedCalls:
        return operations.grouped(self._unified)

    @cached_property
    def _launch_order(self) -> launch_order.LaunchOrder:
        events, tree = self._work.events, self._trace.python_call_tree
        return launch_order.launch_order(self._grouped, events, tree, self._python_calls)

    @cached_property
    def _attention_members(self) -> pl.DataFrame:
        return attention_groups.attention_members(self._launch_order)

    @cached_property
    def _unfused_attention(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        return attention_groups.attention_tables(self._launch_order, self._attention_members)

    @cached_property
    def _fusion(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        order, attention = self._launch_order, self._attention_members
        chains = fusion_chains.chain_members(order, attention["step"])
        feeding = attention_inputs.feeding_attention(order, chains, attention)
        taken = pl.concat([attention["step"], chains["step"]])
        differentiated = self._trace.backwards["forward_uid"]
        epilogues = fusion_epilogues.epilogue_members(order, taken, differentiated)
        return fusion_tables.fusion_tables(order, chains, epilogues, feeding)

    @property
    def _python_calls(self) -> HostCalls:
        return host_calls(self._trace, with_python=True)

    def _stacks(self, uids: pl.Series) -> CallStacks:
        trace = self._trace
        return host_stacks.call_stacks(
            trace.python_call_tree, self._python_calls, trace.backwards, uids
        )

    @cached_property
    def _unified(self) -> unified.UnifiedCalls:
        return unified.unified_calls(
            self._calls,
            self._costs,
            self._trace.backwards,
            self._work,
            self._direct,
            self._trace.event_count,
            self.strict,
            self.registry,
        )

    @cached_property
    def _roofline_sheets(self) -> RooflineSheets:
        return roofline_sheets(
            self._calls,
            self._costs,
            self._trace.backwards,
            self._work,
            self.hardware,
            self.options,
            self.tracelens_models_only,
            self.registry,
        )
