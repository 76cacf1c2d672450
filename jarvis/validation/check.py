"""Checks of a run directory and their outcomes, and the content of a finding that they read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import isclose
from typing import Any

from jarvis.text.docstrings import filled_docstring
from jarvis.validation.run_files import Json, RunFiles


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: file, line, and a sentence with the expected content."""

    file: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        """Return ``file:line: text``."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.text}"


Find = Callable[[RunFiles], Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Check:
    """A function that finds problems; its name and the first line of its docstring describe it.

    Problems of an ``is_warning`` check do not fail a run. A check that ``needs_steps`` applies to
    runs of versions that record what bounds the steps (``RunFiles.knows_steps``).
    """

    find: Find
    is_warning: bool = False
    needs_steps: bool = False

    @property
    def name(self) -> str:
        """Return the name, such as ``ranks are contiguous``."""
        return self.find.__name__.replace("_", " ")

    @property
    def description(self) -> str:
        """Return what must hold, in a sentence."""
        return filled_docstring(self.find).split("\n\n")[0].replace("\n", " ").strip()


class Verdict(StrEnum):
    """The result of a check."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A check and the problems that it found."""

    check: Check
    problems: tuple[Problem, ...]

    @property
    def verdict(self) -> Verdict:
        """Return whether the run passes."""
        if not self.problems:
            return Verdict.PASS
        return Verdict.WARN if self.check.is_warning else Verdict.FAIL


ROUNDING = 1e-6
ENDS = ("low", "mid", "high")


def title(finding: Json) -> str:
    """Return the title in quotes."""
    return repr(finding["title"])


def key_of(finding: Json) -> tuple[str, ...]:
    """Return check, analysis and title, and what else distinguishes findings of one title."""
    uids = [operation["uid"] for operation in finding["operations"]]
    others = (finding["issue"], uids, finding.get("shared_uids"))
    return finding["check"], finding["category"], finding["title"], *map(str, others)


def quantified(run: RunFiles) -> list[Json]:
    """Return the findings with a known saving."""
    return [finding for finding in run.findings if finding.get("impact")]


def gain_ms(finding: Json) -> float | None:
    """Return the saving that counts: of step time if it is known, and the high end of an
    interval."""
    gain = finding.get("impact")
    if not gain:
        return None
    saving = gain.get("step_ms") or gain["saved_ms"]
    return float(saving["high" if gain.get("is_interval") else "mid"])


def uids(finding: Json) -> set[int]:
    """Return its own operations and those that share its time."""
    own = {operation["uid"] for operation in finding["operations"]}
    return own | set(finding.get("shared_uids") or ())


def quantities(finding: Json) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each quantity; none for a file of an earlier version."""
    for quantity in finding.get("quantities", ()):
        yield quantity["name"], quantity["value"]


def messages(finding: Json) -> Iterator[Json]:
    """Yield the messages, including nested messages and those of quantities."""
    pending: list[Json] = [m for texts in finding.get("messages", {}).values() for m in texts]
    pending += (q["message"] for q in finding.get("quantities", ()) if q.get("message"))
    while pending:
        message = pending.pop()
        for value in message["values"].values():
            inner = value if isinstance(value, list) else [value]
            pending += (each for each in inner if isinstance(each, dict))
        yield message


def values(finding: Json) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each value of the messages, including nested messages."""
    for message in messages(finding):
        yield from message["values"].items()


def texts(finding: Json) -> Iterator[tuple[str, str]]:
    """Yield name and text of each text among the values of the messages; of lists, each item."""
    for name, value in values(finding):
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield name, text


def percent(part: float, whole: float) -> float:
    """Return a part in percent of the whole; 0 if there is no whole."""
    return 100 * part / whole if whole else 0.0


def is_close(found: float, expected: float) -> bool:
    """Return whether two numbers are equal but for rounding."""
    return isclose(found, expected, rel_tol=ROUNDING, abs_tol=ROUNDING)


def exceeds(found: float, limit: float) -> bool:
    """Return whether a number is greater than a limit by more than rounding."""
    return found > limit * (1 + ROUNDING) + ROUNDING
