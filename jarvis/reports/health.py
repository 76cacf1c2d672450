"""Trace health in Markdown: what every reader should know about the input."""

from collections.abc import Iterator

import polars as pl

from jarvis.analyses import kernel_names
from jarvis.preconditions import GRAPH_LAUNCH, replayed_operations
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import (
    MISSING,
    count,
    counted,
    decimal,
    listed,
    milliseconds,
    percent,
    quoted,
)
from jarvis.text.markdown import Markdown, prose, table
from jarvis.text.messages import NAMES_SHOWN
from jarvis.trace_health import TABLE, Fact, Severity, facts_of

MARKS = {Severity.WARNING: "⚠", Severity.NOTE: "note", Severity.OK: "✓"}


COPY = r"^(?:memcpy|copy(?:host|device))"
"""Pattern of the names (lower case) of copies, of HIP's older profilers too."""

MIN_WITHOUT_MODEL_PCT = 1.0
"""From this share of kernel time without a perf model on, it is noted."""


def health_of(run: Run) -> list[Fact]:
    """Return the facts about the trace of a run, and the time without a perf model; warnings
    first."""
    return run.once(_health_of)


def _health_of(run: Run) -> list[Fact]:
    order = list(MARKS)
    facts = [*facts_of(run.table(TABLE)), *_without_perf_model(run)]
    return sorted(facts, key=lambda fact: order.index(fact.severity))


def _without_perf_model(run: Run) -> Iterator[Fact]:
    """Yield the kernel time without an efficiency; communication has none, and replayed kernels
    are a fact of their own."""
    computing = (
        run.table("operations")
        .filter(
            (pl.col(C.kernel_time_us) > 2 * pl.col(C.comm_time_us))
            & (pl.col(C.percent_of_compute).fill_null(1.0) > 0)  # copies are no compute
        )
        # Nor are those that an operator launches beside its kernels.
        .with_columns(compute_us=pl.col(C.kernel_time_us) - kernel_names.time_us(COPY))
    )
    replayed = pl.col(C.uid).is_in(replayed_operations(run.tables.get))
    lacks_shapes = pl.col(C.name).str.contains(GRAPH_LAUNCH) | (
        replayed & pl.col(C.input_dims).is_null()
    )
    rows = computing.filter(~lacks_shapes)
    replayed_us = float(computing.filter(lacks_shapes)["compute_us"].sum())
    if replayed_us:
        yield Fact(
            "replayed_without_shapes",
            "Kernel time replayed without shapes",
            f"GPU graphs replay {milliseconds(replayed_us / 1000)} of kernels without shapes, so "
            "their efficiency is not known.",
            replayed_us / 1000,
            "ms",
            Severity.NOTE,
        )
    outside = " outside GPU graphs" if rows.height < computing.height else ""
    if rows.is_empty():
        return
    without = rows.filter(~pl.col(C.has_perf_model))
    whole_us, time_us = (float(each["compute_us"].sum()) for each in (rows, without))
    if whole_us <= 0:
        return
    share_pct = 100 * time_us / whole_us
    key, title = "no_perf_model", "Time without a perf model"
    if share_pct < MIN_WITHOUT_MODEL_PCT:
        known = f"{percent(100 - share_pct)} of the kernel time{outside} has a perf model."
        yield Fact(key, title, known, share_pct, "%")
        return
    named = without.filter(pl.col(C.input_dims).is_not_null())
    names = named.group_by(C.name).agg(pl.col(C.kernel_time_us).sum())
    ordered = names.sort(C.kernel_time_us, C.name, descending=[True, False])[C.name]
    reasons = [
        *(["kernels without operators or shapes"] if named.height < without.height else []),
        *([listed([quoted(name) for name in ordered], NAMES_SHOWN)] if named.height else []),
    ]
    yield Fact(
        key,
        title,
        f"No perf model applies to {percent(share_pct)} of the kernel time{outside} "
        f"({milliseconds(time_us / 1000)}): {' and '.join(reasons)}.",
        share_pct,
        "%",
        Severity.NOTE,
        "Efficiency and possible savings of this time are not known.",
        "Where arguments are recorded, add perf models in an extension."
        if named.height
        else "Record the operators with their shapes.",
    )


def health_line(facts: list[Fact]) -> str:
    """Return ``2 warnings, 1 note, 20 checks passed``."""
    number = {kind: sum(fact.severity is kind for fact in facts) for kind in Severity}
    parts = [
        counted(number[kind], kind.value)
        for kind in (Severity.WARNING, Severity.NOTE)
        if number[kind]
    ]
    return ", ".join([*parts, f"{counted(number[Severity.OK], 'check')} passed"])


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
