"""The performance report as a folder of CSV files, one per sheet, as TraceLens writes them."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from jarvis.core.workspace import RunPaths
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.text.csv_files import write_csv


def write_csvs(sheets: Mapping[str, pl.DataFrame], folder: Path) -> list[Path]:
    """Write one ``<sheet>.csv`` per sheet: a header, no index, empty cells for nulls, full
    precision.

    Texts that a spreadsheet program would execute get a leading apostrophe
    (``jarvis.text.csv_files``).
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in sheets.items():
        path = folder / f"{name}.csv"
        write_csv(frame, path)
        written.append(path)
    return written


class CsvReporter(Reporter):
    """``perf_report_csvs``: a folder with a file for each sheet."""

    name = "csv"
    suffix = ""

    def place(self, paths: RunPaths) -> Path:
        return paths.perf_report_csvs

    def render(self, run: Run, out: Path) -> None:
        write_csvs(run.sheets(), out)


REPORTER = CsvReporter()
