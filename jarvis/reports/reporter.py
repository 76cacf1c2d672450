"""Base class of report formats: a name, a suffix, and a method that renders a run."""

from abc import ABC, abstractmethod
from copy import copy
from pathlib import Path
from typing import ClassVar, Self

from jarvis.core.workspace import RunPaths
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.run import Run


class Reporter(ABC):
    """One report format; subclasses take options in their constructor.

    ``suffix`` is the file's, empty for formats that write a folder. ``edits`` are the notes of a
    team; formats for programs ignore them.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    in_run: ClassVar[bool] = True
    """Whether every run directory contains it; others are written on demand."""

    has_notes: ClassVar[bool] = False
    """Whether it shows the notes of a team."""

    edits: Edits = UNEDITED
    page_url: str | None = None
    """Address of the report's page, for formats that link to it."""

    def with_notes(self, edits: Edits, page_url: str | None = None) -> Self:
        """Return this format with the notes of a team, and the address of the report's page."""
        made = copy(self)
        made.edits, made.page_url = edits, page_url
        return made

    def place(self, paths: RunPaths) -> Path:
        """Return its path in a run directory."""
        return paths.root / f"{self.name}{self.suffix}"

    @abstractmethod
    def render(self, run: Run, out: Path) -> None:
        """Write ``run`` to the file or folder ``out``; numbers come from the run and ``impact``."""


def run_folder(run: Run, out: Path) -> Path:
    """Return the folder with the files that a report ``out`` links to: its own parent for a run
    still being written."""
    return run.root or out.parent
