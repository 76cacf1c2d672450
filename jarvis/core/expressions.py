"""Polars expressions and filters that several layers need."""

from collections.abc import Mapping

import polars as pl


def first_of(
    tests: Mapping[str | None, pl.Expr | pl.Series | str], otherwise: str | None = None
) -> pl.Expr:
    """Return the first text whose test holds, ``otherwise`` if none does.

    Args:
        tests: Conditions, columns of them or their names, by text; null counts as false.
    """
    found = pl.lit(otherwise, pl.String)
    for text, test in reversed([*tests.items()]):
        found = pl.when(test).then(pl.lit(text, pl.String)).otherwise(found)
    return found


def contains(texts: pl.Series, pattern: str) -> pl.Series:
    """Return whether each text contains a pattern; each distinct text is tested once."""
    distinct = texts.unique()
    return texts.is_in(distinct.filter(distinct.str.contains(pattern)).implode())


def rows_where(frame: pl.DataFrame, is_wanted: pl.Series) -> pl.DataFrame:
    """Return the rows of a frame of which a series of booleans says so; null counts as false.

    ``DataFrame.filter`` takes several times as long, as its query waits for threads of Polars: use
    this where pages compute again at every move of a slider.
    """
    if is_wanted.all(ignore_nulls=False):
        return frame
    return pl.DataFrame([column.filter(is_wanted) for column in frame.get_columns()])
