"""Which finding, category or nothing each line of a Markdown report is about."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.savings import has_card, local_numbers, ranked

FAIR = "standalone_analysis_fair.md"
TABLE_RULE = re.compile(r"^\|[\s:|-]+\|$")
IN_FAIR = re.compile(r"^### \S+ P(\d+) \(|^\| \[?P(\d+)\b")
IN_FINDINGS = re.compile(r"^#{3,4} (?:\w+ )?P(\d+): |^### (\d+)\. |^(\d+)\. \*\*")


@dataclass(frozen=True)
class Line:
    """One line with its place and the ``##`` and ``###`` headings above it.

    ``finding`` is what it is about, ``columns`` the head of its table, ``row`` its number in it.
    """

    file: str
    number: int
    text: str
    section: str
    heading: str
    finding: dict[str, Any] | None
    columns: tuple[str, ...] = ()
    row: int = -1

    @property
    def cells(self) -> list[str]:
        return cells_of(self.text)

    def wrong(self, problem: str) -> str:
        return f"{self.file}:{self.number}: {problem}\n    {self.text[:300]}"


def cells_of(text: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", text.strip())[1:-1]]


def report_lines(run: RunDirectory, text: str | None = None) -> Iterator[Line]:
    """The lines of the fair report before its appendix."""
    ordered = ranked(run.findings)
    body = (run.text(FAIR) if text is None else text).partition("\n## Appendix")[0]
    yield from _lines(FAIR, body, IN_FAIR, dict(enumerate(ordered, start=1)), [])


def findings_lines(run: RunDirectory, key: str, text: str | None = None) -> Iterator[Line]:
    """The lines of the findings file of one analysis."""
    ordered = ranked(run.findings)
    numbers = local_numbers(run, ordered)
    own = {
        n: ordered[place]
        for place, (category, n) in numbers.items()
        if category == key and has_card(ordered[place])
    }
    name = findings_file(run, key)
    listed = [finding for finding in ordered if finding["category"] == key]
    yield from _lines(name, run.text(name) if text is None else text, IN_FINDINGS, own, listed)


def findings_file(run: RunDirectory, key: str) -> str:
    """Where the findings of an analysis stand."""
    is_compute = run.results[key]["tier"] == "compute"
    return f"{'category' if is_compute else 'system'}_findings/{key}_findings.md"


def _lines(
    file: str,
    text: str,
    heading: re.Pattern[str],
    by_number: dict[int, dict[str, Any]],
    listed: list[dict[str, Any]],
) -> Iterator[Line]:
    """``listed`` are the findings that plain numbers count, ``by_number`` those of P-numbers."""
    section, title, finding, columns, row = "", "", None, (), -1
    for number, content in enumerate(text.splitlines(), start=1):
        is_item = re.match(r"^\d+\. \*\*", content) is not None
        reported = (
            heading.match(content)
            if section != "Detailed Analysis" or content[:4] == "####"
            else None
        )
        if content.startswith("#") or (reported and is_item):
            finding = None
        if content.startswith("## "):
            section, title = content[3:], ""
        elif content.startswith("### "):
            title = content[4:]
        own = finding
        if reported:
            number_told = int(next(group for group in reported.groups() if group))
            is_plain = "P" not in reported[0]
            own = listed[number_told - 1] if is_plain else by_number[number_told]
            finding = finding if content.startswith("|") else own
        if not content.startswith("|"):
            columns, row = (), -1
        elif not columns:
            columns, row = tuple(cells_of(content)), -2
            continue
        else:
            row += 1
        if content and not TABLE_RULE.match(content):
            yield Line(file, number, content, section, title, own, columns, row)
