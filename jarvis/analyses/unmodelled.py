"""Time without an efficiency: operators without a perf model, kernels replayed from GPU graphs."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import choose, values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.call_times import products
from jarvis.analyses.operations import MIN_COMPUTE_PCT, PATTERN, OperationGroup
from jarvis.findings import EvidenceValue, Finding, Priority
from jarvis.perf_report.unified import LAUNCHED
from jarvis.preconditions import GRAPH_LAUNCH
from jarvis.schemas.names import C
from jarvis.text.format import quoted
from jarvis.text.messages import Message, MessageTable, Templates, action

KERNELS_SHOWN = 5

NOT_MODELLED_REASON = "not_modeled_reason"
"""The evidence that states why no perf model covers the time."""

NO_PERF_MODEL = "no perf model"
"""The pattern of a category's own advice on operators without a perf model."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One reason why efficiency is unknown; the texts are templates with values of the heaviest
    operator.

    ``subject`` describes the operators after a category's title if they have no names and the
    kernels' names replace them.
    """

    key: str
    subject: str
    because: str
    algorithmic: str
    kernel: str
    verify: str
    capture: Templates


REPLAYED = _Kind(
    "replayed",
    "replayed from a GPU graph",
    "The kernels are replayed from a GPU graph, which records no operators and no shapes",
    "First find the operators of these kernels, in a trace of one step without GPU graphs.",
    "Until then identify the kernels by name: {launches} of {kernel} take {mean_time_ms} each; "
    "compare that between versions, and profile it with the platform's hardware-counter profiler.",
    "In a trace without graph replay, {kernel} must have an operator, a shape and an efficiency.",
    "Record one step with GPU graphs disabled and `record_shapes=True`: it shows the operators "
    "and shapes of {kernel}, and what calls it.",
)
COMMUNICATION = _Kind(
    "communication",
    "that is communication",
    "Communication has no roofline",
    "See the findings on communication for {name}; one rank shows the kinds, sizes and times of "
    "collectives, but not which rank waits.",
    "Check topology and settings of the collective library for {arguments}; the {mean_time_ms} "
    "per call include both transfer and waiting.",
    "With traces of all ranks, the {calls} of {name} must split into transfer and waiting.",
    "Record every rank of the same steps and analyze them together.",
)
WITHOUT_ARGUMENTS = _Kind(
    "without arguments",
    "without operators or shapes",
    "The trace records no operator or no shapes for these kernels",
    "First find out what launches {kernel}: {launches} take {mean_time_ms} each.",
    "Until then identify the kernels by name, and profile {kernel} with the platform's "
    "hardware-counter profiler.",
    "In a trace with operators and shapes, {kernel} must have an efficiency.",
    [
        action(
            "Record with CPU activity: the trace then shows the operators of {kernel}, and what "
            "calls them.",
            "not has_operators",
        ),
        action(
            "Record with `record_shapes=True`: the trace then shows the shapes of {kernel}.",
            "has_operators",
            "not has_shapes",
        ),
    ],
)
OPERATORS = _Kind(
    "operators",
    "without a perf model",
    "No perf model covers them",
    "Check what calls {name}{place} and whether a fused or library operator does the same "
    "work{on_arguments}.",
    "Add a perf model for {name}, or give {package} to the kernel team to measure {kernel} "
    "against the hardware.",
    "With a perf model for {name} registered, analyze the same trace again: its rows must then "
    "have an efficiency.",
    "Profile {kernel} with the platform's hardware-counter profiler{on_package}: a perf model "
    "needs its bytes and FLOPs.",
)


_KINDS = (REPLAYED, COMMUNICATION, WITHOUT_ARGUMENTS, OPERATORS)

MESSAGES = MessageTable(
    "no_perf_model",
    {
        **{
            f"{kind.key}.{field.name}": getattr(kind, field.name)
            for kind in _KINDS
            for field in fields(kind)
            if field.name != "key"
        },
        "title": "No perf model: {subject}",
        "title.of_category": "{category} {what}",
        "title.of_kernels": "kernels {what}",
        "title.of_operators": "{names:names 1}",
        "issue": "{because}, so the efficiency of {names:names} ({time_ms} in {launches}, "
        "{compute_pct} of compute) is not known.",
        "caveat": "No saving can be estimated without FLOPs and bytes.",
        "on_arguments": " on {arguments}",
        "note": "{rows:count row} ({time_ms}): {note}",
        "evidence.names": "{names:names}",
        "evidence.kernel": "{launches:,} x {mean_ms} of {name}",
        "evidence.kernel_groups": "{times} of {name}",
        "evidence.kernels": "{kernels:joined ; }",
        "evidence.because": "{because}.",
    },
)


def no_perf_model(data: CategoryData) -> Iterator[Finding]:
    """Time without an efficiency because no perf model covers it.

    Symptom: operators without known FLOPs and bytes take a good part of the category.
    Rule: the rows that lack a perf model for one reason (replayed from a GPU graph, communication,
    no recorded arguments, no model) together pass the time test of ``low_efficiency``.
    Threshold: {impact.BOTTLENECK_TIME_MS} ms or {impact.BOTTLENECK_CATEGORY_PCT}% of category time;
    at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = data.operations.filter(
        ~pl.col(C.has_perf_model)
        & ~pl.col(C.uid).is_in(data.explained_uids)
        & (pl.col(C.kernel_time_us) > 0)
    )
    if rows.is_empty():
        return
    is_communication = (pl.col(C.comm_time_us) > pl.col(C.kernel_time_us) / 2) | (
        pl.col(PATTERN) == COMMUNICATION.key
    )
    reason = (
        pl.when(pl.col(C.name).str.contains(GRAPH_LAUNCH))
        .then(pl.lit(REPLAYED.key))
        .when(is_communication)
        .then(pl.lit(COMMUNICATION.key))
        .when(pl.col(C.input_dims).is_null())
        .then(pl.lit(WITHOUT_ARGUMENTS.key))
        .otherwise(pl.lit(OPERATORS.key))
    )
    ordered = rows.sort(C.kernel_time_us, C.uid, descending=[True, False])
    for kind in _KINDS:
        unmodelled = ordered.filter(reason == kind.key)
        if unmodelled.height:
            yield from _finding(data, OperationGroup(unmodelled), kind)


