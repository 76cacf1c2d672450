"""``comparative_analysis_rough.md``: raw data, and expected against actual times of every
operation."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from jarvis.comparison import FASTER, TOLERANCE, Role
from jarvis.comparison.matching import MatchedBy
from jarvis.core.workspace import RunPaths
from jarvis.hardware import HardwareSpec
from jarvis.reports.comparative import appendix
from jarvis.reports.comparative.subject import Row, Subject, operation_text
from jarvis.reports.comparative.words import (
    actual,
    attainable,
    calculation_text,
    expected,
    gap,
    has_efficiency,
    impact,
    is_unexpected,
    off_by,
)
from jarvis.reports.rendering import render
from jarvis.schemas import columns
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, count, counted, decimal, milliseconds, percent, quoted
from jarvis.text.markdown import Markdown, block, cell, one_line, prose, table
from jarvis.text.messages import to_text

RAW_ROWS = 60
"""Rows of a raw table; the CSV file has all."""

NAME_LENGTH = 160
"""Characters of a name: the part that distinguishes two kernels is often near the end."""

RAW: Mapping[str, tuple[str, ...]] = {
    "comparison_totals": (),
    "comparison_steps": (),
    "comparison_bounds": (),
    "comparison_categories": ("title",),
    "comparison_unmatched": (),
    "comparison_kernels": (),
    "comparison_lowering": (C.input_dims, C.input_types),
    "comparison_collectives": (),
    "comparison_modules": (),
}
"""The raw tables, and columns that only their files have; operations are in the calculations."""

QUOTED = (C.name, C.reference_name, C.kernel, C.module, C.path, C.place, C.input_dims, C.type)


def rough_markdown(subject: Subject) -> str:
    """Return the calculations behind the report for stakeholders."""
    compared = subject.comparison
    return render(
        "comparative_rough",
        title=subject.title,
        inputs=appendix.inputs(subject),
        hardware=appendix.hardware(subject),
        commands=_commands(subject),
        tables=_tables(subject),
        summary=list(compared.summary),
        matched=_matched(subject),
        outcomes=_outcomes(subject),
        tolerance=f"{compared.tolerance:g}",
        calculations=_calculations(subject),
        calculation_text=[
            f"Pair {row[C.pair]}, {operation_text(row)}: {calculation_text(subject, row)}"
            for row in subject.rows
            if is_unexpected(row)
        ],
        findings=[
            f"Priority {number} ({finding.priority.value}): "
            f"{gap(subject, finding)} Saving: {impact(subject, finding)}"
            for number, finding in subject.numbered
        ],
        raw=list(_raw_tables(subject)),
        gaps=[*appendix.gaps(subject), *appendix.NEVER_COMPARED],
        questions=list(_questions(subject)),
        sources=list(appendix.sources(subject)),
        methodology=list(appendix.methodology(compared)),
    )


def _commands(subject: Subject) -> Markdown:
    """Return the commands that reproduce these files."""
    words = ["jarvis", "compare"]
    words += [subject.run(role).manifest.trace.file_name for role in (Role.REFERENCE, Role.TARGET)]
    for flag, role in (("--reference-platform", Role.REFERENCE), ("--platform", Role.TARGET)):
        hardware: HardwareSpec | None = subject.side(role).hardware
        words += [flag, hardware.name] if hardware else []
    if subject.comparison.tolerance != TOLERANCE:
        words += ["--tolerance", f"{subject.comparison.tolerance:g}"]
    return block(one_line(shlex.join([*words, "--output-dir", "comparison"])), "sh")


def _tables(subject: Subject) -> Markdown:
    return table(
        ("Table", "Rows", "File"),
        (
            (name, count(found.height), cell(_file(name)))
            for name, found in subject.comparison.tables().items()
        ),
    )


def _file(name: str) -> str:
    return str(RunPaths(Path()).comparison_table(name))


def _matched(subject: Subject) -> Markdown:
    """Return how many operations of how much time were matched in which way, and the unmatched
    ones."""
    operations = subject.comparison.operations
    lines = []
    for by in MatchedBy:
        rows = operations.filter(pl.col(C.matched_by) == by.value)
        lines.append(_matched_line(by.value, rows.height, rows[C.reference_ms], rows[C.target_ms]))
    alone = subject.comparison
    only = {Role.REFERENCE: alone.only_in_reference, Role.TARGET: alone.only_in_target}
    for role, rows in only.items():
        times = [rows[C.time_ms] if role is side else rows[C.time_ms].clear() for side in only]
        lines.append(_matched_line(f"only in the {role.value}", rows.height, *times))
    return table(("Matched by", "Rows", "Reference (ms)", "Target (ms)"), lines)


def _matched_line(
    how: str, rows: int, reference_ms: pl.Series, target_ms: pl.Series
) -> tuple[str, ...]:
    return how, count(rows), *(decimal(float(times.sum())) for times in (reference_ms, target_ms))


def _outcomes(subject: Subject) -> Markdown:
    grouped = subject.comparison.operations.group_by(C.outcome).agg(
        pl.len().alias("rows"), pl.col(C.reference_ms, C.target_ms, C.unexplained_ms).sum()
    )
    return table(
        ("Outcome", "Rows", "Reference (ms)", "Target (ms)", "Not explained (ms)"),
        (
            (
                row[C.outcome],
                count(row["rows"]),
                decimal(row[C.reference_ms]),
                decimal(row[C.target_ms]),
                decimal(row[C.unexplained_ms]),
            )
            for row in grouped.sort(C.target_ms, C.outcome, descending=True).iter_rows(named=True)
        ),
    )


def _calculations(subject: Subject) -> Markdown | None:
    """Return expected against actual times of every compared operation."""
    if not subject.rows:
        return None
    headers = (
        "Pair",
        "Operation",
        "Actual: target / reference",
        "Expected",
        "Actual / expected",
        "Outcome",
        "Attainable",
        "Target",
        "Not explained",
    )
    return table(headers, (_calculation(subject, row) for row in subject.rows))


def _calculation(subject: Subject, row: Row) -> tuple[str, ...]:
    return (
        count(row[C.pair]),
        prose(operation_text(row)),
        actual(row),
        prose(expected(subject, row)),
        off_by(row),
        row[C.outcome],
        attainable(row) if has_efficiency(row) else MISSING,
        milliseconds(row[C.target_ms]),
        milliseconds(row[C.unexplained_ms]),
    )


def _raw_tables(subject: Subject) -> Iterator[tuple[str, Markdown, str | None]]:
    """Yield name, first rows, and a note on omitted rows of each raw table that has rows."""
    tables = subject.comparison.tables()
    for name in RAW:
        frame = tables[name]
        if frame.is_empty():
            continue
        hidden = frame.height - RAW_ROWS
        left_out = f"{counted(hidden, 'further row')} in `{_file(name)}`." if hidden > 0 else None
        yield name, _raw(name, frame.head(RAW_ROWS)), left_out


def _raw(name: str, frame: pl.DataFrame) -> Markdown:
    labels = {column.name: column.label for column in columns(name)}
    shown = [column for column in frame.columns if column not in RAW[name]]
    return table(
        [labels[column] for column in shown],
        (
            tuple(_value(column, row[column]) for column in shown)
            for row in frame.iter_rows(named=True)
        ),
    )


def _value(column: str, value: object) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, float):
        return percent(value) if column.endswith(("_pct", "percent")) else decimal(value)
    if isinstance(value, int):
        return str(value) if "uid" in column else count(value)
    return cell(str(value), NAME_LENGTH) if column in QUOTED else str(value)


def _questions(subject: Subject) -> Iterator[str]:
    """Yield what to investigate next, on either side."""
    for number, finding in subject.numbered:
        if finding.capture:
            yield f"Priority {number}: {to_text(finding.capture)}"
    faster = [row for row in subject.rows if row[C.outcome] in FASTER]
    for row in faster:
        is_one_name = row[C.name] == row[C.reference_name]
        operation = operation_text(row) if is_one_name else quoted(row[C.reference_name])
        yield (
            f"Why does the reference take {milliseconds(row[C.reference_ms])} for "
            f"{operation}, more than its peaks explain compared with the target's "
            f"{milliseconds(row[C.target_ms])}?"
        )
    unknown = [row for row in subject.rows if row[C.expected_ratio_most] is None]
    if unknown:
        time_ms = sum(row[C.target_ms] for row in unknown)
        yield (
            f"What can be expected of {counted(len(unknown), 'operation')} of "
            f"{milliseconds(time_ms)} for which no peak of the two GPUs applies?"
        )
    yield "Do the differences stay the same when both sides are recorded again?"
