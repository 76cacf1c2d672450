"""The numbers that each line of a comparative report must have, in their order."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from jarvis.text.format import MINUS
from tests.arithmetic.documents import TABLE_RULE, cells_of
from tests.arithmetic.printed import numbers
from tests.comparative.recomputed import (
    FASTER,
    FIGURES,
    SLOWER,
    TOLERANCE,
    Operation,
    Recomputed,
    finding_names,
    finding_priorities,
)

ITEM = re.compile(r"^(?:\d+\. |- )")
ROWS_SHOWN = 5
SUMMARY_FINDINGS = 2
STEP_PARTS = (
    "Compute",
    "Exposed communication",
    "Exposed copies",
    "Idle before the first GPU event",
    "Idle between GPU events",
    "Idle after the last GPU event",
)
OUTCOMES = {
    "Slower than": SLOWER,
    "Within the tolerance": ("as expected",),
    "Faster than": FASTER,
    "Too short": ("too short",),
}

ELSEWHERE = ("Category", "Table")
"""Tables with tests of their own, or with counts of rows alone."""

Check = tuple[str, list[float] | None, bool]
"""A text, its numbers in their order, and whether their sign counts."""


@dataclass
class Place:
    """A line with the headings above it."""

    number: int
    text: str
    section: str = ""
    heading: str = ""
    columns: tuple[str, ...] = ()
    row: int = -1

    @property
    def cells(self) -> dict[str, str]:
        return dict(zip(self.columns, cells_of(self.text), strict=True))


def places(text: str) -> Iterator[Place]:
    """The lines of a report with sections, headings and table columns."""
    section, heading, columns, row, in_code = "", "", (), -1, False
    for number, line in enumerate(text.splitlines(), start=1):
        in_code = in_code != line.startswith("```")
        if line.startswith("## "):
            section, heading = line[3:], ""
        elif line.startswith("### "):
            heading = line[4:]
        elif not line:
            columns, row = (), -1
        elif in_code or TABLE_RULE.match(line) or line.startswith(("#", "```")):
            continue
        elif not line.startswith("|"):
            columns, row = (), -1
            yield Place(number, line, section, heading)
        elif not columns:
            columns, row = tuple(cells_of(line)), -1
        else:
            row += 1
            yield Place(number, line, section, heading, columns, row)


def wrong(text: str, expected: list[float] | None, *, signed: bool = False) -> str | None:
    """What is wrong with the numbers of a text, which should be these."""
    found = list(numbers(text))
    if expected is None:
        return f"no arithmetic for {text}" if found else None
    values = [abs(value) for value in expected] if signed else expected
    if len(found) != len(values):
        return f"{len(found)} numbers in place of {expected}: {text}"
    for printed, value in zip(found, values, strict=True):
        if not printed.matches(value):
            return f"{printed.text} in place of {value}: {text}"
    if signed and expected and not text.startswith("+" if expected[0] > 0 else MINUS):
        return f"the sign of {expected[0]} is lost: {text}"
    return None


class Facts:
    """The numbers that each line must have, in their order."""

    def __init__(self, pair: Recomputed) -> None:
        self.pair = pair
        self.names = finding_names(pair.roots["mi300"])
        self.gaps = {n: pair.gap(name) for n, name in enumerate(self.names, start=1)}

    def problems(self, place: Place) -> Iterator[str]:
        """What is wrong with a line."""
        checks = self.cells(place) if place.columns else [(place.text, self.line(place), False)]
        for text, expected, signed in checks:
            if problem := wrong(
                ITEM.sub("", text) if not signed else text, expected, signed=signed
            ):
                yield f"line {place.number}: {problem}"

    def operation(self, place: Place) -> Operation:
        """The one whose section this is: that with the largest gap of the finding."""
        gap = self.gaps[int(place.heading.partition(".")[0])]
        return max(gap.operations, key=lambda op: op.gap_ms)

    def line(self, place: Place) -> list[float] | None:
        text = ITEM.sub("", place.text)
        if place.section == "Executive Summary" and text.startswith("One step"):
            return self.paragraph()
        if text.startswith("Priority "):
            return self.priority(text)
        if place.section.startswith("Recommendations"):
            return self.card(place, text)
        if place.section in ("Raw Data", "Methodology"):  # test_raw_tables looks at the data
            return [number.value for number in numbers(text)]
        if text.startswith("Tolerance"):
            return [TOLERANCE]
        if place.section == "Expected Against Actual" and place.text.startswith("- "):
            number = int(re.findall(r"\d+", text)[0])
            return [number, *told_dims(text), *self.pair.operations[number].told_whole()]
        return self.sentence(text) or self.detail(place, text)

    def paragraph(self) -> list[float]:
        """Step times, the first findings of at least medium priority, and the target's shares."""
        reported = self.step_times()
        for number, name in enumerate(finding_priorities(self.pair.roots["mi300"]), start=1):
            if name != "Low" and number <= SUMMARY_FINDINGS:
                gap = self.gaps[number]
                high_ms = gap.step_ms[2]
                reported += [*gap.told_gap(), high_ms, 100 * high_ms / gap.span_ms]
        compute, *others, whole = self.pair.step_parts_ms["mi300"]
        shares = [100 * compute / whole, 100 * sum(others[2:]) / whole]
        return [*reported, *(shares if shares[0] < 50 else [])]

    def step_times(self) -> list[float]:
        target, reference = (self.pair.step_parts_ms[gpu] for gpu in ("mi300", "h100"))
        pairs = list(zip(target, reference, strict=True))
        most = max(pairs[:-1], key=lambda pair: abs(pair[0] - pair[1]))
        change_ms = abs(target[-1] - reference[-1])
        return [*pairs[-1], change_ms, 100 * change_ms / reference[-1], *most]

    def priority(self, text: str) -> list[float]:
        number = int(re.findall(r"\d+", text)[0])
        if "Saving" not in text:
            return [number]
        gap = self.gaps[number]
        return [number, *gap.told_gap(), *gap.told_impact()]

    def card(self, place: Place, text: str) -> list[float] | None:
        found = re.search(r"Priority (\d+)", place.heading)
        if found is None:
            return None
        number = int(found[1])
        gap = self.gaps[number]
        if text.startswith("**Gap**"):
            return gap.told_gap()
        if text.startswith("**Impact**"):
            return gap.told_impact()
        return [number] if text.startswith("→") else None

    def sentence(self, text: str) -> list[float] | None:
        """One of the sentences that sum the comparison up."""
        head, _, _ = text.partition(":")
        if head == "One step":
            return self.step_times()
        if "further row" in text:
            hidden = self.pair.operations[ROWS_SHOWN:]
            return [len(hidden), sum(op.target.ms for op in hidden)]
        if head in STEP_PARTS:
            parts = self.pair.step_parts_ms
            target, reference = (parts[gpu][STEP_PARTS.index(head)] for gpu in ("mi300", "h100"))
            change_ms = abs(target - reference)
            return [target, reference, change_ms, 100 * change_ms / reference]
        for begin, outcomes in OUTCOMES.items():
            if text.startswith(begin):
                found = self.pair.of(*outcomes)
                target_ms = sum(op.target.ms for op in found)
                reported = [len(found), target_ms, sum(op.reference.ms for op in found)]
                return (
                    [*reported, sum(op.gap_ms for op in found)] if outcomes == SLOWER else reported
                )
        if "no recorded launch" in text:
            return self.pair.unlinked("mi300" if "of the target" in text else "h100")
        if text.startswith("Why does"):
            return self.question(text)
        return None

    def question(self, text: str) -> list[float]:
        """About an operation that is faster than expected."""
        found = [op for op in self.pair.of(*FASTER) if f"`{op.name}` {op.arguments}" in text]
        (operation,) = found
        return [operation.reference.ms, operation.target.ms]

    def detail(self, place: Place, text: str) -> list[float] | None:
        if place.section != "Detailed Comparison" or not place.heading[:1].isdigit():
            return None
        operation = self.operation(place)
        if text.startswith("**Verify**"):
            return [self.pair.gap(operation.name).attainable_ms]
        if text.startswith("**Caveat**") and "reaches" in text:
            return [operation.reference.efficiency or 0.0]
        return None

    def cells(self, place: Place) -> Iterator[Check]:
        """The cells of a row with the numbers that they must have, and whether a sign counts."""
        if place.section in ("Raw Data", "Methodology") or place.columns[0] in ELSEWHERE:
            return iter(())
        kind = place.columns[-1] if place.columns[-1] == "Expected time ratio" else place.columns[0]
        return self.tables[kind](place)

    @cached_property
    def tables(self) -> dict[str, Callable[[Place], Iterator[Check]]]:
        """What checks a row, by what tells its table apart."""
        return {
            "Metric": lambda place: self.detail_row(place.cells, self.operation(place)),
            "Part of one step": self.step_row,
            "Operation": self.other_row,
            "Side": lambda _: iter(()),  # the inputs
            "Priority": self.low_row,
            "Pair": self.calculation_row,
            "Outcome": self.outcome_row,
            "Matched by": self.matched_row,
            "Expected time ratio": figures,
        }

    def step_row(self, place: Place) -> Iterator[Check]:
        rows = list(zip(*(self.pair.step_parts_ms[gpu] for gpu in ("h100", "mi300")), strict=True))
        reference, target = [row for row in rows if any(row)][place.row]
        for role, gpu, time in (("Reference", "h100", reference), ("Target", "mi300", target)):
            yield place.cells[role], [time, 100 * time / self.pair.step_parts_ms[gpu][-1]], False
        difference = place.cells["Difference"]
        yield difference.lstrip(MINUS), [abs(target - reference)], False
        assert difference.startswith(MINUS) is (target < reference)
        change = [100 * (target / reference - 1)] if reference else []
        yield place.cells["Δ"], change, bool(change)

    def other_row(self, place: Place) -> Iterator[Check]:
        operation = self.pair.operations[place.row]
        yield from self.times(place.cells, operation)
        yield place.cells["Expected?"], told_verdict(operation), False

    def low_row(self, place: Place) -> Iterator[Check]:
        number = int(place.cells["Priority"])
        gap = self.gaps[number]
        yield place.cells["GPU time"], [gap.saved_ms[2]], False
        yield place.cells["Step time"], [gap.step_ms[2], 100 * gap.step_ms[2] / gap.span_ms], False

    def outcome_row(self, place: Place) -> Iterator[Check]:
        found = self.pair.of(place.cells["Outcome"])
        yield place.cells["Rows"], [len(found)], False
        yield place.cells["Reference (ms)"], [sum(op.reference.ms for op in found)], False
        yield place.cells["Target (ms)"], [sum(op.target.ms for op in found)], False
        yield place.cells["Not explained (ms)"], [sum(op.gap_ms for op in found)], False

    def times(self, cells: dict[str, str], operation: Operation) -> Iterator[Check]:
        yield cells["Reference"], [operation.reference.ms], False
        yield cells["Target"], [operation.target.ms], False
        yield cells["Δ"], [operation.change], True

    def detail_row(self, cells: dict[str, str], operation: Operation) -> Iterator[Check]:
        target, reference = operation.target, operation.reference
        assert target.count == reference.count
        kind = cells["Metric"]
        if kind.startswith("Time"):
            for role, call in (("Reference", reference), ("Target", target)):
                yield cells[role], [call.ms if kind == "Time" else call.per_call_ms], False
            yield cells["Δ"], [operation.change], True
            yield cells["Expected?"], told_verdict(operation), False
        elif kind == "Calls":
            yield cells["Reference"], [reference.count], False
            yield cells["Target"], [target.count], False
        elif kind.startswith("Efficiency"):
            assert None not in (target.efficiency, reference.efficiency)
            yield cells["Reference"], [reference.efficiency], False
            yield cells["Target"], [target.efficiency], False
            yield cells["Δ"], [target.efficiency - reference.efficiency], True
        else:
            assert kind == "Main kernel"

    def calculation_row(self, place: Place) -> Iterator[Check]:
        cells, operation = place.cells, self.pair.operations[place.row]
        has_efficiency = operation.outcome != "too short"
        assert cells["Outcome"] == operation.outcome
        yield cells["Pair"], [place.row], False
        yield cells["Actual: target / reference"], operation.told_actual(), False
        yield cells["Expected"], operation.told_expected(), False
        yield cells["Actual / expected"], [operation.off] if has_efficiency else [], False
        yield cells["Attainable"], operation.told_attainable() if has_efficiency else [], False
        yield cells["Target"], [operation.target.ms], False
        yield cells["Not explained"], [operation.gap_ms] if has_efficiency else [], False

    def matched_row(self, place: Place) -> Iterator[Check]:
        cells = place.cells
        operations = self.pair.operations if cells["Matched by"] == "arguments" else []
        yield cells["Rows"], [len(operations)], False
        yield cells["Reference (ms)"], [sum(op.reference.ms for op in operations)], False
        yield cells["Target (ms)"], [sum(op.target.ms for op in operations)], False


def told_dims(text: str) -> list[float]:
    """The number of tensors in front of a list of them."""
    return [float(n) for n in re.findall(r"(?<![\w.])(\d+) x \[", text)]


def told_verdict(operation: Operation) -> list[float]:
    least, most = operation.expected
    if operation.outcome in SLOWER and most != 1:
        return [abs(100 * (most - 1))]
    if operation.outcome in FASTER and least != 1:
        return [abs(100 * (least - 1))]
    return []


def figures(place: Place) -> Iterator[Check]:
    """A row of the hardware of both sides, for the figures that operations stand on."""
    cells = place.cells
    key = "memory" if "Bandwidth" in cells["Metric"] else cells["Metric"].split()[-1]
    values = [FIGURES[gpu].get(key) for gpu in ("mi300", "h100")]
    if all(values):
        target, reference = values
        yield cells["Target Platform"], [target], False
        yield cells["Reference Platform"], [reference], False
        yield cells["Expected time ratio"], [reference / target], False
