"""All files of a comparison in one folder, as written by ``jarvis compare`` and the server."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from jarvis.comparison import Comparison, Role
from jarvis.core.workspace import ComparisonPaths
from jarvis.reports.comparative import write_comparison
from jarvis.run import Run
from jarvis.tracelens.compare_report import hidden_columns


def write_folder(
    comparison: Comparison,
    target: Run,
    reference: Run,
    sheets: Mapping[str, pl.DataFrame],
    root: Path,
) -> None:
    """Write a comparison below ``root``.

    The workbook of ``sheets``, the performance reports of both sides, the reports of the
    comparison, and the data behind them.
    """
    from jarvis.reports.xlsx import write_workbook

    paths = ComparisonPaths(root)
    write_sheets(sheets, paths.workbook)
    for role, run in ((Role.REFERENCE, reference), (Role.TARGET, target)):
        write_workbook(run.sheets(), paths.perf_report(role.value))
    write_comparison(comparison, target, reference, root)


def write_sheets(sheets: Mapping[str, pl.DataFrame], path: Path) -> Path:
    """Write the sheets of both sides as a workbook."""
    from jarvis.reports.xlsx import write_workbook  # a job process imports openpyxl while it waits

    return write_workbook(sheets, path, hidden_columns)
