"""Grades of a pool of time, and the findings on it."""

import pytest

from jarvis.analyses.severity import with_findings
from jarvis.findings import IDLE_POOL, Finding, Priority, Severity
from jarvis.impact import bounded_impact


def found(priority: Priority, pool: str | None, *, saves: bool = True) -> Finding:
    gain = bounded_impact(2.0, 1.0, compute_ms=10.0, total_ms=20.0) if saves else None
    return Finding(
        check="c",
        category="k",
        title="t",
        issue="i",
        algorithmic="a",
        kernel="b",
        priority_local=priority,
        priority=priority,
        time_pool=pool,
        impact=gain,
    )


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (found(Priority.MEDIUM, f"{IDLE_POOL} before"), Severity.MEDIUM),
        (found(Priority.HIGH, IDLE_POOL), Severity.MEDIUM),
        (found(Priority.LOW, IDLE_POOL), Severity.LOW),
        (found(Priority.HIGH, None), Severity.GOOD),
        (found(Priority.LOW, IDLE_POOL, saves=False), Severity.GOOD),
    ],
)
def test_no_time_is_good_that_a_finding_would_save(finding: Finding, expected: Severity) -> None:
    assert with_findings(Severity.GOOD, [finding], IDLE_POOL) is expected
    assert with_findings(Severity.CRITICAL, [finding], IDLE_POOL) is Severity.CRITICAL
