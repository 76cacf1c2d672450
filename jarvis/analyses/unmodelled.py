"""Time that cannot be judged: operators without a perf model, kernels replayed from GPU graphs."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup
from jarvis.analyses.wording import listed, ms, pct, quoted
from jarvis.findings import GPU_TIME, Finding, Priority

GRAPH_LAUNCH = "(?i)graphlaunch"
"""Operations that replay a GPU graph."""


def no_perf_model(data: CategoryData) -> Iterator[Finding]:
    """Time that cannot be judged because no perf model covers it.

    Symptom: operators without known FLOPs and bytes take a good part of the category.
    Rule: the rows without a perf model together pass the time test of ``low_efficiency``.
    Threshold: 50 ms or 5% of category time; at least 0.5% of compute.
    """
    rows = data.operations.filter(~pl.col("has_perf_model") & (pl.col("kernel_time_us") > 0))
    if rows.is_empty():
        return
    all_rows = OperationGroup(rows)
    time_ms, compute_pct = all_rows.time_ms, all_rows.compute_pct
    category_pct = all_rows.category_pct
    if not impact.is_time_relevant(time_ms, category_pct) or compute_pct < MIN_COMPUTE_PCT:
        return
    names = rows.group_by("name", maintain_order=True).agg(pl.col("kernel_time_us").sum())
    heaviest = names.sort("kernel_time_us", descending=True)["name"].to_list()
    named = listed(list(dict.fromkeys(quoted(name) for name in heaviest)))
    priority = Priority.MEDIUM if compute_pct > impact.MEDIUM_COMPUTE_PCT else Priority.LOW
    yield Finding(
        check="no_perf_model",
        category=data.key,
        title=f"No perf model: {_first_and_more(heaviest)}",
        operations=all_rows.operations,
        evidence={
            GPU_TIME: time_ms,
            "Share of category (%)": category_pct,
            "Share of compute (%)": compute_pct,
            "Operators": named,
        },
        issue=f"No perf model covers {named}, so whether "
        f"their {ms(time_ms)} ({pct(compute_pct)} of compute) are slow is not known.",
        priority_local=priority,
        priority=priority,
        caveat="No saving can be estimated without FLOPs and bytes.",
        **_next_steps(rows),
    )


def _next_steps(rows: pl.DataFrame) -> dict[str, str]:
    """What to do about rows without a perf model: kernels of a GPU graph have no arguments."""
    replayed = rows.filter(pl.col("name").str.contains(GRAPH_LAUNCH))
    if replayed["kernel_time_us"].sum() > rows["kernel_time_us"].sum() / 2:
        return {
            "algorithmic": "Record one step without GPU graphs: it names the operators and the "
            "shapes behind these kernels, and what calls them.",
            "kernel": "Take the kernels by name until then: compare their times over shapes and "
            "versions, and profile the longest with the platform's hardware-counter profiler.",
            "verify": "In a trace without graph replay the same kernels carry an efficiency.",
        }
    without_arguments = rows.filter(pl.col("input_dims").is_null())
    if without_arguments["kernel_time_us"].sum() > rows["kernel_time_us"].sum() / 2:
        return {
            "algorithmic": "Record the trace with CPU activity and input shapes: it then names the "
            "operators behind these kernels, their shapes, and what calls them.",
            "kernel": "Take the kernels by name until then, and profile the longest with the "
            "platform's hardware-counter profiler.",
            "verify": "In a trace with operators and shapes the same kernels carry an efficiency.",
        }
    return {
        "algorithmic": "Look at what calls them and whether a fused or library operator does the "
        "same work.",
        "kernel": "Add a perf model for them, or give a replay package to the kernel team to "
        "measure them against the hardware.",
        "verify": "With a perf model registered, analyse the same trace again: the rows then carry "
        "an efficiency.",
    }


def _first_and_more(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{quoted(names[0])}{more}"
