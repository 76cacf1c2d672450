"""Wrong values planted into findings, and wrong numbers into lines of reports."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.arithmetic.documents import Line
from tests.arithmetic.printed import SHAPE, SIDES, numbers
from tests.arithmetic.values import NAMES

STRUCTURE = re.compile(r"(?:#+ )?\d+\. |- \*\*Trace\*\*: .*")
"""Numbers of items and sections, which only a whole document can have wrong, and a trace's name."""


def planted(finding: dict[str, Any]) -> Iterator[str]:
    """Make one value of a stored finding wrong at a time; yield where, then restore it."""
    for quantity in finding["quantities"]:
        if quantity["message"]:
            yield from _in_message(quantity["message"])
        else:
            yield from _in_place(quantity, "value", quantity["name"])
    for texts in finding["messages"].values():
        for message in texts:
            yield from _in_message(message)


def _in_message(message: dict[str, Any]) -> Iterator[str]:
    for name, value in message["values"].items():
        if isinstance(value, dict):
            yield from _in_message(value)
        elif isinstance(value, list):
            for place, each in enumerate(value):
                if isinstance(each, dict):
                    yield from _in_message(each)
                else:
                    yield from _in_place(value, place, name)
        else:
            yield from _in_place(message["values"], name, name)


def _in_place(holder: Any, key: Any, name: str) -> Iterator[str]:
    value = holder[key]
    for wrong in _wrong(name, value):
        holder[key] = wrong
        yield f"{name}: {wrong!r} in place of {value!r}"
    holder[key] = value


def _wrong(name: str, value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield from _wrong_texts(name, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (value + 1, 2 * value + 1)
    elif isinstance(value, float):
        yield from (value * 1.0001 + 1e-6, value / 2 + 1e-6)


def _wrong_texts(name: str, text: str) -> Iterator[str]:
    """The text with another last digit in a name, or in one of its shapes and numbers."""
    ends = [found.end() for kind in (SHAPE, SIDES) for found in kind.finditer(text)]
    ends += [number.end for number in numbers(text)]
    for end in [len(text)] if name in NAMES else ends:
        digits = [found.start() for found in re.finditer(r"\d", text[:end])]
        if digits:
            digit = int(text[digits[-1]])
            other = digit + 1 if digit < 9 else 7
            yield f"{text[: digits[-1]]}{other}{text[digits[-1] + 1 :]}"


def altered(line: Line) -> Iterator[tuple[str, Line]]:
    """The line with one number wrong, once in its first digit and once in its last, for each
    number that is no part of a name."""
    item = STRUCTURE.match(line.text)
    for number in numbers(_without_names(line)):
        if item and number.start < item.end():
            continue
        mantissa = re.match(r"\D*([\d.,]*)", number.text)
        assert mantissa
        digits = [
            place for place in range(*mantissa.span(1)) if line.text[number.start + place].isdigit()
        ]
        first = next((p for p in digits if line.text[number.start + p] != "0"), digits[-1])
        for place in {first, digits[-1]}:
            yield number.text, replace(line, text=_other_digit(line.text, number.start + place))


def _other_digit(text: str, place: int) -> str:
    digit = int(text[place])
    return f"{text[:place]}{digit + 1 if digit < 9 else 8}{text[place + 1 :]}"


def _without_names(line: Line) -> str:
    """The line with the cells blanked that hold places in code, which are no numbers."""
    if "Kernel Path" not in line.columns:
        return line.text
    path = line.cells[line.columns.index("Kernel Path")]
    return line.text.replace(path, "\0" * len(path))
