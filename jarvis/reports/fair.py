"""``standalone_analysis_fair.md``: the report for stakeholders."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import AnalysisResult, Priority, Status
from jarvis.impact import share_pct
from jarvis.reports import appendix, sections, summary
from jarvis.reports.details import Details, details_of
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.reports.gaps import warnings_of
from jarvis.reports.health import health_line, health_of, health_table
from jarvis.reports.joined_cards import joined
from jarvis.reports.measures import measures_table, no_data, overview
from jarvis.reports.messages import MESSAGES
from jarvis.reports.rendering import has_template, render
from jarvis.reports.replays import replay_sentence, replay_table
from jarvis.reports.reporter import Reporter, run_folder
from jarvis.run import Run
from jarvis.text.format import (
    count,
    counted,
    decimal,
    milliseconds,
    percent,
)
from jarvis.text.markdown import Markdown, cell, prose, table
from jarvis.text.messages import Message, to_text
from jarvis.trace_health import Severity

KERNELS_SHOWN = 4
"""Kernels of each operation in the kernel breakdown."""

INSIDE = RunPaths(Path())
"""The run directory's layout, for paths relative to the report."""

BASIS = (
    "Numbered by priority, and within a priority by saving; findings on operations for which "
    "another one saves more come last. The priority follows from presence in the top operations, "
    "the efficiency gap and the share of compute; on the system level from the grade. Path A may "
    "change the model, path B does not change its code. The details below are in a different "
    "order: the system level first, then kernel fusion, then the categories by their time."
)


class FairReporter(Reporter):
    """The report for stakeholders."""

    name = "fair"
    suffix = ".md"

    def place(self, paths: RunPaths) -> Path:
        return paths.standalone_report(self.name)

    def render(self, run: Run, out: Path) -> None:
        write_output(out, fair_markdown(run, run_folder(run, out)))


@dataclass(frozen=True)
class AnalysisSection:
    """One analysis in the detailed part; ``has_findings`` is also true if all are of low
    priority."""

    key: str
    title: str
    overview: Message | str
    table: Markdown
    has_findings: bool
    details: list[Details]
    notes: tuple[Message, ...] = ()
    left_out: Message | None = None
    rows_file: str = ""
    kernels: Markdown | None = None


def fair_markdown(run: Run, root: Path, edits: Edits = UNEDITED) -> str:
    """Return the report of a run whose directory is ``root``, with the author's edits."""
    return render("fair", **fair_parts(run, root, edits))


def fair_parts(run: Run, root: Path, edits: Edits = UNEDITED) -> dict[str, Any]:
    """Return the content of the report, by the names of its templates; texts are Markdown or
    plain."""
    details, left_out = edits.partition(details_of(run))
    hardware = run.manifest.hardware
    cards = [d for d in details if d.finding.priority is not Priority.LOW]
    low = [d for d in details if d.finding.priority is Priority.LOW]
    health = health_of(run)
    notes = [fact for fact in health if fact.severity is Severity.NOTE]
    return {
        "model": sections.model_name(run),
        "platform": sections.platform_name(run),
        "summary": edits.summary or prose(summary.paragraph(run, details, is_whole=not left_out)),
        "author_note": _author_note(edits, left_out),
        "metrics": list(summary.metrics(run)),
        "top_operations": summary.top_operations(run),
        "warnings": warnings_of(run),
        "unsteady": [d for d in details if d.finding.check == "high_variance"],
        "failures": [r for r in run.results.values() if r.status is Status.ERROR],
        "basis": BASIS,
        "cards": joined(cards),
        "low_icon": Priority.LOW.icon,
        "low_priority": _short_table(low) if low else None,
        "left_out": _short_table(left_out) if left_out else None,
        "sections": [
            *(_across(result, cards) for result in sections.cross_results(run)),
            *(_category(run, result, cards) for result in sections.compute_results(run)),
        ],
        "absent": _absent(run),
        "hardware": sections.preset_name(hardware) if hardware else sections.hardware_line(None),
        "peaks": appendix.peaks(hardware) if hardware else None,
        "health_line": health_line(health),
        "health": health_table(notes) if notes else None,
        "replay": replay_sentence(root),
        "replay_table": replay_table(root),
        "methodology": appendix.methodology(hardware, run.target_pct),
    }


