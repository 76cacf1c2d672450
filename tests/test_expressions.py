"""Shared Polars expressions."""

import polars as pl

from jarvis.core.expressions import first_of


def test_the_first_test_that_holds_gives_the_text_and_null_holds_nothing() -> None:
    rows = pl.DataFrame({"n": [1, 2, 3, 4, None], "is_four": [False, None, False, True, True]})
    tests = {"small": pl.col("n") < 2, None: pl.col("n") == 2, "big": "is_four", "four": "is_four"}
    assert rows.select(first_of(tests, "other")).to_series().to_list() == [
        *("small", None, "other", "big", "big")
    ]
    assert rows.select(first_of({"small": pl.col("n") < 2})).to_series().to_list() == [
        *("small", None, None, None, None)
    ]
