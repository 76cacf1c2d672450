"""The workbook and the CSV files."""

import csv
import math
import tempfile
import zipfile
from pathlib import Path

import openpyxl
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.reports.csv import write_csvs
from jarvis.reports.finding_sheets import FINDINGS, SUMMARY
from jarvis.reports.xlsx import MAX_CELL, tab_name, write_workbook
from tests.reports.conftest import Analyzed

FRAME = pl.DataFrame(
    {
        "name": ["=1+1", "+x", "-x", "@x", "bell\x07 \ud7ff", "long " * 10_000],
        "time": [1.5, None, math.nan, math.inf, 2e-7, 0.1],
        "count": [1, 2, None, 4, 5, 6],
        "ok": [True, False, None, True, True, True],
    },
    strict=False,
)


@pytest.fixture
def book(tmp_path: Path) -> openpyxl.Workbook:
    path = write_workbook({"first": FRAME, "x" * 40: FRAME.head(0)}, tmp_path / "new" / "r.xlsx")
    return openpyxl.load_workbook(path)


def test_texts_are_never_formulas(book: openpyxl.Workbook) -> None:
    cells = [row[0] for row in book["first"].iter_rows(min_row=2)]
    assert [cell.data_type for cell in cells] == ["s"] * len(cells)
    assert [cell.value for cell in cells[:4]] == ["=1+1", "+x", "-x", "@x"]


def test_what_a_cell_cannot_hold_is_left_out(book: openpyxl.Workbook) -> None:
    column = [row[0].value for row in book["first"].iter_rows(min_row=2)]
    assert column[4] == "bell \ud7ff"
    assert len(column[5]) == MAX_CELL
    times = [row[1].value for row in book["first"].iter_rows(min_row=2)]
    assert times == [1.5, None, None, None, 2e-7, 0.1]


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=9),
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(-(2**40), 2**40),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_cells_come_back_as_they_were(rows: list[tuple[str, float, int]]) -> None:
    frame = pl.DataFrame(
        rows, schema={"a": pl.String, "b": pl.Float64, "c": pl.Int64}, orient="row"
    )
    with tempfile.TemporaryDirectory() as folder:
        book = openpyxl.load_workbook(write_workbook({"s": frame}, Path(folder) / "r.xlsx"))
    read = [tuple(cell.value for cell in row) for row in book["s"].iter_rows(min_row=2)]
    forbidden = str.maketrans("", "", "\ufffe\uffff")
    assert read == [(a.translate(forbidden) or None, b, c) for a, b, c in rows]


def test_labels_are_cleaned_too(tmp_path: Path) -> None:
    frame = pl.DataFrame({"=a\x07 & <b>": [" x & y "]})
    tab = openpyxl.load_workbook(write_workbook({"s": frame}, tmp_path / "r.xlsx"))["s"]
    assert (tab["A1"].value, tab["A2"].value) == ("=a & <b>", " x & y ")
    assert tab["A1"].data_type == "s"


def test_the_header_is_bold_and_stays(book: openpyxl.Workbook) -> None:
    tab = book["first"]
    assert tab.freeze_panes == "A2"
    assert all(cell.font.bold for cell in tab[1])
    assert tab.column_dimensions["A"].width > tab.column_dimensions["C"].width


def test_small_numbers_do_not_read_as_zero(book: openpyxl.Workbook) -> None:
    formats = [row[1].number_format for row in book["first"].iter_rows(min_row=2)]
    assert (formats[0], formats[4]) == ("#,##0.000", "0.00E+00")


def test_sentences_are_read_whole_and_rows_of_numbers_stay_low(tmp_path: Path) -> None:
    frames = {"sentences": FRAME, "numbers": FRAME}
    path = write_workbook(frames, tmp_path / "r.xlsx", wrapped=("sentences",))
    book = openpyxl.load_workbook(path)
    text, number = (book["sentences"][place].alignment for place in ("A2", "B2"))
    assert (text.wrap_text, text.vertical) == (True, "top")
    assert (bool(number.wrap_text), number.vertical) == (False, "top")
    assert not book["numbers"]["A2"].alignment.wrap_text


def test_tab_names_are_short_and_distinct() -> None:
    used: set[str] = set()
    names = [tab_name(name, used) for name in ("a" * 40, "A" * 40, "x/y[z]", "")]
    assert names == ["a" * 31, "A" * 29 + "_2", "x_y_z_", "sheet"]


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write_workbook({"s": FRAME}, tmp_path / name) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert {i.date_time[0] for i in zipfile.ZipFile(first).infolist()} == {1980}


def test_csv_cells(tmp_path: Path) -> None:
    nested = pl.DataFrame({"Input Dims": ["((8, 4), (4, 2))"], "x": [1e-05], "n": [3], "b": [True]})
    (path,) = write_csvs({"sheet": nested}, tmp_path / "csvs")
    assert path.read_bytes() == b'Input Dims,x,n,b\n"((8, 4), (4, 2))",1e-05,3,True\n'


def test_csv_nulls_are_empty(tmp_path: Path) -> None:
    write_csvs({"s": FRAME}, tmp_path)
    with (tmp_path / "s.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["time"] for row in rows] == ["1.5", "", "", "inf", "2e-07", "0.1"]
    assert rows[2]["ok"] == rows[2]["count"] == ""


def test_every_sheet_of_a_run_is_written(sample: Analyzed) -> None:
    sheets = sample.run.sheets()
    names = openpyxl.load_workbook(sample.root / "perf_report.xlsx").sheetnames
    assert names == [SUMMARY, FINDINGS, *sheets]
    written = {path.stem for path in (sample.root / "perf_report_csvs").iterdir()}
    assert written == set(sheets)
    with (sample.root / "perf_report_csvs" / "GEMM.csv").open(encoding="utf-8") as file:
        assert next(csv.reader(file)) == sheets["GEMM"].columns
