"""Nested values as Python text, the form that TraceLens's sheets use.

The trace keeps nested arguments as JSON text of which few are distinct; each is parsed once.
"""

from collections.abc import Callable
from typing import Any

import orjson
import polars as pl


def nested_tuple(value: Any) -> Any:
    """``value`` with every list in it made a tuple."""
    return tuple(nested_tuple(item) for item in value) if isinstance(value, list) else value


def parsed(text: str | None) -> Any:
    """JSON text of a call's arguments as nested tuples; ``()`` where the trace has none."""
    return () if text is None else nested_tuple(orjson.loads(text))


def tuples_text(column: str) -> pl.Expr:
    """A column of JSON text as Python text with tuples."""
    return _rewritten(column, lambda text: repr(parsed(text)))


def lists_text(column: str) -> pl.Expr:
    """A column of JSON text as Python text with lists."""
    return _rewritten(column, lambda text: repr(orjson.loads(text)))


def _rewritten(column: str, rewrite: Callable[[str], str]) -> pl.Expr:
    def each_distinct(values: pl.Series) -> pl.Series:
        texts = {text: rewrite(text) for text in values.unique() if text is not None}
        return values.replace_strict(texts, default=None, return_dtype=pl.String)

    return pl.col(column).map_batches(each_distinct, return_dtype=pl.String)
