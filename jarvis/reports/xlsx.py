"""The performance report as a workbook, one tab per sheet, readable as it opens.

Cells are written as text, since an object for each of them would take most of the time.
"""

import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import polars as pl

from jarvis.reports.reporter import Reporter
from jarvis.reports.workbook_parts import BOLD, DECIMAL, SCIENTIFIC, Tab, column_letters, parts
from jarvis.run import Run
from jarvis.workspace import RunPaths

MAX_CELL = 32_767
"""Characters that a cell of the format can hold."""

MAX_TAB_NAME = 31
WIDTHS = (9, 60)
"""Least and greatest width of a column, in characters."""

MEASURED_ROWS = 100
"""Rows that decide the width of a column."""

SMALL = 0.001
"""Below it a number would read as zero in the decimal format."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every part of the file, so that the same report gives the same bytes."""

_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_BAD_IN_TAB = re.compile(r"[\[\]:*?/\\]")


def write_workbook(sheets: Mapping[str, pl.DataFrame], path: Path) -> Path:
    """Write sheets in their order: bold frozen header, number formats, widths that fit.

    Texts are stored as texts, never as formulas; they are cut at MAX_CELL, and characters that
    the format cannot hold are left out.
    """
    used: set[str] = set()
    tabs = [_tab(tab_name(name, used), frame) for name, frame in sheets.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts(tabs):
            package.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
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


def _tab(name: str, frame: pl.DataFrame) -> Tab:
    """A sheet as a tab, its columns as wide as their first cells."""
    widths = [_width(column) for column in frame.head(MEASURED_ROWS).iter_columns()]
    return Tab(name, widths, "".join(_rows(frame)), frame.height + 1)


def _width(column: pl.Series) -> int:
    least, most = WIDTHS
    cells = [round(cell, 3) if isinstance(cell, float) else cell for cell in column.to_list()]
    longest = max((len(str(cell)) for cell in cells if cell is not None), default=0)
    return min(most, max(least, longest + 2, len(column.name) + 2))


def _rows(frame: pl.DataFrame) -> Iterator[str]:
    """The header and the rows of a tab as the format spells them."""
    letters = [column_letters(number) for number in range(1, frame.width + 1)]
    labels = (
        _text_cell(f"{letter}1", label, BOLD)
        for letter, label in zip(letters, frame.columns, strict=True)
    )
    yield _row(1, "".join(labels))
    cells = [
        _cells(column.to_list(), letter)
        for letter, column in zip(letters, frame.iter_columns(), strict=True)
    ]
    for number, row in enumerate(zip(*cells, strict=True), start=2):
        yield _row(number, "".join(row))


def _row(number: int, cells: str) -> str:
    return f'<row r="{number}">{cells}</row>'


def _cells(values: Sequence[object], letter: str) -> list[str]:
    """The cells of a column; nothing where a value is null or no number that the format holds."""
    return [_cell(f"{letter}{number}", value) for number, value in enumerate(values, start=2)]


def _cell(place: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        is_small = value != 0 and abs(value) < SMALL
        style = SCIENTIFIC if is_small else DECIMAL
        return f'<c r="{place}" s="{style}"><v>{value!r}</v></c>'
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{value:d}</v></c>'
    if isinstance(value, int):
        return f'<c r="{place}"><v>{value}</v></c>'
    return _text_cell(place, str(value))


def _text_cell(place: str, text: str, style: int = 0) -> str:
    """A text as text, never as a formula, without what the format cannot hold."""
    held = escape(_NOT_XML.sub("", text)[:MAX_CELL])
    spaced = f'<is><t xml:space="preserve">{held}</t></is>'
    return f'<c r="{place}" s="{style}" t="inlineStr">{spaced}</c>'


class XlsxReporter(Reporter):
    """``perf_report.xlsx``."""

    name = "xlsx"
    suffix = ".xlsx"

    def place(self, paths: RunPaths) -> Path:
        return paths.perf_report_xlsx

    def render(self, run: Run, out: Path) -> None:
        write_workbook(run.sheets(), out)


REPORTER = XlsxReporter()
