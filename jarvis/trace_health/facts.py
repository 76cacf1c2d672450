"""What one fact about a trace is."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a fact matters to whoever reads the report."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: a sentence, the number in it, what it makes wrong, and how to capture better.

    ``value`` is None where there is no number; ``affects`` and ``remedy`` are empty where all is
    well. Names from the trace are quoted in backticks.
    """

    key: str
    title: str
    summary: str
    value: float | None = None
    unit: str = ""
    severity: Severity = Severity.OK
    affects: str = ""
    remedy: str = ""


def when(is_bad: bool, severity: Severity = Severity.NOTE) -> Severity:
    """``severity`` where something is bad, else OK."""
    return severity if is_bad else Severity.OK
