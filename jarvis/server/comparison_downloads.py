"""What can be taken home from a comparison, made when it is asked for."""

from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis.comparison import Comparison, Role
from jarvis.perf_report.compare_report import NamedReport, compare_reports, hidden_columns
from jarvis.reports.comparative import write_comparison
from jarvis.reports.comparative.fair import fair_markdown
from jarvis.reports.comparative.rough import rough_markdown
from jarvis.reports.comparative.subject import Subject
from jarvis.reports.xlsx import write_workbook
from jarvis.run import Run
from jarvis.server.downloads import zipped
from jarvis.workspace import ComparisonPaths

_MARKDOWN = {"fair": fair_markdown, "rough": rough_markdown}


def comparative_report(comparison: Comparison, target: Run, reference: Run, kind: str) -> bytes:
    """The ``fair`` or the ``rough`` report of a comparison of these runs, as Markdown."""
    return _MARKDOWN[kind](Subject(comparison, target, reference)).encode()


def comparison_workbook(target: Run, reference: Run) -> bytes:
    """The sheets of both performance reports side by side, the reference first."""
    with TemporaryDirectory() as folder:
        return _write_workbook(target, reference, Path(folder)).read_bytes()


def comparison_archive(comparison: Comparison, target: Run, reference: Run) -> bytes:
    """A zip of both reports, the workbook, and every table of the comparison as CSV."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_comparison(comparison, target, reference, root)
        _write_workbook(target, reference, root)
        return zipped(root)


def _write_workbook(target: Run, reference: Run, root: Path) -> Path:
    sides = ((Role.REFERENCE, reference), (Role.TARGET, target))
    sheets = compare_reports([NamedReport(role.value, run.sheets()) for role, run in sides])
    return write_workbook(sheets, ComparisonPaths(root).workbook, hidden_columns)
