"""Report formats of other packages: written on demand, with their errors caught."""

from importlib.metadata import EntryPoint
from pathlib import Path

from jarvis.core.errors import JarvisError, RegistrationError
from jarvis.reports.reporter import Reporter
from jarvis.run import Run

ENTRY_POINT_GROUP = "jarvis.reports"
"""Entry point group of packages that define a ``Reporter``; the entry point's name is the
format's."""


class PluginReportError(JarvisError):
    """A report format of another package failed."""

    def __init__(self, name: str, error: BaseException) -> None:
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(" .:")
        super().__init__(
            f"The report format {name!r} of another package failed: {reason}. Contact its author, "
            "or choose another format."
        )


class ForeignReporter(Reporter):
    """A format of another package; not part of run directories."""

    in_run = False

    def __init__(self, name: str, reporter: Reporter) -> None:
        self.name = name  # type: ignore[misc]
        self.suffix = reporter.suffix  # type: ignore[misc]
        self._reporter = reporter

    def render(self, run: Run, out: Path) -> None:
        """Write ``run`` to ``out``; raise PluginReportError if the package's code fails."""
        try:
            self._reporter.render(run, out)
        except (Exception, SystemExit) as error:
            raise PluginReportError(self.name, error) from error
        if not out.exists():
            raise PluginReportError(self.name, FileNotFoundError("it wrote nothing"))


def load_external(point: EntryPoint) -> ForeignReporter:
    """Return the format of an entry point; raise RegistrationError if it is none, or the error of
    loading it."""
    reporter = point.load()
    if not isinstance(reporter, Reporter) or not isinstance(reporter.suffix, str):
        raise RegistrationError(f"{point.value} is not a Reporter with a suffix.")
    return ForeignReporter(point.name, reporter)
