"""Format numbers with units, names and tensors: one function per kind of quantity."""

import json
import math
import re
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from jarvis.core.dtypes import find_dtype
from jarvis.core.literals import parse_literal
from jarvis.text.short_names import short_kernel_name

MINUS = "\N{MINUS SIGN}"
MISSING = "—"
"""A table cell without a value."""

NOT_AVAILABLE = "not available"

NAME_LENGTH = 80
MAX_NAME_LENGTH = 2_000
"""Maximum length of a name that is shown or stored again, and that name analyses read."""

UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]+"
)
"""Characters that break a line, or hide or reorder the text around them."""

SHAPES_SHOWN = 8
"""Number of different shapes printed for a list of tensors."""

MAX_DECIMALS = 6
"""Numbers that need more decimals are printed with an exponent."""

MIN_PCT = 0.01
"""Smaller percentages are printed as ``<0.01%``."""

MIN_MS = 0.1
"""Shorter times are printed in µs."""

MIN_US = 0.001
"""Shorter times, which are below the resolution of traces, are printed as ``<0.001 µs``."""

BYTE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
"""Decimal units of sizes and the bytes in each, largest first."""


def cut(name: str) -> str:
    """Return ``name`` truncated to MAX_NAME_LENGTH characters."""
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


def decimal(value: float | None) -> str:
    """Format with three significant digits, whole from 100 on: 0.0123, 4.56, 12,345."""
    if value is None:
        return MISSING
    if value < 0:
        return f"{MINUS}{decimal(-value)}"
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(value))
    return f"{value:.{decimals}f}" if decimals <= MAX_DECIMALS else f"{value:.2e}"


def column_decimals(largest: float, typical: float) -> int:
    """Return the number of decimals of a column of numbers, whose decimal points are aligned.

    At least three significant digits of the largest number, two decimals from 1 to 100, and one
    more if a typical number would otherwise be shown as zero or with less than one exact digit.

    Args:
        largest: Largest absolute value.
        typical: Median of the absolute values that are not zero.
    """
    if not 0 < largest < math.inf:
        return 0
    exponent = math.floor(math.log10(largest))
    decimals = max(0, min(2, 3 - exponent)) if exponent >= 0 else 2 - exponent
    is_small = typical < 5 * 10.0**-decimals
    return min(decimals + is_small, MAX_DECIMALS)


def signed(number: str) -> str:
    """Return a formatted number with a sign, its hyphen as a minus sign."""
    return number.replace("-", MINUS, 1)


def count(value: int | None) -> str:
    """Format a whole number with thousands separators."""
    return MISSING if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """Format a percentage with one decimal, below 1% with two significant digits."""
    if value is None:
        return MISSING
    if value < 0:
        return f"{MINUS}{percent(-value)}"
    if 0 < value < MIN_PCT:
        return f"<{MIN_PCT:g}%"
    is_plain = value == 0 or value >= 1
    return f"{value:.1f}%" if is_plain else f"{value:#.2g}%"


def milliseconds(value: float | None) -> str:
    """Format a time given in ms, below 0.1 ms in µs."""
    if value is not None and 0 < abs(value) < MIN_MS:
        return microseconds(1000 * value)
    return _with_unit(value, "ms")


def microseconds(value: float | None) -> str:
    """Format a time in µs."""
    if value is not None and 0 < value < MIN_US:
        return f"<{MIN_US:g} µs"
    return _with_unit(value, "µs")


def tb_per_s(value: float | None) -> str:
    """Format a bandwidth in TB/s (1e12 bytes per second)."""
    return _with_unit(value, "TB/s")


def tflops_per_s(value: float | None) -> str:
    """Format a compute rate in TFLOP/s."""
    return _with_unit(value, "TFLOP/s")


def byte_size(value: float | None) -> str:
    """Format a size given in bytes with a decimal unit: 512 B, 5.12 kB, 1.50 MB."""
    if value is None:
        return MISSING
    for unit, scale in BYTE_UNITS:
        if value >= scale:
            return _with_unit(value / scale, unit)
    return f"{value:.0f} B"


def _with_unit(value: float | None, unit: str) -> str:
    return MISSING if value is None else f"{decimal(value)} {unit}"


def utc_minute(moment: datetime) -> str:
    """Return ``2026-11-24 01:22 UTC``."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 call``, ``2 copies``, ``3 launches``, ``4 days``."""
    if re.search("[^aeiou]y$", noun):
        plural = f"{noun[:-1]}ies"
    else:
        plural = f"{noun}es" if noun.endswith(("ch", "sh", "s")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def quoted(name: str) -> str:
    """Return a name in backticks, on one line.

    Of a kernel name that is longer than NAME_LENGTH characters only the distinguishing part; other
    names are truncated.
    """
    flat = " ".join(name.replace("`", "'").split())
    if len(flat) > NAME_LENGTH:
        flat = short_kernel_name(flat)
    return f"`{flat if len(flat) <= NAME_LENGTH else flat[: NAME_LENGTH - 1] + '…'}`"


def escaped(text: str) -> str:
    """Return ``text`` with JSON escapes for control, reordering and invisible characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1].replace("\x7f", "\\u007f")


def listed(items: list[str], limit: int = 3) -> str:
    """Join the first ``limit`` items: ``a, b, c and 4 more``."""
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")


def short_dtype(name: str) -> str:
    """Return the short name of a dtype (``c10::BFloat16`` -> ``bf16``), or ``name`` if unknown."""
    dtype = find_dtype(name)
    return name if dtype is None else dtype.short


def arguments(input_dims: str | None, input_types: str | None) -> str | None:
    """Format the tensor arguments, as ``[8944,1024] bf16, [1024,2816] bf16``; None without any.

    Tensors without sides, ``[] int64``, only if there are no others.
    """
    if input_dims is None:
        return None
    shapes, types = parse_literal(input_dims), parse_literal(input_types)
    named = [(shape, types[i] if i < len(types) else "") for i, shape in enumerate(shapes)]
    sided = [pair for pair in named if pair[0]]
    shown = sided or [pair for pair in named if find_dtype(pair[1]) is not None]
    return ", ".join(f"{_shape(s)} {short_dtype(t)}".strip() for s, t in shown) or None


def _shape(shape: tuple[Any, ...]) -> str:
    """Format a shape, or those of a list of tensors: ``[4,1]``, ``2 x [4,1] + [4,3]``."""
    if not (shape and isinstance(shape[0], tuple)):
        return f"[{','.join(map(str, shape))}]"
    tensors = (each if isinstance(each, tuple) else (each,) for each in shape)
    runs = [(len([*run]), _shape(each)) for each, run in groupby(tensors)]
    texts = [text if count == 1 < len(runs) else f"{count} x {text}" for count, text in runs]
    rest = sum(count for count, _ in runs[SHAPES_SHOWN:])
    return " + ".join(texts[:SHAPES_SHOWN]) + (f" + {rest} more" if rest else "")
