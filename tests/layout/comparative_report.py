"""Checks of the comparative reports: their layout, and that they agree with their data."""

import re
from collections.abc import Iterator

from jarvis.validation.check import Check, Problem
from tests.layout.cards import long_card, long_summary, missing_lines
from tests.layout.markdown import Part, plain
from tests.layout.rendered import COMPARISON_KINDS, Rendered

ROLES = ("reference", "target")
PARTS = ("Executive Summary", "Recommendations for {target}", "Detailed Comparison", "Appendix")
INNER_PARTS = {
    "Executive Summary": ("Key Findings",),
    "Appendix": ("Inputs", "What Is Not Compared, and Why"),
}
CARD = re.compile(r"Priority (\d+) \(")
CARD_LABELS = ("Gap", "Action A", "Action B", "Impact")
DETAILS = ("Metric", "Reference", "Target", "Δ", "Expected?")
NUMBERED = re.compile(r"\d+\. ")
STEP = ("Part of one step", "Part of the recording")
"""Headers of the summary table, which shows the account of a step."""

MAX_WORDS = 1500

TIME = re.compile(r"(\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?) (ms|µs)")
RATIO = re.compile(r"= (\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?) per call")
ROUNDING = 0.006
"""Relative tolerance of a number with three digits."""

EXACT = 1e-6


def comparative_reports_have_the_title(run: Rendered) -> Iterator[Problem]:
    """The comparative reports have the title of their data."""
    facts = run.comparison
    if facts is None:
        return
    for kind, report in _reports(run):
        found = [plain(title) for _, title in report.headings(1)]
        expected = facts["title"] + (" (Rough)" if kind == "rough" else "")
        if found != [" ".join(expected.split())]:
            yield Problem(report.file, f"Its titles are {found}; {expected!r} expected.")


def comparative_parts_are_in_order(run: Rendered) -> Iterator[Problem]:
    """The comparative report has its parts: summary, recommendations, details and appendix."""
    report, facts = run.comparative("fair"), run.comparison
    if report is None or facts is None:
        return
    target = facts["sides"]["target"]["label"]
    expected = [part.format(target=target) for part in PARTS]
    found = [plain(title) for _, title in report.headings(2)]
    if found != expected:
        yield Problem(report.file, f"Its parts are {found}; {', '.join(expected)} expected.")
    for title, inner in INNER_PARTS.items():
        part = report.part(title)
        headings = [plain(heading) for _, heading in part.headings(3)] if part else []
        for missing in (name for name in inner if part and name not in headings):
            text = f"{title} lacks the part {missing!r}."
            yield Problem(report.file, text, part.number if part else None)


def comparative_summary_is_short(run: Rendered) -> Iterator[Problem]:
    """The executive summary of the comparative report takes at most
    MAX_SUMMARY_LINES lines.
    """
    report = run.comparative("fair")
    part = report.part(PARTS[0]) if report else None
    if part:
        yield from long_summary(part)


def comparative_cards_are_complete(run: Rendered) -> Iterator[Problem]:
    """Each recommendation has gap, action on both paths, impact and link, in at most
    MAX_CARD_LINES lines.
    """
    for card in _cards(run):
        yield from missing_lines(card, CARD_LABELS)
        yield from long_card(card)


def comparative_cards_are_the_findings(run: Rendered) -> Iterator[Problem]:
    """Every finding of the comparison is recommended under its number, with its title."""
    report, facts = run.comparative("fair"), run.comparison
    if report is None or facts is None:
        return
    reported = {
        int(found[1]): plain(card.title).partition(": ")[2]
        for card in _cards(run)
        if (found := CARD.search(card.title))
    }
    part = _recommendations(run) or report
    for table in part.tables:
        reported |= {int(r.cells["Priority"]): plain(r.cells["Finding"]) for r in table.rows}
    titles = [plain(finding["title"]) for finding in facts["findings"]]
    expected = dict(enumerate(titles, start=1))
    if reported != expected:
        yield Problem(report.file, f"It recommends {reported}; {expected} expected.", part.number)


