"""The performance report as a formatted workbook, one tab per sheet.

openpyxl writes the workbook with its styles; the columns and rows are inserted into its parts as
text, since an object per cell would take most of the time.
"""

import io
import math
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import polars as pl
from openpyxl import Workbook
from openpyxl.cell import WriteOnlyCell
from openpyxl.styles import Alignment, Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from jarvis.core.output import ZIP_LEVEL, open_output
from jarvis.core.workspace import RunPaths
from jarvis.reports.finding_sheets import FINDINGS, SUMMARY, findings_sheet, summary_sheet
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.schemas import labeled

MAX_CELL = 32_767
"""Maximum characters of a cell in the format."""

MAX_TAB_NAME = 31
WIDTHS = (9, 60)
"""Minimum and maximum width of a column, in characters."""

MEASURED_ROWS = 100
"""Rows that determine the width of a column."""

DECIMAL, SCIENTIFIC = "#,##0.000", "0.00E+00"
INFERENCE = ("inference_steps", "inference_phases", "inference_layers", "graph_launches")
"""Tables of inference that the workbook has; the others have a row for each event."""

SMALL = 0.001
"""Smaller numbers would read as zero in the decimal format."""

ROWS_AT_ONCE = 10_000
"""Rows that are made in memory."""

_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ROWS = b"<sheetData>"
_HIDDEN = ' hidden="1"'
_BAD_IN_TAB = re.compile(r"[\[\]:*?/\\]")
_CORE = "docProps/core.xml"
_DATES = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*")


