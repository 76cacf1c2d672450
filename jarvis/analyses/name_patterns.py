"""Classify operators and kernels by name."""

from collections.abc import Iterable

import polars as pl

from jarvis.text.format import MAX_NAME_LENGTH


def first_match(
    name: pl.Expr, patterns: Iterable[tuple[str, str]], otherwise: str | None = None
) -> pl.Expr:
    """Return the title of the first ``(title, pattern)`` that matches the lower-case ``name``.

    ``otherwise`` if none matches.
    """
    lower = name.str.head(MAX_NAME_LENGTH).str.to_lowercase()
    titles = [pl.when(lower.str.contains(pattern)).then(pl.lit(t)) for t, pattern in patterns]
    return pl.coalesce(*titles, pl.lit(otherwise, dtype=pl.String))
