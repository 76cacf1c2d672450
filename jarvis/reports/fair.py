"""``standalone_analysis_fair.md``: the report for stakeholders."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from jarvis.analyses import unmodelled
from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import AnalysisResult, Priority, Status
from jarvis.impact import marked_efficiency, share_pct
from jarvis.perf_report import Totals
from jarvis.perf_report.populations import MIN_RATIO
from jarvis.reports import appendix, sections, summary
from jarvis.reports.account import account_parts
from jarvis.reports.details import Details, details_of, joined_labels
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.reports.gaps import warnings_of
from jarvis.reports.health import health_line, health_of, health_table
from jarvis.reports.measures import measures_table, no_data, overview
from jarvis.reports.messages import MESSAGES
from jarvis.reports.rendering import has_template, render
from jarvis.reports.reporter import Reporter, run_folder
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import (
    count,
    counted,
    decimal,
    milliseconds,
    percent,
)
from jarvis.text.markdown import Markdown, cell, prose, table
from jarvis.text.messages import Message, Text, to_text
from jarvis.trace_health import Severity

NOT_BUILT = "No replay packages were built with this analysis."


def replay_sentence(root: Path) -> str:
    """Return whether there are packages, and by which rule."""
    index = _index(root)
    if index is None:
        return NOT_BUILT
    if not index["operations"]:
        return f"None: a package is built for each operation that takes {index['rule']}."
    return (
        "Replay artifacts are recommended for the kernel team to investigate and optimize. There "
        f"is one for each operation that takes {index['rule']}."
    )


def replay_table(root: Path) -> Markdown | None:
    """Return operation, share, efficiency and package, or the reason why there is none."""
    index = _index(root)
    if not index or not index["operations"]:
        return None
    return table(
        ("Operation", "% of Compute", "Efficiency", "Distinct calls", "Package"),
        (
            (
                cell(package["op_name"]),
                percent(package["percent_of_compute"]),
                marked_efficiency(package["efficiency_pct"]),
                count(package["entries"]),
                _package(package),
            )
            for package in index["operations"]
        ),
    )


def _package(package: dict[str, Any]) -> Markdown:
    if package["package"] is None:
        return prose(f"none: {package['reason']}")
    folder = RunPaths(Path()).replay_packages
    return cell(str(folder / package["package"]))


def _index(root: Path) -> dict[str, Any] | None:
    """Return the index of the packages; None if none were built."""
    path = RunPaths(root).replay_index
    return orjson.loads(path.read_bytes()) if path.is_file() else None


@dataclass(frozen=True)
class FairCard:
    """One recommendation, or several with the same reason and remedy; the first represents all."""

    parts: tuple[Details, ...]

    @property
    def first(self) -> Details:
        """Return the most urgent part, whose advice and saving are printed."""
        return self.parts[0]

    @property
    def label(self) -> str:
        """Return ``P2``, or ``P2, P3 and P4``."""
        return joined_labels([part.recommendation.label for part in self.parts])

    @property
    def _reason(self) -> str | None:
        """Return why several parts have no efficiency; None for a single part."""
        return unmodelled.shared_reason(self.first.finding) if len(self.parts) > 1 else None

    @property
    def title(self) -> Markdown:
        """Return the title of the only part, or the common title."""
        if self._reason is None:
            return self.first.recommendation.title
        return prose(to_text(unmodelled.shared_title(self._reason)))

    @property
    def operation(self) -> Markdown:
        """Return the operations of the only part, or those of all parts together."""
        references = (reference for part in self.parts for reference in part.finding.operations)
        return self.first.operation if len(self.parts) == 1 else sections.operation_line(references)

    @property
    def issue(self) -> Message | Text:
        """Return the issue of the only part, or the categories without efficiency for one
        reason."""
        if self._reason is None:
            return self.first.finding.issue
        *most, last = (
            MESSAGES("joined.part", title=part.recommendation.result.title, time=part.time)
            for part in self.parts
        )
        because = unmodelled.MESSAGES(f"{self._reason}.because")
        return MESSAGES("joined", because=because, parts=most, last=last)

    @property
    def links(self) -> Markdown:
        """Return links to the details of each part."""
        titles = [part.recommendation.result.title for part in self.parts]
        titles[0] = f"Detailed Analysis: {titles[0]}"
        links = (part.recommendation.link for part in self.parts)
        return Markdown(
            ", ".join(f"[{title}]({link})" for title, link in zip(titles, links, strict=True))
        )


def joined(details: Iterable[Details]) -> list[FairCard]:
    """Return the cards in order; a merged card takes the position of its first part."""
    parts: dict[object, list[Details]] = {}
    for place, detail in enumerate(details):
        parts.setdefault(_reason(detail) or place, []).append(detail)
    return [FairCard(tuple(found)) for found in parts.values()]


def _reason(detail: Details) -> tuple[Priority, str] | None:
    """Return why kernels without operators have no efficiency; None for all other findings."""
    finding = detail.finding
    reason = unmodelled.shared_reason(finding)
    names = (reference.name for reference in finding.operations)
    if reason is None or not all(map(sections.kernel_without_operator, names)):
        return None
    return finding.priority, reason


KERNELS_SHOWN = 4
"""Kernels of each operation in the kernel breakdown."""

INSIDE = RunPaths(Path())
"""The run directory's layout, for paths relative to the report."""

