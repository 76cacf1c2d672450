"""Wrong numbers planted into lines of reports."""

import re
from collections.abc import Iterator
from dataclasses import replace

from tests.arithmetic.documents import Line
from tests.arithmetic.printed import numbers

STRUCTURE = re.compile(r"(?:#+ )?\d+\. |- \*\*Trace\*\*: .*")
"""Numbers of items and sections, which only a whole document can have wrong, and a trace's name."""


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