def _absent(run: Run) -> list[str]:
    """Return the analyses without data: the categories in one sentence, each other one with a
    reason."""
    without = [r for r in run.results.values() if r.status is Status.NO_DATA]
    categories = [r.title for r in without if r.tier == "compute" and r.error is None]
    reasons = [
        f"{r.title}: {r.error}" if r.error else no_data(r)
        for r in without
        if r.tier != "compute" or r.error
    ]
    named = [f"Categories without operations: {', '.join(categories)}."] if categories else []
    return [*named, *reasons]


def _author_note(edits: Edits, left_out: list[Details]) -> str | None:
    """Return a note on the author's changes; None without any."""
    rewritten = "The author of this report wrote the summary." if edits.summary else ""
    listed = (
        f"The author left out {counted(len(left_out), 'finding')}; the appendix lists "
        f"{'it' if len(left_out) == 1 else 'them'}."
        if left_out
        else ""
    )
    return " ".join(filter(None, (rewritten, listed))) or None


def _short_table(details: list[Details]) -> Markdown:
    return table(
        ("", "Finding", "Category", "Saving"),
        (
            (
                d.recommendation.label,
                d.recommendation.title,
                d.recommendation.result.title,
                to_text(d.short_saving),
            )
            for d in details
        ),
    )


def _category(run: Run, result: AnalysisResult, cards: list[Details]) -> AnalysisSection:
    rows = run.category_operations(result.key)
    shown = sections.shown_rows(rows)
    return AnalysisSection(
        key=result.key,
        title=to_text(MESSAGES("title", title=result.title, compute_pct=result.percent_of_compute)),
        overview=overview(result),
        table=sections.numbered_operations_table(shown),
        has_findings=bool(result.findings),
        details=[d for d in cards if d.finding.category == result.key],
        notes=result.notes,
        left_out=sections.left_out(rows, shown.height),
        rows_file=str(INSIDE.operations_csv(result.key)),
        kernels=_kernels(shown),
    )


def _across(result: AnalysisResult, cards: list[Details]) -> AnalysisSection:
    template = f"_{result.key}_table"
    return AnalysisSection(
        key=result.key,
        title=f"{result.title} ({sections.SCOPES[result.tier]})",
        overview=f"Full findings: `{INSIDE.findings(result.key, result.tier)}`.",
        table=Markdown(render(template, result=result))
        if has_template(template)
        else measures_table(result.metrics),
        has_findings=bool(result.findings),
        details=[d for d in cards if d.finding.category == result.key],
        notes=result.notes,
    )


def _kernels(rows: pl.DataFrame) -> Markdown | None:
    """Return the GPU kernels of each operation of the table above, most time first; a kernel
    without an operator is its own entry."""
    lines = []
    for number, row in enumerate(rows.head(sections.RELEVANT_ROWS).iter_rows(named=True), start=1):
        if sections.kernel_without_operator(row["name"]):
            continue
        calls = max(row["operation_count"], 1)
        lines += [
            (
                count(number),
                cell(kernel["name"], sections.KERNEL_LENGTH),
                _per_call(kernel["count"], calls),
                milliseconds(kernel["mean_us"] / 1000),
                percent(share_pct(kernel["total_us"], row["kernel_time_us"])),
            )
            for kernel in (row["kernels"] or [])[:KERNELS_SHOWN]
        ]
    headers = ("#", "Kernel", "Launches per call", "Mean", "% of the operation")
    return table(headers, lines) if lines else None


def _per_call(launches: int, calls: int) -> str:
    whole, rest = divmod(launches, calls)
    return decimal(launches / calls) if rest else count(whole)


REPORTER = FairReporter()
