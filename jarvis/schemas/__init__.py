"""Schemas of all tables: columns with label, dtype, unit, format and meaning.

All labels are defined here. Labels of the report sheets are TraceLens's, for compatibility with its
tools; column names are ours and contain the unit.
"""

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar

import polars as pl

from jarvis.core.errors import MissingTableError
from jarvis.schemas import comparison, ranks, serving, sheets, steps, tables, trace_diff
from jarvis.schemas.columns import (
    ANY_PARAM,
    FLAG,
    INTEGER,
    KERNEL_STATS,
    KERNELS,
    NAMES,
    NUMBER,
    PARAM_PREFIX,
    POPULATIONS,
    SPREAD,
    TEXT,
    UIDS,
    Column,
    text,
)

__all__ = [
    "ANY_PARAM",
    "FLAG",
    "INTEGER",
    "KERNELS",
    "KERNEL_STATS",
    "NAMES",
    "NUMBER",
    "PARAM_PREFIX",
    "POPULATIONS",
    "SHEETS",
    "SPREAD",
    "TABLES",
    "TEXT",
    "UIDS",
    "Column",
    "column",
    "columns",
    "conform",
    "conformed",
    "dtypes",
    "label",
    "labeled",
    "schemas_markdown",
]

SHEETS: dict[str, tuple[Column, ...]] = {
    "gpu_timeline": sheets.GPU_TIMELINE,
    "ops_summary_by_category": sheets.OPS_SUMMARY_BY_CATEGORY,
    "ops_summary": sheets.OPS_SUMMARY,
    "ops_unique_args": sheets.OPS_UNIQUE_ARGS,
    "unified_perf_summary": sheets.UNIFIED_PERF_SUMMARY,
    "diff_stats": trace_diff.DIFF_STATS,
    "roofline": sheets.ROOFLINE,
    "kernel_summary": sheets.KERNEL_SUMMARY,
    "short_kernel_histogram": sheets.SHORT_KERNEL_HISTOGRAM,
    "short_kernels_summary": sheets.SHORT_KERNELS_SUMMARY,
    "coll_analysis": sheets.COLL_ANALYSIS,
}
"""Tables that are sheets of the report; a report may omit some of their columns."""

TABLES: dict[str, tuple[Column, ...]] = {
    **SHEETS,
    "operations": tables.OPERATIONS,
    "gpu_work": tables.GPU_WORK,
    "memory_copies": tables.MEMORY_COPIES,
    "collectives": tables.COLLECTIVES,
    "idle_gaps": tables.IDLE_GAPS,
    "timeline_states": steps.TIMELINE_STATES,
    "steps": steps.STEPS,
    "step_gaps": steps.STEP_GAPS,
    **serving.TABLES,
    **steps.SIMULATION,
    "host_threads": tables.HOST_THREADS,
    "host_slices": tables.HOST_SLICES,
    "host_bins": tables.HOST_BINS,
    "call_tree": tables.CALL_TREE,
    "call_tree_operations": tables.CALL_TREE_OPERATIONS,
    "other_definitions": tables.OTHER_DEFINITIONS,
    "operation_models": tables.OPERATION_MODELS,
    "roofline_calls": tables.ROOFLINE_CALLS,
    "perf_model_failures": tables.PERF_MODEL_FAILURES,
    "fusion_chains": tables.FUSION_CHAINS,
    "fusion_steps": tables.FUSION_STEPS,
    "attention_groups": tables.ATTENTION_GROUPS,
    "attention_steps": tables.ATTENTION_STEPS,
    "trace_health": tables.TRACE_HEALTH,
    **serving.CAPTURES,
    **comparison.SCHEMAS,
    **ranks.TABLES,
}


def columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table; raise MissingTableError if it is unknown."""
    try:
        return TABLES[table]
    except KeyError:
        raise MissingTableError(table, f"the tables are {', '.join(TABLES)}") from None


def column(table: str, name: str) -> Column:
    """Return a column of a table; a parameter column (``param_M``) is created by its name.

    Raises:
        MissingTableError: The table or the column is unknown.
    """
    for candidate in columns(table):
        if candidate.name == name:
            return candidate
        if candidate.name == ANY_PARAM and name.startswith(PARAM_PREFIX):
            parameter = name.removeprefix(PARAM_PREFIX)
            return text(name, f"param: {parameter}", candidate.meaning)
    raise MissingTableError(f"{table}.{name}", "the table has no such column")


def dtypes(table: str) -> dict[str, pl.DataType]:
    """Return the dtypes of the columns of a table by name."""
    return {column.name: column.dtype for column in columns(table)}


def label(table: str, name: str) -> str:
    """Return the label of a column."""
    return column(table, name).label


def labeled(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Return the frame with columns renamed to their labels."""
    return frame.rename({name: label(table, name) for name in frame.columns})


_Frame = TypeVar("_Frame", pl.DataFrame, pl.LazyFrame)


def conform(frame: _Frame, table: str) -> _Frame:
    """Return the frame with exactly the columns of the schema, in its order and with its dtypes.

    Missing optional columns are omitted; parameter columns keep their dtype.
    """
    chosen: list[pl.Expr] = []
    names = frame.collect_schema().names()
    for c in columns(table):
        if c.name == ANY_PARAM:
            chosen.extend(pl.col(n) for n in names if n.startswith(PARAM_PREFIX))
        elif not c.optional or c.name in names:
            chosen.append(pl.col(c.name).cast(c.dtype))
    return frame.select(chosen)


def conformed(make: Callable[[Any], pl.DataFrame]) -> cached_property[pl.DataFrame]:
    """Return a cached property that conforms to the schema of its name (decorator of a method)."""

    @wraps(make)
    def of_schema(self: Any) -> pl.DataFrame:
        return conform(make(self), make.__name__)

    return cached_property(of_schema)


