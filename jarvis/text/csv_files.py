"""Write and read CSV files that are safe against formula injection in spreadsheet programs.

Writing puts an apostrophe before what looks like a formula wherever a program may start a cell: at
the start of a text, and after each line separator, control character or semicolon in it (a program
that splits at semicolons ignores quotes for commas). Reading removes the apostrophes. All other
texts are unchanged, including those that recordings are known to contain.
"""

import csv
import re
from io import TextIOWrapper
from math import isnan
from pathlib import Path
from typing import TextIO

import polars as pl

from jarvis.core.output import open_output

_ROWS_AT_ONCE = 10_000
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")
_STARTS = r"\x00-\x1f\x7f-\x9f\u2028\u2029;"
_SKIPPED = rf"'\s\ufeff{_STARTS}"
_FORMULA = "=+@＝＋－＠-"  # noqa: RUF001 - some programs accept full-width characters
_RUN = re.compile(f"[{_SKIPPED}]++[{_FORMULA}]?|^[{_FORMULA}]")
"""A whole prefix of a formula; searching from each start of a prefix would be quadratic."""

_PREFIX = re.compile(f"[{_SKIPPED}]*+[{_FORMULA}]")
_START, _GUARDED_START = re.compile(f"([{_STARTS}])"), re.compile(f"([{_STARTS}])'")
_MAY_BE_GUARDED = f"(?:^|[{_STARTS}])'[{_SKIPPED}]*[{_FORMULA}]"


def guarded(text: str) -> str:
    """Return ``text`` escaped so that no spreadsheet program reads it as a formula."""
    # A cell can start inside a text only after a character that is not printable, or a semicolon.
    can_start_inside = ";" in text or not text.isprintable()
    if (can_start_inside or _PREFIX.match(text)) and not _NUMBER.fullmatch(text):
        return _RUN.sub(_guarded_run, text)
    return text


def unguarded(text: str) -> str:
    """Undo ``guarded``."""
    return _RUN.sub(_unguarded_run, text)


def _guarded_run(run: re.Match[str]) -> str:
    if run[0][-1] not in _FORMULA:
        return run[0]
    return ("" if run.start() else "'") + _START.sub(r"\1'", run[0])


def _unguarded_run(run: re.Match[str]) -> str:
    if run[0][-1] not in _FORMULA:
        return run[0]
    text = run[0] if run.start() else run[0].removeprefix("'")
    return _GUARDED_START.sub(r"\1", text)


def write_csv(frame: pl.DataFrame, path: Path) -> None:
    """Write a header and the rows; null and NaN become empty cells."""
    with open_output(path) as raw, TextIOWrapper(raw, "utf-8", "replace", "") as file:
        write_rows(frame, file)


def write_rows(frame: pl.DataFrame, file: TextIO) -> None:
    """Write a header and the rows to an open file, as ``write_csv`` does."""
    # Python 3.11 only quotes characters of its line terminator, so "\n" would not quote a CR.
    writer = csv.writer(_UnixLines(file), lineterminator="\r\n")
    writer.writerow(map(guarded, frame.columns))
    for rows in frame.iter_slices(_ROWS_AT_ONCE):
        writer.writerows(zip(*map(_cells, rows.iter_columns()), strict=True))


def unguarded_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table from a CSV file with ``unguarded`` texts and column names."""
    may_be = frame.select(pl.col(pl.String).str.contains(_MAY_BE_GUARDED).any())
    columns = [_unguarded(frame[column.name]) for column in may_be.iter_columns() if column.any()]
    return frame.with_columns(columns).rename({name: unguarded(name) for name in frame.columns})


def _unguarded(cells: pl.Series) -> pl.Series:
    texts = cells.filter(cells.str.contains(_MAY_BE_GUARDED)).unique().to_list()
    return cells.replace(texts, [unguarded(text) for text in texts])


def _cells(column: pl.Series) -> list[object]:
    cells = column.to_list()
    if column.dtype.is_float():
        return [None if cell is None or isnan(cell) else cell for cell in cells]
    if column.dtype != pl.String:
        return cells
    safe = {text: guarded(text) for text in set(cells) if text is not None}
    return [safe.get(text) for text in cells]


class _UnixLines:
    """Convert the CR LF row endings of the CSV writer to LF."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, row: str) -> int:
        return self._file.write(row.removesuffix("\r\n") + "\n")
