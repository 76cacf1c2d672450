"""Grades of system-level symptoms: ladders of thresholds, and the priority that a grade gives."""

from collections.abc import Sequence

from jarvis.findings import Priority, Severity

Ladder = Sequence[tuple[float, Severity]]
"""``(above, severity)`` from the worst down: a value strictly above the threshold has it."""

_ORDER = (
    Severity.CRITICAL,
    Severity.HIGH,
    Severity.MEDIUM,
    Severity.LOW,
    Severity.ACCEPTABLE,
    Severity.GOOD,
    Severity.NOT_AVAILABLE,
)
_PRIORITIES = {
    Severity.CRITICAL: Priority.CRITICAL,
    Severity.HIGH: Priority.HIGH,
    Severity.MEDIUM: Priority.MEDIUM,
}


def grade(value: float, ladder: Ladder, otherwise: Severity = Severity.ACCEPTABLE) -> Severity:
    """The severity of ``value``; ``otherwise`` below the whole ladder."""
    return next((severity for above, severity in ladder if value > above), otherwise)


def worst(*severities: Severity) -> Severity:
    """The most severe of several grades."""
    return min(severities, key=_ORDER.index)


def at_most(severity: Severity, cap: Severity) -> Severity:
    """``severity``, but no worse than ``cap``."""
    return max(severity, cap, key=_ORDER.index)


def is_worth_acting(severity: Severity) -> bool:
    """Whether a grade calls for a finding."""
    return severity in _PRIORITIES


def priority_of(severity: Severity) -> Priority:
    """The priority of a finding with this grade."""
    return _PRIORITIES.get(severity, Priority.LOW)
