"""What can be taken home from a comparison, made when it is asked for."""

from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis.comparison import Comparison, Role
from jarvis.perf_report.compare_report import NamedReport, compare_reports, hidden_columns
from jarvis.reports.comparative import write_comparison
from jarvis.reports.csv import write_csvs
from jarvis.reports.xlsx import write_workbook
from jarvis.run import Run
from jarvis.server.downloads import zipped
from jarvis.workspace import ComparisonPaths


def comparison_workbook(target: Run, reference: Run) -> bytes:
    """The sheets of both performance reports side by side, the reference first."""
    sides = ((Role.REFERENCE, reference), (Role.TARGET, target))
    sheets = compare_reports([NamedReport(role.value, run.sheets()) for role, run in sides])
    with TemporaryDirectory() as folder:
        path = ComparisonPaths(Path(folder)).workbook
        return write_workbook(sheets, path, hidden_columns).read_bytes()


def comparison_reports(comparison: Comparison, target: Run, reference: Run) -> bytes:
    """A zip with the reports of a comparison, for stakeholders and for audits, and their data."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_comparison(comparison, target, reference, root)
        return zipped(root)


def comparison_tables(comparison: Comparison) -> bytes:
    """A zip with a CSV file for each table of a comparison, judged under its tolerance."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_csvs(comparison.tables(), root)
        return zipped(root)
