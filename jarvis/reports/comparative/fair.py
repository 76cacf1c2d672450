"""``comparative_analysis_fair.md``: the comparison for stakeholders, in neutral words."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from jarvis.comparison import Role
from jarvis.comparison.findings import ONLY_IN_TARGET
from jarvis.core.workspace import RunPaths
from jarvis.findings import Finding, Priority
from jarvis.perf_report import Totals
from jarvis.reports.account import title
from jarvis.reports.comparative import appendix
from jarvis.reports.comparative.sections import (
    ROWS_SHOWN,
    ComparisonSection,
    finding_sections,
    unmatched_table,
)
from jarvis.reports.comparative.subject import Row, Subject, operation_text
from jarvis.reports.comparative.words import (
    delta,
    gap,
    headline,
    impact,
    short_gap,
    verdict,
)
from jarvis.reports.rendering import render
from jarvis.reports.summary import MOSTLY_COMPUTE_PCT
from jarvis.savings import per_step
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, count, counted, decimal, milliseconds, percent
from jarvis.text.markdown import Markdown, prose, table

INSIDE = RunPaths(Path())
"""The layout of the folder, for paths relative to the report."""

NOT_COMPARED = "[What Is Not Compared, and Why](#what-is-not-compared-and-why)"
NO_DIFFERENCE = "There is no difference between the two sides."
METRICS = {
    "computation_time": "Total Compute",
    "exposed_comm_time": "Exposed Communication",
    "exposed_memcpy_time": "Exposed Memory Copies",
    "idle_time": "GPU Idle",
    "total_time": "GPU Window",
}
"""Rows of the summary's table, by part of the GPU timeline; of sides without steps."""

SUMMARY_FINDINGS = 2
"""Findings that the summary names."""


@dataclass(frozen=True)
class ComparisonCard:
    """One recommendation."""

    number: int
    finding: Finding
    gap: str
    impact: str
    section: ComparisonSection | None

    @property
    def heading(self) -> str:
        """Return ``Priority 1 (High): ...``."""
        finding = self.finding
        return f"{finding.priority.icon} Priority {self.number} ({finding.priority.value})"

    @property
    def link(self) -> Markdown | None:
        """Return a link to the details."""
        if self.section is None:
            return None
        number = self.section.heading.partition(".")[0]
        return Markdown(f"[Detailed Comparison: {number}]({self.section.link})")


def fair_markdown(subject: Subject) -> str:
    """Return the report of a comparison."""
    compared = subject.comparison
    parts = finding_sections(subject)
    cards = _cards(subject, parts)
    low = [card for card in cards if card.finding.priority is Priority.LOW]
    return render(
        "comparative_fair",
        title=subject.title,
        target=compared.target.label,
        sides=_sides(subject),
        workload=" ".join((*compared.base, *compared.workload)),
        paragraph=_paragraph(subject),
        metrics=_metrics(subject),
        key_points=_key_points(subject),
        intention=_intention(subject),
        cards=[card for card in cards if card not in low],
        low_icon=Priority.LOW.icon,
        low=_low_table(low, subject.totals) if low else None,
        sections=parts,
        operations=_operations(subject),
        left_out=_left_out(subject),
        alone=list(_alone(subject)),
        categories=_categories(subject),
        collectives=_collectives(subject),
        inputs=appendix.inputs(subject),
        hardware=appendix.hardware(subject) if subject.has_hardware else None,
        not_compared=[*appendix.gaps(subject), *appendix.NEVER_COMPARED],
        data=str(INSIDE.comparison.parent),
        rough=str(INSIDE.comparative_report("rough")),
    )


def _sides(subject: Subject) -> str:
    """Return the names of both sides, as ``Target: MI300X; reference: H100 SXM.``"""
    compared = subject.comparison
    return f"Target: {compared.target.label}; reference: {compared.reference.label}."


def _paragraph(subject: Subject) -> Markdown:
    """Return the summary: the step times, the first findings, and what is not compared."""
    more = f"Not everything can be compared: see {NOT_COMPARED}."
    parts = [prose(" ".join(_result(subject))), more if any(appendix.gaps(subject)) else ""]
    return Markdown(" ".join(filter(None, parts)))


