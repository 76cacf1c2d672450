"""``comparative_analysis_fair.md``: the comparison for stakeholders, in neutral words."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jarvis.comparison import Role
from jarvis.core.workspace import RunPaths
from jarvis.findings import Finding, Priority
from jarvis.impact import FULL_PCT, share_pct
from jarvis.reports import sections
from jarvis.reports.account import title
from jarvis.reports.comparative import appendix
from jarvis.reports.comparative.sections import (
    ComparisonSection,
    only_in_target,
    operation_sections,
    shown_rows,
    unmatched_table,
)
from jarvis.reports.comparative.subject import Row, Subject, operation_text
from jarvis.reports.comparative.words import delta, gap, impact, short_gap, verdict
from jarvis.reports.rendering import render
from jarvis.reports.summary import MOSTLY_COMPUTE_PCT
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
"""Rows of the summary's table, by part of the GPU timeline."""

WAITS = {
    "idle_time": "idles",
    "exposed_comm_time": "communicates alone",
    "exposed_memcpy_time": "copies alone",
}
"""The GPU's activity outside compute, by part of the GPU timeline."""


@dataclass(frozen=True)
class ComparisonCard:
    """One recommendation."""

    number: int
    finding: Finding
    gap: str
    impact: str
    section: ComparisonSection

    @property
    def heading(self) -> str:
        """Return ``Priority 1 (High): ...``."""
        finding = self.finding
        return f"{finding.priority.icon} Priority {self.number} ({finding.priority.value})"

    @property
    def link(self) -> Markdown:
        """Return a link to the details."""
        number = self.section.heading.partition(".")[0]
        return Markdown(f"[Detailed Comparison: {number}]({self.section.link})")


def fair_markdown(subject: Subject) -> str:
    """Return the report of a comparison."""
    compared = subject.comparison
    shown = operation_sections(subject)
    parts = [*shown, *only_in_target(subject, len(shown) + 1)]
    cards = _cards(subject, parts)
    low = [card for card in cards if card.finding.priority is Priority.LOW]
    return render(
        "comparative_fair",
        title=subject.title,
        target=compared.target.label,
        paragraph=_paragraph(subject),
        metrics=_metrics(subject),
        key_points=_key_points(subject),
        intention=_intention(subject),
        cards=[card for card in cards if card not in low],
        low_icon=Priority.LOW.icon,
        low=_low_table(low) if low else None,
        sections=parts,
        others=_others(subject),
        others_left_out=_others_left_out(subject),
        worked_in=f"Calculation of each expected ratio: `{INSIDE.comparative_report('rough')}`.",
        alone=list(_alone(subject)),
        categories=_categories(subject),
        collectives=_collectives(subject),
        steps=_steps(subject),
        inputs=appendix.inputs(subject),
        hardware=appendix.hardware(subject),
        sources=list(appendix.sources(subject)),
        not_compared=[*appendix.gaps(subject), *appendix.NEVER_COMPARED],
        methodology=list(appendix.methodology(compared)),
        data=str(INSIDE.comparison.parent),
    )


def _paragraph(subject: Subject) -> Markdown:
    """Return what is compared, for what purpose, and the result."""
    target, reference = subject.comparison.target, subject.comparison.reference
    parts = [
        f"This report compares the target ({target.label}) with the reference ({reference.label}) "
        "to find possible improvements of the target; the reference shows what is attainable.",
        *_result(subject),
    ]
    more = "Not everything can be compared: see "
    f"{NOT_COMPARED}." if any(appendix.gaps(subject)) else ""
    return Markdown(" ".join(filter(None, [prose(" ".join(parts)), more])))


def _result(subject: Subject) -> Iterator[str]:
    compared = subject.comparison
    if compared.is_without_difference:
        yield f"{NO_DIFFERENCE} Every time, call and operation is equal."
        return
    if ratios := compared.ratios:
        least, most = ratios.bounds()
        yield (
            f"The peaks of the two GPUs explain target times of {decimal(least)} to "
            f"{decimal(most)} times the reference's, depending on the bound of an operation."
        )
    if compared.findings:
        saved_ms = sum(
            finding.impact.saved_ms.mid for finding in compared.findings if finding.impact
        )
        total_ms = compared.target.timeline_ms("total_time") or compared.target.compute_ms
        yield (
            f"{_findings(len(compared.findings))} what they do not explain: about "
            f"{milliseconds(saved_ms)} in all, {percent(share_pct(saved_ms, total_ms))} of the "
            "target's GPU window."
        )
    yield from _before_kernels(subject)


def _before_kernels(subject: Subject) -> Iterator[str]:
    """Yield what takes more of the target's time than its kernels do."""
    rows = subject.comparison.totals.select(C.type, C.target_percent).iter_rows()
    shares = {part: share for part, share in rows if share is not None}
    if shares.get("computation_time", FULL_PCT) < MOSTLY_COMPUTE_PCT:
        part = max(WAITS, key=lambda part: shares.get(part, 0.0))
        yield (
            f"The target's GPU computes {percent(shares['computation_time'])} of the window and "
            f"{WAITS[part]} {percent(shares[part])}: address that first, since faster kernels "
            "gain little; see its standalone report."
        )


def _findings(number: int) -> str:
    return "One finding names" if number == 1 else f"{number} findings name"