def comparative_details_have_a_table(run: Rendered) -> Iterator[Problem]:
    """The details of each finding have a table: of the operation, of its work, or of causes."""
    report = run.comparative("fair")
    part = report.part("Detailed Comparison") if report else None
    for section in part.parts(3) if part else []:
        kinds = (DETAILS, ("Operation", "Calls", "Time"), ("Cause", "Reference", "Target"))
        is_numbered = NUMBERED.match(section.title) is not None
        if is_numbered and all(section.table(*columns) is None for columns in kinds):
            text = f"The finding has no table of {', '.join(DETAILS)}."
            yield Problem(section.file, text, section.number)


def comparative_report_is_short(run: Rendered) -> Iterator[Problem]:
    """The comparative report has at most MAX_WORDS words if it has at most ten findings."""
    report, facts = run.comparative("fair"), run.comparison
    if report is None or facts is None or len(facts["findings"]) > 10:
        return
    if (size := len(report.text.split())) > MAX_WORDS:
        yield Problem(report.file, f"The report has {size} words; at most {MAX_WORDS} expected.")


def comparative_summary_gives_the_steps(run: Rendered) -> Iterator[Problem]:
    """The times of the summary are those of the steps of both sides."""
    report = run.comparative("fair")
    part = report.part(PARTS[0]) if report else None
    if report is None or part is None:
        return
    found = [part.table(header, "Reference", "Target", "Difference") for header in STEP]
    table = next(filter(None, found), None)
    times = {row["type"]: row for row in run.comparison_rows("comparison_steps")}
    for row in table.rows if table else ():
        label = next(iter(row.cells.values()))
        kind = label[:1].lower() + label[1:]
        for role in ROLES:
            expected_ms = float(times[kind][f"{role}_ms"])
            cell = row.cells[role.capitalize()]
            if not _is_near(_time_ms(cell), expected_ms):
                text = f"It gives {kind} of the {role} as {cell}; {expected_ms:.4g} ms expected."
                yield Problem(report.file, text, row.number)


def every_compared_operation_is_worked_out(run: Rendered) -> Iterator[Problem]:
    """The rough report works out expected against actual of every compared operation."""
    report = run.comparative("rough")
    operations = run.comparison_rows("comparison_operations")
    if report is None or not operations:
        return
    table = report.table("Pair", "Operation", "Expected", "Outcome")
    rows = table.rows if table else ()
    if len(rows) != len(operations):
        text = f"It works out {len(rows)} operations; {len(operations)} expected."
        yield Problem(report.file, text, table.number if table else None)
    for row, operation in zip(rows, operations, strict=False):
        found = RATIO.search(row.cells["Actual: target / reference"])
        expected = float(operation["time_ratio"])
        reported = float(found[1].replace(",", "")) if found else None
        if not _is_near(reported, expected) or row.cells["Outcome"] != operation["outcome"]:
            text = f"It has {reported} as {row.cells['Outcome']!r}; {expected:.4g} as "
            yield Problem(report.file, f"{text}{operation['outcome']!r} expected.", row.number)


def _reports(run: Rendered) -> Iterator[tuple[str, Part]]:
    for kind in COMPARISON_KINDS:
        if (report := run.comparative(kind)) is not None:
            yield kind, report


def _cards(run: Rendered) -> Iterator[Part]:
    part = _recommendations(run)
    yield from (card for card in (part.parts(3) if part else ()) if CARD.search(card.title))


def _recommendations(run: Rendered) -> Part | None:
    report = run.comparative("fair")
    parts = report.parts(2) if report else ()
    return next((part for part in parts if part.title.startswith("Recommendations")), None)


def _time_ms(cell: str) -> float | None:
    found = TIME.search(cell)
    if found is None:
        return None
    return float(found[1].replace(",", "")) * (1e-3 if found[2] == "µs" else 1.0)


def _is_near(reported: float | None, expected: float) -> bool:
    return reported is not None and abs(reported - expected) <= ROUNDING * max(abs(expected), EXACT)


CHECKS = (
    Check(comparative_reports_have_the_title),
    Check(comparative_parts_are_in_order),
    Check(comparative_summary_is_short),
    Check(comparative_cards_are_complete),
    Check(comparative_cards_are_the_findings),
    Check(comparative_details_have_a_table),
    Check(comparative_report_is_short),
    Check(comparative_summary_gives_the_steps),
    Check(every_compared_operation_is_worked_out),
)
