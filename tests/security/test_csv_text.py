"""What a spreadsheet program would run is guarded, and comes back as it was."""

import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.csv_text import guarded, guarded_columns, unguarded_columns
from jarvis.reports.csv import write_csvs
from jarvis.reports.reading import read_report

TEXTS = st.text(alphabet="=+-@'\t 1.e5aA(＝", min_size=1, max_size=8)  # noqa: RUF001


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(1)", "\t=1", " =1", "'=1", "＝1"])  # noqa: RUF001
def test_formulas_get_an_apostrophe(text: str) -> None:
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("text", ["aten::mm", "-1", "-1.5e-07", "+3", "(1, -2)", "<b>", "'a", ""])
def test_other_texts_stay(text: str) -> None:
    assert guarded(text) == text


@given(st.lists(TEXTS, min_size=1))
def test_a_table_is_guarded_like_its_cells(texts: list[str]) -> None:
    frame = pl.DataFrame({"=a": texts, "n": [-1] * len(texts)})
    written = guarded_columns(frame)
    assert written.columns == ["'=a", "n"]
    assert written["'=a"].to_list() == [guarded(text) for text in texts]
    assert unguarded_columns(written).equals(frame)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_names_come_back_from_a_file(texts: list[str]) -> None:
    frame = pl.DataFrame({"name": texts, "dur": [1.0] * len(texts)})
    with tempfile.TemporaryDirectory() as folder:
        write_csvs({"ops_summary": frame}, Path(folder))
        assert read_report(folder)["ops_summary"]["name"].to_list() == texts
