"""Every table: its columns with label, dtype, unit, format and meaning.

Labels stand only here. Those of the report sheets are TraceLens's, so that its users and tools
read our reports; column names are ours, with the unit in them.
"""

import polars as pl

from jarvis.core.errors import MissingTableError
from jarvis.schemas import comparison, sheets, tables, trace_diff
from jarvis.schemas.columns import (
    ANY_PARAM,
    FLAG,
    INTEGER,
    KERNEL_STATS,
    KERNELS,
    NAMES,
    NUMBER,
    PARAM_PREFIX,
    SPREAD,
    TEXT,
    UIDS,
    Column,
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
    "SHEETS",
    "SPREAD",
    "TABLES",
    "TEXT",
    "UIDS",
    "Column",
    "column",
    "columns",
    "conform",
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
"""The tables that are sheets of the report; a report leaves columns of them out."""

TABLES: dict[str, tuple[Column, ...]] = {
    **SHEETS,
    "operations": tables.OPERATIONS,
    "gpu_work": tables.GPU_WORK,
    "memory_copies": tables.MEMORY_COPIES,
    "collectives": tables.COLLECTIVES,
    "idle_gaps": tables.IDLE_GAPS,
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
    **comparison.SCHEMAS,
}


def columns(table: str) -> tuple[Column, ...]:
    """The columns of a table; MissingTableError for an unknown one."""
    try:
        return TABLES[table]
    except KeyError:
        raise MissingTableError(table, f"the tables are {', '.join(TABLES)}") from None


def column(table: str, name: str) -> Column:
    """One column of a table; a parameter column (``param_M``) is made for its name."""
    for candidate in columns(table):
        if candidate.name == name:
            return candidate
        if candidate.name == ANY_PARAM and name.startswith(PARAM_PREFIX):
            parameter = name.removeprefix(PARAM_PREFIX)
            return Column(name, f"param: {parameter}", TEXT, meaning=candidate.meaning)
    raise MissingTableError(f"{table}.{name}", "the table has no such column")


def label(table: str, name: str) -> str:
    """The label of a column."""
    return column(table, name).label


def labeled(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """The frame under its labels, columns in their order."""
    return frame.rename({name: label(table, name) for name in frame.columns})


def conform(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """The frame with exactly the columns of the schema, in its order and with its dtypes.

    Optional columns that the frame lacks stay away; parameter columns keep their dtype.
    """
    chosen: list[pl.Expr] = []
    for c in columns(table):
        if c.name == ANY_PARAM:
            chosen.extend(pl.col(n) for n in frame.columns if n.startswith(PARAM_PREFIX))
        elif not c.optional or c.name in frame.columns:
            chosen.append(pl.col(c.name).cast(c.dtype))
    return frame.select(chosen)


_ABOUT = {
    "gpu_timeline": "Where the GPU's time goes. It counts the GPU work that host calls of the "
    "trace launched (all of it, where the trace links none), from its first start to its last "
    "end; work launched before the recording began is left out.",
    "ops_summary_by_category": "Operators that launch GPU work, by category. Communication is "
    "left out. Where operators run at the same time, each counts in full.",
    "ops_summary": "The same, by name.",
    "ops_unique_args": "The same, by name, arguments and thread.",
    "unified_perf_summary": "One row for each operator and its arguments: the highest "
    "operator that a perf model covers, with all work below it, else the operator that "
    "launches. GPU work that no operator covers stands in rows of its own.",
    "diff_stats": "What the GPU does in only one of two compared traces, by the lowest call that "
    "both have in common. Work that both traces have is left out, however long it takes: "
    "`unified_perf_summary` compares its times.",
    "roofline": "One sheet for each family of perf models, one row for each operator and "
    "parameter set. Nested operators of a family stand side by side, so that column sums can "
    "count work twice; calls without GPU work count with no time.",
    "kernel_summary": "Kernels by name, stream and the operator that launched them, communication "
    "and kernels without a recorded launch included.",
    "short_kernel_histogram": "How many kernels are how short, below a threshold.",
    "short_kernels_summary": "Kernels below that threshold, by name, operator and arguments.",
    "coll_analysis": "Communication by collective, message and process group. Kernels whose "
    "metadata is incomplete are left out; the table `collectives` has them.",
    "operations": "The rows of `unified_perf_summary` with the right values: kernel "
    "statistics by name, no FLOPs for copies, true element sizes. A row tells neither why it is "
    "slow nor how well caches work: FLOPs and bytes are computed from the arguments, not "
    "measured.",
    "gpu_work": "Every GPU event of the trace.",
    "memory_copies": "Copies by direction, in the window of `gpu_timeline`.",
    "collectives": "Every communication kernel. The time of a kernel includes waiting for the "
    "other ranks; one trace alone cannot tell the two apart.",
    "idle_gaps": "The gaps of `gpu_timeline`: they add up to its idle time. One trace cannot prove "
    "why the GPU waited.",
    "host_threads": "The threads of the host, and what they do: time in runtime calls, else in "
    "operators, else in Python alone. Annotations do not count.",
    "host_slices": "Single calls of the host for the timeline: all, or the half million longest. "
    "A call is longer than those inside it, so none stands without its caller.",
    "host_bins": "What the host's threads do in equal spans of the recording, all calls counted; "
    "spans in which a thread does nothing are left out.",
    "call_tree": "GPU time by the calls that launched it, equal calls at one place merged. The "
    "time of a node is that of its children; kernels are the leaves. A backward node of autograd "
    "stands under the module of the operator that it differentiates, where the trace links both.",
    "call_tree_operations": "Which operations the kernels of `call_tree` belong to.",
    "other_definitions": "What other tools say of the GPU's time in this trace, worked out by "
    "their definitions, and why it differs.",
    "operation_models": "What the efficiency of `operations` depends on and that table does not "
    "say; with it a run is judged against other hardware without its trace.",
    "roofline_calls": "The calls behind the rooflines of `unified_perf_summary` and the roofline "
    "sheets, for the same purpose; those without FLOPs, bytes or a precision have none.",
    "perf_model_failures": "Operators that a perf model should price but could not.",
    "fusion_chains": "Neighboring operators that one kernel could replace, found in the call tree "
    "by module, function or shape. That shapes fit is evidence that data flows, not proof; whether "
    "something else reads an intermediate result cannot be seen.",
    "fusion_steps": "The operations at each position of the chains.",
    "attention_groups": "Attention that runs as single operators: a softmax between two matrix "
    "products whose shapes fit, with all that runs between them.",
    "attention_steps": "The operations at each position of these groups.",
    "trace_health": "How far the trace can be trusted, warnings first: each fact with what it "
    "affects and how to capture better.",
    **comparison.ABOUT,
}
_INTRODUCTION = """# Metrics

Every table that a report has, with its columns. Labels are those of the sheets, the workbook and
the pages. Times are exact to the nanosecond as the profiler records them; MiB is 1,048,576 bytes,
while TB/s and TFLOPS/s are powers of ten. An empty cell means not known, never zero."""


def schemas_markdown() -> str:
    """All tables as Markdown: what each column means, its unit and its label."""
    parts = [_INTRODUCTION]
    for table, table_columns in TABLES.items():
        rows = [f"| `{c.name}` | {c.label} | {c.unit} | {c.meaning} |" for c in table_columns]
        head = ["| column | label | unit | meaning |", "|---|---|---|---|"]
        parts.append("\n".join([f"## `{table}`", "", _ABOUT[table], "", *head, *rows]))
    return "\n\n".join(parts) + "\n"
