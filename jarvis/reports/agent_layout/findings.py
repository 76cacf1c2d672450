"""``<key>_findings.md`` of every analysis, in the folder of its tier."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import AnalysisResult, Status, Tier
from jarvis.impact import share_pct
from jarvis.perf_report.populations import MIN_RATIO
from jarvis.reports import sections
from jarvis.reports.agent_layout.cards import NO_HYPOTHESIS, cards_of
from jarvis.reports.details import Details, details_of
from jarvis.reports.measures import additional_notes, measures_table, no_data, whole_overview
from jarvis.reports.rendering import render
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.run.agent_layout.priorities import Recommended
from jarvis.schemas.names import C
from jarvis.text.format import count, decimal, milliseconds, percent
from jarvis.text.markdown import Markdown, cell, table
from jarvis.text.short_names import kernel_without_operator

TIER_TITLES: Mapping[Tier, str] = {
    "compute": "Compute Kernels",
    "fusion": "Kernel Fusion",
    "system": "System-Level",
}

OPERATIONS_SHOWN, KERNELS_SHOWN = 6, 4
"""Operations in the table of kernels, and kernels of each."""


class FindingsReporter(Reporter):
    """``category_findings`` and ``system_findings`` in the folder ``out``."""

    name = "findings"
    suffix = ""

    def place(self, paths: RunPaths) -> Path:
        return paths.root

    def render(self, run: Run, out: Path) -> None:
        details, chosen = details_of(run), Recommended(run)
        for key, result in run.results.items():
            path = RunPaths(out).findings(key, result.tier)
            path.parent.mkdir(parents=True, exist_ok=True)
            mine = [d for d in details if d.finding.category == key]
            write_output(path, findings_markdown(chosen, result, mine))


def findings_markdown(chosen: Recommended, result: AnalysisResult, details: list[Details]) -> str:
    """The findings of one analysis; ``details`` are its own."""
    run = chosen.run
    facts = {
        "result": result,
        "details": details,
        "tier_title": TIER_TITLES[result.tier],
        "hardware_line": sections.hardware_line(run.manifest.hardware),
        "trace_line": sections.trace_line(run),
        "cards": cards_of(chosen, details),
        "no_hypothesis": NO_HYPOTHESIS,
    }
    if result.status is Status.ERROR:
        return render("findings_error", **facts)
    if result.status is Status.NO_DATA:
        return render("findings_without_data", reason=no_data(result), **facts)
    if result.tier != "compute":
        return render(
            "findings_system",
            summary_template=f"_{result.key}_summary.md.j2",
            technical_template=f"_{result.key}_technical.md.j2",
            measures=measures_table(result.metrics),
            **facts,
        )
    rows = run.category_operations(result.key)
    shown = rows.head(sections.ROWS_SHOWN)
    return render(
        "findings_compute",
        overview=whole_overview(result),
        operations_table=sections.operations_table(shown),
        kernels=kernels_table(shown),
        left_out=sections.left_out(rows, sections.ROWS_SHOWN),
        notes=additional_notes(result),
        **facts,
    )


def kernels_table(rows: pl.DataFrame) -> Markdown | None:
    """Return the GPU kernels of the first operations, most time first; a kernel without an operator
    is its own row of operations."""
    lines = []
    for number, row in enumerate(rows.head(OPERATIONS_SHOWN).iter_rows(named=True), start=1):
        if kernel_without_operator(row[C.name]):
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


REPORTER = FindingsReporter()
