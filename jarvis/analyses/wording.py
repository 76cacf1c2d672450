"""Numbers and names inside sentences, under the name that analyses and reports know them by."""

from jarvis.wording import (
    MOST_DECIMALS,
    NAME_LENGTH,
    SMALLEST_MS,
    SMALLEST_PCT,
    counted,
    listed,
    ms,
    number,
    pct,
    quoted,
    size,
)

__all__ = [
    "MOST_DECIMALS",
    "NAME_LENGTH",
    "SMALLEST_MS",
    "SMALLEST_PCT",
    "counted",
    "listed",
    "ms",
    "number",
    "pct",
    "quoted",
    "size",
]
