"""Base class of report formats: a name, a suffix, and a method that renders a run."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from jarvis.core.workspace import RunPaths
from jarvis.run import Run


class Reporter(ABC):
    """One report format; subclasses take options in their constructor.

    ``suffix`` is the file's, empty for formats that write a folder.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    in_run: ClassVar[bool] = True
    """Whether every run directory contains it; others are written on demand."""

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
