"""Checks of a run directory and their outcomes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from jarvis.text.docstrings import filled_docstring
from jarvis.validation.run_files import RunFiles


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