def write_workbook(
    sheets: Mapping[str, pl.DataFrame],
    path: Path,
    hidden: Callable[[Collection[str]], Collection[str]] = lambda _: (),
    wrapped: Collection[str] = (),
) -> Path:
    """Write sheets in order: bold frozen header, number formats, fitted widths.

    Texts are stored as texts, never as formulas; they are cut at MAX_CELL, and characters that the
    format does not support are removed. ``hidden`` gives the columns of a sheet that are hidden
    initially, ``wrapped`` the sheets whose texts continue on further lines of their cells.
    """
    book = Workbook(write_only=True)
    used: set[str] = set()
    parts = {}
    for position, (name, frame) in enumerate(sheets.items(), start=1):
        tab = book.create_sheet(tab_name(name, used))
        tab.freeze_panes = "A2"
        if frame.columns:
            tab.auto_filter.ref = f"A1:{get_column_letter(frame.width)}{frame.height + 1}"
        rows = _rows(frame, _styles(tab, is_wrapped=name in wrapped))
        parts[f"xl/worksheets/sheet{position}.xml"] = _columns(frame, hidden(frame.columns)), rows
    buffer = io.BytesIO()
    book.save(buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_undated(buffer, parts, path)
    return path


def tab_name(name: str, used: set[str]) -> str:
    """Return ``name`` as the format allows it: at most 31 characters, and none of ``used``."""
    base = _BAD_IN_TAB.sub("_", name).strip("'") or "sheet"
    candidate, number = base[:MAX_TAB_NAME], 2
    while candidate.lower() in used:
        ending = f"_{number}"
        candidate, number = base[: MAX_TAB_NAME - len(ending)] + ending, number + 1
    used.add(candidate.lower())
    return candidate


def _columns(frame: pl.DataFrame, hidden: Collection[str]) -> bytes:
    """Return the columns of a tab as XML, their widths fitted to the first cells."""
    columns = "".join(
        f'<col{_HIDDEN if column.name in hidden else ""} width="{_width(column)}" '
        f'customWidth="1" min="{number}" max="{number}"/>'
        for number, column in enumerate(frame.head(MEASURED_ROWS).iter_columns(), start=1)
    )
    return f"<cols>{columns}</cols>".encode() if columns else b""


def _width(column: pl.Series) -> int:
    least, most = WIDTHS
    cells = [round(cell, 3) if isinstance(cell, float) else cell for cell in column.to_list()]
    longest = max((len(str(cell)) for cell in cells if cell is not None), default=0)
    return min(most, max(least, longest + 2, len(column.name) + 2))


class _Styles(NamedTuple):
    """The style numbers of cells in a workbook."""

    bold: int
    decimal: int
    scientific: int
    text: int


def _styles(tab: Worksheet, *, is_wrapped: bool) -> _Styles:
    bold, *others = (WriteOnlyCell(tab) for _ in range(4))
    decimal, scientific, text = others
    bold.font = Font(bold=True)
    decimal.number_format = DECIMAL
    scientific.number_format = SCIENTIFIC
    if is_wrapped:
        for cell in others:
            cell.alignment = Alignment(vertical="top", wrap_text=cell is text)
    return _Styles(bold.style_id, decimal.style_id, scientific.style_id, text.style_id)


def _rows(frame: pl.DataFrame, styles: _Styles) -> Iterator[bytes]:
    """Yield the header and the rows of a tab as XML."""
    letters = [get_column_letter(i + 1) for i in range(frame.width)]
    header = [
        _texts([label], letter, 1, styles.bold)
        for label, letter in zip(frame.columns, letters, strict=True)
    ]
    yield _xml(header, 1)
    for start in range(0, frame.height, ROWS_AT_ONCE):
        columns = frame.slice(start, ROWS_AT_ONCE).iter_columns()
        cells = [
            _cells(column, letter, start + 2, styles)
            for column, letter in zip(columns, letters, strict=True)
        ]
        yield _xml(cells, start + 2)


def _xml(cells: Sequence[Sequence[str]], first: int) -> bytes:
    """Return rows, of which ``first`` is the number of the first, from the cells of each column."""
    rows = enumerate(zip(*cells, strict=True), start=first)
    return "".join(f'<row r="{number}">{"".join(row)}</row>' for number, row in rows).encode()


def _cells(column: pl.Series, letter: str, first: int, styles: _Styles) -> list[str]:
    """Return the cells of a column; empty for nulls and numbers that the format does not
    support."""
    values = enumerate(column.to_list(), start=first)
    if column.dtype.is_float():
        return [_number(f"{letter}{number}", value, styles) for number, value in values]
    if column.dtype.is_integer() or column.dtype == pl.Boolean:
        start = '"><v>' if column.dtype.is_integer() else '" t="b"><v>'
        return [
            "" if value is None else f'<c r="{letter}{number}{start}{value:d}</v></c>'
            for number, value in values
        ]
    return _texts(column.to_list(), letter, first, styles.text)


def _number(place: str, value: float | None, styles: _Styles) -> str:
    if value is None or not math.isfinite(value):
        return ""
    is_small = value != 0 and abs(value) < SMALL
    style = styles.scientific if is_small else styles.decimal
    return f'<c r="{place}" s="{style}"><v>{value!r}</v></c>'


def _texts(values: Sequence[object], letter: str, first: int, style: int) -> list[str]:
    """Return text cells, never formulas, without characters that the format does not support."""
    texts = [None if value is None else str(value) for value in values]
    known = {text: _text(text, style) for text in set(texts) if text is not None}
    return [
        "" if text is None else f'<c r="{letter}{number}{known[text]}'
        for number, text in enumerate(texts, start=first)
    ]


def _text(text: str, style: int) -> str:
    held = escape(_NOT_XML.sub("", text)[:MAX_CELL])
    return f'" s="{style}" t="inlineStr"><is><t xml:space="preserve">{held}</t></is></c>'


def _write_undated(
    buffer: io.BytesIO, parts: Mapping[str, tuple[bytes, Iterable[bytes]]], path: Path
) -> None:
    """Copy an archive to ``path`` with the columns and rows of its tabs and fixed timestamps."""
    with (
        zipfile.ZipFile(buffer) as source,
        open_output(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=ZIP_LEVEL) as target,
    ):
        for name in source.namelist():
            content = source.read(name)
            if name == _CORE:
                content = _DATES.sub(rb"\g<1>1980-01-01T00:00:00Z", content)
            columns, rows = parts.get(name, (b"", ()))
            start, rows_start, rest = content.partition(_ROWS)
            with target.open(name, "w") as member:
                for part in (start, columns, rows_start, *rows, rest):
                    member.write(part)


class XlsxReporter(Reporter):
    """``perf_report.xlsx``: a summary, the findings, the sheets of the performance report, and the
    steps and layers of inference."""

    name = "xlsx"
    suffix = ".xlsx"
    has_notes = True

    def place(self, paths: RunPaths) -> Path:
        return paths.perf_report_xlsx

    def render(self, run: Run, out: Path) -> None:
        sheets = {
            SUMMARY: summary_sheet(run, self.edits),
            FINDINGS: findings_sheet(run, self.edits),
        }
        inference = {
            name: labeled(run.table(name), name) for name in INFERENCE if name in run.tables
        }
        write_workbook(sheets | run.sheets() | inference, out, wrapped=tuple(sheets))


REPORTER = XlsxReporter()
