"""The performance report as a workbook, one tab per sheet, readable as it opens."""

import io
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from openpyxl import Workbook  # type: ignore[import-untyped]
from openpyxl.cell import Cell, WriteOnlyCell  # type: ignore[import-untyped]
from openpyxl.styles import Font  # type: ignore[import-untyped]
from openpyxl.utils import get_column_letter  # type: ignore[import-untyped]
from openpyxl.worksheet.worksheet import Worksheet  # type: ignore[import-untyped]

from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.workspace import RunPaths

MAX_CELL = 32_767
"""Characters that a cell of the format can hold."""

MAX_TAB_NAME = 31
WIDTHS = (9, 60)
"""Least and greatest width of a column, in characters."""

MEASURED_ROWS = 100
"""Rows that decide the width of a column."""

DECIMAL, SCIENTIFIC = "#,##0.000", "0.00E+00"
SMALL = 0.001
"""Below it a number would read as zero in the decimal format."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every part of the file, so that the same report gives the same bytes."""

_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_BAD_IN_TAB = re.compile(r"[\[\]:*?/\\]")
_CORE = "docProps/core.xml"
_DATES = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*")


def write_workbook(sheets: Mapping[str, pl.DataFrame], path: Path) -> Path:
    """Write sheets in their order: bold frozen header, number formats, widths that fit.

    Texts are stored as texts, never as formulas; they are cut at MAX_CELL, and characters that
    the format cannot hold are left out.
    """
    book = Workbook(write_only=True)
    used: set[str] = set()
    for name, frame in sheets.items():
        _fill(book.create_sheet(tab_name(name, used)), frame)
    buffer = io.BytesIO()
    book.save(buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_undated(buffer, path)
    return path


def tab_name(name: str, used: set[str]) -> str:
    """``name`` as the format allows it: at most 31 characters, unlike those ``used`` so far."""
    base = _BAD_IN_TAB.sub("_", name).strip("'") or "sheet"
    candidate, number = base[:MAX_TAB_NAME], 2
    while candidate.lower() in used:
        ending = f"_{number}"
        candidate, number = base[: MAX_TAB_NAME - len(ending)] + ending, number + 1
    used.add(candidate.lower())
    return candidate


def _fill(tab: Worksheet, frame: pl.DataFrame) -> None:
    tab.freeze_panes = "A2"
    for position, width in enumerate(_widths(frame), start=1):
        tab.column_dimensions[get_column_letter(position)].width = width
    tab.append([_text(tab, label, bold=True) for label in frame.columns])
    for row in frame.iter_rows():
        tab.append([_cell(tab, value) for value in row])
    if frame.columns:
        tab.auto_filter.ref = f"A1:{get_column_letter(frame.width)}{frame.height + 1}"


def _cell(tab: Worksheet, value: object) -> Cell | None:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if not isinstance(value, bool | int | float):
        return _text(tab, str(value))
    cell = WriteOnlyCell(tab, value)
    if isinstance(value, float):
        cell.number_format = DECIMAL if value == 0 or abs(value) >= SMALL else SCIENTIFIC
    return cell


def _text(tab: Worksheet, text: str, *, bold: bool = False) -> Cell:
    cell = WriteOnlyCell(tab, _NOT_XML.sub("", text)[:MAX_CELL])
    cell.data_type = "s"  # the library takes a text that starts with "=" for a formula
    if bold:
        cell.font = Font(bold=True)
    return cell


def _widths(frame: pl.DataFrame) -> list[int]:
    least, most = WIDTHS
    first = frame.head(MEASURED_ROWS)
    widths = []
    for column in first:
        cells = column.cast(pl.Float64).round(3) if column.dtype.is_float() else column
        longest = max((len(str(cell)) for cell in cells if cell is not None), default=0)
        widths.append(min(most, max(least, longest + 2, len(column.name) + 2)))
    return widths


def _write_undated(buffer: io.BytesIO, path: Path) -> None:
    """Copy an archive to ``path`` without the moment at which it was made."""
    with (
        zipfile.ZipFile(buffer) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            content = source.read(name)
            if name == _CORE:
                content = _DATES.sub(rb"\g<1>1980-01-01T00:00:00Z", content)
            target.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)


class XlsxReporter(Reporter):
    """``perf_report.xlsx``."""

    name = "xlsx"
    suffix = ".xlsx"

    def place(self, paths: RunPaths) -> Path:
        return paths.perf_report_xlsx

    def render(self, run: Run, out: Path) -> None:
        write_workbook(run.sheets(), out)


REPORTER = XlsxReporter()
