"""Grades of system-level symptoms: thresholds, and the priority of each grade."""

from collections.abc import Iterable, Sequence

from jarvis.findings import Finding, Priority, Severity

Ladder = Sequence[tuple[float, Severity]]
"""``(above, severity)``, worst first: a value strictly above the threshold has the severity."""

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
_SEVERITIES = {priority: severity for severity, priority in _PRIORITIES.items()} | {
    Priority.LOW: Severity.LOW
}


def grade(value: float, ladder: Ladder, otherwise: Severity = Severity.ACCEPTABLE) -> Severity:
    """Return the severity of ``value``; ``otherwise`` if it exceeds no threshold."""
    return next((severity for above, severity in ladder if value > above), otherwise)


def worst(*severities: Severity) -> Severity:
    """Return the most severe of several grades."""
    return min(severities, key=_ORDER.index)


def at_most(severity: Severity, cap: Severity) -> Severity:
    """Return ``severity``, but no worse than ``cap``."""
    return max(severity, cap, key=_ORDER.index)


def is_worth_acting(severity: Severity) -> bool:
    """Return whether a grade warrants a finding."""
    return severity in _PRIORITIES


def priority_of(severity: Severity) -> Priority:
    """Return the priority of a finding with this grade."""
    return _PRIORITIES.get(severity, Priority.LOW)


def with_findings(severity: Severity, findings: Iterable[Finding], pool: str) -> Severity:
    """Return the grade of a pool of time: at least MEDIUM if a finding of that priority would save
    some of it. How urgent the finding is, its priority says."""
    found = (f for f in findings if f.impact is not None and (f.time_pool or "").startswith(pool))
    raised = (at_most(_SEVERITIES[finding.priority], Severity.MEDIUM) for finding in found)
    return worst(severity, *raised)
