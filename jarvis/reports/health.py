"""Trace health in Markdown: what every reader should know about the input."""

from jarvis.run import Run
from jarvis.text.format import MISSING, count, counted, decimal
from jarvis.text.markdown import Markdown, prose, table
from jarvis.trace_health import TABLE, Fact, Severity, facts_of

MARKS = {Severity.WARNING: "⚠", Severity.NOTE: "note", Severity.OK: "✓"}


def health_of(run: Run) -> list[Fact]:
    """Return the facts about the trace of a run, warnings first."""
    return facts_of(run.table(TABLE))


def health_line(facts: list[Fact]) -> str:
    """Return ``2 warnings, 1 note, 20 facts in order``."""
    number = {kind: sum(fact.severity is kind for fact in facts) for kind in Severity}
    parts = [
        counted(number[kind], kind.value)
        for kind in (Severity.WARNING, Severity.NOTE)
        if number[kind]
    ]
    return ", ".join([*parts, f"{counted(number[Severity.OK], 'fact')} in order"])


def health_table(facts: list[Fact]) -> Markdown:
    """Return the facts, what they affect, and how to capture better."""
    return table(
        ("", "Fact", "Finding", "What it affects", "How to capture better"),
        (
            (
                MARKS[fact.severity],
                fact.title,
                *map(prose, (fact.summary, fact.affects, fact.remedy)),
            )
            for fact in facts
        ),
    )


def health_values(facts: list[Fact]) -> Markdown:
    """Return the numbers behind the sentences."""
    return table(
        ("Key", "Value", "Unit", "Severity"),
        (
            (
                fact.key,
                _value(fact.value),
                fact.unit,
                fact.severity,
            )
            for fact in facts
        ),
    )


def _value(value: float | None) -> str:
    if value is None:
        return MISSING
    return count(int(value)) if value == int(value) else decimal(value)
