"""What a check of a run directory is, and what it says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from jarvis.text.docstrings import filled_docstring
from jarvis.validation.run_files import RunFiles


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong: in which file and line, and a sentence with what was expected."""

    file: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        """``file:line: text``."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.text}"


Find = Callable[[RunFiles], Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Check:
    """A function that finds problems; its name and the first line of its docstring describe it.

    ``is_warning`` problems do not fail a run.
    """

    find: Find
    is_warning: bool = False

    @property
    def name(self) -> str:
        """``ranks are contiguous``."""
        return self.find.__name__.replace("_", " ")

    @property
    def description(self) -> str:
        """What must hold, in a sentence."""
        return filled_docstring(self.find).split("\n\n")[0].replace("\n", " ").strip()


class Verdict(StrEnum):
    """How a check ended."""

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
        """Whether the run passes."""
        if not self.problems:
            return Verdict.PASS
        return Verdict.WARN if self.check.is_warning else Verdict.FAIL
