"""Parts shared by several Markdown reports: a run's rows and findings as text and tables."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from pydantic import JsonValue

from jarvis.findings import AnalysisResult, Finding, OpRef, Status, Tier
from jarvis.hardware import HardwareSpec
from jarvis.impact import marked_efficiency
from jarvis.reports.messages import MESSAGES
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import (
    MISSING,
    count,
    counted,
    decimal,
    percent,
    tb_per_s,
    tflops_per_s,
)
from jarvis.text.markdown import NAME_LENGTH, Markdown, cell, code, prose, shortened, table
from jarvis.text.messages import Message, Text, to_text
from jarvis.text.short_names import kernel_without_operator

ROWS_SHOWN = 25
"""Rows of an operations table in Markdown; the CSV next to it has all."""

OPERATORS_SHOWN = 3
KERNEL_LENGTH = 110
"""Characters of a kernel's name in the reports: the distinguishing part is often near the end."""

TRACE_ENDINGS = (".zip", ".gz", ".json", ".pt.trace")
"""Suffixes of a trace file, outermost first."""

MAIN_PRECISION = "matrix_bf16"
NO_PLATFORM = "Hardware not known"

SCOPES: Mapping[Tier, str] = {
    "compute": "one category",
    "fusion": "across operators",
    "system": "system level",
}
"""The scope of the analyses of each tier."""

OPERATION_COLUMNS = (
    "Operation",
    "Count",
    "Time (ms)",
    "% of Category",
    "Efficiency",
    "FLOPS/Byte",
    "Type",
)


def model_name(run: Run) -> str:
    """Return the model as the user named it, else the name of the trace file; never a guess."""
    return run.manifest.model_name or trace_stem(run.manifest.trace.file_name)


def trace_stem(file_name: str) -> str:
    """Return the name of a trace file without the suffixes of its format."""
    stem = file_name
    for ending in TRACE_ENDINGS:
        stem = stem.removesuffix(ending)
    return stem or file_name


def platform_name(run: Run) -> str:
    """Return the GPU whose peaks the run uses."""
    hardware = run.manifest.hardware
    return hardware.title if hardware else NO_PLATFORM


def hardware_line(hardware: HardwareSpec | None) -> str:
    """Return platform, preset and its main peaks in one line."""
    if hardware is None:
        return (
            f"{NO_PLATFORM}: efficiencies are not available. Name the GPU (`--platform`) to get "
            "them."
        )
    peak = hardware.peak_tflops(MAIN_PRECISION)
    compute = f"{tflops_per_s(peak)} {MAIN_PRECISION}" if peak else f"no {MAIN_PRECISION} peak"
    return f"{hardware.title}: {tb_per_s(hardware.tb_per_s)}, {compute}"


def trace_line(run: Run) -> str:
    """Return the trace, whether it was recorded or simulated, and the device it names."""
    trace = run.manifest.trace
    if trace.form == "report":
        return f"performance report `{trace.file_name}` (no device name)"
    device = trace.device_name or "no device name"
    rank = (
        f", rank {trace.rank} of {trace.world_size}"
        if trace.world_size and trace.world_size > 1 and trace.rank is not None
        else ""
    )
    return f"{trace.origin} trace `{trace.file_name}` ({device}{rank})"


def operations_table(rows: pl.DataFrame) -> Markdown:
    """Return the operations of one category, each row one operator with one set of arguments."""
    return table(OPERATION_COLUMNS, map(_operation, rows.iter_rows(named=True)))


def _operation(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        operation_cell(row),
        count(row[C.operation_count]),
        decimal(row[C.kernel_time_us] / 1000),
        percent(row[C.percent_of_category]),
        marked_efficiency(row[C.pct_roofline]),
        decimal(row[C.flops_per_byte]),
        row[C.bound] or MISSING,
    )


def left_out(rows: pl.DataFrame, shown: int) -> Message | None:
    """Return a note on the rows that a shortened table omits, or None."""
    hidden = rows.slice(shown)
    if hidden.is_empty():
        return None
    time_ms = float(hidden[C.kernel_time_us].sum()) / 1000
    return MESSAGES("left_out", rows=hidden.height, time_ms=time_ms)


