"""``<key>_findings.md`` of every analysis, in the folder of its tier."""

from collections.abc import Mapping
from pathlib import Path

from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import AnalysisResult, Status, Tier
from jarvis.reports import sections
from jarvis.reports.agent_layout.cards import NO_HYPOTHESIS, cards_of
from jarvis.reports.details import Details, details_of
from jarvis.reports.measures import additional_notes, measures_table, no_data, whole_overview
from jarvis.reports.rendering import render
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.run.agent_layout.recommended import Recommended

TIER_TITLES: Mapping[Tier, str] = {
    "compute": "Compute Kernels",
    "fusion": "Kernel Fusion",
    "system": "System-Level",
}


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
    return render(
        "findings_compute",
        overview=whole_overview(result),
        operations_table=sections.operations_table(rows.head(sections.ROWS_SHOWN)),
        left_out=sections.left_out(rows, sections.ROWS_SHOWN),
        notes=additional_notes(result),
        **facts,
    )


REPORTER = FindingsReporter()
