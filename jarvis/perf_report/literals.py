"""Format nested values as Python text, as in TraceLens's sheets.

Nested arguments are stored as JSON text; each distinct text is parsed once.
"""

from collections.abc import Callable
from typing import Any

import orjson
import polars as pl


def nested_tuple(value: Any) -> Any:
    """Return ``value`` with nested lists converted to tuples."""
    return tuple(nested_tuple(item) for item in value) if isinstance(value, list) else value


def parsed(text: str | None) -> Any:
    """Parse the JSON text of a call's arguments to nested tuples; ``()`` for None."""
    return () if text is None else nested_tuple(orjson.loads(text))


def tuples_text(column: str) -> pl.Expr:
    """Convert a column of JSON text to Python text with tuples."""
    return _rewritten(column, lambda text: repr(parsed(text)))


def lists_text(column: str) -> pl.Expr:
    """Convert a column of JSON text to Python text with lists."""
    return _rewritten(column, lambda text: repr(orjson.loads(text)))


def _rewritten(column: str, rewrite: Callable[[str], str]) -> pl.Expr:
    def each_distinct(values: pl.Series) -> pl.Series:
        texts = {text: rewrite(text) for text in values.unique() if text is not None}
        return values.replace_strict(texts, default=None, return_dtype=pl.String)

    return pl.col(column).map_batches(each_distinct, return_dtype=pl.String)
