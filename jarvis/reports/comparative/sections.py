"""Sections on single compared operations in the report for stakeholders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from jarvis.comparison import Role
from jarvis.comparison.findings import ONLY_IN_TARGET
from jarvis.comparison.timeline import IDLE, OUTSIDE_COMPUTE, causes
from jarvis.findings import Finding
from jarvis.impact import marked_efficiency
from jarvis.reports import sections
from jarvis.reports.comparative.subject import Row, Subject, operation_text
from jarvis.reports.comparative.words import (
    KNOWN,
    calculation_text,
    change_pct,
    delta,
    is_unexpected,
    verdict,
)
from jarvis.schemas.names import C
from jarvis.text.format import (
    MISSING,
    count,
    decimal,
    microseconds,
    milliseconds,
    percent,
    tb_per_s,
    tflops_per_s,
)
from jarvis.text.markdown import Markdown, anchor, cell, prose, table
from jarvis.text.messages import to_text

COLUMNS = ("Metric", "Reference", "Target", "Δ", "Expected?")
RATES = {"memory": ("tb_per_s", tb_per_s), "compute": ("tflops_per_s", tflops_per_s)}
"""Column and formatter of the achieved rate by bound."""

RELEVANT_ROWS, SHOWN_COMPUTE_PCT = 6, 5.0
"""The operations with a section: RELEVANT_ROWS, and any other above SHOWN_COMPUTE_PCT."""

KERNELS_SHOWN = 6
"""Kernels of each side that are listed per operation."""


@dataclass(frozen=True)
class ComparisonSection:
    """One compared operation; ``analysis`` is set if the time is unexpected."""

    heading: str
    table: Markdown
    explanation: str | None = None
    analysis: str | None = None
    kernels: Markdown | None = None
    findings: tuple[tuple[int, Finding], ...] = ()
    called_from: Markdown | None = None
    replay: str | None = None

    @property
    def link(self) -> Markdown:
        """Return the target of a link to it."""
        return Markdown(f"#{anchor(self.heading)}")


def operation_sections(subject: Subject) -> list[ComparisonSection]:
    """Return the operations with findings, and those of much time, most time of the target
    first."""
    return [
        _operation(subject, row, f"{number}. {operation_text(row)}")
        for number, row in enumerate(shown_rows(subject), start=1)
    ]


def shown_rows(subject: Subject) -> list[Row]:
    """Return the operations that have their own section."""
    return [
        row
        for position, row in enumerate(subject.rows)
        if position < RELEVANT_ROWS
        or (row[C.percent_of_compute] or 0.0) >= SHOWN_COMPUTE_PCT
        or row[C.pair] in subject.by_pair
    ]


def _operation(subject: Subject, row: Row, heading: str) -> ComparisonSection:
    is_odd = is_unexpected(row)
    findings = subject.by_pair.get(row[C.pair], ())
    return ComparisonSection(
        heading=heading,
        table=table(COLUMNS, _metrics(subject, row)),
        explanation=row[C.explanation],
        analysis=calculation_text(subject, row) if is_odd else None,
        kernels=_kernels(subject, row) if is_odd or findings else None,
        findings=findings,
        called_from=_called_from(subject, row) if findings else None,
        replay=_replay(subject, row[C.uid]) if findings else None,
    )


def _metrics(subject: Subject, row: Row) -> Iterator[tuple[str, ...]]:
    target_calls, reference_calls = row[C.target_calls], row[C.reference_calls]
    is_as_many = target_calls == reference_calls
    judged = verdict(row)
    yield (
        "Time",
        milliseconds(row[C.reference_ms]),
        milliseconds(row[C.target_ms]),
        delta(row[C.difference_pct]),
        judged if is_as_many else MISSING,
    )
    yield "Calls", count(reference_calls), count(target_calls), _more_calls(row), MISSING
    yield (
        "Time per call",
        microseconds(row[C.reference_us_per_call]),
        microseconds(row[C.target_us_per_call]),
        delta(change_pct(row[C.target_us_per_call], row[C.reference_us_per_call])),
        judged,
    )
    if row[C.efficiency_pct] is not None or row[C.reference_efficiency_pct] is not None:
        yield (
            "Efficiency (of roofline)",
            marked_efficiency(row[C.reference_efficiency_pct]),
            marked_efficiency(row[C.efficiency_pct]),
            _points(row[C.efficiency_pct], row[C.reference_efficiency_pct]),
            MISSING,
        )
    yield "Bound", row[C.reference_bound] or MISSING, row[C.bound] or MISSING, MISSING, MISSING
    reference, target = (_rate(subject, role, row) for role in (Role.REFERENCE, Role.TARGET))
    if reference != (MISSING, None) or target != (MISSING, None):
        is_alike = row[C.bound] == row[C.reference_bound]
        change = delta(change_pct(target[1], reference[1])) if is_alike else MISSING
        yield "Achieved", reference[0], target[0], change, MISSING
    if row[C.reference_name] != row[C.name]:
        names = (row[C.reference_name], row[C.name])
        yield "Operator", *map(cell, names), MISSING, MISSING
    kernels = row[C.reference_kernel], row[C.kernel]
    if any(kernels):
        shown = (cell(name, sections.KERNEL_LENGTH) if name else MISSING for name in kernels)
        yield "Main kernel", *shown, MISSING, MISSING


def _more_calls(row: Row) -> str:
    more: int = row[C.target_calls] - row[C.reference_calls]
    return f"{more:+,}" if more else "0"


def _points(target_pct: float | None, reference_pct: float | None) -> str:
    """Return the difference of two shares, in percentage points."""
    if target_pct is None or reference_pct is None:
        return MISSING
    return f"{target_pct - reference_pct:+.1f} points"


def _rate(subject: Subject, role: Role, row: Row) -> tuple[str, float | None]:
    """Return the achieved rate of the bounding resource on one side, over all its rows, as text and
    number."""
    prefix = "" if role is Role.TARGET else "reference_"
    bound = row[f"{prefix}bound"]
    if bound not in KNOWN:
        return MISSING, None
    name, words = RATES[bound]
    rows = [subject.operations[role][uid] for uid in row[f"{prefix}uids"]]
    if any(each.get(name) is None for each in rows):
        return MISSING, None
    time_us = sum(each["kernel_time_us"] for each in rows)
    rate = sum(each[name] * each["kernel_time_us"] for each in rows) / time_us
    return words(rate), rate


def _called_from(subject: Subject, row: Row) -> Markdown | None:
    """Return modules and entry point around the example call of the target's heaviest row."""
    rows = subject.target.category_operations(row[C.category])
    for found in rows.filter(pl.col(C.uid) == row[C.uid]).iter_rows(named=True):
        return sections.called_from(found)
    return None


