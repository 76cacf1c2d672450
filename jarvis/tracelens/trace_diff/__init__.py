"""Compare the GPU work of two traces by merging their call trees.

GPU events that only one trace has are assigned to the lowest common call above them; an event that
both traces have is its own lowest common call.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from jarvis.perf_report.calls import CALL_KEY, key_of, numbered
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.trace import Trace
from jarvis.tracelens.trace_diff import gpu_paths
from jarvis.tracelens.trace_diff.gpu_paths import GPU_EVENT, OP, PYTHON, ROOT_NAME
from jarvis.tracelens.trace_diff.merge import NONE, counterparts, nearest_common

__all__ = ["TraceDiff"]

FIRST, SECOND = "trace1", "trace2"
_ARGUMENTS = ("input_dims", "input_strides", "input_types", "concrete_inputs")
_MODULE = "nn.Module:"
_INSTANCE = r"_\d+$"


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
            leaf = paths.with_row_index("row").with_columns(
                common=pl.Series(common), lca_id=pl.Series((np.cumsum(common) - 1)[nearest])
            )
            leaves = leaf.filter(pl.col("kind") == GPU_EVENT).select(
                "row", "lca_id", gpu_uid="uid", is_common="common", source=pl.lit(source)
            )
            timed = trace.gpu_events.select("name", "ts_ns", "dur_ns", gpu_uid="uid")
            parts.append(leaves.join(timed, on="gpu_uid", how="left", maintain_order="left"))
        return pl.concat(parts).join(
            self._common_names, on="lca_id", how="left", maintain_order="left"
        )

    def diff_stats(self) -> pl.DataFrame:
        """Return GPU events of only one trace (schema: ``diff_stats``), by lowest common call."""
        different = self.events.filter(~pl.col("is_common"))
        busy = busy_ns(different, ["lca_id", "source"])
        rows = pl.concat(
            [
                _with_context(different.filter(pl.col("source") == source), trace, paths)
                for source, trace, paths in self._sides
            ]
        )
        return (
            rows.join(busy, on=["lca_id", "source"], how="left", maintain_order="left")
            .sort("lca_id", "source", "row", maintain_order=True)
            .with_columns(
                kernel_time_us=microseconds(pl.col("dur_ns")),
                busy_time_us=microseconds(pl.col("busy_ns")),
                gpu_op_uid="gpu_uid",
            )
        )

    def with_comparison(self, rows: pl.DataFrame, unified: UnifiedCalls) -> pl.DataFrame:
        """Return rows of ``unified_perf_summary`` with the columns about the second trace.

        These describe the lowest common calls of all GPU work of the row: ``lca_id`` and
        ``lca_name``, joined; ``lca_count_trace2``; their kernel times in each trace;
        ``time_ratio`` and ``time_difference_us``. All are null if no GPU work of the row is linked.
        """
        calls = numbered(unified.calls, key_of(unified.calls, *CALL_KEY))
        owners = calls.select(owner_uid="uid", ex_uid=pl.col("uid").gather(pl.col("group")))
        duration = {s: pl.col("dur_ns").filter(pl.col("source") == s) for s in (FIRST, SECOND)}
        lowest = self.events.group_by("lca_id").agg(
            pl.col("lca_name").first(),
            ns_1=duration[FIRST].sum(),
            ns_2=duration[SECOND].sum(),
            is_in_second=duration[SECOND].len() > 0,
        )
        ours = self.events.filter(pl.col("source") == FIRST).select("gpu_uid", "lca_id")
        columns = (
            unified.work.select("owner_uid", "gpu_uid")
            .join(owners, on="owner_uid")
            .join(ours, on="gpu_uid")
            .select("ex_uid", "lca_id")
            .unique()
            .join(lowest, on="lca_id")
            .sort("ex_uid", "lca_id")
            .group_by("ex_uid", maintain_order=True)
            .agg(
                lca_id=pl.col("lca_id").cast(pl.String).str.join("; "),
                lca_name=pl.col("lca_name").unique(maintain_order=True).str.join("; "),
                lca_count_trace2=pl.col("is_in_second").sum(),
                lca_kernel_time_us_trace1=microseconds(pl.col("ns_1").sum()),
                lca_kernel_time_us_trace2=microseconds(pl.col("ns_2").sum()),
            )
        )
        time_1, time_2 = pl.col("lca_kernel_time_us_trace1"), pl.col("lca_kernel_time_us_trace2")
        return rows.join(columns, on="ex_uid", how="left", maintain_order="left").with_columns(
            time_ratio=pl.when(time_1 > 0).then(time_2 / time_1),
            time_difference_us=(time_2 - pl.col("kernel_time_us_sum")).round(6),
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
    def _counterparts(self) -> gpu_paths.Int64s:
        return counterparts(*gpu_paths.path_trees(self._sides[0][2], self._sides[1][2]))

    @cached_property
    def _common(self) -> dict[str, gpu_paths.Bools]:
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
        return pl.DataFrame({"name": rows[0]["name"], "name_2": rows[1]["name"]}).select(
            lca_id=pl.int_range(pl.len(), dtype=pl.Int64),
            lca_name=pl.when(pl.col("name") == pl.col("name_2")).then("name").otherwise(both),
        )


def _with_context(events: pl.DataFrame, trace: Trace, paths: pl.DataFrame) -> pl.DataFrame:
    """Return GPU events (``row``) with the op above them, its arguments, and the modules above."""
    kinds, parents = paths["kind"].to_list(), paths["parent"].to_list()
    path_names, uids = paths["name"].to_list(), paths["uid"].to_list()
    op_uids: list[int | None] = []
    stacks: list[list[str]] = []
    for row in events["row"].to_list():
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
    stack = pl.col("nn_module_stack").list.eval(pl.element().str.replace(_INSTANCE, ""))
    ops = trace.cpu_ops.select(
        *(tuples_text(name) for name in _ARGUMENTS), cpu_op_uid="uid", cpu_op_name="name"
    )
    return (
        events.with_columns(
            cpu_op_uid=pl.Series(op_uids, dtype=pl.Int64),
            nn_module_stack=pl.Series(stacks, dtype=pl.List(pl.String)),
        )
        .with_columns(stack)
        .with_columns(nn_module_parent=pl.col("nn_module_stack").list.last())
        .join(ops, on="cpu_op_uid", how="left", maintain_order="left")
    )
