"""Signatures of the framework's operators, to name a trace's values.

The table is ``operators.txt``, so that building a package needs no framework.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("operators.txt")
"""One signature per line: ``name.overload(type name, ...)``; ``#`` begins a comment."""

NAMESPACE = "aten::"
_LINE = re.compile(r"(\w+)(?:\.(\w+))?\((.*)\)")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator; ``type`` is without markers, a list's ends in ``[]``."""

    name: str
    type: str
    is_keyword: bool
    is_optional: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of one overload in order; the unnamed overload is ``""``."""

    overload: str
    arguments: tuple[Argument, ...]


@cache
def signatures() -> dict[str, tuple[Signature, ...]]:
    """Return operator -> its signatures; the first that matches the trace's arguments applies."""
    found: dict[str, tuple[Signature, ...]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        name, overload, arguments = match.groups()
        operator = NAMESPACE + name
        signature = Signature(overload or "", _arguments(arguments))
        found[operator] = (*found.get(operator, ()), signature)
    return found


def _arguments(text: str) -> tuple[Argument, ...]:
    found = []
    is_keyword = False
    for part in text.split(", "):
        if part == "*":
            is_keyword = True
        elif part:
            type_name, _, name = part.partition(" ")
            base = type_name.removesuffix("?")
            found.append(
                Argument(
                    name,
                    base.removesuffix("!"),
                    is_keyword,
                    is_optional=type_name.endswith("?"),
                    is_written=base.endswith("!"),
                )
            )
    return tuple(found)
