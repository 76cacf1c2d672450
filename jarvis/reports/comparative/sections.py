"""Sections on single compared operations in the report for stakeholders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from jarvis.comparison.timeline import IDLE, OUTSIDE_COMPUTE, causes
from jarvis.findings import Finding, Priority
from jarvis.impact import marked_efficiency
from jarvis.reports import sections
from jarvis.reports.comparative.subject import Row, Subject, operation_text
from jarvis.reports.comparative.words import (
    change_pct,
    delta,
    verdict,
)
from jarvis.schemas.names import C
from jarvis.text.format import (
    MISSING,
    count,
    microseconds,
    milliseconds,
    percent,
    signed,
)
from jarvis.text.markdown import Markdown, anchor, cell, prose, table
from jarvis.text.messages import to_text

COLUMNS = ("Metric", "Reference", "Target", "Δ", "Expected?")
ROWS_SHOWN = 5
"""Rows of an operations table; its file has all."""

DETAILS_SHOWN = 3
"""Findings with details in the report: those that save most step time."""


@dataclass(frozen=True)
class ComparisonSection:
    """The details of the finding with this number."""

    number: int
    heading: str
    table: Markdown
    finding: Finding
    called_from: Markdown | None = None

    @property
    def link(self) -> Markdown:
        """Return the target of a link to it."""
        return Markdown(f"#{anchor(self.heading)}")


def finding_sections(subject: Subject) -> list[ComparisonSection]:
    """Return the details of the first findings, if they are at least of medium priority."""
    urgent = [each for each in subject.numbered if each[1].priority is not Priority.LOW]
    return [_section(subject, number, finding) for number, finding in urgent[:DETAILS_SHOWN]]


def _section(subject: Subject, number: int, finding: Finding) -> ComparisonSection:
    row = subject.row_of(finding)
    if row is not None:
        return ComparisonSection(
            number=number,
            heading=f"{number}. {operation_text(row)}",
            table=table(COLUMNS, _metrics(subject, row)),
            finding=finding,
            called_from=_called_from(subject, row),
        )
    heading = f"{number}. {to_text(finding.title)}"
    if finding.check in OUTSIDE_COMPUTE:
        return ComparisonSection(number, heading, _causes(subject, finding), finding)
    alone = {row[C.uid]: row for row in subject.comparison.only_in_target.iter_rows(named=True)}
    return ComparisonSection(
        number,
        heading,
        table=unmatched_table([alone[each.uid] for each in finding.operations]),
        finding=finding,
    )


def _metrics(subject: Subject, row: Row) -> Iterator[tuple[str, ...]]:
    target_calls, reference_calls = row[C.target_calls], row[C.reference_calls]
    is_as_many = target_calls == reference_calls
    word = verdict(row)
    yield (
        "Time",
        milliseconds(row[C.reference_ms]),
        milliseconds(row[C.target_ms]),
        delta(row[C.difference_pct]),
        word if is_as_many else MISSING,
    )
    yield "Calls", count(reference_calls), count(target_calls), _more_calls(row), MISSING
    yield (
        "Time per call",
        microseconds(row[C.reference_us_per_call]),
        microseconds(row[C.target_us_per_call]),
        delta(change_pct(row[C.target_us_per_call], row[C.reference_us_per_call])),
        word,
    )
    if row[C.efficiency_pct] is not None or row[C.reference_efficiency_pct] is not None:
        yield (
            "Efficiency (of roofline)",
            marked_efficiency(row[C.reference_efficiency_pct]),
            marked_efficiency(row[C.efficiency_pct]),
            _points(row[C.efficiency_pct], row[C.reference_efficiency_pct]),
            MISSING,
        )
    if row[C.reference_name] != row[C.name]:
        names = (row[C.reference_name], row[C.name])
        yield "Operator", *map(cell, names), MISSING, MISSING
    kernels = row[C.reference_kernel], row[C.kernel]
    if any(kernels):
        shown = (cell(name, sections.KERNEL_LENGTH) if name else MISSING for name in kernels)
        yield "Main kernel", *shown, MISSING, MISSING


def _more_calls(row: Row) -> str:
    more: int = row[C.target_calls] - row[C.reference_calls]
    return signed(f"{more:+,}") if more else "0"


def _points(target_pct: float | None, reference_pct: float | None) -> str:
    """Return the difference of two shares, in percentage points."""
    if target_pct is None or reference_pct is None:
        return MISSING
    return signed(f"{target_pct - reference_pct:+.1f} points")


def _called_from(subject: Subject, row: Row) -> Markdown | None:
    """Return modules and entry point around the example call of the target's heaviest row."""
    rows = subject.target.category_operations(row[C.category])
    for found in rows.filter(pl.col(C.uid) == row[C.uid]).iter_rows(named=True):
        return sections.called_from(found)
    return None


def _causes(subject: Subject, finding: Finding) -> Markdown:
    """Return the time of the finding on both sides, idle time also by cause."""
    assert finding.impact is not None, "every finding of a comparison has an impact"
    part_ms = finding.impact.time_ms
    times = {"all": (part_ms, part_ms - finding.impact.saved_ms.high)}
    if finding.check == IDLE.check:
        times |= causes(subject.comparison.target, subject.comparison.reference)
    return table(
        ("Cause", "Reference", "Target", "Δ"),
        (
            (
                cause,
                milliseconds(other_ms),
                milliseconds(time_ms),
                delta(change_pct(time_ms, other_ms)),
            )
            for cause, (time_ms, other_ms) in times.items()
        ),
    )


def unmatched_table(rows: Sequence[Row]) -> Markdown:
    """Return operations that only one side has."""
    return table(
        ("Operation", "Calls", "Time", "% of compute", "Bound"),
        (
            (
                prose(operation_text(row)),
                count(row[C.calls]),
                milliseconds(row[C.time_ms]),
                percent(row[C.percent_of_compute]),
                row[C.bound] or MISSING,
            )
            for row in rows[:ROWS_SHOWN]
        ),
    )
