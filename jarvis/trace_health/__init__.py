"""Trace quality as a table of facts: each with a severity, affected results and a remedy."""

from dataclasses import asdict
from itertools import chain

import polars as pl

from jarvis.schemas import dtypes
from jarvis.schemas.names import C
from jarvis.trace import Trace, TraceInfo
from jarvis.trace_health.facts import Fact, Severity
from jarvis.trace_health.imported import report_facts
from jarvis.trace_health.links import capture_facts, link_facts
from jarvis.trace_health.recording import metadata_facts, recording_facts
from jarvis.trace_health.times import time_facts
from jarvis.trace_health.warm_up import warm_up_facts
from jarvis.tracelens.imported import ImportedReport

__all__ = [
    "TABLE",
    "Fact",
    "Severity",
    "facts_of",
    "metadata_warnings",
    "report_health",
    "trace_health",
    "warning_lines",
]

TABLE = "trace_health"


def trace_health(trace: Trace) -> pl.DataFrame:
    """Return the facts about a trace, warnings first (schema: ``trace_health``)."""
    recording = trace.recording
    facts = (warm_up_facts(recording), link_facts(trace), recording_facts(trace))
    return _table([*chain(*facts, capture_facts(trace), time_facts(recording))])


def report_health(report: ImportedReport) -> pl.DataFrame:
    """Return the facts about a report that was read instead of a trace."""
    return _table([*report_facts(report)])


def metadata_warnings(info: TraceInfo) -> list[Fact]:
    """Return the warnings about a trace that its metadata shows, before its analysis."""
    if info.form != "trace":
        return []
    return [fact for fact in metadata_facts(info) if fact.severity is Severity.WARNING]


def _table(facts: list[Fact]) -> pl.DataFrame:
    order = [Severity.WARNING, Severity.NOTE, Severity.OK]
    facts.sort(key=lambda fact: order.index(fact.severity))
    return pl.DataFrame([asdict(fact) for fact in facts], schema=dtypes(TABLE))


def facts_of(table: pl.DataFrame) -> list[Fact]:
    """Return the rows of the table ``trace_health`` as facts."""
    return [
        Fact(**{**row, "severity": Severity(row[C.severity])})
        for row in table.iter_rows(named=True)
    ]


def warning_lines(table: pl.DataFrame) -> list[str]:
    """Return a line for each warning: summary, affected results and remedy."""
    return [
        f"{fact.summary} {fact.affects} {fact.remedy}"
        for fact in facts_of(table)
        if fact.severity is Severity.WARNING
    ]