def operation_line(references: Iterable[OpRef]) -> Markdown:
    """Return the operators of a finding with their calls, most time first.

    Kernels without an operator are listed under their own names, with their launches.
    """
    calls: dict[str, int] = {}
    for reference in references:
        calls[reference.name] = calls.get(reference.name, 0) + reference.operation_count
    is_nameless = all(kernel_without_operator(name) for name in calls)
    each, noun = ("launch", "kernel") if is_nameless else ("call", "operator")
    return listed_operators(
        (f"{operator_cell(name)} ({counted(number, each)})" for name, number in calls.items()),
        noun,
    )


def listed_operators(operators: Iterable[str], noun: str = "operator") -> Markdown:
    """Return the first few operators and the number of the others."""
    shown = list(operators)
    hidden = len(shown) - OPERATORS_SHOWN
    more = f" and {counted(hidden, f'more {noun}')}" if hidden > 0 else ""
    return Markdown(", ".join(shown[:OPERATORS_SHOWN]) + more)


def operator_cell(name: str) -> Markdown:
    """Return an operator, or the kernel of a row without one."""
    kernel = kernel_without_operator(name)
    return cell(kernel, KERNEL_LENGTH) if kernel else cell(name)


def operator_names(run: Run, uids: Iterable[int]) -> tuple[str, ...]:
    """Return the operators of these rows without duplicates, most time first."""
    if not (wanted := list(uids)):
        return ()
    operations = run.table("operations")[[C.uid, C.name, C.kernel_time_us]]
    rows = operations.filter(pl.col(C.uid).is_in(wanted))
    times = rows.group_by(C.name).agg(pl.col(C.kernel_time_us).sum())
    return tuple(times.sort(C.kernel_time_us, C.name, descending=[True, False])[C.name])


def lead(text: Text, words: int, ends: str = ".;") -> Markdown:
    """Return the first clauses of a text that have at most ``words`` words, at least one.

    A clause ends at one of the characters ``ends``, outside names. The findings files have the
    rest.
    """
    first, *others = re.split(rf"(?<=[{ends}]) +(?=[A-Z`a-z0-9])", to_text(text))
    for other in others:
        is_in_name = first.count("`") % 2 == 1
        if not is_in_name and len(f"{first} {other}".split()) > words:
            break
        first = f"{first} {other}"
    return prose(re.sub("[;:]$", ".", first))


def measured(name: str, value: JsonValue) -> str:
    """Return a named number or text of an analysis; the name determines the unit."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: MISSING}[value]
    if isinstance(value, int):
        return count(value)
    if isinstance(value, float):
        is_share = "%" in name or name.endswith(("_pct", "_percent"))
        return percent(value) if is_share else decimal(value)
    return prose(str(value))


def compute_results(run: Run) -> list[AnalysisResult]:
    """Return categories with operations, or with findings on those of others; most time first."""
    compute = (r for r in run.results.values() if r.tier == "compute")
    found = [r for r in compute if r.row_count or r.findings]
    return sorted(found, key=lambda result: (-result.gpu_time_ms, result.key))


def action_headings(finding: Finding) -> tuple[str, str]:
    """Return the headings of the actions: those of findings without rows change no kernel."""
    if finding.row_uids:
        return "Change the model", "Improve the kernel"
    return "Change the program", "Change the setup or libraries"


def cross_results(run: Run) -> list[AnalysisResult]:
    """Return analyses across categories that have data: the system level, then fusion."""
    found = [r for r in run.results.values() if r.tier != "compute" and r.status is Status.OK]
    return sorted(found, key=lambda result: result.tier == "fusion")


def called_from(row: Mapping[str, Any]) -> Markdown | None:
    """Return modules and entry point around the example call of a row; None if neither is known."""
    chain = " / ".join(code(name) for name in row.get(C.module_path) or ())
    entry = code(row[C.entry_point]) if row.get(C.entry_point) else ""
    return Markdown(", ".join(part for part in (chain, entry) if part)) or None


def operation_cell(row: Mapping[str, Any]) -> Markdown:
    """Return an operator with its arguments."""
    name = operator_cell(row[C.name])
    if not row["arguments"]:
        return Markdown(f"{name} (scalars)") if row[C.input_dims] else name
    return Markdown(f"{name} {prose(shortened(row['arguments'], NAME_LENGTH))}")
