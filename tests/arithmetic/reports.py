"""What is wrong with the numbers of a report, line by line."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

from tests.arithmetic import tables
from tests.arithmetic.cards import card_facts
from tests.arithmetic.categories import category_facts, category_table_problems, direction_facts
from tests.arithmetic.documents import FAIR, Line, findings_lines, report_lines
from tests.arithmetic.lines import field_problems, line_problems
from tests.arithmetic.names import names_of
from tests.arithmetic.printed import numbers
from tests.arithmetic.rendered import measured_lines, of_analyses, of_findings, printed
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.savings import local_numbers, ranked, sources_of
from tests.arithmetic.units import Facts, data_rows
from tests.arithmetic.values import TEXTS

LABEL = re.compile(r"\b((?:System |Fusion )?P\d+)\b")
SCORES = re.compile(r"<!-- impact-begin .*?((?: (?:low|mid|high)=[\d.]+)+)")
JOINED_CARD = re.compile(r"(?:P\d+, )*P\d+ and P\d+ \(")
OF_ALL_PARTS = ("### ", "- **Operation", "- **Issue", "- → ")
OPERATION = re.compile(r"- \*\*Operation:?\*\*")
OVERLAP = re.compile(r"- (?:\*\*)?Overlap\b")
SHOWN = 3
"""Operators that a card names."""

HEADING = re.compile(r"^#{3,4} |^\d+\. \*\*")
HARDWARE = "- **Hardware**: "
UNCHECKED = ("- **Status**", "- **Analysis Tier**", "- **Trace**")


class Checker:
    """Checks the reports of one run; facts are worked out once."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.ordered = ranked(run.findings)
        self.locals = local_numbers(run, self.ordered)
        self._facts: dict[int, Facts] = {}

    def fair(self, text: str | None = None) -> list[str]:
        """What is wrong with the fair report, ``text`` in place of the file's."""
        return self._wrong(report_lines(self.run, text))

    def findings(self, key: str, text: str | None = None) -> list[str]:
        """What is wrong with the findings file of one analysis."""
        return self._wrong(findings_lines(self.run, key, text), key)

    def facts(self, finding: dict[str, Any]) -> Facts:
        """Those of a finding, by its place in the order."""
        place = self.ordered.index(finding)
        if place not in self._facts:
            self._facts[place] = card_facts(self.run, finding)
        return self._facts[place]

    @cached_property
    def names(self) -> list[str]:
        """All names that the reports may quote."""
        return names_of(self.run)

    @cached_property
    def composed(self) -> list[list[str]]:
        """What the reports say around each finding."""
        return [[each.text for each in found] for found in of_findings(self.run)]

    @cached_property
    def overviews(self) -> dict[str, list[str]]:
        """What the reports say of each analysis."""
        return {key: [each.text for each in found] for key, found in of_analyses(self.run).items()}

    def texts(self, finding: dict[str, Any]) -> list[str]:
        """The words of a finding, as Markdown, and what the reports say around it."""
        own = [printed(finding[name]) for name in TEXTS if finding[name]]
        title = re.sub(r" \(([^()]*)\)$", r", \1", finding["title"])
        return [*own, printed(title), *self.composed[self.ordered.index(finding)]]

    def problems_of(self, line: Line, key: str | None = None) -> Iterator[str]:
        """What is wrong with one line; ``key`` is the analysis that its file is about."""
        return self._of_finding(line) if line.finding else self._of_category(line, key)

    def _wrong(self, lines: Iterator[Line], key: str | None = None) -> list[str]:
        return [line.wrong(p) for line in lines for p in self.problems_of(line, key)]

    def _of_finding(self, line: Line) -> Iterator[str]:
        assert line.finding is not None
        facts = self.facts(line.finding)
        if line.columns:
            yield from self._table(line, facts)
        elif (parts := self._joined(line)) and line.text.startswith(OF_ALL_PARTS):
            yield from _joined_problems(line, parts, [self.facts(part) for part in parts])
        else:
            yield from _title_problems(line)
            yield from field_problems(line.text, line.finding)
            yield from self._labels(line)
            yield from _scores(line, facts)
            if OPERATION.match(line.text):
                yield from _operator_problems(line, self.run)
            else:
                yield from line_problems(line.text, self.texts(line.finding), facts, self.names)

    def _joined(self, line: Line) -> list[dict[str, Any]]:
        """The findings of a card that is about several, by the numbers in its heading."""
        told = JOINED_CARD.search(line.heading)
        return [self.ordered[int(n) - 1] for n in re.findall(r"\d+", told[0])] if told else []

    def _table(self, line: Line, facts: Facts) -> Iterator[str]:
        finding = line.finding
        assert finding is not None
        if line.columns == ("Evidence", "Value"):
            yield from tables.evidence_problems(line)
        elif line.columns[0] == "Target Efficiency":
            yield from tables.projection_problems(line, self.run, facts)
        elif line.columns[:2] == ("Operation", "Args"):
            rows = data_rows(self.run, finding)
            yield from tables.operation_problems(line, rows, rows)
            yield from tables.tool_problems(line, rows[line.row], self.run)
        elif line.columns == ("", "Finding", "Category", "Saving"):
            yield from line_problems(line.cells[1], self.texts(finding), facts, self.names)
            if line.cells[3] not in (*self.composed[self.ordered.index(finding)], tables.MISSING):
                yield f"{line.cells[3]} is not the saving"
        else:
            yield f"no arithmetic for a table of {line.columns}"

    def _labels(self, line: Line) -> Iterator[str]:
        """The P-numbers of a line: those of what it shares time with, or its own."""
        assert line.finding is not None
        place = self.ordered.index(line.finding)
        found = LABEL.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", line.text))
        if OVERLAP.search(line.text):
            expected = [f"P{other + 1}" for other in self._sharing(place)]
            if found != expected:
                yield f"{found} in place of {expected}"
            return
        tier = self.run.results[line.finding["category"]]["tier"]
        prefix = "" if tier == "compute" else f"{tier.capitalize()} "
        allowed = {f"P{place + 1}", f"{prefix}P{self.locals[place][1]}"}
        if not set(found) <= allowed:
            yield f"{found} in place of {sorted(allowed)}"

    def _sharing(self, place: int) -> list[int]:
        """The places of the findings whose saving draws on the same time, fusion cards last."""
        finding = self.ordered[place]
        mine = sources_of(finding)
        others = [
            other
            for other, theirs in enumerate(self.ordered)
            if other != place
            and theirs["impact"]
            and finding["impact"]
            and mine & sources_of(theirs)
        ]
        kinds: dict[tuple[bool, bool], list[int]] = defaultdict(list)
        own_tier = self._tier(finding)
        for other in others:
            theirs = self.ordered[other]
            is_fusion = self._tier(theirs) == "fusion" and own_tier != "fusion"
            kinds[is_fusion, is_fusion and mine <= sources_of(theirs)].append(other)
        return [other for same in kinds.values() for other in same]

    def _tier(self, finding: dict[str, Any]) -> str:
        return str(self.run.results[finding["category"]]["tier"])

    def _of_category(self, line: Line, key: str | None) -> Iterator[str]:
        key = key or self._key(line)
        if key is None or line.text.startswith(UNCHECKED):
            return
        if line.text.startswith(HARDWARE):
            yield from _hardware_problems(line, self.run)
            return
        facts = direction_facts(self.run, line.heading) or self._category_facts(key)
        if line.columns:
            yield from category_table_problems(line, self.run, key, facts)
        elif line.text not in measured_lines(self.run, key):
            yield from line_problems(line.text, self.overviews[key], facts, self.names)

    def _key(self, line: Line) -> str | None:
        """The analysis that a section of the fair report is about."""
        if line.section != "Detailed Analysis" or line.file != FAIR:
            return None
        title = re.sub(r"^\d+\. | \([^()]*\)$", "", line.heading)
        return next((key for key, r in self.run.results.items() if r["title"] == title), None)

    @cache  # noqa: B019 one checker for each run
    def _category_facts(self, key: str) -> Facts:
        return category_facts(self.run, key)