def _finding(data: CategoryData, group: OperationGroup, kind: _Kind) -> Iterator[Finding]:
    is_relevant = impact.is_time_relevant(group.time_ms, group.category_pct)
    if not is_relevant or group.compute_pct < MIN_COMPUTE_PCT:
        return
    is_nameless = group.rows[C.name].str.contains(LAUNCHED, literal=True).all()
    names = _names(group, C.main_kernel if is_nameless else C.name)
    is_large = group.compute_pct > impact.MEDIUM_COMPUTE_PCT
    priority = Priority.MEDIUM if is_large else Priority.LOW
    yield Finding(
        check="no_perf_model",
        category=data.key,
        title=MESSAGES(
            "title",
            subject=MESSAGES(
                "title.of_category", category=data.title, what=MESSAGES(f"{kind.key}.subject")
            )
            if is_nameless
            else MESSAGES("title.of_operators", names=names),
        ),
        operations=group.operations,
        evidence=_evidence(group, names, kind),
        issue=MESSAGES(
            "issue",
            because=MESSAGES(f"{kind.key}.because"),
            time_ms=group.time_ms,
            compute_pct=group.compute_pct,
            names=names,
            launches=group.launches,
        ),
        priority_local=priority,
        priority=priority,
        caveat=MESSAGES("caveat"),
        **_advice(data, group, kind),
    )


def _names(group: OperationGroup, column: str) -> list[str]:
    """Return operators or kernels without duplicates, most time first."""
    filled = group.rows.with_columns(pl.col(column).fill_null(pl.col(C.name)))
    times = filled.group_by(column, maintain_order=True).agg(pl.col(C.kernel_time_us).sum())
    names: list[str] = times.sort(C.kernel_time_us, descending=True)[column].to_list()
    return names


def _advice(data: CategoryData, group: OperationGroup, kind: _Kind) -> dict[str, Any]:
    """Return both paths, verification and capture advice, preferring the category's own."""
    chosen = choose(data, group.pattern or NO_PERF_MODEL) if kind is OPERATORS else None
    values = _values(group)
    return {
        field: (chosen and chosen.message(field, values))
        or MESSAGES.texts(f"{kind.key}.{field}", **values)
        for field in ("algorithmic", "kernel", "verify", "capture")
    }


def _longest(group: OperationGroup) -> Message:
    """Return ``36 x 67.2 µs of `kernel` `` for the rows with most time."""
    kernels = [
        MESSAGES(
            "evidence.kernel_groups",
            times=products(row),
            # Groups with kernels of their own have only the operator in common.
            name=row[C.name] if any(g[C.kernel] for g in row[C.populations]) else kernel,
        )
        if row[C.populations]
        else MESSAGES(
            "evidence.kernel",
            launches=row[C.operation_count],
            mean_ms=row[C.kernel_time_us_mean] / 1000,
            name=kernel,
        )
        for row in group.rows.head(KERNELS_SHOWN).iter_rows(named=True)
        for kernel in [row[C.main_kernel] or row[C.name]]
    ]
    return MESSAGES("evidence.kernels", kernels=kernels)


def _values(group: OperationGroup) -> dict[str, Any]:
    """Return the values of the heaviest row that the texts use."""
    first = OperationGroup(group.rows.head(1))
    arguments = first.heaviest["arguments"]
    on_arguments = MESSAGES("on_arguments", arguments=arguments) if arguments else None
    return values_of(first) | {"launches": first.launches, "on_arguments": on_arguments}


def _evidence(group: OperationGroup, names: list[str], kind: _Kind) -> dict[str, EvidenceValue]:
    heaviest = group.heaviest
    because = MESSAGES("evidence.because", because=MESSAGES(f"{kind.key}.because"))
    evidence: dict[str, EvidenceValue | None] = {
        "gpu_time_ms": group.time_ms,
        "category_pct": group.category_pct,
        "compute_pct": group.compute_pct,
        "operators_or_kernels": MESSAGES("evidence.names", names=names),
        "launches": group.launches,
        "longest_kernels": _longest(group),
        NOT_MODELLED_REASON: heaviest[C.roofline_note] if kind is OPERATORS else because,
        "library": quoted(heaviest["library"]) if heaviest["library"] else None,
        "tile": heaviest.get("tile"),
    }
    return {label: value for label, value in evidence.items() if value is not None}


def shared_reason(finding: Finding) -> str | None:
    """Return the key of the reason why kernels without operators have no efficiency, which findings
    of several categories may share; None for other findings."""
    reasons = {f"{MESSAGES.name}.{kind.key}.because": kind.key for kind in _KINDS}
    because = finding.issue[0].values.get("because") if finding.issue else None
    return reasons.get(because.id) if isinstance(because, Message) else None


def shared_title(reason: str) -> Message:
    """Return the title of the findings of several categories with this reason."""
    subject = MESSAGES("title.of_kernels", what=MESSAGES(f"{reason}.subject"))
    return MESSAGES("title", subject=subject)
