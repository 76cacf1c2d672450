"""Numbers and names inside sentences, under the name that analyses and reports know them by."""

from jarvis.wording import (
    MAX_DECIMALS,
    MIN_MS,
    MIN_PCT,
    NAME_LENGTH,
    counted,
    listed,
    ms,
    number,
    pct,
    quoted,
    size,
)

__all__ = [
    "MAX_DECIMALS",
    "MIN_MS",
    "MIN_PCT",
    "NAME_LENGTH",
    "counted",
    "listed",
    "ms",
    "number",
    "pct",
    "quoted",
    "size",
]