def _joined_problems(line: Line, parts: list[dict[str, Any]], facts: list[Facts]) -> Iterator[str]:
    """What a card says of all its parts: the time of each, or the launches of all kernels."""
    if "Issue" in line.text:
        expected = [(f["time_ms"][0], f["compute_pct"][0]) for f in facts]
        told = re.findall(r" with ([\d.,]+ .s) \(([\d.]+%) of compute\)", line.text)
        if len(told) != len(expected) or len(list(numbers(line.text))) != 2 * len(expected):
            yield f"{told} for {len(expected)} parts"
        pairs = zip(told, expected, strict=False)
        cells = [
            (cell, value)
            for pair, values in pairs
            for cell, value in zip(pair, values, strict=True)
        ]
    elif "Operation" in line.text:
        calls: dict[str, int] = defaultdict(int)
        for part in parts:
            for operation in part["operations"]:
                calls[operation["name"]] += operation["operation_count"]
        told_calls = re.findall(r"` \(([\d,]+) launch| and (\d+) more kernel", line.text)
        values = [*calls.values()][:3] + [len(calls) - 3] * (len(calls) > 3)
        cells = list(zip((a or b for a, b in told_calls), values, strict=True))
    else:
        cells = []
    for cell, value in cells:
        if problem := tables.differs(cell, value):
            yield problem


