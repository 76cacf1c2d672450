"""Run every analysis on its own rows of a report; a failing one does not affect the others."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import unwrap
from operator import attrgetter
from typing import Any, Protocol

import polars as pl
from pydantic import JsonValue

from jarvis import impact, savings
from jarvis.analyses.attention_copies import without_removed
from jarvis.analyses.base import Analysis, CategoryData
from jarvis.analyses.baseline import Baseline, measure_baseline
from jarvis.analyses.chain_context import with_chains
from jarvis.analyses.chains import Chain, chains
from jarvis.analyses.checks import has_work, nothing_to_fix
from jarvis.analyses.claims import claim_operations, top_operations
from jarvis.analyses.operations import describe, weighted_efficiency
from jarvis.core.errors import MissingTableError
from jarvis.core.request import Targets
from jarvis.findings import TEXTS, AnalysisResult, Finding, Status, TextName
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import Registry
from jarvis.perf_report import Totals
from jarvis.perf_report.efficiency import NO_BYTES, NO_COMPUTE, NO_MODEL, NO_TIME
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.preconditions import Facts, Subject, Tables, replayed_operations
from jarvis.schemas.names import C
from jarvis.simulation.simulation import Simulation
from jarvis.text.messages import Message, MessageTable, to_text, without
from jarvis.text.short_names import short_operation_name

DEFAULT_TARGETS = Targets()
NO_TABLES: Mapping[str, pl.DataFrame] = {}

NO_HARDWARE = "Efficiencies are not available: the hardware is not known, so there is no peak."
NO_MODELS = "Efficiencies are not available: no perf model covers these operations."
NO_SHAPES = (
    "Efficiencies are not available: GPU graphs replay these operations, and no capture has their "
    "shapes."
)
NO_SHAPES_OF_ROW = "A GPU graph replays it, and no capture has its shapes."
_OF_SEVERAL = {
    NO_SHAPES_OF_ROW: "GPU graphs replay them, and no capture has their shapes.",
    NO_MODEL: "No perf model covers these operators.",
    NO_BYTES: "The bytes of these calls are not known, so they have no roofline.",
    NO_TIME: "The GPU work of these operations has no duration.",
    NO_COMPUTE: "It is not known which compute peak applies to these calls; their efficiency "
    "considers only memory and is a lower limit.",
}
"""Reasons that name a single operation, as those of several."""

NOTES = MessageTable(
    "no_perf_model",
    {
        "note": "{rows:count row} ({names:names}, {time_ms}) has no efficiency. {note}",
        "note.several": "{rows:count row} ({names:names}, {time_ms} together) have no efficiency. "
        "{note}",
        "note.known": "{note} This concerns {rows:count row} ({names:names}, {time_ms}).",
    },
)


class ReportTables(Protocol):
    """The parts of a performance report that analyses read."""

    @property
    def totals(self) -> Totals:
        """Sums over the whole trace."""

    @property
    def hardware(self) -> HardwareSpec | None:
        """Return the peaks that efficiencies refer to."""

    @property
    def registry(self) -> Registry:
        """Return the op categories by name."""

    @property
    def absent_tables(self) -> Mapping[str, str]:
        """Return tables without rows because the input lacks their data, and the missing
        information."""

    def table(self, name: str) -> pl.DataFrame:
        """Return a table by name; raise MissingTableError if the report has none."""


@dataclass(frozen=True)
class SplitOperations:
    """The operations of a report, split by analysis.

    ``operations`` has a row for each operation with its ``category``, ``top_operations`` the
    operators with most time, ``baseline`` the bandwidth that simple ones reach, if any do.
    """

    operations: pl.DataFrame
    top_operations: pl.DataFrame
    baseline: Baseline | None = None


@dataclass(frozen=True)
class AnalysisOutcome:
    """The result of one analysis, its rows with the columns that it added, and its prepared
    numbers.

    Rows are None outside the compute tier and if the analysis failed before adding columns.
    """

    result: AnalysisResult
    operations: pl.DataFrame | None = None
    prepared: Mapping[str, JsonValue] | None = None


def split_operations(report: ReportTables, analyses: Mapping[str, Analysis]) -> SplitOperations:
    """Assign a category to every operation and find the top operations of the trace."""
    claimed = claim_operations(report.table("operations"), analyses.values(), report.registry)
    top = top_operations(
        report.table("ops_summary"),
        report.table("gpu_work"),
        claimed,
        compute_ms=report.totals.compute_time_ms,
        total_ms=report.totals.total_time_ms,
    )
    return SplitOperations(claimed, top, measure_baseline(claimed))


def run_analyses(
    report: ReportTables,
    analyses: Mapping[str, Analysis],
    split: SplitOperations,
    *,
    compute_units: int | None = None,
    targets: Targets = DEFAULT_TARGETS,
    simulation: Simulation | None = None,
    described: Mapping[str, pl.DataFrame] | None = None,
    inference: Mapping[str, pl.DataFrame] = NO_TABLES,
    known: dict[object, Any] | None = None,
) -> dict[str, AnalysisOutcome]:
    """Return the outcome of every analysis by key, in the order of ``analyses``.

    ``compute_units`` is the number of compute units of the GPU, None if the trace lacks it;
    ``simulation`` is None if step times cannot be simulated. ``described`` are rows of categories
    with the columns that their analyses added, which do not depend on ``targets``: they need no
    ``compute_units``. ``inference``
    are tables that the report lacks. ``known`` keeps what is the same at every target for the next
    one. Analyses ``only_with`` other tables are left out.
    """
    known = {} if known is None else known

    def table(name: str) -> pl.DataFrame | None:
        return inference[name] if name in inference else _table(report, name)

    analyses = {key: each for key, each in analyses.items() if _applies(each, table)}
    claimed: dict[tuple[object, ...], pl.DataFrame] = {}
    nothing, top_uids = split.operations.clear(), frozenset[int]()
    if described is None:
        claimed = split.operations.partition_by(C.category, as_dict=True)
        top_uids = frozenset(split.top_operations["operation_uids"].explode().drop_nulls())
        nothing = describe(nothing, top_uids, report.hardware)
    facts = Facts(table, known.setdefault(Facts, {}))
    if replayed_operations not in known:
        known[replayed_operations] = replayed_operations(table)
    outcomes: dict[str, AnalysisOutcome] = {}
    for key, analysis in analyses.items():
        try:
            rows = (described or {}).get(key, nothing)
            if described is None:
                if (key,) in claimed:
                    rows = describe(claimed[key,], top_uids, report.hardware)
                if analysis.classify:
                    rows = analysis.classify(rows, compute_units)
            data = CategoryData(
                key=key,
                title=analysis.title,
                operations=rows,
                totals=report.totals,
                hardware=report.hardware,
                advice=analysis.advice,
                tables=_needed(analysis, table),
                target_pct=targets.of_category(key),
                baseline=split.baseline,
                replayed_uids=known[replayed_operations],
                known=known.setdefault(key, {}),
            )
            outcomes[key] = _run(analysis, report, facts, data)
        except Exception as error:  # isolates analyses from each other
            outcomes[key] = AnalysisOutcome(_failed(analysis, error))
    results = [outcome.result for outcome in outcomes.values()]
    outcomes = {
        key: replace(outcome, result=without_removed(outcome.result, results))
        for key, outcome in outcomes.items()
    }
    worth_fusing = _worth_fusing(report, table, analyses, outcomes, targets.pct)
    return {
        key: replace(
            outcome,
            result=_in_steps(with_chains(outcome.result, worth_fusing), report, simulation),
        )
        for key, outcome in outcomes.items()
    }


def _in_steps(
    result: AnalysisResult, report: ReportTables, simulation: Simulation | None
) -> AnalysisResult:
    """Return the result with the step time that its findings save, in their order."""
    totals = report.totals
    has_steps = bool(result.findings) and totals.step is not None and totals.step.step_ms
    work = report.table("gpu_work") if has_steps else None
    findings = savings.with_step_savings(result.findings, totals, work, simulation)
    return result.model_copy(update={"findings": tuple(savings.ranked(findings, totals))})


def _worth_fusing(
    report: ReportTables,
    table: Tables,
    analyses: Mapping[str, Analysis],
    outcomes: Mapping[str, AnalysisOutcome],
    target_pct: float,
) -> list[Chain]:
    """Return the chains that are findings of the fusion tier; none if it failed."""
    totals = report.totals
    bases = {"compute_ms": totals.compute_time_ms, "total_ms": totals.total_time_ms}
    found = (
        chain
        for key, analysis in analyses.items()
        if analysis.tier == "fusion" and outcomes[key].result.status is Status.OK
        for chain in chains(_needed(analysis, table), report.hardware, bases, target_pct)
    )
    return [chain for chain in found if chain.is_worth_fusing]


def _run(
    analysis: Analysis, report: ReportTables, facts: Facts, data: CategoryData
) -> AnalysisOutcome:
    is_compute = analysis.tier == "compute"
    absent = unavailable_reason(report.absent_tables, analysis.needs)
    has_data = (is_compute or not absent) and _has_data(analysis, data)
    findings = [supported(each, facts) for each in _findings(analysis, data)] if has_data else []
    result = AnalysisResult(
        key=analysis.key,
        title=analysis.title,
        tier=analysis.tier,
        status=Status.OK if has_data else Status.NO_DATA,
        error=None if is_compute else absent,
        findings=tuple(findings),
        metrics=data.once("metrics", analysis.measure) if analysis.measure and has_data else {},
        **(data.once("sums", partial(_sums, absent=absent)) if is_compute and has_data else {}),
    )
    prepared = analysis.prepare(data) if analysis.prepare and has_data else None
    return AnalysisOutcome(result, data.operations if is_compute else None, prepared)


def _findings(analysis: Analysis, data: CategoryData) -> list[Finding]:
    specific = [finding for check in analysis.specific for finding in data.found(check)]
    explained = frozenset(row.uid for finding in specific for row in finding.operations)
    rest = replace(data, explained_uids=explained)
    last = [check for check in analysis.checks if unwrap(check) is nothing_to_fix]
    found = [*specific]
    for check in analysis.checks:
        if check not in last:
            found += rest.found(check)
    if not has_work(found):
        found += (finding for check in last for finding in rest.found(check))
    return found


def _has_data(analysis: Analysis, data: CategoryData) -> bool:
    if analysis.tier != "compute":
        return data.totals.total_time_ms > 0
    others = (data.tables[name] for name in analysis.also_in if name in data.tables)
    return data.operations.height > 0 or any(table.height > 0 for table in others)


def _applies(analysis: Analysis, table: Tables) -> bool:
    found = (table(name) for name in analysis.only_with)
    return all(rows is not None and rows.height > 0 for rows in found)


def _needed(analysis: Analysis, table: Tables) -> dict[str, pl.DataFrame]:
    tables = {name: table(name) for name in analysis.needs}
    return {name: rows for name, rows in tables.items() if rows is not None}


def _table(report: ReportTables, name: str) -> pl.DataFrame | None:
    try:
        return report.table(name)
    except MissingTableError:
        return None


def _sums(data: CategoryData, *, absent: str | None) -> dict[str, object]:
    rows, totals = data.operations, data.totals
    efficiency = pl.col(C.pct_roofline)
    rated = rows.select(C.kernel_time_us, C.pct_roofline, C.bound).filter(
        impact.has_efficiency() & (efficiency <= impact.ANOMALY_PCT)
    )
    time_us = float(rows[C.kernel_time_us].sum())
    return {
        "gpu_time_ms": time_us / 1000,
        "percent_of_compute": float(rows[C.percent_of_compute].sum()),
        "percent_of_total": impact.share_pct(time_us / 1000, totals.total_time_ms),
        "efficiency_pct": weighted_efficiency(rated),
        "mean_efficiency_pct": rated[C.pct_roofline].mean(),
        "efficiency_coverage_pct": impact.share_pct(float(rated[C.kernel_time_us].sum()), time_us),
        "row_count": rows.height,
        "invocation_count": int(rows[C.operation_count].sum()),
        "notes": (*_notes(data, rated), *((absent,) if absent else ())),
    }


def _notes(data: CategoryData, rated: pl.DataFrame) -> tuple[Message | str, ...]:
    if data.operations.is_empty():
        return ()
    if data.hardware is None:
        return (NO_HARDWARE,)
    lacks_shapes = pl.col(C.uid).is_in(data.replayed_uids) & pl.col(C.input_dims).is_null()
    replayed = data.operations.filter(lacks_shapes).height
    has_no_model = rated.is_empty() and not data.operations[C.has_perf_model].any()
    if has_no_model and replayed in (0, data.operations.height):
        return (NO_SHAPES if replayed else NO_MODELS,)
    note = pl.when(lacks_shapes).then(pl.lit(NO_SHAPES_OF_ROW)).otherwise(C.roofline_note)
    reasons = (
        data.operations.with_columns(note.alias(C.roofline_note))
        .drop_nulls(C.roofline_note)
        .group_by(C.roofline_note, maintain_order=True)
        .agg(
            pl.col(C.name).unique(maintain_order=True),
            rows=pl.len(),
            time_us=pl.col(C.kernel_time_us).sum(),
            is_known=pl.col(C.pct_roofline).is_not_null().any(),
        )
    )
    return tuple(
        NOTES(
            "note.known" if is_known else "note" if rows == 1 else "note.several",
            rows=rows,
            names=[short_operation_name(name) for name in names],
            time_ms=time_us / 1000,
            note=note if rows == 1 else _OF_SEVERAL.get(note, note),
        )
        for note, names, rows, time_us, is_known in reasons.iter_rows()
    )


def _failed(analysis: Analysis, error: Exception) -> AnalysisResult:
    return AnalysisResult(
        key=analysis.key,
        title=analysis.title,
        tier=analysis.tier,
        status=Status.ERROR,
        error=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
    )


MESSAGES = MessageTable(
    "actions",
    {
        "none.algorithmic": "The trace supports no change to the model here.",
        "none.kernel": "The trace supports no change to the kernels here.",
    },
)

REQUIRED: tuple[TextName, ...] = ("algorithmic", "kernel")
"""Texts that every finding has; one without an action states this."""


def supported(finding: Finding, facts: Facts) -> Finding:
    """Return a finding without the messages, and parts of messages, whose preconditions do not
    hold.

    A finding without an action on a path states this in one sentence.
    """
    subject = subject_of(finding)
    texts: dict[str, tuple[Message, ...]] = {}
    for name in TEXTS:
        before: tuple[Message, ...] = getattr(finding, name)
        after = [without(each, lambda m: not facts.hold(m.needs, subject)) for each in before]
        texts[name] = tuple(message for message in after if message is not None)
        if name in REQUIRED and not to_text(texts[name]):
            texts[name] = (MESSAGES(f"none.{name}"),)
    return finding.model_copy(update=texts)


def is_no_action(text: tuple[Message, ...]) -> bool:
    """Return whether the text only says that there is no action on its path."""
    return any(message.id.startswith(f"{MESSAGES.name}.none.") for message in text)


def subject_of(finding: Finding) -> Subject:
    """Return what the preconditions of a finding's actions are about."""
    uids = tuple(map(attrgetter("uid"), finding.operations)) or finding.shared_uids
    direction = finding.evidence.get("direction")
    return Subject(uids, direction if isinstance(direction, str) else None)
