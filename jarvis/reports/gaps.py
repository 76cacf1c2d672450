"""Limitations of a report, and the questions that follow from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from jarvis import impact
from jarvis.findings import Status
from jarvis.reports.health import health_of
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import counted, milliseconds, quoted
from jarvis.trace_health import Severity

_QUESTIONS = {
    "linked_gpu_time": "What launched the GPU work that has no host call in the trace?",
    "graph_replay": "Can the captures of the GPU graphs be recorded, to see operators and shapes?",
    "no_perf_model": "Which of the operators without a perf model should get one?",
    "operators": "Can the trace be recorded again with CPU activity?",
    "shapes": "Can the trace be recorded again with `record_shapes=True`?",
    "stacks": "Can the trace be recorded again with `with_stack=True`?",
}
"""Questions about a fact of the trace."""

_OF_OPERATIONS = ("shapes", "overlapping_events")
"""Facts that affect statements about operations, but not the timeline."""

NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing data, a question about it and, if known, a remedy; a grave one is a warning to every
    reader.

    ``summary`` is one sentence where ``text`` has several. A gap that ``is_of_operations`` does not
    affect the timeline.
    """

    text: str
    question: str
    is_grave: bool = False
    remedy: str = ""
    summary: str = ""
    is_of_operations: bool = False


def warnings_of(run: Run) -> list[str]:
    """Return what every reader must know before trusting the numbers."""
    return warnings_with(run, [gap for gap in gaps_of(run) if gap.is_grave])


def warnings_with(run: Run, grave: Sequence[Gap]) -> list[str]:
    """Return ``warnings_of`` a run whose grave gaps are known."""
    warning = run.manifest.platform_warning
    texts = [f"{gap.text} {gap.remedy}".strip() for gap in grave]
    return [warning, *texts] if warning else texts


def gaps_of(run: Run) -> list[Gap]:
    """Return all limitations of the trace and of the analysis."""
    return [
        *_of_the_trace(run),
        *_of_the_operations(run),
        *_of_the_models(run),
        *_of_the_extensions(run),
        *_of_the_analyses(run),
    ]


def _of_the_trace(run: Run) -> Iterator[Gap]:
    if run.manifest.hardware is None:
        yield Gap(
            "The hardware is not known, so no operation has an efficiency.",
            "Which GPU was the trace recorded on, and what are its peaks?",
            is_grave=True,
            is_of_operations=True,
        )
    for fact in health_of(run):
        is_grave = fact.severity is Severity.WARNING
        if is_grave or (fact.severity is Severity.NOTE and fact.key in _QUESTIONS):
            yield Gap(
                f"{fact.summary} {fact.affects}".strip(),
                _QUESTIONS.get(fact.key)
                or f"Do the conclusions hold despite this: {fact.summary.rstrip('.')}?",
                is_grave=is_grave,
                remedy=fact.remedy,
                summary=fact.summary,
                is_of_operations=fact.key in _OF_OPERATIONS,
            )


def _of_the_operations(run: Run) -> Iterator[Gap]:
    rows = run.table("operations").filter(pl.col(C.kernel_time_us) > 0)
    if _has(other := rows.filter(pl.col(C.category) == "other")):
        yield Gap(
            f"In no specific category: {_described(other)}.",
            "Do the operators in the category Other belong elsewhere?",
        )
    if _has(anomalies := rows.filter(pl.col(C.pct_roofline) > impact.ANOMALY_PCT)):
        yield Gap(
            f"Above {impact.ANOMALY_PCT:g}% of the roofline, which is implausible: "
            f"{_described(anomalies)}.",
            "Do data in caches, a wrong peak or a wrong perf model explain efficiencies above the "
            "roofline?",
        )
    notes = rows[C.roofline_note].drop_nulls().unique(maintain_order=True).to_list()
    if notes and run.manifest.hardware is not None:
        reasons = "; ".join(note.rstrip(".") for note in notes[:NAMES_SHOWN])
        yield Gap(
            f"Efficiency missing or partial: {reasons}.",
            "Can the missing peaks and arguments be supplied?",
        )


def _of_the_extensions(run: Run) -> Iterator[Gap]:
    """Yield what extensions change, and their failures except those of formulas."""
    reported = {gap.text for gap in _of_the_models(run)}
    for failure in run.manifest.extension_failures:
        if failure not in reported:
            yield Gap(failure, "Can the extension be fixed?", is_grave=True)
    for note in run.manifest.extension_notes:
        yield Gap(note, "Is the extension intended to change this?")


def _of_the_models(run: Run) -> Iterator[Gap]:
    for failure in run.manifest.perf_model_failures:
        yield Gap(
            f"The perf model of {quoted(failure.name)} failed: {failure.reason.rstrip('.')}.",
            f"Why does the perf model of {quoted(failure.name)} not fit its arguments?",
        )


def _of_the_analyses(run: Run) -> Iterator[Gap]:
    for name, reason in run.manifest.load_failures.items():
        yield Gap(
            f"The analysis {quoted(name)} of another package could not be loaded: {reason}",
            f"Is {quoted(name)} made for this version of Jarvis?",
            is_grave=True,
        )
    for result in run.results.values():
        if result.status is Status.ERROR:
            yield Gap(
                f"The analysis {result.title} failed and is omitted.",
                f"What made the analysis {result.title} fail?",
            )


def _has(rows: pl.DataFrame) -> bool:
    return not rows.is_empty()


def _described(rows: pl.DataFrame) -> str:
    """Return ``12 rows with 3.4 ms (`a`, `b` and 2 more)``."""
    names = rows.sort(C.kernel_time_us, C.uid, descending=[True, False])[C.name]
    distinct = names.unique(maintain_order=True).to_list()
    more = len(distinct) - NAMES_SHOWN
    listed = ", ".join(quoted(name) for name in distinct[:NAMES_SHOWN])
    time_ms = float(rows[C.kernel_time_us].sum()) / 1000
    ending = f" and {more} more" if more > 0 else ""
    return f"{counted(rows.height, 'row')} with {milliseconds(time_ms)} ({listed}{ending})"