def _result(subject: Subject) -> Iterator[str]:
    compared = subject.comparison
    if compared.is_without_difference:
        yield f"{NO_DIFFERENCE} Every time, call and operation is equal."
        return
    yield from compared.step_times or compared.window
    urgent = [found for _, found in subject.numbered if found.priority is not Priority.LOW]
    yield from (headline(subject, finding) for finding in urgent[:SUMMARY_FINDINGS])
    yield from _before_kernels(subject)


def _before_kernels(subject: Subject) -> Iterator[str]:
    """Yield what takes more of the target's step than its kernels do."""
    shares = dict(subject.comparison.steps.select(C.type, C.target_percent).iter_rows())
    if not shares or shares["compute"] >= MOSTLY_COMPUTE_PCT:
        return
    waits = {
        "idles": sum(share for part, share in shares.items() if part.startswith("idle")),
        "communicates alone": shares["exposed communication"],
        "copies alone": shares["exposed copies"],
    }
    most = max(waits, key=lambda wait: waits[wait])
    yield (
        f"The target's GPU computes {percent(shares['compute'])} of its step time and {most} "
        f"{percent(waits[most])}, so faster kernels gain little."
    )


def _metrics(subject: Subject) -> Markdown:
    """Return the parts of a step on both sides, or of the GPU window without steps."""
    steps = list(subject.comparison.steps.iter_rows(named=True))
    if steps:
        name = "Part of one step" if subject.comparison.has_steps else "Part of the recording"
        return _times(name, ((title(row[C.type]), row) for row in steps))
    rows = {row[C.type]: row for row in subject.comparison.totals.iter_rows(named=True)}
    shown = [(name, rows[part]) for part, name in METRICS.items() if part in rows]
    if shown:
        return _times("Metric", shown)
    times = [subject.side(role).compute_ms for role in (Role.REFERENCE, Role.TARGET)]
    known = [milliseconds(time_ms) if time_ms else MISSING for time_ms in times]
    return table(
        ("Metric", "Reference", "Target", "Difference", "Δ"),
        [("Total Compute", *known, MISSING, MISSING)],
    )


def _times(name: str, rows: Iterable[tuple[str, Row]]) -> Markdown:
    """Return the times of both sides; parts that no side has are left out."""
    return table(
        (name, "Reference", "Target", "Difference", "Δ"),
        (
            (
                label,
                _part(row, Role.REFERENCE),
                _part(row, Role.TARGET),
                milliseconds(row[C.difference_ms]),
                delta(row[C.difference_pct]),
            )
            for label, row in rows
            if row[C.reference_ms] or row[C.target_ms]
        ),
    )


def _part(row: Row, role: Role) -> str:
    share = row[f"{role.value}_percent"]
    return f"{milliseconds(row[f'{role.value}_ms'])} ({percent(share)})"


def _key_points(subject: Subject) -> list[str]:
    if subject.comparison.is_without_difference:
        return [NO_DIFFERENCE]
    first = ["Both sides ran on the same GPU: equal times are expected."] * subject.is_one_gpu
    return [*first, *subject.comparison.key_points]


def _intention(subject: Subject) -> Markdown:
    """Return the meaning of the recommendations, or why there are none."""
    compared = subject.comparison
    if compared.is_without_difference:
        return prose(f"{NO_DIFFERENCE} Nothing follows from this comparison.")
    if compared.findings:
        return prose(
            "Numbered by the most step time that each could save. Each concerns time that the "
            "hardware does not explain, or work that the reference does not do."
        )
    if compared.operations[C.is_unexpected].count():
        return prose(
            "Nothing needs attention: no operation with relevant time is slower than expected."
        )
    what = "is compared" if compared.operations.is_empty() else "has an expected ratio"
    return Markdown(
        "There is nothing to recommend: the step has no more idle time, communication or copies "
        f"than on the reference that matter, and no operation {what}. See {NOT_COMPARED} for the "
        "reasons."
        if compared.target.table("gpu_timeline") is not None and compared.operations.height
        else f"There is nothing to recommend: no operation {what}. See {NOT_COMPARED} for the "
        "reasons."
    )


