"""Report formats: every module here and in ``agent_layout`` with a ``REPORTER`` is one.

Other packages add formats through the entry point group ``jarvis.reports``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules

from jarvis.core.errors import JarvisError, RegistrationError
from jarvis.core.workspace import RunPaths
from jarvis.reports.foreign import ENTRY_POINT_GROUP, load_external
from jarvis.reports.reporter import Reporter
from jarvis.run import Run

__all__ = ["Reporter", "add_plots", "load_formats", "load_reporters", "reporter", "write_reports"]

_PACKAGES = (__name__, f"{__name__}.agent_layout")


@dataclass(frozen=True)
class Formats:
    """The formats by name, and why those of other packages could not be loaded."""

    reporters: Mapping[str, Reporter]
    failures: Mapping[str, str] = field(default_factory=dict)


@cache
def load_formats() -> Formats:
    """Return all formats; raise RegistrationError if two built-in ones have the same name."""
    found: dict[str, Reporter] = {}
    modules = (
        f"{package}.{module.name}"
        for package in _PACKAGES
        for module in iter_modules(import_module(package).__path__)
    )
    for name in sorted(modules, key=lambda name: name.rpartition(".")[2]):
        made = getattr(import_module(name), "REPORTER", None)
        if made is None:
            continue
        if made.name in found:
            raise RegistrationError(f"Two report formats are named {made.name!r}.")
        found[made.name] = made
    failures: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            if point.name in found:
                raise RegistrationError("another format already has this name")
            found[point.name] = load_external(point)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a third-party package
            failures[point.name] = f"{type(error).__name__}: {error}"
    return Formats(found, failures)


def load_reporters() -> Mapping[str, Reporter]:
    """Return the formats by name; raise RegistrationError if two built-in ones have the same
    name."""
    return load_formats().reporters


def reporter(name: str) -> Reporter:
    """Return the format of this name; raise JarvisError if there is none or it could not be
    loaded."""
    formats = load_formats()
    if name in formats.reporters:
        return formats.reporters[name]
    why = f" (it could not be loaded: {formats.failures[name]})" if name in formats.failures else ""
    known = ", ".join(formats.reporters)
    raise JarvisError(f"There is no format {name!r}{why}. Choose one of {known}.")


def write_reports(run: Run, root: Path) -> None:
    """Write every format that belongs to a run directory to its path below ``root``."""
    for made in load_reporters().values():
        if made.in_run:
            made.render(run, made.place(RunPaths(root)))


def add_plots(run: Run, root: Path) -> None:
    """Render the images into the run directory ``root``, and link them in its report."""
    for name in ("plot", "analysis"):
        made = load_reporters()[name]
        made.render(run, made.place(RunPaths(root)))
