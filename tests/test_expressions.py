"""Shared Polars expressions and filters."""

import polars as pl
import pytest

from jarvis.core.expressions import contains, first_of, rows_where


def test_the_first_test_that_holds_gives_the_text_and_null_holds_nothing() -> None:
    rows = pl.DataFrame({"n": [1, 2, 3, 4, None], "is_four": [False, None, False, True, True]})
    tests = {"small": pl.col("n") < 2, None: pl.col("n") == 2, "big": "is_four", "four": "is_four"}
    assert rows.select(first_of(tests, "other")).to_series().to_list() == [
        *("small", None, "other", "big", "big")
    ]
    assert rows.select(first_of({"small": pl.col("n") < 2})).to_series().to_list() == [
        *("small", None, None, None, None)
    ]


def test_texts_that_contain_a_pattern_are_found_and_null_stays_null() -> None:
    texts = pl.Series(["aten::mm", None, "nccl:all_reduce", "aten::mm", ""])
    for pattern in ("mm$", "(?i)NCCL", "", "no such"):
        assert contains(texts, pattern).to_list() == texts.str.contains(pattern).to_list()
    assert contains(texts.clear(), "mm").to_list() == []


@pytest.mark.parametrize(
    "is_wanted",
    [[True, False, None], [True, None, True], [None] * 3, [True] * 3, [False] * 3],
)
def test_rows_are_those_of_a_filter_and_null_is_not_wanted(is_wanted: list[bool | None]) -> None:
    frame = pl.DataFrame({"n": [1, 2, 3], "names": [["a"], None, []]})
    wanted = pl.Series(is_wanted, dtype=pl.Boolean)
    assert rows_where(frame, wanted).equals(frame.filter(wanted))
    assert rows_where(frame.clear(), wanted.clear()).equals(frame.clear())