def _replay(subject: Subject, uid: int) -> str | None:
    """Return how to package the operation; None for a performance report, which lacks the calls."""
    if subject.target.manifest.trace.form == "report":
        return None
    return f"`jarvis replay RUN --uid {uid}`, where RUN is the analysis of the target."


def _kernels(subject: Subject, row: Row) -> Markdown | None:
    """Return the kernels of the operation on either side."""
    lowered = subject.comparison.lowering.filter(pl.col(C.pair) == row[C.pair])
    lines = [
        (
            role.value.capitalize(),
            cell(kernel[C.kernel], sections.KERNEL_LENGTH),
            decimal(kernel[C.launches_per_call]),
            microseconds(kernel[C.us_per_call]),
            percent(kernel[C.percent]),
        )
        for role in (Role.REFERENCE, Role.TARGET)
        for kernel in lowered.filter(pl.col(C.side) == role.value)
        .head(KERNELS_SHOWN)
        .iter_rows(named=True)
    ]
    headers = ("Side", "Kernel", "Launches per call", "Time per call", "% of the operation")
    return table(headers, lines) if lines else None


def only_in_target(subject: Subject, first: int) -> list[ComparisonSection]:
    """Return a section for each finding on work that only the target does; numbered from
    ``first``."""
    alone = [pair for pair in subject.numbered if pair[1].check == ONLY_IN_TARGET]
    rows = {row[C.uid]: row for row in subject.comparison.only_in_target.iter_rows(named=True)}
    return [
        ComparisonSection(
            heading=f"{place}. {to_text(finding.title)}",
            table=unmatched_table([rows[each.uid] for each in finding.operations]),
            explanation=to_text(finding.issue),
            findings=((number, finding),),
            replay=_replay(subject, finding.operations[0].uid),
        )
        for place, (number, finding) in enumerate(alone, start=first)
    ]


def outside_compute(subject: Subject, first: int) -> list[ComparisonSection]:
    """Return a section for each finding on time outside compute; numbered from ``first``."""
    found = [pair for pair in subject.numbered if pair[1].check in OUTSIDE_COMPUTE]
    return [
        ComparisonSection(
            heading=f"{place}. {to_text(finding.title)}",
            table=_causes(subject, finding),
            explanation=to_text(finding.issue),
            findings=((number, finding),),
        )
        for place, (number, finding) in enumerate(found, start=first)
    ]


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
            for row in rows[: sections.ROWS_SHOWN]
        ),
    )
