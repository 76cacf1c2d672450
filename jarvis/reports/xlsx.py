"""The performance report as a workbook, one tab per sheet, readable as it opens.

openpyxl writes the workbook with the headers, styles and widths; the rows below the headers are
set into its parts as text, whole columns at a time, since cell objects would take most of the time.
"""

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from openpyxl import Workbook  # type: ignore[import-untyped]
from openpyxl.cell import WriteOnlyCell  # type: ignore[import-untyped]
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

_NOT_XML = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}]"
_XML_NAMES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_END_OF_ROWS = b"</sheetData>"
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
    rows = {}
    for position, (name, frame) in enumerate(sheets.items(), start=1):
        tab = book.create_sheet(tab_name(name, used))
        _head(tab, frame)
        formats = [_style_id(tab, number_format) for number_format in (DECIMAL, SCIENTIFIC)]
        rows[f"xl/worksheets/sheet{position}.xml"] = _rows(frame, *formats)
    buffer = io.BytesIO()
    book.save(buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_undated(buffer, rows, path)
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


def _head(tab: Worksheet, frame: pl.DataFrame) -> None:
    tab.freeze_panes = "A2"
    for position, width in enumerate(_widths(frame), start=1):
        tab.column_dimensions[get_column_letter(position)].width = width
    labels = pl.select(_text(pl.lit(pl.Series(frame.columns, dtype=pl.String)))).to_series()
    cells = [WriteOnlyCell(tab, label) for label in labels]
    for cell in cells:
        cell.data_type = "s"  # the library takes a text that starts with "=" for a formula
        cell.font = Font(bold=True)
    tab.append(cells)
    if frame.columns:
        tab.auto_filter.ref = f"A1:{get_column_letter(frame.width)}{frame.height + 1}"


def _style_id(tab: Worksheet, number_format: str) -> int:
    """The number under which the workbook keeps the style of cells in this format."""
    cell = WriteOnlyCell(tab)
    cell.number_format = number_format
    style: int = cell.style_id
    return style


def _rows(frame: pl.DataFrame, decimal: int, scientific: int) -> bytes:
    """The rows of a tab below its header, as the format spells them."""
    if frame.is_empty():
        return b""
    cells = [
        _cells(column.dtype, f"c{i}", get_column_letter(i + 1), decimal, scientific)
        for i, column in enumerate(frame.iter_columns())
    ]
    texts = pl.DataFrame({f"c{i}": _flat(column) for i, column in enumerate(frame.iter_columns())})
    row = pl.format('<row r="{}">', pl.int_range(2, pl.len() + 2))
    line = pl.concat_str(row, *cells, pl.lit("</row>"))
    return "".join(texts.select(line).to_series()).encode()


def _flat(column: pl.Series) -> pl.Series:
    """Text, numbers and truth values as they are, anything else as text."""
    if column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean):
        return column
    return pl.Series([None if value is None else str(value) for value in column], dtype=pl.String)


def _cells(dtype: pl.DataType, column: str, letter: str, decimal: int, scientific: int) -> pl.Expr:
    """The cells of a column; nothing where a value is null or no number that the format holds."""
    value = pl.col(column)
    place = pl.format(f'<c r="{letter}{{}}"', pl.int_range(2, pl.len() + 2))
    if dtype.is_float():
        small = (value != 0) & (value.abs() < SMALL)
        style = pl.when(small).then(scientific).otherwise(decimal)
        number = pl.when(value.is_finite()).then(value)
        cell = pl.format('{} s="{}"><v>{}</v></c>', place, style, number)
    elif dtype == pl.Boolean:
        cell = pl.format('{} t="b"><v>{}</v></c>', place, value.cast(pl.Int8))
    elif dtype.is_numeric():
        cell = pl.format("{}><v>{}</v></c>", place, value)
    else:
        spaced = '{} t="inlineStr"><is><t xml:space="preserve">{}</t></is></c>'
        cell = pl.format(spaced, place, _text(value).str.replace_many(_XML_NAMES))
    return cell.fill_null("")


def _text(value: pl.Expr) -> pl.Expr:
    """Texts without what the format cannot hold."""
    return value.cast(pl.String).str.replace_all(_NOT_XML, "").str.slice(0, MAX_CELL)


def _widths(frame: pl.DataFrame) -> list[int]:
    least, most = WIDTHS
    first = frame.head(MEASURED_ROWS)
    widths = []
    for column in first:
        cells = column.cast(pl.Float64).round(3) if column.dtype.is_float() else column
        longest = max((len(str(cell)) for cell in cells if cell is not None), default=0)
        widths.append(min(most, max(least, longest + 2, len(column.name) + 2)))
    return widths


def _write_undated(buffer: io.BytesIO, rows: Mapping[str, bytes], path: Path) -> None:
    """Copy an archive to ``path`` with the rows of its tabs, without the moment it was made."""
    with (
        zipfile.ZipFile(buffer) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            content = source.read(name)
            if name == _CORE:
                content = _DATES.sub(rb"\g<1>1980-01-01T00:00:00Z", content)
            if name in rows:
                content = content.replace(_END_OF_ROWS, rows[name] + _END_OF_ROWS)
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
