"""Polars expressions that several layers need."""

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