def _cards(subject: Subject, parts: list[ComparisonSection]) -> list[ComparisonCard]:
    found = {part.number: part for part in parts}
    return [
        ComparisonCard(
            number, finding, gap(subject, finding), impact(subject, finding), found.get(number)
        )
        for number, finding in subject.numbered
    ]


def _low_table(cards: list[ComparisonCard], totals: Totals) -> Markdown:
    return table(
        ("Priority", "Finding", "GPU time", "Step time"),
        (
            (
                str(card.number),
                prose(card.finding.title),
                short_gap(card.finding),
                _step_time(card.finding, totals),
            )
            for card in cards
        ),
    )


def _step_time(finding: Finding, totals: Totals) -> str:
    """Return the most step time that the finding saves, with its share."""
    gain = finding.impact and per_step(finding.impact, totals)
    if gain is None or gain.step_ms is None or gain.step_pct is None:
        return MISSING
    return f"{milliseconds(gain.step_ms.high)} ({percent(gain.step_pct.high)})"


def _operations(subject: Subject) -> Markdown | None:
    """Return the compared operations with most time of the target as a short table."""
    if not subject.rows:
        return None
    return table(
        ("Operation", "Reference", "Target", "Δ", "Expected?"),
        (
            (
                prose(operation_text(row)),
                milliseconds(row[C.reference_ms]),
                milliseconds(row[C.target_ms]),
                delta(row[C.difference_pct]),
                verdict(row),
            )
            for row in subject.rows[:ROWS_SHOWN]
        ),
    )


def _left_out(subject: Subject) -> str | None:
    hidden = subject.rows[ROWS_SHOWN:]
    if not hidden:
        return None
    time_ms = milliseconds(sum(row[C.target_ms] for row in hidden))
    file = INSIDE.comparison_table("comparison_operations")
    return f"{counted(len(hidden), 'further row')} with {time_ms} on the target: see `{file}`."


def _alone(subject: Subject) -> Iterator[tuple[str, Markdown]]:
    """Yield operations without a counterpart, on the target and on the reference."""
    compared = subject.comparison
    shown = {
        each.uid
        for _, finding in subject.numbered
        if finding.check == ONLY_IN_TARGET
        for each in finding.operations
    }
    for role, found in (
        (Role.TARGET, compared.only_in_target.filter(~pl.col(C.uid).is_in(shown))),
        (Role.REFERENCE, compared.only_in_reference),
    ):
        if not found.is_empty():
            time_ms = float(found[C.time_ms].sum())
            hidden = found.height - ROWS_SHOWN
            most = f", of which the table shows the {ROWS_SHOWN} longest" if hidden > 0 else ""
            words = f"Only on the {role.value}, {counted(found.height, 'row')}{most}, "
            yield f"{words}{milliseconds(time_ms)} in all:", unmatched_table(found.to_dicts())


def _categories(subject: Subject) -> Markdown | None:
    rows = subject.comparison.categories
    if rows.is_empty():
        return None
    return table(
        ("Category", "Reference", "Target", "Δ", "Not explained"),
        (
            (
                row[C.title] or row[C.category] or MISSING,
                milliseconds(row[C.reference_ms]),
                milliseconds(row[C.target_ms]),
                delta(row[C.difference_pct]),
                milliseconds(row[C.unexplained_ms]),
            )
            for row in rows.iter_rows(named=True)
        ),
    )


def _collectives(subject: Subject) -> Markdown | None:
    rows = subject.comparison.collectives
    if rows.is_empty():
        return None
    return table(
        ("Collective", "Type", "Ranks", "Message (MiB)", "Count R / T", "Reference", "Target", "Δ"),
        (
            (
                row[C.collective] or MISSING,
                row[C.dtype] or MISSING,
                count(row[C.group_size]),
                decimal(row[C.message_mb]),
                f"{count(row[C.reference_count])} / {count(row[C.target_count])}",
                milliseconds(row[C.reference_ms]),
                milliseconds(row[C.target_ms]),
                delta(row[C.difference_pct]),
            )
            for row in rows.head(ROWS_SHOWN).iter_rows(named=True)
        ),
    )
