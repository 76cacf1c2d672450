"""How reports print numbers: one function per kind of quantity, every number with its unit."""

import math

from jarvis.impact import FULL_PCT, efficiency_word

MISSING = "—"
"""A table cell without a value."""

NOT_AVAILABLE = "not available"

SMALLEST_PCT = 0.01
"""A smaller share is printed as below this one."""

SMALLEST_MS = 0.001
"""A shorter time is printed in µs."""

MOST_DECIMALS = 6
"""A number that needs more is printed with an exponent."""


def decimal(value: float | None) -> str:
    """Three significant digits, whole from 100 on, thousands separated: 1,234 · 12.3 · 0.00123."""
    if value is None:
        return MISSING
    size = abs(value)
    if size >= 100 or size == 0:
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(size))
    return f"{value:.{decimals}f}" if decimals <= MOST_DECIMALS else f"{value:.2e}"


def count(value: int | None) -> str:
    """A whole number, thousands separated."""
    return MISSING if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """A percentage with one decimal, or with two significant digits where it is small."""
    if value is None:
        return MISSING
    if 0 < value < SMALLEST_PCT:
        return f"<{SMALLEST_PCT:g}%"
    return f"{value:.1f}%" if value == 0 or abs(value) >= 1 else f"{value:#.2g}%"


def milliseconds(value: float | None) -> str:
    """A time in ms, below a microsecond in µs."""
    if value is not None and 0 < abs(value) < SMALLEST_MS:
        return microseconds(1000 * value)
    return MISSING if value is None else f"{decimal(value)} ms"


def microseconds(value: float | None) -> str:
    """A time in µs."""
    return MISSING if value is None else f"{decimal(value)} µs"


def tb_per_s(value: float | None) -> str:
    """A bandwidth in TB/s (1e12 bytes)."""
    return MISSING if value is None else f"{decimal(value)} TB/s"


def tflops_per_s(value: float | None) -> str:
    """A compute rate in TFLOPS/s."""
    return MISSING if value is None else f"{decimal(value)} TFLOPS/s"


def byte_size(value: float | None) -> str:
    """A size in the decimal unit that fits: 512 B · 1.50 MB."""
    if value is None:
        return MISSING
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{decimal(value / scale)} {unit}"
    return f"{value:.0f} B"


def efficiency(value: float | None) -> str:
    """An efficiency in percent of the roofline; one above the peak carries a mark."""
    if value is None or value <= FULL_PCT:
        return percent(value)
    return f"{percent(value)} ⚠ {efficiency_word(value).partition(':')[0]}"
