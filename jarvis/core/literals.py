"""Arguments of a call (shapes, strides, types, values) from the text that tables hold."""

import ast
from functools import lru_cache
from typing import Any

CACHED_TEXTS = 256
"""Rows of one operator have the same few texts, and several analyses read each."""


def parse_literal(text: str | None) -> Any:
    """Return the Python value of ``"((8, 4), (4,))"``, and ``()`` where there is no text.

    Each distinct text is parsed once: never change what is returned. Raises ValueError or
    SyntaxError for a text that is no literal.
    """
    return _parse(text) if text else ()


@lru_cache(maxsize=CACHED_TEXTS)
def _parse(text: str) -> Any:
    return ast.literal_eval(text)
