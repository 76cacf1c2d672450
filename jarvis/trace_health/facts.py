"""Facts about the quality of a trace."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Importance of a fact to a reader of the report."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact: a sentence, its number, the affected results, and a remedy.

    ``value`` is None without a number; ``affects`` and ``remedy`` are empty if there is no problem.
    Names from the trace are quoted in backticks.
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
    """Return ``severity`` if ``is_bad``, else OK."""
    return severity if is_bad else Severity.OK