def _metrics(subject: Subject) -> Markdown:
    """Return the main times on both sides; without a timeline, the time of the operations."""
    rows = {row[C.type]: row for row in subject.comparison.totals.iter_rows(named=True)}
    lines = [
        (
            name,
            _of_total(rows[part], Role.REFERENCE),
            _of_total(rows[part], Role.TARGET),
            delta(rows[part][C.difference_pct]),
        )
        for part, name in METRICS.items()
        if part in rows and (rows[part][C.reference_ms] or rows[part][C.target_ms])
    ]
    if not lines:
        times = [subject.side(role).compute_ms for role in (Role.REFERENCE, Role.TARGET)]
        known = [milliseconds(time_ms) if time_ms else MISSING for time_ms in times]
        lines = [("Total Compute", known[0], known[1], MISSING)]
    return table(("Metric", "Reference", "Target", "Δ"), lines)


def _of_total(row: Row, role: Role) -> str:
    time_ms, share = row[f"{role.value}_ms"], row[f"{role.value}_percent"]
    if row[C.type] == "total_time" or share is None:
        return milliseconds(time_ms)
    return f"{milliseconds(time_ms)} ({percent(share)} of the window)"


def _key_points(subject: Subject) -> list[str]:
    if subject.comparison.is_without_difference:
        return [NO_DIFFERENCE]
    first = [
        f"Most urgent: {gap(finding, subject.row_of(finding))}"
        for _, finding in subject.numbered[:1]
    ]
    return [*first, *subject.comparison.key_points]


def _intention(subject: Subject) -> Markdown:
    """Return the meaning of the recommendations, or why there are none."""
    compared = subject.comparison
    if compared.is_without_difference:
        return prose(f"{NO_DIFFERENCE} Nothing follows from this comparison.")
    if compared.findings:
        return prose(
            "Numbered by priority. Each concerns time that the hardware does not explain, or work "
            "that the reference does not do; the savings concern different time and add up."
        )
    if compared.operations[C.is_unexpected].count():
        return prose(
            "Nothing needs attention: no operation with relevant time is slower than the hardware "
            "explains."
        )
    if compared.operations.is_empty():
        return Markdown(
            f"There is nothing to recommend: no operation is compared. See {NOT_COMPARED} for the "
            "reasons."
        )
    return Markdown(
        f"There is nothing to recommend: no operation has an expected ratio. See {NOT_COMPARED} "
        "for the reasons."
    )


def _cards(subject: Subject, parts: list[ComparisonSection]) -> list[ComparisonCard]:
    found = {number: part for part in parts for number, _ in part.findings}
    return [
        ComparisonCard(
            number, finding, gap(finding, subject.row_of(finding)), impact(finding), found[number]
        )
        for number, finding in subject.numbered
    ]


def _low_table(cards: list[ComparisonCard]) -> Markdown:
    return table(
        ("Priority", "Finding", "Gap", "Not explained", "Details"),
        (
            (str(c.number), prose(c.finding.title), prose(c.gap), short_gap(c.finding), c.link)
            for c in cards
        ),
    )


def _others(subject: Subject) -> Markdown | None:
    """Return the compared operations without a section."""
    rows = _other_rows(subject)
    return operations_table(rows[: sections.ROWS_SHOWN]) if rows else None


def _others_left_out(subject: Subject) -> str | None:
    hidden = _other_rows(subject)[sections.ROWS_SHOWN :]
    if not hidden:
        return None
    time_ms = milliseconds(sum(row[C.target_ms] for row in hidden))
    file = INSIDE.comparison_table("comparison_operations")
    rows = counted(len(hidden), "further row")
    return f"{rows} with {time_ms} on the target: see `{file}`."


def _other_rows(subject: Subject) -> list[Row]:
    shown = {row[C.pair] for row in shown_rows(subject)}
    return [row for row in subject.rows if row[C.pair] not in shown]


def operations_table(rows: list[Row]) -> Markdown:
    """Return compared operations as a short table."""
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
            for row in rows
        ),
    )


def _alone(subject: Subject) -> Iterator[tuple[str, Markdown]]:
    """Yield operations without a counterpart, on the target and on the reference."""
    compared = subject.comparison
    for role, found in (
        (Role.TARGET, compared.only_in_target),
        (Role.REFERENCE, compared.only_in_reference),
    ):
        if not found.is_empty():
            time_ms = float(found[C.time_ms].sum())
            hidden = found.height - sections.ROWS_SHOWN
            most = (
                f", of which the table shows the {sections.ROWS_SHOWN} longest"
                if hidden > 0
                else ""
            )
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


def _steps(subject: Subject) -> Markdown | None:
    rows = subject.comparison.steps
    if rows.is_empty():
        return None
    return table(
        ("Part of one step", "Reference", "Target", "Difference", "Δ"),
        (
            (
                title(row[C.type]),
                _step_part(row, Role.REFERENCE),
                _step_part(row, Role.TARGET),
                milliseconds(row[C.difference_ms]),
                delta(row[C.difference_pct]),
            )
            for row in rows.iter_rows(named=True)
        ),
    )


def _step_part(row: Row, role: Role) -> str:
    return f"{milliseconds(row[f'{role.value}_ms'])} ({percent(row[f'{role.value}_percent'])})"


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
            for row in rows.head(sections.ROWS_SHOWN).iter_rows(named=True)
        ),
    )