BASIS = (
    "{order} The priority follows from presence in the top operations, the efficiency gap and the "
    "share of compute, on the system level from the grade{bounds}. Path A may change the model, "
    "path B does not change its code. The details below are in a different order: the system level "
    "first, then kernel fusion, then the categories by their time."
)
ORDER = (
    "Numbered by the step time that they save. It is not simulated: it is the saving of GPU time, "
    "scaled into what bounds the step, the time in which the host waits for the GPU.",
    "; the share of the step that is saved limits or raises it",
)
ORDER_WITHOUT_STEPS = (
    "Numbered by the GPU time that they save, which the step need not gain: the input has no "
    "events, so the step time is not known.",
    "",
)
FORMER_ORDER = (
    "Numbered by priority, and within a priority by saving; findings on operations for which "
    "another one saves more come last.",
    "",
)


def _basis(totals: Totals) -> str:
    """Return how findings are numbered, and what their priority is."""
    order = FORMER_ORDER
    if totals.step is not None:
        order = ORDER_WITHOUT_STEPS if totals.step.step_ms is None else ORDER
    return BASIS.format(order=order[0], bounds=order[1])


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
        "basis": _basis(run.manifest.totals),
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
        **account_parts(run),
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
        if sections.kernel_without_operator(row[C.name]):
            continue
        calls = max(row[C.operation_count], 1)
        lines += [
            (
                count(number),
                cell(kernel[C.name], sections.KERNEL_LENGTH),
                _per_call(kernel[C.count], calls),
                _time_of_launch(kernel, has_groups=bool(row.get(C.populations))),
                percent(share_pct(kernel[C.total_us], row[C.kernel_time_us])),
            )
            for kernel in (row[C.kernels] or [])[:KERNELS_SHOWN]
        ]
    headers = ("#", "Kernel", "Launches per call", "Mean (or range)", "% of the operation")
    return table(headers, lines) if lines else None


def _time_of_launch(kernel: Mapping[str, Any], *, has_groups: bool) -> str:
    """Return the mean time of a launch; the range if the calls of the operation fall into groups
    that this mean mixes."""
    if has_groups and kernel[C.max_us] >= MIN_RATIO * kernel[C.min_us]:
        return f"{milliseconds(kernel[C.min_us] / 1000)} to {milliseconds(kernel[C.max_us] / 1000)}"
    return milliseconds(kernel[C.mean_us] / 1000)


def _per_call(launches: int, calls: int) -> str:
    whole, rest = divmod(launches, calls)
    return decimal(launches / calls) if rest else count(whole)


REPORTER = FairReporter()
