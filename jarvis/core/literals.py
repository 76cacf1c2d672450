"""Parse the arguments of a call (shapes, strides, types, values) stored as text in tables."""

import ast
from functools import lru_cache
from typing import Any

CACHED_TEXTS = 256
"""Size of the cache: rows of one operator repeat a few texts, and several analyses read each."""


def parse_literal(text: str | None) -> Any:
    """Return the Python value of a literal like ``"((8, 4), (4,))"``, or ``()`` for no text.

    Results are cached and shared, so callers must not modify them.

    Raises:
        ValueError, SyntaxError: The text is not a literal.
    """
    return _parse(text) if text else ()


def parse_tuple(text: str | None) -> tuple[Any, ...]:
    """Return the tuple of a literal as ``parse_literal`` does; an empty one for other values."""
    value = parse_literal(text)
    return value if isinstance(value, tuple) else ()


@lru_cache(maxsize=CACHED_TEXTS)
def _parse(text: str) -> Any:
    return ast.literal_eval(text)
