"""``analysis.md``: the report in the layout of TraceLens's agent, for the tools that read it.

Headings, markers and anchors are part of that layout. Each tier has its own numbers, in the order
of the run.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import Status, Tier
from jarvis.impact import GAP_PARTS
from jarvis.reports import sections
from jarvis.reports.agent_layout.cards import FindingCard, cards_of
from jarvis.reports.agent_layout.findings import TIER_TITLES
from jarvis.reports.details import Details, details_of
from jarvis.reports.gaps import warnings_of
from jarvis.reports.rendering import render
from jarvis.reports.reporter import Reporter
from jarvis.reports.summary import paragraph
from jarvis.run import Run
from jarvis.run.agent_layout.metrics import MISSING, operation_entry, unsteady_uids
from jarvis.run.agent_layout.model_info import UNKNOWN, model_info
from jarvis.run.agent_layout.priorities import Recommended, priority_data
from jarvis.savings import time_sources
from jarvis.schemas.names import C
from jarvis.text.format import NOT_AVAILABLE, listed, milliseconds
from jarvis.text.markdown import Markdown, cell, table

NO_MODEL = "Workload"
"""The title's model if neither the user nor the trace names one."""

NO_FUSION_ESTIMATE = "No fusion impact estimates available."

MIN_LEFT_OUT_PCT = 1.0
"""Minimum time of a category that its share leaves out, in percent of compute, to be named."""


class AnalysisReporter(Reporter):
    """The report in the layout of TraceLens's agent."""

    name = "analysis"
    suffix = ".md"

    def place(self, paths: RunPaths) -> Path:
        return paths.analysis_report

    def render(self, run: Run, out: Path) -> None:
        write_output(out, analysis_markdown(run, out.parent))


def analysis_markdown(run: Run, root: Path) -> str:
    """Return the report of a run whose directory is ``root``."""
    chosen = Recommended(run)
    data, model = priority_data(chosen), model_info(run.table("operations"))
    details = details_of(run)
    compute, fusion, system = (
        _of_tier(chosen, details, tier) for tier in ("compute", "fusion", "system")
    )
    plot = RunPaths(root).perf_plot
    return render(
        "analysis",
        model=_title(run, model),
        platform=run.manifest.hardware.name if run.manifest.hardware else sections.NO_PLATFORM,
        summary=paragraph(run, details),
        metrics=list(_metrics(run)),
        basis=_basis(run),
        plot=plot.name if plot.is_file() else None,
        warnings=warnings_of(run),
        failures=[r for r in run.results.values() if r.status is Status.ERROR],
        tier_titles=TIER_TITLES,
        unsteady=_unsteady(run),
        parts=[f"{100 * part:g}" for part in GAP_PARTS],
        top_operations=_top_operations(run, data["priorities"]),
        not_compute=_not_compute(run),
        compute=compute,
        fused=_fused(compute, fusion),
        fusion=fusion,
        system=system,
        low_priority=_low_priority(run),
        activity=f"{_activity(run)}.",
        details=(
            ("Compute Kernel Insights", compute, "No compute kernel finding to detail."),
            ("Kernel Fusion Insights", fusion, NO_FUSION_ESTIMATE),
            ("System-Level Insights", system, "No system-level finding to detail."),
        ),
        model_facts=[(name.capitalize(), value) for name, value in model.items()],
        hardware_facts=list(_hardware(run)),
    )


def _of_tier(chosen: Recommended, details: list[Details], tier: Tier) -> list[FindingCard]:
    """Return the cards of a tier, numbered from 1, with the plain label of its section."""
    own = [d for d in details if d.recommendation.result.tier == tier]
    return [
        replace(card, number=number, prefix="", category=card.finding.category)
        for number, card in enumerate(cards_of(chosen, own), start=1)
    ]


def _fused(compute: list[FindingCard], fusion: list[FindingCard]) -> dict[int, str]:
    """Return the fusion cards that would save time of a compute card, by its number."""
    covering: dict[int, str] = {}
    for card in compute:
        sources = time_sources(card.finding)
        labels = [f"P{f.number}" for f in fusion if sources & time_sources(f.finding)]
        if labels:
            covering[card.number] = " and ".join(labels)
    return covering


def _title(run: Run, model: dict[str, str]) -> str:
    named = run.manifest.model_name or model["model"]
    return NO_MODEL if named == UNKNOWN else named


