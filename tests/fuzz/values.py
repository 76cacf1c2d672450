"""Unexpected values, and mutations of JSON documents with them."""

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.hostile import NASTY

TEXTS = (*(text for text in NASTY if len(text) < 1_000), "", " ", "\r=1+1", "x" * 3_000, "é", "🚀")
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -0.0, -1, 1, 2, 0.5, 1e-9, -1e-9, 3.3e12, 1e18, 1e300, -1e300),
    *(2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40, float("nan"), float("inf")),
    *([], [[]], {}, [0], [None], [-1], ["a"], [[1, "b"]], {"a": {"b": [1]}}, (1, 2), "(1, 2)"),
    *("[]", "None", "nan", "inf", "1e999", "-1", "0x10", "1_000", "True", "[1, 2", "((1,), 'x')"),
)


def odd(draw: random.Random) -> Any:
    """Return an unexpected value."""
    return draw.choice(TEXTS) if draw.random() < 0.4 else copy.deepcopy(draw.choice(ODD))


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a document with each of its keys."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(pairs):
        yield document, key
        if isinstance(value, dict | list):
            yield from places(value)


def change(document: Any, draw: random.Random) -> None:
    """Change one value somewhere in a document, or remove or repeat it."""
    if not (found := list(places(document))):
        return
    within, key = draw.choice(found)
    action = draw.randrange(8)
    if action == 0:
        del within[key]
    elif action == 1 and isinstance(within, list):
        within.insert(draw.randrange(len(within) + 1), copy.deepcopy(within[key]))
    elif action == 2:
        other, place = draw.choice(found)
        within[key] = copy.deepcopy(other[place])
    elif action == 3 and isinstance(within, dict):
        within[draw.choice(TEXTS)] = within.pop(key)
    elif action == 4 and isinstance(within[key], int | float):
        within[key] = within[key] * draw.choice((-1, 0, 0.001, 0.5, 3, 1e3, 1e6, 1e12))
    else:
        within[key] = odd(draw)