def _scores(line: Line, facts: Facts) -> Iterator[str]:
    """The scores in a comment for other tools."""
    found = SCORES.search(line.text)
    for name, text in re.findall(r"(\w+)=([\d.]+)", found[1]) if found else ():
        (expected,) = facts[f"score_{name}"]
        if problem := tables.differs(text, expected):
            yield f"{name}: {problem}"


def _title_problems(line: Line) -> Iterator[str]:
    """A heading must be that of the finding with its number."""
    assert line.finding is not None
    title = _letters(line.finding["title"])
    if HEADING.match(line.text) and title not in _letters(line.text):
        yield f"this is not {line.finding['title']}"


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text)


def _hardware_problems(line: Line, run: RunDirectory) -> Iterator[str]:
    """The two peaks in the head of a findings file."""
    hardware = run.hardware
    known = {} if hardware is None else {
        "TB/s": hardware["mem_bw_gbps"] / 1000,
        "TFLOPS/s": hardware["max_achievable_tflops"]["matrix_bf16"],
    }  # fmt: skip
    for number in numbers(line.text):
        if number.unit in known and not number.matches(known[number.unit]):
            yield f"{number.text} in place of {known[number.unit]}"


def _operator_problems(line: Line, run: RunDirectory) -> Iterator[str]:
    """How often each operator of a card is called, in the order of their time."""
    assert line.finding is not None
    calls: dict[str, int] = defaultdict(int)
    for operation in line.finding["operations"]:
        calls[operation["name"]] += operation["operation_count"]
    counts, hidden = list(calls.values()), len(calls) - SHOWN
    if not calls:
        hidden = len({run.rows[uid].name for uid in line.finding["shared_uids"]}) - SHOWN
    told = re.findall(r"` \(([\d,]+) (?:call|launch)", line.text)
    more = re.findall(r" and ([\d,]+) more ", line.text)
    expected = [*counts[:SHOWN], *([hidden] if hidden > 0 else [])]
    if len([*told, *more]) != len(expected) or len(list(numbers(line.text))) != len(expected):
        yield f"{[*told, *more]} in place of {expected}"
    for cell, value in zip([*told, *more], expected, strict=False):
        if problem := tables.differs(cell, value):
            yield problem
