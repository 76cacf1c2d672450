"""What a report format is: a name, a suffix, and a way to render a run."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from jarvis.core.workspace import RunPaths
from jarvis.run import Run


class Reporter(ABC):
    """One report format; options go into the constructor of a subclass.

    ``suffix`` is the file's, empty for formats that write a folder.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    in_run: ClassVar[bool] = True
    """Whether every run directory holds it; others are made on demand."""

    def place(self, paths: RunPaths) -> Path:
        """Where it stands in a run directory."""
        return paths.root / f"{self.name}{self.suffix}"

    @abstractmethod
    def render(self, run: Run, out: Path) -> None:
        """Write ``run`` to the file or folder ``out``; numbers come from the run and ``impact``."""


def run_folder(run: Run, out: Path) -> Path:
    """Where the files of a run are that a report ``out`` speaks of: a run still being written has
    them beside it."""
    return run.root or out.parent
