"""What is wrong with the numbers of a report, line by line."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

from tests.arithmetic import tables
from tests.arithmetic.cards import card_facts
from tests.arithmetic.categories import category_facts, category_table_problems, direction_facts
from tests.arithmetic.documents import FAIR, Line, findings_lines, report_lines
from tests.arithmetic.lines import LEADS, field_problems, lead_problems, line_problems
from tests.arithmetic.names import names_of
from tests.arithmetic.printed import numbers
from tests.arithmetic.rendered import measured_lines, of_analyses, of_findings, printed
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.savings import gain_of, local_numbers, ranked, sources_of
from tests.arithmetic.units import TARGET_PCT, Facts, data_rows, share
from tests.arithmetic.values import TEXTS

LABEL = re.compile(r"\b((?:System |Fusion )?P\d+)\b")
SCORES = re.compile(r"<!-- impact-begin .*?((?: (?:low|mid|high)=[\d.]+)+)")
OPERATION = re.compile(r"- \*\*Operation:?\*\*")
OVERLAP = re.compile(r"- (?:\*\*)?Overlap\b")
AIM = re.compile(r"a target of ([\d.]+)% of the roofline")
RECOMPUTED = re.compile(r"checkpointing computes ([\d.]+) ms of kernels again")
UNCERTAIN = {
    re.compile(r"([\d.]+)% is in no recorded event"): "unexplained_pct",
    re.compile(r"the cause of ([\d.]+)% is inferred"): "inferred_pct",
}
STALLED = re.compile(r"([\d.,]+) ms before [^.]* are (?:in no recorded event|taken as given:)")
REPEATS = r"torch/utils/checkpoint\.py\(\d+\): recompute_fn$"
MORE = re.compile(r"(\d+) more findings? of low")
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
        elif line.file == FAIR and line.text.startswith(tuple(LEADS)):
            yield from lead_problems(line.text, line.finding, self.ordered)
        else:
            yield from _title_problems(line)
            yield from field_problems(line.text, line.finding)
            yield from self._labels(line)
            yield from _scores(line, facts)
            if OPERATION.match(line.text):
                yield from _operator_problems(line, self.run)
            else:
                yield from line_problems(line.text, self.texts(line.finding), facts, self.names)

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
        elif line.columns == ("", "Finding", "Saving"):
            yield from line_problems(line.cells[1], self.texts(finding), facts, self.names)
            gain, whole_ms = finding["impact"], self.run.manifest["totals"]["step"]["step_ms"]
            expected = share(gain_of(finding), whole_ms or self.run.total_ms) if gain else None
            if problem := tables.differs(line.cells[2].removeprefix("up to "), expected):
                yield problem
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
        if (reported := MORE.match(line.text)) and line.file == FAIR:
            listed = len(re.findall(r"^\| \[?P\d+\b", self.run.text(FAIR), re.MULTILINE))
            if int(reported[1]) != len(self.ordered) - listed:
                yield f"{reported[1]} in place of {len(self.ordered) - listed}"
            return
        if AIM.search(line.text):
            yield from _basis_problems(line, self.run)
            return
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
        found = re.search(r"/(\w+)_findings\.md", line.text)
        return found[1] if found else None

    @cache  # noqa: B019 one checker for each run
    def _category_facts(self, key: str) -> Facts:
        return category_facts(self.run, key)


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
        "TFLOP/s": hardware["max_achievable_tflops"]["matrix_bf16"],
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
    reported = re.findall(r"` \(([\d,]+) (?:call|launch)", line.text)
    more = re.findall(r" and ([\d,]+) more ", line.text)
    expected = [*counts[:SHOWN], *([hidden] if hidden > 0 else [])]
    if len([*reported, *more]) != len(expected) or len(list(numbers(line.text))) != len(expected):
        yield f"{[*reported, *more]} in place of {expected}"
    for cell, value in zip([*reported, *more], expected, strict=False):
        if problem := tables.differs(cell, value):
            yield problem


def _basis_problems(line: Line, run: RunDirectory) -> Iterator[str]:
    """What is wrong with the assumptions of all findings."""
    expected = {
        AIM: f"{run.manifest['options'].get('target_pct', TARGET_PCT):g}",
        RECOMPUTED: f"{_recomputed_ns(run) / 1e6:.3g}",
    }
    for pattern, number in expected.items():
        if (reported := pattern.search(line.text)) and reported[1] != number:
            yield f"{reported[1]} in place of {number}"
    quality = (run.manifest["simulation"] or {}).get("quality", {})
    for pattern, name in UNCERTAIN.items():
        reported = pattern.search(line.text)
        if reported and (problem := tables.differs(reported[1], quality[name])):
            yield f"{name}: {problem}"
    stalls: Counter[str | None] = Counter()
    for stall in quality.get("stalls", ()):
        stalls[run.event_names.get(stall["uid"])] += stall["ns"]
    for text, ns in zip(STALLED.findall(line.text), stalls.values(), strict=False):
        if problem := tables.differs(text.replace(",", ""), ns / 1e6):
            yield f"stall: {problem}"


def _recomputed_ns(run: RunDirectory) -> int:
    """Time of the kernels launched within frames that repeat a forward pass."""
    slices = {row["uid"]: row for row in run.table("host_slices")}
    frames = [row for row in slices.values() if re.search(REPEATS, row["name"])]

    def is_repeated(launch: dict[str, Any] | None) -> bool:
        return launch is not None and any(
            frame["thread"] == launch["thread"]
            and 0 <= launch["ts_ns"] - frame["ts_ns"] < frame["dur_ns"]
            for frame in frames
        )

    work = run.table("gpu_work") if frames else []
    return sum(each["dur_ns"] for each in work if is_repeated(slices.get(each["launch_uid"])))
