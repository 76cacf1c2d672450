"""Numbers as a report prints them: found in a line of Markdown, compared in their precision."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

QUOTED = re.compile(r"`[^`]*`")
LINK = re.compile(r"\]\([^)]*\)")
COMMENT = re.compile(r"<!--.*?-->")
SHAPE = re.compile(r"\[\d+(?:,\d+)*,?\]|\(\d+(?:, \d+)+,?\)")
SIDES = re.compile(r"(?<![\w.])\d+(?:x\d+)+(?!\w)")

RANGE_UNIT = re.compile(r" to [\d.,]+ ?(ms|µs|%)")
"""After the lower end of a range, whose unit is printed once."""

MIN_PCT, MIN_US = 0.01, 0.001
"""Smaller shares and times are printed as below these."""

UNITS = {
    "%": ("%", 1.0),
    "ms": ("ms", 1.0),
    "µs": ("ms", 1e-3),
    "s": ("ms", 1e3),
    "TB/s": ("TB/s", 1.0),
    "GB/s": ("TB/s", 1e-3),
    "MB/s": ("TB/s", 1e-6),
    "TFLOP/s": ("TFLOP/s", 1.0),
    "TFLOPS": ("TFLOP/s", 1.0),
    "bytes": ("bytes", 1.0),
    "B": ("bytes", 1.0),
    "kB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
}
_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
NUMBER = re.compile(
    r"(?<![\w.])(?P<below>\\?<)?(?P<digits>\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?)"
    rf"(?: ?(?P<unit>{_UNIT})(?![\w/]))?"
)


@dataclass(frozen=True)
class Printed:
    """One number of a line: its value in the base unit, half of its last digit, and its words."""

    text: str
    value: float
    half: float
    unit: str
    before: str
    after: str
    start: int
    end: int
    is_limit: bool = False

    def matches(self, value: float | None) -> bool:
        """Whether ``value``, in the base unit, would print like this."""
        if value is None:
            return False
        if self.is_limit:
            return 0 < value < self.value and self.value in (MIN_PCT, MIN_US / 1000)
        return abs(value - self.value) <= self.half * (1 + 1e-9) + abs(self.value) * 1e-12


def masked(line: str) -> str:
    """The line with quoted names, links, comments and shapes blanked, length unchanged."""
    for pattern in (COMMENT, QUOTED, LINK, SHAPE, SIDES):
        line = pattern.sub(lambda found: "\0" * len(found[0]), line)
    return line


def numbers(line: str) -> Iterator[Printed]:
    """The numbers of a line that stand outside of quotes, shapes and links."""
    for found in NUMBER.finditer(masked(line)):
        digits = found["digits"].rstrip(",")
        trailing = len(found["digits"]) - len(digits)
        shared = RANGE_UNIT.match(line, found.end())
        named = found["unit"] or (shared[1] if shared else "")
        unit, factor = UNITS.get(named, ("", 1.0))
        end = found.end() - (trailing if not found["unit"] else 0)
        yield Printed(
            text=line[found.start() : end],
            value=float(digits.replace(",", "")) * factor,
            half=_half(digits) * factor,
            unit=unit,
            before=line[: found.start()],
            after=line[end:],
            start=found.start(),
            end=end,
            is_limit=found["below"] is not None,
        )


def reading(text: str) -> Printed:
    """The one number of a text."""
    (only,) = numbers(text)
    return only


def _half(digits: str) -> float:
    """Half a unit in the last place."""
    mantissa, _, exponent = digits.replace(",", "").partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals)
