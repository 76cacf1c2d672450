"""How reports print numbers: one function per kind of quantity, every number with its unit."""

from jarvis.analyses.wording import ms, number, pct
from jarvis.impact import FULL_PCT, efficiency_word

MISSING = "—"
"""A table cell without a value."""

NOT_AVAILABLE = "not available"


def decimal(value: float | None) -> str:
    """Three significant digits, whole from 100 on, thousands separated: 1,234 · 12.3 · 0.00123."""
    return MISSING if value is None else number(value)


def count(value: int | None) -> str:
    """A whole number, thousands separated."""
    return MISSING if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """A percentage with one decimal, or with two significant digits where it is small."""
    return MISSING if value is None else pct(value)


def milliseconds(value: float | None) -> str:
    """A time in ms, below 0.1 ms in µs."""
    return MISSING if value is None else ms(value)


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
