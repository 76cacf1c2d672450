"""Checks of the report for stakeholders: short, linked, each fact once."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from jarvis.reports.fair import MAX_WORDS
from jarvis.validation.check import Check, Problem
from tests.layout.cards import long_card, long_summary, missing_lines
from tests.layout.markdown import Part, Row, own_words, plain
from tests.layout.rendered import Rendered

CARD_LABELS = ("Issue", "Action A", "Action B", "Impact")
CARD_TITLE = re.compile(r"P(\d+) \(")
LABEL = re.compile(r"P(\d+)")
LISTED = re.compile(r"^\[?P(\d+)\b")
FULL_PCT = 100.0
MARKS = ("⚠", "anomaly", "above the peak")
PARTS = ("Executive Summary", "Recommendations", "Appendix")
OPTIONAL_PARTS = ("Warnings", "Detailed Analysis", "What Is Not Known")
QUANTITY = re.compile(r"\d ?(?:ms|µs|s|TB/s|TFLOP/s|[kMG]B)\b")
"""A number with its unit; sentences with one are facts."""

ADVICE = re.compile(r"- \*\*(?:Action|Capture|Caveat|Verify)")
"""Labels of actions, which two findings may share."""

_PERCENT = re.compile(r"(\d[\d,]*(?:\.\d+)?)%")
_LABEL = re.compile(r"^(?:[-*] |\d+\. )?(?:\*\*[^*]+\*\*:? ?)?")
_SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z`])")


def parts_are_in_order(run: Rendered) -> Iterator[Problem]:
    """The report for stakeholders has its parts: summary, recommendations, appendix."""
    report = run.fair
    if report is None:
        return
    titles = [title for _, title in report.headings(2) if title not in OPTIONAL_PARTS]
    if titles != list(PARTS):
        yield Problem(report.file, f"Its parts are {titles}; {', '.join(PARTS)} expected.")


def summary_is_short(run: Rendered) -> Iterator[Problem]:
    """The executive summary takes at most MAX_SUMMARY_LINES lines."""
    for _, part in _parts(run, "Executive Summary"):
        yield from long_summary(part)


def report_is_short(run: Rendered) -> Iterator[Problem]:
    """The report has at most MAX_WORDS words, counted with its tables."""
    report = run.fair
    if report is not None and (size := len(report.text.split())) > MAX_WORDS:
        yield Problem(report.file, f"It has {size} words; at most {MAX_WORDS} expected.")


def cards_are_short(run: Rendered) -> Iterator[Problem]:
    """Each recommendation takes at most MAX_CARD_LINES lines."""
    for card in cards_of(run):
        yield from long_card(card)


def cards_are_complete(run: Rendered) -> Iterator[Problem]:
    """Each recommendation has an issue, an action on both paths, an impact and a link."""
    for card in cards_of(run):
        yield from missing_lines(card, CARD_LABELS)


def recommendations_are_numbered_without_gaps(run: Rendered) -> Iterator[Problem]:
    """The table of findings is numbered P1, P2, P3 and so on; the cards follow in this order."""
    for report, part in _parts(run, "Recommendations"):
        cards = [int(found[1]) for _, title in part.headings(3) if (found := _number(title))]
        firsts = (next(iter(row.cells.values()), "") for table in part.tables for row in table.rows)
        numbers = [int(found[1]) for first in firsts if (found := LISTED.match(first))]
        expected = list(range(1, len(numbers) + 1))
        if numbers != expected or cards != sorted({*cards} & {*numbers}):
            text = f"The recommendations are numbered {numbers}; P1 to P{len(numbers)} expected."
            yield Problem(report.file, text, part.number)


def links_lead_somewhere(run: Rendered) -> Iterator[Problem]:
    """Every link of a report leads to a heading or an anchor of it, or to a file of the run."""
    for report in run.reports:
        folder = (run.root / report.file).parent
        for line, target in report.links:
            is_inside = target.startswith("#")
            found = target[1:] in report.anchors if is_inside else (folder / target).is_file()
            if not found:
                what = "heading of this name" if is_inside else "file of the run"
                yield Problem(report.file, f"The link {target} leads to no {what}.", line)


def facts_occur_once(run: Rendered) -> Iterator[Problem]:
    """No table with names and no sentence with a name and a measurement occurs twice, except
    under headings that differ only in their number."""
    report = run.fair
    if report is None:
        return
    about = _namesakes(report)
    places: dict[object, list[int]] = defaultdict(list)
    for table in report.tables:
        rows = tuple(tuple(row.cells.values()) for row in table.rows)
        if len(rows) > 1 and any("`" in cell for row in rows for cell in row):
            places[about.get(table.number), table.headers, rows].append(table.number)
    for line in report.prose:
        if not line.text.startswith(("|", "#")) and not ADVICE.match(line.text):
            for sentence in _SENTENCE_END.split(_LABEL.sub("", line.text)):
                if "`" in sentence and QUANTITY.search(own_words(sentence)):
                    places[about.get(line.number), sentence].append(line.number)
    for first, *others in places.values():
        for number in others:
            text = f"This is in line {first} already; each fact is expected once."
            yield Problem(report.file, text, number)


def _namesakes(report: Part) -> dict[int, str]:
    """Return, for lines under a heading that equals others except for its number, that number."""
    headings: dict[int, tuple[str, str]] = {}
    heading = label = ""
    for line in report.prose:
        if line.text.startswith("#"):
            found = LABEL.search(line.text)
            label = found[0] if found else ""
            heading = LABEL.sub("", line.text, count=1)
        headings[line.number] = heading, label
    counts = Counter(heading for heading, _ in set(headings.values()))
    return {n: label for n, (heading, label) in headings.items() if counts[heading] > 1 and label}


def efficiencies_above_the_peak_are_marked(run: Rendered) -> Iterator[Problem]:
    """An efficiency above 100% is marked, because a figure is doubtful."""
    for report in run.reports:
        for table in report.tables:
            for row in table.rows:
                for cell in _efficiencies(row):
                    if _is_unmarked(cell):
                        yield Problem(
                            report.file, f"The efficiency {cell!r} lacks a mark.", row.number
                        )


def cards_of(run: Rendered) -> Iterator[Part]:
    """Return the recommendations of the fair report, each with its heading."""
    for _, part in _parts(run, "Recommendations"):
        yield from (card for card in part.parts(3) if _number(card.title))


def _number(title: str) -> re.Match[str] | None:
    return CARD_TITLE.search(title)


def _parts(run: Rendered, title: str) -> Iterator[tuple[Part, Part]]:
    report = run.fair
    if report is None:
        return
    part = report.part(title)
    if part is not None:
        yield report, part


def _efficiencies(row: Row) -> Iterator[str]:
    """Yield the cells that are efficiencies, by their column or, in evidence, by their row."""
    for header, cell in row.cells.items():
        is_one = header.startswith("Efficiency")
        if header == "Value":
            is_one = next(iter(row.cells.values())).startswith("Efficiency")
        if is_one:
            yield plain(cell)


def _is_unmarked(cell: str) -> bool:
    found = _PERCENT.search(cell)
    value = float(found[1].replace(",", "")) if found else 0.0
    return value > FULL_PCT and not any(mark in cell for mark in MARKS)


CHECKS = (
    Check(parts_are_in_order),
    Check(summary_is_short),
    Check(report_is_short),
    Check(cards_are_short),
    Check(cards_are_complete),
    Check(recommendations_are_numbered_without_gaps),
    Check(links_lead_somewhere),
    Check(facts_occur_once),
    Check(efficiencies_above_the_peak_are_marked),
)
