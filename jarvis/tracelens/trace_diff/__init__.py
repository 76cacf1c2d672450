"""Compare the GPU work of two traces by merging their call trees.

GPU events that only one trace has are assigned to the lowest common call above them; an event that
both traces have is its own lowest common call.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from jarvis.core.arrays import Bools, Int64s
from jarvis.perf_report.call_tree.stacks import INSTANCE_NUMBER
from jarvis.perf_report.calls import CALL_KEY, key_of, numbered
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.tracelens.trace_diff import gpu_paths
from jarvis.tracelens.trace_diff.gpu_paths import GPU_EVENT, OP, PYTHON, ROOT_NAME
from jarvis.tracelens.trace_diff.merge import NONE, counterparts, nearest_common

__all__ = ["TraceDiff"]

FIRST, SECOND = "trace1", "trace2"
_ARGUMENTS = (C.input_dims, C.input_strides, C.input_types, C.concrete_inputs)
_MODULE = "nn.Module:"


@dataclass(frozen=True)
class TraceDiff:
    """The difference between a trace and a compared one.

    Python frames are used if both traces have them.
    """

    first: Trace
    second: Trace

    @cached_property
    def events(self) -> pl.DataFrame:
        """Linked GPU events of both traces, with their lowest common calls.

        Columns: ``source`` (trace1 or trace2), ``gpu_uid``, ``name, ts_ns, dur_ns``, ``row`` (of
        ``gpu_paths``), ``lca_id, lca_name``, and ``is_common``: the other trace has the event too.
        """
        parts = []
        for source, trace, paths in self._sides:
            common = self._common[source]
            nearest = nearest_common(common, paths["parent"].to_numpy())
            leaf = paths.with_row_index(C.row).with_columns(
                common=pl.Series(common), **{C.lca_id: pl.Series((np.cumsum(common) - 1)[nearest])}
            )
            leaves = leaf.filter(pl.col(C.kind) == GPU_EVENT).select(
                C.row,
                C.lca_id,
                **{
                    C.gpu_uid: pl.col(C.uid),
                    "is_common": pl.col("common"),
                    C.source: pl.lit(source),
                },
            )
            timed = trace.gpu_events.select(
                C.name, C.ts_ns, C.dur_ns, pl.col(C.uid).alias(C.gpu_uid)
            )
            parts.append(leaves.join(timed, on=C.gpu_uid, how="left", maintain_order="left"))
        return pl.concat(parts).join(
            self._common_names, on=C.lca_id, how="left", maintain_order="left"
        )

    def diff_stats(self) -> pl.DataFrame:
        """Return GPU events of only one trace (schema: ``diff_stats``), by lowest common call."""
        different = self.events.filter(~pl.col("is_common"))
        busy = busy_ns(different, [C.lca_id, C.source])
        rows = pl.concat(
            [
                _with_context(different.filter(pl.col(C.source) == source), trace, paths)
                for source, trace, paths in self._sides
            ]
        )
        return (
            rows.join(busy, on=[C.lca_id, C.source], how="left", maintain_order="left")
            .sort(C.lca_id, C.source, C.row, maintain_order=True)
            .with_columns(
                microseconds(pl.col(C.dur_ns)).alias(C.kernel_time_us),
                microseconds(pl.col(C.busy_ns)).alias(C.busy_time_us),
                pl.col(C.gpu_uid).alias(C.gpu_op_uid),
            )
        )

    def with_comparison(self, rows: pl.DataFrame, unified: UnifiedCalls) -> pl.DataFrame:
        """Return rows of ``unified_perf_summary`` with the columns about the second trace.

        These describe the lowest common calls of all GPU work of the row: ``lca_id`` and
        ``lca_name``, joined; ``lca_count_trace2``; their kernel times in each trace;
        ``time_ratio`` and ``time_difference_us``. All are null if no GPU work of the row is linked.
        """
        calls = numbered(unified.calls, key_of(unified.calls, *CALL_KEY))
        owners = calls.select(
            pl.col(C.uid).alias(C.owner_uid), pl.col(C.uid).gather(pl.col(C.group)).alias(C.ex_uid)
        )
        duration = {s: pl.col(C.dur_ns).filter(pl.col(C.source) == s) for s in (FIRST, SECOND)}
        lowest = self.events.group_by(C.lca_id).agg(
            pl.col(C.lca_name).first(),
            ns_1=duration[FIRST].sum(),
            ns_2=duration[SECOND].sum(),
            is_in_second=duration[SECOND].len() > 0,
        )
        ours = self.events.filter(pl.col(C.source) == FIRST).select(C.gpu_uid, C.lca_id)
        columns = (
            unified.work.select(C.owner_uid, C.gpu_uid)
            .join(owners, on=C.owner_uid)
            .join(ours, on=C.gpu_uid)
            .select(C.ex_uid, C.lca_id)
            .unique()
            .join(lowest, on=C.lca_id)
            .sort(C.ex_uid, C.lca_id)
            .group_by(C.ex_uid, maintain_order=True)
            .agg(
                **{
                    C.lca_id: pl.col(C.lca_id).cast(pl.String).str.join("; "),
                    C.lca_name: pl.col(C.lca_name).unique(maintain_order=True).str.join("; "),
                    C.lca_count_trace2: pl.col("is_in_second").sum(),
                    C.lca_kernel_time_us_trace1: microseconds(pl.col("ns_1").sum()),
                    C.lca_kernel_time_us_trace2: microseconds(pl.col("ns_2").sum()),
                },
            )
        )
        time_1, time_2 = pl.col(C.lca_kernel_time_us_trace1), pl.col(C.lca_kernel_time_us_trace2)
        return rows.join(columns, on=C.ex_uid, how="left", maintain_order="left").with_columns(
            pl.when(time_1 > 0).then(time_2 / time_1).alias(C.time_ratio),
            (time_2 - pl.col(C.kernel_time_us_sum)).round(6).alias(C.time_difference_us),
        )

    @cached_property
    def _sides(self) -> tuple[tuple[str, Trace, pl.DataFrame], ...]:
        traces = (self.first, self.second)
        with_python = all(trace.python_functions.height for trace in traces)
        return tuple(
            (source, trace, gpu_paths.gpu_paths(trace, with_python=with_python))
            for source, trace in zip((FIRST, SECOND), traces, strict=True)
        )

    @cached_property
    def _counterparts(self) -> Int64s:
        return counterparts(*gpu_paths.path_trees(self._sides[0][2], self._sides[1][2]))

    @cached_property
    def _common(self) -> dict[str, Bools]:
        """For each node of the two trees whether it has a counterpart."""
        counterpart = self._counterparts
        second = np.zeros(self._sides[1][2].height, np.bool_)
        second[counterpart[counterpart != NONE]] = True
        return {FIRST: counterpart != NONE, SECOND: second}

    @cached_property
    def _common_names(self) -> pl.DataFrame:
        """``lca_id, lca_name`` of the common nodes, in tree order."""
        rows = [paths.filter(pl.Series(self._common[s])) for s, _, paths in self._sides]
        both = pl.format("{} | {}", "name", "name_2")
        return pl.DataFrame({C.name: rows[0][C.name], "name_2": rows[1][C.name]}).select(
            **{
                C.lca_id: pl.int_range(pl.len(), dtype=pl.Int64),
                C.lca_name: pl.when(pl.col(C.name) == pl.col("name_2"))
                .then(C.name)
                .otherwise(both),
            },
        )


def _with_context(events: pl.DataFrame, trace: Trace, paths: pl.DataFrame) -> pl.DataFrame:
    """Return GPU events (``row``) with the op above them, its arguments, and the modules above."""
    kinds, parents = paths[C.kind].to_list(), paths[C.parent].to_list()
    path_names, uids = paths[C.name].to_list(), paths[C.uid].to_list()
    op_uids: list[int | None] = []
    stacks: list[list[str]] = []
    for row in events[C.row].to_list():
        op_uid, modules = None, []
        node = parents[row]
        while node > 0:
            if kinds[node] == OP and op_uid is None:
                op_uid = uids[node]
            elif kinds[node] == PYTHON and path_names[node].startswith(_MODULE):
                modules.append(path_names[node])
            node = parents[node]
        op_uids.append(op_uid)
        stacks.append(modules[::-1] or [ROOT_NAME])
    stack = pl.col(C.nn_module_stack).list.eval(pl.element().str.replace(INSTANCE_NUMBER, ""))
    ops = trace.cpu_ops.select(
        *(tuples_text(name) for name in _ARGUMENTS),
        pl.col(C.uid).alias(C.cpu_op_uid),
        pl.col(C.name).alias(C.cpu_op_name),
    )
    return (
        events.with_columns(
            pl.Series(op_uids, dtype=pl.Int64).alias(C.cpu_op_uid),
            pl.Series(stacks, dtype=pl.List(pl.String)).alias(C.nn_module_stack),
        )
        .with_columns(stack)
        .with_columns(pl.col(C.nn_module_stack).list.last().alias(C.nn_module_parent))
        .join(ops, on=C.cpu_op_uid, how="left", maintain_order="left")
    )
