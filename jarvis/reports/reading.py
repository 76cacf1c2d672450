"""Read reports back: a workbook or CSV files, in a folder or a zip, by Jarvis or TraceLens."""

import csv
import hashlib
import io
import logging
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import fastexcel
import polars as pl
from fastexcel import DTypeMap

from jarvis.core.errors import UnreadableReportError
from jarvis.core.staging import file_sha256
from jarvis.core.unpacking import TooLargeError, chunks, open_archive, unpacked_member
from jarvis.reports.workbook_bounds import MAX_UNPACKED_BYTES, check_workbook
from jarvis.schemas import columns
from jarvis.text.csv_files import unguarded_columns
from jarvis.tracelens.sheets import schema_of

UNREADABLE = (
    OSError,
    ValueError,
    csv.Error,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,  # a zip with a password
    pl.exceptions.PolarsError,
    fastexcel.FastExcelError,
)
"""Exceptions of reading a file that is damaged or of another kind."""

# Warnings about empty columns are not relevant.
logging.getLogger("fastexcel").setLevel(logging.ERROR)

WORKBOOK, SHEET, ARCHIVE = ".xlsx", ".csv", ".zip"
MAX_COLUMNS = 2_000
"""Maximum columns of a sheet; reports have about fifty, and a few for each parameter."""


def is_report(path: Path) -> bool:
    """Return whether ``path`` is, by its name and the names in it, a report and not a trace."""
    if path.is_dir():
        return any(path.glob(f"*{SHEET}"))
    if path.suffix.lower() == WORKBOOK:
        return True
    if path.suffix.lower() != ARCHIVE or not zipfile.is_zipfile(path):
        return False
    try:
        with open_archive(path) as archive:
            return any(_is_sheet(name) for name in archive.namelist())
    except (zipfile.BadZipFile, TooLargeError, NotImplementedError):
        return False  # reading it as a trace reports the error


def content_sha256(path: Path) -> str:
    """Return a digest of a file; of a folder, the digest of names and contents of its CSV files."""
    files = sorted(path.glob(f"*{SHEET}")) if path.is_dir() else [path]
    digests = [(file.name, file_sha256(file)) for file in files]
    if not path.is_dir():
        return digests[0][1]
    return hashlib.sha256(repr(digests).encode()).hexdigest()


def read_report(path: Path | str) -> dict[str, pl.DataFrame]:
    """Return the sheets of a report by name, columns under their labels.

    Numeric columns of the schemas are numbers; their text, list and boolean columns are text; any
    other column is numeric if every cell is a number. Empty cells are null.

    Args:
        path: An ``.xlsx`` file, or a folder or zip with a CSV file for each sheet.

    Raises:
        UnreadableReportError: There is no such report.
    """
    source = Path(path)
    try:
        if source.is_dir() or source.suffix.lower() == ARCHIVE:
            sheets = _csv_sheets(source)
        else:
            sheets = _tabs(source)
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableReportError(source, reason) from error
    if not sheets:
        raise UnreadableReportError(source, "it has no sheets")
    return {name: _typed(frame, _dtypes(name)) for name, frame in sheets.items()}


def _dtypes(sheet: str) -> dict[str, pl.DataType]:
    """Return the schema dtypes of a sheet's columns, by label."""
    return {c.label: c.dtype for c in columns(schema_of(sheet))}


def _csv_sheets(source: Path) -> dict[str, pl.DataFrame]:
    return {
        name: _csv_sheet(name, content)
        for name, content in (_zipped(source) if source.is_file() else _in_folder(source))
        if len(content) > 1  # TraceLens writes a line break for a table without columns
    }


def _csv_sheet(name: str, content: bytes) -> pl.DataFrame:
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace", newline="")
    width = len(next(csv.reader(text), ()))
    if width > MAX_COLUMNS:
        raise ValueError(f"its sheet {name[:40]} has {width:,} columns, more than {MAX_COLUMNS:,}")
    return unguarded_columns(pl.read_csv(content, infer_schema=False))


def _in_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    return ((path.stem, path.read_bytes()) for path in sorted(folder.glob(f"*{SHEET}")))


def _zipped(path: Path) -> Iterator[tuple[str, bytes]]:
    left = MAX_UNPACKED_BYTES
    with open_archive(path) as archive:
        entries = [entry for entry in archive.infolist() if _is_sheet(entry.filename)]
        for entry in sorted(entries, key=lambda e: e.filename):
            content = io.BytesIO()
            for piece in chunks(unpacked_member(archive, entry, path.stat().st_size)):
                left -= len(piece)
                if left < 0:
                    raise TooLargeError("its CSV files are too large in total")
                content.write(piece)
            yield Path(entry.filename).stem, content.getvalue()


def _is_sheet(name: str) -> bool:
    """Return whether a name in a zip is that of a sheet, not a file that archivers add."""
    return name.lower().endswith(SHEET) and not Path(name).name.startswith(".")


def _tabs(workbook: Path) -> dict[str, pl.DataFrame]:
    if zipfile.is_zipfile(workbook):
        check_workbook(workbook, MAX_COLUMNS)
    book = fastexcel.read_excel(workbook)
    tabs = {}
    for name in book.sheet_names:
        dtypes: DTypeMap = {
            label: "float" if dtype.is_numeric() else "string"
            for label, dtype in _dtypes(name).items()
        }
        tabs[name] = book.load_sheet(name, dtypes=dtypes, schema_sample_rows=None).to_polars()
    return tabs


def _typed(frame: pl.DataFrame, known: dict[str, pl.DataType]) -> pl.DataFrame:
    filled = frame.with_columns(pl.col(pl.String).replace("", None))
    return filled.with_columns(
        _column(column, known.get(column.name)) for column in filled.iter_columns()
    )


def _column(cells: pl.Series, dtype: pl.DataType | None) -> pl.Series:
    if dtype is None:
        return _numbers_if_all(cells)
    if not dtype.is_numeric():
        return cells
    numbers = cells.cast(pl.Float64, strict=False)
    return numbers.cast(pl.Int64, strict=False) if dtype.is_integer() else numbers


def _numbers_if_all(cells: pl.Series) -> pl.Series:
    numbers = cells.cast(pl.Float64, strict=False)
    if numbers.null_count() > cells.null_count() or numbers.null_count() == cells.len():
        return cells
    whole = numbers.cast(pl.Int64, strict=False)
    return whole if (whole == numbers).all() else numbers
