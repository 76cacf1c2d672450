"""Facts about a report that was read in place of a trace: what it tells, and what it cannot."""

from collections.abc import Iterator

import polars as pl

from jarvis.text.format import counted, milliseconds, percent
from jarvis.trace_health.facts import Fact, Severity, when
from jarvis.tracelens.imported import ImportedReport

COMPLETE_PCT = 99.0
"""With less of the launched GPU time in operations, every reader is warned."""

_ANALYSE_TRACE = "Analyze the trace itself to see this."


def report_facts(report: ImportedReport) -> Iterator[Fact]:
    """What the report holds, and what it lacks."""
    yield _form(report)
    yield _device()
    if not report.has_operations:
        yield _without_operators()
        return
    yield _complete(report)
    yield _stated(report)
    yield _kernels(report)
    if report.tells_recompute:
        yield _recompute()


def _form(report: ImportedReport) -> Fact:
    things = ", ".join(dict.fromkeys(report.absent_tables.values()))
    return Fact(
        "report_input",
        "Performance report in place of a trace",
        "This is the analysis of a performance report, not of a trace.",
        severity=Severity.WARNING,
        affects=f"It cannot tell: {things}. Pages and analyses that need it say so.",
        remedy=_ANALYSE_TRACE,
    )


def _device() -> Fact:
    return Fact(
        "device",
        "GPU",
        "A report does not name the GPU that it was recorded on.",
        severity=Severity.NOTE,
        affects="Efficiencies are against the GPU that was chosen; without one there are none.",
        remedy="Name the GPU of the recording.",
    )


def _without_operators() -> Fact:
    return Fact(
        "operators",
        "Operators",
        "The report has a GPU timeline, but no operators.",
        severity=Severity.WARNING,
        affects="Kernels are told apart by name at most, and cannot be judged.",
        remedy="Record with CPU activity, or make the report with all its sheets.",
    )


def _complete(report: ImportedReport) -> Fact:
    key, title = "operation_time", "GPU time in operations"
    launched_us = float(report.table("ops_summary")["direct_kernel_time_us"].sum())
    found_us = float(report.operations["kernel_time_us"].sum())
    if launched_us <= 0:
        return Fact(key, title, f"Operations take {milliseconds(found_us / 1000)} of GPU time.")
    share_pct = 100 * found_us / launched_us
    is_bad = share_pct < COMPLETE_PCT
    return Fact(
        key,
        title,
        f"Operations take {milliseconds(found_us / 1000)} of GPU time, {percent(share_pct)} of "
        "what operators "
        "launch by the report's own summary.",
        share_pct,
        "%",
        when(is_bad, Severity.WARNING),
        "Operators that the report leaves out have no time here." if is_bad else "",
        _ANALYSE_TRACE if is_bad else "",
    )


def _stated(report: ImportedReport) -> Fact:
    rows = report.measured.filter("is_stated")
    key, title = "stated_costs", "FLOPs and bytes of the report"
    if rows.is_empty():
        return Fact(key, title, "All FLOPs and bytes follow from the arguments.", 0.0, "rows")
    time_ms = float(rows["kernel_time_us"].sum()) / 1000
    return Fact(
        key,
        title,
        f"{counted(rows.height, 'row')} ({milliseconds(time_ms)}) take FLOPs and bytes as the "
        "report states "
        "them: the arguments alone do not tell.",
        float(rows.height),
        "rows",
        Severity.NOTE,
        "Their efficiency stands on the perf models of the program that wrote the report.",
        _ANALYSE_TRACE,
    )


def _kernels(report: ImportedReport) -> Fact:
    key, title = "kernel_lists", "Kernels of operations"
    bare = report.operations.filter(
        (pl.col("kernel_time_us") > 0) & pl.col("kernels").list.len().fill_null(0).eq(0)
    )
    if bare.is_empty():
        return Fact(
            key,
            title,
            "The kernels of a row are told by their position in its first call.",
            severity=Severity.NOTE,
            affects="Where calls of one row launch others, kernels stand under another's name or "
            "are not counted.",
            remedy=_ANALYSE_TRACE,
        )
    return Fact(
        key,
        title,
        f"{counted(bare.height, 'row')} of operations name no kernels that can be read.",
        float(bare.height),
        "rows",
        Severity.WARNING,
        "Their kernels and libraries are not known; a workbook cuts long cells.",
        "Give the folder of CSV files, or analyze the trace itself.",
    )


def _recompute() -> Fact:
    return Fact(
        "recompute",
        "Recomputed work",
        "The report has one GPU timeline for recomputed work and one for the rest.",
        severity=Severity.NOTE,
        affects="The parts of both are added up; where they overlap in time, busy time is too long "
        "and idle time too short.",
        remedy="Make the report without telling recomputed work apart, or analyze the trace.",
    )
