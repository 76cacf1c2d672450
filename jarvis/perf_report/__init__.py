"""Performance report of one trace, with every table as a cached property."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import polars as pl

from jarvis.core.errors import MissingTableError
from jarvis.perf_report import collectives, launchers, operations, populations
from jarvis.perf_report.call_tree import paths
from jarvis.perf_report.call_tree.paths import CallPath
from jarvis.perf_report.context import ReportContext
from jarvis.perf_report.serving.layer_operations import (
    with_figures,
    with_layer_modules,
    with_operations,
)
from jarvis.perf_report.serving.layers import Layers, inference_layers
from jarvis.perf_report.serving.rates import inference_phases, with_model_rates
from jarvis.perf_report.serving.repetition import graph_launches
from jarvis.perf_report.serving.steps import inference_steps
from jarvis.perf_report.timeline import gpu, idle_gaps, other_definitions, states, step_gaps, steps
from jarvis.perf_report.timeline.gpu import Totals
from jarvis.perf_report.timeline.host_spans import HostActivity
from jarvis.perf_report.timeline.step_bounds import step_bounds
from jarvis.perf_report.work import GpuWork
from jarvis.schemas import conform, conformed
from jarvis.schemas.names import C
from jarvis.trace import Trace

__all__ = [
    "TABLES",
    "CallPath",
    "PerfReport",
    "Totals",
]

TABLES = (
    "gpu_timeline",
    "ops_summary",
    "operations",
    "gpu_work",
    "memory_copies",
    "collectives",
    "idle_gaps",
    "timeline_states",
    "steps",
    "step_gaps",
    "host_threads",
    "host_slices",
    "host_bins",
    "call_tree",
    "call_tree_operations",
    "other_definitions",
    "operation_models",
    "perf_model_failures",
    "fusion_chains",
    "fusion_steps",
    "attention_groups",
    "attention_steps",
)
"""Names of the tables of a report."""


@dataclass(frozen=True)
class PerfReport(ReportContext):
    """Performance data of one trace as tables (columns: ``jarvis.schemas``)."""

    absent_tables: ClassVar[Mapping[str, str]] = {}
    """A trace provides every table."""

    @cached_property
    def totals(self) -> Totals:
        """The parts of the GPU timeline in ms and in percent of the total."""
        bounds = step_bounds(self._recording, self._all_work, self._steps)
        return replace(self._gpu_totals, step=bounds)

    @cached_property
    def _gpu_totals(self) -> Totals:
        return gpu.totals(self._work)

    @conformed
    def gpu_timeline(self) -> pl.DataFrame:
        """Breakdown of GPU time."""
        return gpu.gpu_timeline(self._work, self._gpu_totals)

    @conformed
    def ops_summary(self) -> pl.DataFrame:
        """Operators that launch GPU work, by name."""
        return launchers.ops_summary(self._launchers)

    @conformed
    def operation_models(self) -> pl.DataFrame:
        """Inputs of the efficiency of operations that are not in the table ``operations``."""
        return operations.operation_models(self._measured)

    @conformed
    def operations(self) -> pl.DataFrame:
        """The operations with corrected values, as input of the analyses."""
        is_example = pl.col(C.uid) == pl.col(C.operation_uid)
        examples = self._grouped.calls.select(C.source_uid, is_example=is_example)
        calls = populations.parted_calls(self._grouped)
        sources = pl.concat(
            [examples.filter("is_example")[C.source_uid], populations.unnamed_sources(calls)]
        )
        stacks = self._stacks(sources)
        rows = operations.operations(self._measured, stacks, self.hardware, self.totals)
        groups = populations.populations(calls, stacks)
        return rows.join(groups, on=C.uid, how="left", maintain_order="left")

    @conformed
    def gpu_work(self) -> pl.DataFrame:
        """Every GPU event, with its launch and operation."""
        return operations.gpu_work_table(self._work, self._grouped, self._calls)

    @conformed
    def memory_copies(self) -> pl.DataFrame:
        """Copies by direction, in the window of the GPU timeline."""
        return gpu.memory_copies(self._work)

    @conformed
    def collectives(self) -> pl.DataFrame:
        """Every communication kernel."""
        return collectives.collectives(self._trace, self._work, self._marks)

    @conformed
    def idle_gaps(self) -> pl.DataFrame:
        """The gaps of the GPU timeline, each with its likely cause."""
        return idle_gaps.idle_gaps(
            self._recording, self._recorded_work, self._recorded_calls, self._host_activity
        )

    @conformed
    def timeline_states(self) -> pl.DataFrame:
        """The window of the GPU timeline, divided by what the GPU does."""
        return states.timeline_states(self._work, self.gpu_work, self.operations, self.idle_gaps)

    @conformed
    def steps(self) -> pl.DataFrame:
        """The steps of the recording with the parts of their time."""
        return step_gaps.with_slow_steps(self._steps, self.step_gaps)

    @conformed
    def step_gaps(self) -> pl.DataFrame:
        """The idle time of each step, with causes."""
        return step_gaps.step_gaps(
            self._steps,
            self._all_gaps,
            self._recording,
            self._all_work,
            self._recorded_calls,
            self._host_activity,
        )

    @conformed
    def inference_steps(self) -> pl.DataFrame:
        """The steps of inference with requests, tokens and rates."""
        rows = inference_steps(
            self._recording, self._all_work, self._all_gaps, self._grouped, self.hardware
        )
        return with_model_rates(rows, self.model, self.hardware)

    @property
    def inference_phases(self) -> pl.DataFrame:
        """The phases of the steps of inference."""
        rows = inference_phases(self.inference_steps, self.inference_layers)
        return conform(rows, "inference_phases")

    @property
    def inference_layers(self) -> pl.DataFrame:
        """The kernels of ``layers`` by position, with their operations, and the rest by block."""
        rows = with_operations(self.layers.rows(), self.layers.events, self.gpu_work)
        modules = with_layer_modules(rows, self.layers.anchors(), self._modules_of_work)
        return conform(with_figures(modules, self.operations), "inference_layers")

    @property
    def inference_layer_times(self) -> pl.DataFrame:
        """The time of each of the ``layers`` by block."""
        return conform(self.layers.times(), "inference_layer_times")

    @property
    def inference_events(self) -> pl.DataFrame:
        """The GPU events of the steps of inference, with their place in the ``layers``."""
        return conform(self.layers.events, "inference_events")

    @property
    def is_inference(self) -> bool:
        """Whether an inference engine marks the steps, or GPU graphs are replayed."""
        graphs = graph_launches(self._recording, self._all_work)
        return graphs.height > 0 or steps.StepSource.ENGINE.value in self._marks[C.source]

    @cached_property
    def layers(self) -> Layers:
        """The layers that repeat in the steps of inference."""
        return inference_layers(self._trace, self._all_work, self.inference_steps)

    def _modules_of_work(self, uids: pl.Series) -> list[list[str]]:
        """Return the modules around the calls that launched these GPU events."""
        events = uids.to_frame(C.uid).join(
            self._work.events, on=C.uid, how="left", maintain_order="left"
        )
        calls = events.select(pl.coalesce(C.op_uid, C.launch_uid)).to_series()
        stacks = self._stacks(calls.drop_nulls())
        return [[] if uid is None else stacks.modules(uid) for uid in calls]

    @cached_property
    def _steps(self) -> pl.DataFrame:
        return steps.steps(self._recording, self._all_work, self._all_gaps, self._marks)

    @cached_property
    def _marks(self) -> pl.DataFrame:
        return steps.step_marks(self._recording)

    @property
    def _all_work(self) -> GpuWork:
        """The GPU work, of which the timeline counts all: a step has what the GPU does in it."""
        return replace(self._recorded_work, counts_unlinked=True)

    @cached_property
    def _all_gaps(self) -> pl.DataFrame:
        if self._all_work.window.height == self._work.window.height:
            return self.idle_gaps
        gaps = idle_gaps.idle_gaps(
            self._recording, self._all_work, self._recorded_calls, self._host_activity
        )
        return conform(gaps, "idle_gaps")

    @conformed
    def other_definitions(self) -> pl.DataFrame:
        """GPU times by the definitions of other tools."""
        return other_definitions.other_definitions(
            self._recording, self._recorded_work, self.totals
        )

    @conformed
    def host_threads(self) -> pl.DataFrame:
        """Host threads and their activity."""
        return self._host_tables[0]

    @conformed
    def host_slices(self) -> pl.DataFrame:
        """Single host calls, the longest ones."""
        return self._host_tables[1]

    @conformed
    def host_bins(self) -> pl.DataFrame:
        """Activity of host threads in equal spans of the recording."""
        return self._host_tables[2]

    @conformed
    def call_tree(self) -> pl.DataFrame:
        """GPU time by the calls that launched it."""
        return self._call_tree[0]

    @conformed
    def call_tree_operations(self) -> pl.DataFrame:
        """The operations that the kernels of the call tree belong to."""
        return self._call_tree[1]

    @conformed
    def perf_model_failures(self) -> pl.DataFrame:
        """Operations whose perf model raised an error."""
        return operations.perf_model_failures(self._grouped)

    @conformed
    def fusion_chains(self) -> pl.DataFrame:
        """Chains of operators that one kernel could replace."""
        return self._patterns.fusion_chains

    @conformed
    def fusion_steps(self) -> pl.DataFrame:
        """The operations at each position of the chains."""
        return self._patterns.fusion_steps

    @conformed
    def attention_groups(self) -> pl.DataFrame:
        """Attention that runs as single operators."""
        return self._patterns.attention_groups

    @conformed
    def attention_steps(self) -> pl.DataFrame:
        """The operations at each position of unfused attention."""
        return self._patterns.attention_steps

    def call_paths(self, uids: Sequence[int]) -> dict[int, CallPath]:
        """Return the calls around and below each of these operations or host calls, by uid."""
        unified_rows = self._grouped.calls.filter(pl.col(C.uid).is_in(uids))
        others = pl.Series(sorted(set(uids).difference(unified_rows[C.uid])), dtype=pl.Int64)
        other_rows = self._calls.rows(others).with_columns(pl.col(C.uid).alias(C.source_uid))
        rows = pl.concat([unified_rows, other_rows], how="diagonal")
        below = self._work.below(others)
        of_rows = self._grouped.work.filter(pl.col(C.owner_uid).is_in(uids))
        work = pl.concat([of_rows, below], how="diagonal")
        tree, stacks = self._trace.python_call_tree, self._stacks(rows[C.source_uid])
        return paths.call_paths(tree, self._python_calls, stacks, rows, work)

    def event_of_row(self, uid: int) -> int | None:
        """Return the host call of a row of the unified sheet, by its uid; None for other uids."""
        sources = self._grouped.calls.filter(pl.col(C.uid) == uid)[C.source_uid]
        return None if sources.is_empty() else int(sources[0])

    def activity_of(self, trace: Trace) -> HostActivity | None:
        """Return what the host does in a trace, if that is the recording of this report."""
        return self._host_activity if trace is self._recording else None

    def table(self, name: str) -> pl.DataFrame:
        """Return a table by name; raise MissingTableError if it is unknown."""
        if name in TABLES:
            table: pl.DataFrame = getattr(self, name)
            return table
        raise MissingTableError(name, f"there are {', '.join(self.table_names())}")

    def table_names(self) -> tuple[str, ...]:
        """Return the valid names for ``table``."""
        return TABLES
