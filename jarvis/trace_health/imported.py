"""Facts about a performance report that was read instead of a trace: contents and gaps."""

from collections.abc import Iterator

import polars as pl

from jarvis.schemas.names import C
from jarvis.text.format import counted, milliseconds, percent
from jarvis.trace_health.facts import Fact, Severity, when
from jarvis.tracelens.imported import ImportedReport

COMPLETE_PCT = 99.0
"""Below this share of the launched GPU time in operations, a warning is shown."""

_ANALYZE_TRACE = "Analyze the trace itself to see this."


def report_facts(report: ImportedReport) -> Iterator[Fact]:
    """Yield the facts about a report."""
    yield _form(report)
    yield _device()
    if not report.has_operations:
        yield _without_operators()
        return
    yield _complete(report)
    yield _stated(report)
    yield _kernels(report)
    if report.has_recompute:
        yield _recompute()


def _form(report: ImportedReport) -> Fact:
    things = ", ".join(dict.fromkeys(report.absent_tables.values()))
    return Fact(
        "report_input",
        "Performance report instead of a trace",
        "This is the analysis of a performance report, not of a trace.",
        severity=Severity.WARNING,
        affects=f"Not available: {things}. Pages and analyses that need them state this.",
        remedy=_ANALYZE_TRACE,
    )


def _device() -> Fact:
    return Fact(
        "device",
        "GPU",
        "A report does not name the GPU of the recording.",
        severity=Severity.NOTE,
        affects="Efficiencies refer to the selected GPU; without one there are none.",
        remedy="Name the GPU of the recording.",
    )


def _without_operators() -> Fact:
    return Fact(
        "operators",
        "Operators",
        "The report has a GPU timeline, but no operators.",
        severity=Severity.WARNING,
        affects="Kernels can be distinguished by name at most, and have no efficiency.",
        remedy="Record with CPU activity, or create the report with all its sheets.",
    )


def _complete(report: ImportedReport) -> Fact:
    key, title = "operation_time", "GPU time in operations"
    launched_us = float(report.table("ops_summary")[C.direct_kernel_time_us].sum())
    operations_us = float(report.operations[C.kernel_time_us].sum())
    if launched_us <= 0:
        return Fact(
            key, title, f"Operations take {milliseconds(operations_us / 1000)} of GPU time."
        )
    share_pct = 100 * operations_us / launched_us
    is_bad = share_pct < COMPLETE_PCT
    return Fact(
        key,
        title,
        f"Operations take {milliseconds(operations_us / 1000)} of GPU time, {percent(share_pct)} "
        "of the time that operators launch according to the report's summary.",
        share_pct,
        "%",
        when(is_bad, Severity.WARNING),
        "Operators that are missing in the report have no time." if is_bad else "",
        _ANALYZE_TRACE if is_bad else "",
    )


def _stated(report: ImportedReport) -> Fact:
    rows = report.measured.filter("is_stated")
    key, title = "stated_costs", "FLOPs and bytes of the report"
    if rows.is_empty():
        return Fact(key, title, "All FLOPs and bytes follow from the arguments.", 0.0, "rows")
    time_ms = float(rows[C.kernel_time_us].sum()) / 1000
    return Fact(
        key,
        title,
        f"FLOPs and bytes of {counted(rows.height, 'row')} ({milliseconds(time_ms)}) come from the "
        "report, because the arguments do not determine them.",
        float(rows.height),
        "rows",
        Severity.NOTE,
        "Their efficiency depends on the perf models of the program that wrote the report.",
        _ANALYZE_TRACE,
    )


def _kernels(report: ImportedReport) -> Fact:
    key, title = "kernel_lists", "Kernels of operations"
    bare = report.operations.filter(
        (pl.col(C.kernel_time_us) > 0) & pl.col(C.kernels).list.len().fill_null(0).eq(0)
    )
    if bare.is_empty():
        return Fact(
            key,
            title,
            "The kernels of a row are identified by their position in its first call.",
            severity=Severity.NOTE,
            affects="If calls of a row launch different kernels, some kernels have a wrong name or "
            "are not counted.",
            remedy=_ANALYZE_TRACE,
        )
    return Fact(
        key,
        title,
        f"{counted(bare.height, 'row')} of operations without readable kernels.",
        float(bare.height),
        "rows",
        Severity.WARNING,
        "Their kernels and libraries are not known; workbooks truncate long cells.",
        "Use the folder of CSV files, or analyze the trace itself.",
    )


def _recompute() -> Fact:
    return Fact(
        "recompute",
        "Recomputed work",
        "The report has one GPU timeline for recomputed work and one for the rest.",
        severity=Severity.NOTE,
        affects="The parts of both are added; if they overlap in time, busy time is too long and "
        "idle time too short.",
        remedy="Create the report without recompute detection, or analyze the trace.",
    )