def _activity(run: Run) -> str:
    totals = run.manifest.totals
    return (
        f"The GPU computes for {_pct(totals.compute_pct)} of the timeline of "
        f"{totals.total_time_ms:.2f} ms and idles for {_pct(totals.idle_pct)}; exposed "
        f"communication takes {_pct(totals.exposed_comm_pct)}, exposed copies "
        f"{_pct(totals.exposed_memcpy_pct)}"
    )


def _metrics(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the five rows that tools look for; numbers without separators."""
    totals = run.manifest.totals
    yield "Total Time", f"{totals.total_time_ms:.2f} ms"
    yield "Compute %", _pct(totals.compute_pct)
    yield "Idle %", _pct(totals.idle_pct)
    yield "Exposed Communication %", _pct(totals.exposed_comm_pct)
    top = next(iter(sections.compute_results(run)), None)
    yield (
        "Top Bottleneck Category",
        f"{top.title} ({_pct(top.percent_of_compute)})" if top else NOT_AVAILABLE,
    )


def _basis(run: Run) -> str:
    """Return what the metrics are about, as sentences."""
    totals = run.manifest.totals
    text = (
        "Time and shares are those of the GPU window, from the first start to the last end of GPU "
        "work that host calls of the trace launch, not of the step; the share of the top category "
        "is one of compute time."
    )
    if totals.exposed_comm_time_ms > totals.compute_time_ms:
        text += " Exposed communication takes longer than all compute."
    return text


def _not_compute(run: Run) -> str | None:
    """Return the time of categories that their share of compute leaves out; None if there is
    none."""
    whole_ms = run.manifest.totals.compute_time_ms
    rest_ms = {
        result.title: result.gpu_time_ms - (result.percent_of_compute or 0.0) / 100 * whole_ms
        for result in sections.compute_results(run)
    }
    parts = [
        f"{milliseconds(time_ms)} of {title}"
        for title, time_ms in rest_ms.items()
        if time_ms >= MIN_LEFT_OUT_PCT / 100 * whole_ms
    ]
    if not parts:
        return None
    return (
        "Shares of compute time leave out copies and communication, and count kernels that run at "
        f"the same time once: {listed(parts, len(parts))} is in no share."
    )


def _pct(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:.2f}%"


def _top_operations(run: Run, priorities: list[dict[str, Any]]) -> Markdown:
    """Return categories by time; the comment at the end of a row holds its scores."""

    def row(entry: dict[str, Any]) -> tuple[str, ...]:
        result = run.results[entry["category"]]
        low, high = (_score(entry[f"impact_score_{end}"]) for end in ("low", "high"))
        marker = f"<!-- top-ops-row low={low} high={high} -->"
        return (
            str(entry["rank"]),
            result.title,
            f"{result.gpu_time_ms:.3f}",
            _pct(result.percent_of_compute),
            Markdown(f"{result.row_count} {marker}"),
        )

    columns = ("Rank", "Category", "Time (ms)", "% of Compute Time", "Ops")
    return table(columns, map(row, priorities))


def _score(value: float | None) -> str:
    return "null" if value is None else f"{value:.2f}"


def _unsteady(run: Run) -> Markdown | None:
    rows = []
    for result in sections.compute_results(run):
        uids = unsteady_uids(result)
        for row in run.category_operations(result.key).iter_rows(named=True):
            if row[C.uid] in uids:
                entry: dict[str, Any] = operation_entry(row)
                times = (f"{entry['cov']:.2f}", f"{entry['time_ms']:.3f}")
                rows.append((cell(row[C.name]), result.title, *times))
    columns = ("Operation", "Category", "CoV", "Reported Time (ms)")
    return table(columns, rows) if rows else None


def _low_priority(run: Run) -> str:
    has_low = any(r.findings for r in run.results.values() if r.tier == "compute")
    return (
        "All findings have low priority; see the findings files of their categories."
        if has_low
        else "No check of any category found a problem."
    )


def _hardware(run: Run) -> Iterator[tuple[str, str]]:
    hardware = run.manifest.hardware
    if hardware is None:
        yield "Platform", sections.NO_PLATFORM
        return
    yield "Platform", hardware.title
    yield "Peak HBM BW", f"{hardware.tb_per_s:g} TB/s"
    for compute, peak in hardware.max_achievable_tflops.items():
        unit, _, precision = compute.partition("_")
        name = precision.upper() if unit == "matrix" else f"{unit} {precision.upper()}"
        yield f"Peak MAF ({name})", f"{peak:g} TFLOPS"
    yield "Memory", f"{hardware.memory_gb:g} GB" if hardware.memory_gb else MISSING


REPORTER = AnalysisReporter()
