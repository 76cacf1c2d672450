"""Intermediate results shared by the report tables."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import polars as pl

from jarvis.core.memory_tuning import return_freed_memory
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_models.transformer import ServedModel
from jarvis.perf_report import launchers, operations, roofline, unified
from jarvis.perf_report.annotations import step_annotations
from jarvis.perf_report.call_tree import gpu_time, stacks, views
from jarvis.perf_report.call_tree.stacks import CallStacks
from jarvis.perf_report.calls import HostCalls, host_calls
from jarvis.perf_report.fusion import attention_groups, launch_order
from jarvis.perf_report.fusion import chains as fusion_chains
from jarvis.perf_report.fusion import epilogues as fusion_epilogues
from jarvis.perf_report.timeline.host import HostTimeline
from jarvis.perf_report.timeline.host_spans import HostActivity, host_activity
from jarvis.perf_report.work import GpuWork, gpu_work
from jarvis.schemas.names import C
from jarvis.trace import Trace


class PatternTables(NamedTuple):
    """Tables of patterns of operators (schemas: ``fusion_chains`` etc.)."""

    fusion_chains: pl.DataFrame
    fusion_steps: pl.DataFrame
    attention_groups: pl.DataFrame
    attention_steps: pl.DataFrame


@dataclass(frozen=True)
class ReportContext:
    """A trace with report settings, and intermediate results that several tables need.

    With ``strict`` errors of formulas are raised instead of recorded. ``registry`` has the perf
    models and the categories. ``model`` gives the costs of inference steps without recorded shapes.
    """

    trace: Trace
    hardware: HardwareSpec | None
    strict: bool = False
    registry: Registry = BUILTIN
    model: ServedModel | None = None

    @property
    def _trace(self) -> Trace:
        """The trace of the tables; subclasses may modify it."""
        return self.trace

    @cached_property
    def _work(self) -> GpuWork:
        return gpu_work(self._trace)

    @cached_property
    def _calls(self) -> HostCalls:
        return host_calls(self._trace)

    @property
    def _recording(self) -> Trace:
        """The trace without captured calls, which are no activity of the host."""
        return self._trace.recording

    @cached_property
    def _recorded_work(self) -> GpuWork:
        """The GPU work with the calls that launched it, the graph launch for replayed work."""
        if self._recording is self._trace:
            return self._work
        work = gpu_work(self._recording, counts_unlinked=self._work.counts_unlinked)
        return replace(work, events=work.events.with_columns(self._work.events[C.kind]))

    @cached_property
    def _recorded_calls(self) -> HostCalls:
        return self._calls if self._recording is self._trace else host_calls(self._recording)

    @cached_property
    def _host_activity(self) -> HostActivity:
        return host_activity(self._recording)

    @cached_property
    def _host_tables(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Threads, slices and bins; their intermediate results are as large and not stored."""
        timeline = HostTimeline(self._recording)
        return timeline.threads, timeline.slices, timeline.bins

    @cached_property
    def _call_tree(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        tree = gpu_time.gpu_call_tree(
            self._trace.python_call_tree,
            self._python_calls,
            self._trace.backwards,
            self._work.events,
            self._grouped,
        )
        return views.call_tree_tables(tree)

    @cached_property
    def _direct(self) -> pl.DataFrame:
        return launchers.direct_work(self._work)

    @cached_property
    def _launchers(self) -> pl.DataFrame:
        return launchers.launchers(self._work, self._calls, self._direct, self.registry)

    @cached_property
    def _costs(self) -> pl.DataFrame:
        cpu_ops = self._trace.cpu_ops
        return roofline.costs(
            cpu_ops,
            self._work,
            strict=self.strict,
            annotations=step_annotations(
                self._trace.shown_times(cpu_ops), self._trace.annotations, self.registry
            ),
            registry=self.registry,
        )

    @cached_property
    def _measured(self) -> pl.DataFrame:
        return operations.measured(self._grouped, self._calls)

    @cached_property
    def _grouped(self) -> unified.UnifiedCalls:
        return operations.grouped(self._unified)

    @cached_property
    def _patterns(self) -> PatternTables:
        """The tables of chains of operators and of attention that runs as single operators."""
        events, tree = self._work.events, self._trace.python_call_tree
        order = launch_order.launch_order(self._grouped, events, tree, self._python_calls)
        attention = attention_groups.attention_members(order)
        chains = fusion_chains.chain_members(order, attention["step"])
        feeding = attention_groups.feeding_attention(order, chains, attention)
        taken = pl.concat([attention["step"], chains["step"]])
        differentiated = self._trace.backwards[C.forward_uid]
        epilogues = fusion_epilogues.epilogue_members(order, taken, differentiated)
        return PatternTables(
            *fusion_chains.fusion_tables(order, chains, epilogues, feeding),
            *attention_groups.attention_tables(order, attention),
        )

    @property
    def _python_calls(self) -> HostCalls:
        return host_calls(self._trace, with_python=True)

    def _stacks(self, uids: pl.Series) -> CallStacks:
        trace = self._trace
        return stacks.call_stacks(trace.python_call_tree, self._python_calls, trace.backwards, uids)

    @cached_property
    def _unified(self) -> unified.UnifiedCalls:
        calls = unified.unified_calls(
            self._calls,
            self._costs,
            self._trace.backwards,
            self._work,
            self._direct,
            self._trace.event_count,
            self.strict,
            self.registry,
        )
        return_freed_memory()  # of the arrays that the joins so far needed
        return calls
