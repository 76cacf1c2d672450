"""Numbers and names inside the sentences of findings."""

NAME_LENGTH = 80


def number(value: float) -> str:
    """Three significant digits, without an exponent: 0.0123, 4.56, 789, 12,345."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 2 if abs(value) >= 1 else 3
    if abs(value) >= 10:
        digits = 1
    text = f"{value:.{digits}f}"
    return text if float(text) else f"{value:.2g}"


def ms(value_ms: float) -> str:
    """A time, in microseconds where that reads better."""
    return f"{number(value_ms)} ms" if value_ms >= 0.1 else f"{number(value_ms * 1000)} µs"


def pct(value_pct: float) -> str:
    """A percentage with one decimal."""
    return f"{value_pct:.1f}%" if value_pct >= 0.05 or value_pct <= 0 else "<0.1%"


def counted(count: int, noun: str) -> str:
    """``1 call``, ``2 copies``, ``3 launches``."""
    if noun.endswith("y"):
        plural = f"{noun[:-1]}ies"
    else:
        plural = f"{noun}es" if noun.endswith(("ch", "sh", "s")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def quoted(name: str) -> str:
    """A name from the trace, in backticks, on one line, and not too long."""
    flat = " ".join(name.replace("`", "'").split())
    return f"`{flat if len(flat) <= NAME_LENGTH else flat[: NAME_LENGTH - 1] + '…'}`"


def listed(items: list[str], limit: int = 3) -> str:
    """``a, b, c and 4 more``."""
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")
