"""Report formats: every module of this package with a ``REPORTER`` is one."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from jarvis.errors import RegistrationError
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.workspace import RunPaths

__all__ = ["Reporter", "add_plots", "load_reporters", "write_reports"]


@cache
def load_reporters() -> Mapping[str, Reporter]:
    """The formats by name; RegistrationError where two have the same one."""
    found: dict[str, Reporter] = {}
    for module in sorted(iter_modules(__path__), key=lambda module: module.name):
        reporter = getattr(import_module(f"{__name__}.{module.name}"), "REPORTER", None)
        if reporter is None:
            continue
        if reporter.name in found:
            raise RegistrationError(f"Two report formats are named {reporter.name!r}.")
        found[reporter.name] = reporter
    return found


def write_reports(run: Run, root: Path) -> None:
    """Write every format that belongs into a run directory to its place below ``root``."""
    for reporter in load_reporters().values():
        if reporter.in_run:
            reporter.render(run, reporter.place(RunPaths(root)))


def add_plots(run: Run, root: Path) -> None:
    """Draw the images into the run directory ``root``, and have its report show them.

    Raises PlotError where they cannot be drawn.
    """
    for name in ("plot", "analysis"):
        reporter = load_reporters()[name]
        reporter.render(run, reporter.place(RunPaths(root)))