_ABOUT = {
    "gpu_timeline": "Breakdown of the GPU's time, from the first start to the last end of GPU work "
    "that host calls of the trace launched (of all work, if the trace links none). Work launched "
    "before the recording began is excluded.",
    "ops_summary_by_category": "Operators that launch GPU work, by category, without "
    "communication. Operators that run at the same time each count in full.",
    "ops_summary": "The same, by name.",
    "ops_unique_args": "The same, by name, arguments and thread.",
    "unified_perf_summary": "One row for each operator and its arguments: the outermost operator "
    "that a perf model covers, with all work below it, else the operator that launches. GPU work "
    "that no operator covers has its own rows.",
    "diff_stats": "GPU work that only one of two compared traces has, by the lowest call that both "
    "have in common. Work in both traces is excluded; `unified_perf_summary` compares its times.",
    "roofline": "One sheet per family of perf models, one row for each operator and parameter set. "
    "Nested operators of a family have separate rows, so column sums can count work twice; calls "
    "without GPU work count with zero time.",
    "kernel_summary": "Kernels by name, stream and launching operator, including communication and "
    "kernels without a recorded launch.",
    "short_kernel_histogram": "Histogram of the durations of kernels below a threshold.",
    "short_kernels_summary": "Kernels below that threshold, by name, operator and arguments.",
    "coll_analysis": "Communication by collective, message and process group. Kernels with "
    "incomplete metadata are only in the table `collectives`.",
    "operations": "The rows of `unified_perf_summary` with corrected values: kernel statistics by "
    "name, no FLOPs for copies, true element sizes. FLOPs and bytes are computed from the "
    "arguments, not measured, so a row shows neither why it is slow nor how well caches work.",
    "gpu_work": "Every GPU event of the trace.",
    "memory_copies": "Copies by direction, in the window of `gpu_timeline`.",
    "collectives": "Every communication kernel. Its time includes waiting for other ranks, which a "
    "single trace cannot separate from the transfer.",
    "idle_gaps": "The gaps of `gpu_timeline`, which add up to its idle time. A trace cannot prove "
    "why the GPU waited.",
    "timeline_states": "The window of `gpu_timeline` as a partition: one row where what the GPU "
    "does changes. Where several things run at once, compute comes before communication, and "
    "communication before copies; idle time has the causes of `idle_gaps`. The rows add up to the "
    "window exactly.",
    "steps": "The steps of the recording: those that the inference engine or the profiler marks, "
    "else the whole recording from its first to its last event, host included. Compute, exposed "
    "communication, exposed copies and the three kinds of idle time add up to the step time "
    "exactly. They are what the GPU does during the step, even if an earlier step launched it or "
    "its launch is not recorded, so the parts can differ from `gpu_timeline`.",
    "inference_steps": "The steps of inference, and the parts of steps that generate pictures, as "
    "`jarvis steps` lists them.",
    "inference_phases": "The phases of `inference_steps`, as `jarvis steps` lists them.",
    "inference_layers": "The kernels of the layers that repeat in the steps of inference, and the "
    "rest by block, as `jarvis steps --layers` lists them.",
    "inference_layer_times": "The time of each layer of `inference_layers` by block.",
    "inference_events": "The GPU events of `inference_steps`: which graph replays each, and where "
    "in the layers it is.",
    "step_gaps": "The idle time of each step of `steps`, with its place in the step and its likely "
    "cause; durations by place add up to the idle times of the step.",
    "host_threads": "Host threads and their activity: time in runtime calls, else in operators, "
    "else in Python only. Annotations do not count.",
    "host_slices": "Single host calls for the timeline: all, or the half million longest. Calls "
    "are longer than those inside them, so every call has its caller.",
    "host_bins": "Activity of host threads in equal spans of the recording, from all calls; spans "
    "without activity of a thread are omitted.",
    "call_tree": "GPU time by the calls that launched it, with equal calls at one place merged. "
    "The time of a node is the sum of its children; kernels are the leaves. An autograd node is "
    "placed "
    "under the module of the operator that it differentiates, if the trace links both.",
    "call_tree_operations": "Which operations the kernels of `call_tree` belong to.",
    "other_definitions": "GPU times of this trace by the definitions of other tools, and why they "
    "differ.",
    "operation_models": "Inputs of the efficiency of `operations` that are not in that table; with "
    "them a run is re-projected onto other hardware without its trace.",
    "roofline_calls": "Calls behind the rooflines of `unified_perf_summary` and the roofline "
    "sheets, for the same purpose. Calls without FLOPs, bytes or a precision have no roofline.",
    "perf_model_failures": "Operators whose perf model failed.",
    "fusion_chains": "Neighboring operators that one kernel could replace, found in the call tree "
    "by module, function or shape. Fitting shapes are evidence of data flow, not proof; other "
    "readers of an intermediate result are not visible.",
    "fusion_steps": "The operations at each position of the chains.",
    "attention_groups": "Attention that runs as single operators: a softmax between two matrix "
    "products whose shapes fit, with all operators between them.",
    "attention_steps": "The operations at each position of these groups.",
    "trace_health": "Facts about the quality of the trace, warnings first, with the affected "
    "results and how to record better.",
    **steps.ABOUT_SIMULATION,
    **serving.ABOUT_CAPTURES,
    **comparison.ABOUT,
    **ranks.ABOUT,
}
_INTRODUCTION = """# Metrics

All tables of a report with their columns. Sheets, workbook and pages show the labels. Times are
exact to the nanosecond, as recorded; MiB is 1,048,576 bytes, while TB/s and TFLOP/s are powers of
ten. An empty cell means not known, never zero."""


def schemas_markdown() -> str:
    """Return the documentation of all tables as Markdown."""
    parts = [_INTRODUCTION]
    for table, table_columns in TABLES.items():
        rows = [f"| `{c.name}` | {c.label} | {c.unit} | {c.meaning} |" for c in table_columns]
        head = ["| column | label | unit | meaning |", "|---|---|---|---|"]
        parts.append("\n".join([f"## `{table}`", "", _ABOUT[table], "", *head, *rows]))
    return "\n\n".join(parts) + "\n"
