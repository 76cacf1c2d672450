"""Formulas in CSV files are escaped, and reading restores the text."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.cli import main
from jarvis.reports.csv import write_csvs
from jarvis.reports.reading import read_report
from jarvis.text.csv_files import guarded, unguarded
from tests.builders import trace

RECORD_ENDS = "\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
TEXTS = st.text(
    alphabet=f"=+-@'\t 1.e5aA(\";,＝{RECORD_ENDS}",  # noqa: RUF001
    min_size=1,
    max_size=8,
)
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]")  # noqa: RUF001
NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?|-inf", re.IGNORECASE)


def spreadsheet_cells(text: str, separator: str) -> Iterator[str]:
    """Return the cells as a spreadsheet program reads them.

    A quote at the start of a cell quotes up to the next single quote; elsewhere any line separator
    ends the record, and ``separator`` the cell.
    """
    cell, is_quoted, at = "", False, 0
    while at < len(text):
        letter = text[at]
        if is_quoted and letter == '"' and text[at + 1 : at + 2] == '"':
            cell += letter
            at += 1
        elif letter == '"' and (is_quoted or not cell):
            is_quoted = not is_quoted
        elif not is_quoted and (letter == separator or letter in RECORD_ENDS):
            yield cell
            cell = ""
        else:
            cell += letter
        at += 1
    yield cell


def formulas(file: Path) -> list[str]:
    """Return the cells that a spreadsheet program would run, with any separator."""
    text = file.read_bytes().decode()
    cells = (cell for separator in ",;\t" for cell in spreadsheet_cells(text, separator))
    return [cell for cell in cells if FORMULA.match(cell) and not NUMBER.fullmatch(cell)]


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(1)", " =1", "'=1", "＝1"])  # noqa: RUF001
def test_formulas_get_an_apostrophe(text: str) -> None:
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("text", ["aten::mm", "-1", "-1.5e-07", "+3", "(1, -2)", "<b>", "'a", ""])
def test_other_texts_are_unchanged(text: str) -> None:
    assert guarded(text) == text


@pytest.mark.parametrize("end", RECORD_ENDS)
def test_a_formula_after_a_line_separator_gets_an_apostrophe(end: str) -> None:
    assert guarded(f"evil{end}=1+1") == f"evil{end}'=1+1"
    assert guarded(f"{end}\t=1{end}x{end}-2+3").count("'") == 4


@given(TEXTS)
def test_escaped_text_is_restored(text: str) -> None:
    assert unguarded(guarded(text)) == text


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_names_in_csv_files_are_restored(texts: list[str]) -> None:
    frame = pl.DataFrame({"name": texts, "dur": [1.0] * len(texts)})
    with tempfile.TemporaryDirectory() as folder:
        write_csvs({"ops_summary": frame}, Path(folder))
        assert read_report(folder)["ops_summary"]["name"].to_list() == texts
        assert formulas(Path(folder) / "ops_summary.csv") == []


def test_labels_are_restored(tmp_path: Path) -> None:
    write_csvs({"ops_summary": pl.DataFrame({"=a": ["x"], "b\r@c": ["y"]})}, tmp_path)
    assert formulas(tmp_path / "ops_summary.csv") == []
    assert read_report(tmp_path)["ops_summary"].columns == ["=a", "b\r@c"]


def test_no_csv_file_of_any_command_contains_a_formula(tmp_path: Path) -> None:
    evil = "evil\r=cmd|'/C calc'!A0\u2028@SUM(A1:A9)\x0b\t+1+1;=2+2"
    built = trace()
    for _ in range(3):
        built.op(evil, [[8, 4]]).launches(f"{evil} kernel", us=20)
    file = tmp_path / "t.json"
    file.write_text(json.dumps(built.document()), encoding="utf-8")
    run = tmp_path / "run"
    commands = [
        ["analyze", str(file), "--output-dir", str(run)],
        ["report", str(file), "--output_csvs_dir", str(tmp_path / "report")],
        ["export", str(run), "--format", "csv", "-o", str(tmp_path / "export")],
        [
            "compare",
            str(run),
            str(run),
            "--output_csvs_dir",
            str(tmp_path / "comparison"),
            "-o",
            str(tmp_path / "c.xlsx"),
        ],
    ]
    for command in commands:
        assert main(command) == 0, command
    folders = (
        run / "perf_report_csvs",
        run / "category_data",
        *map(
            tmp_path.joinpath,
            (
                "report",
                "export",
                "comparison",
            ),
        ),
    )
    for folder in folders:
        files = list(folder.glob("*.csv"))
        assert files, folder
        assert any("evil" in file.read_text(encoding="utf-8") for file in files), folder
        for path in files:
            assert formulas(path) == [], path
