"""Reports read back: a workbook or a folder of CSV files, of ours or of TraceLens."""

import logging
from pathlib import Path

import fastexcel
import polars as pl
from fastexcel import DTypeMap

from jarvis.errors import UnreadableReportError
from jarvis.perf_report.sheets import schema_of
from jarvis.schemas import columns

# An empty column is no news.
logging.getLogger("fastexcel").setLevel(logging.ERROR)


def read_report(path: Path | str) -> dict[str, pl.DataFrame]:
    """The sheets of a report by name, columns under their labels.

    ``path`` is an ``.xlsx`` file or a folder with a CSV file for each sheet. A column that our
    schemas know as numbers has numbers, one that they know as text, lists or truth values has text,
    any other one has numbers where every cell is one. Empty cells are null. Raises
    UnreadableReportError where there is no such report.
    """
    source = Path(path)
    try:
        sheets = _csv_sheets(source) if source.is_dir() else _tabs(source)
    except (OSError, ValueError, pl.exceptions.PolarsError, fastexcel.FastExcelError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableReportError(source, reason) from error
    if not sheets:
        raise UnreadableReportError(source, "it holds no sheets")
    return {name: _typed(frame, _dtypes(name)) for name, frame in sheets.items()}


def _dtypes(sheet: str) -> dict[str, pl.DataType]:
    """What our schemas know of a sheet's columns, by label."""
    return {c.label: c.dtype for c in columns(schema_of(sheet))}


def _csv_sheets(folder: Path) -> dict[str, pl.DataFrame]:
    return {
        path.stem: pl.read_csv(path, infer_schema=False)
        for path in sorted(folder.glob("*.csv"))
        if path.stat().st_size > 1  # TraceLens writes a line break for a table without columns
    }


def _tabs(workbook: Path) -> dict[str, pl.DataFrame]:
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
