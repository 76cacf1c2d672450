"""``<key>_findings.md`` of every analysis, in the folder of its tier."""

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import AnalysisResult, Status, Tier
from jarvis.reports import sections
from jarvis.reports.cards import NO_HYPOTHESIS, cards_of
from jarvis.reports.details import Details, details_of
from jarvis.reports.messages import MESSAGES
from jarvis.reports.rendering import render
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.run.recommended import Recommended
from jarvis.text.markdown import Markdown, table
from jarvis.text.messages import Message, to_text

TIER_TITLES: Mapping[Tier, str] = {
    "compute": "Compute Kernels",
    "fusion": "Kernel Fusion",
    "system": "System-Level",
}

UNITS = {
    "_percent": "%",
    "_pct": "%",
    "_ms": "ms",
    "_us": "µs",
    "_tbs": "TB/s",
    "_tflops": "TFLOPS/s",
}
ACRONYMS = {"maf": "MAF", "hbm": "HBM", "bw": "bandwidth", "gpu": "GPU", "cpu": "CPU"}


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
            own_details = [d for d in details if d.finding.category == key]
            write_output(path, findings_markdown(chosen, result, own_details))


def findings_markdown(chosen: Recommended, result: AnalysisResult, details: list[Details]) -> str:
    """Return the findings of one analysis; ``details`` are its own."""
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


def overview(result: AnalysisResult) -> Message:
    """Return time, calls and average efficiency of a category."""
    return MESSAGES(
        "overview",
        time_ms=result.gpu_time_ms,
        calls=result.invocation_count,
        rows=result.row_count,
        efficiency=_efficiency(result),
    )


def _efficiency(result: AnalysisResult) -> Message:
    """Return the average efficiency of a category, and the share of its time that has one."""
    if result.efficiency_pct is None:
        return MESSAGES("overview.no_efficiency")
    return MESSAGES(
        "overview.efficiency",
        efficiency_pct=result.efficiency_pct,
        coverage_pct=result.efficiency_coverage_pct,
    )


def whole_overview(result: AnalysisResult) -> Message:
    """Return ``overview`` with the title and the share of compute."""
    return MESSAGES(
        "overview.of_compute",
        title=result.title,
        compute_pct=result.percent_of_compute,
        overview=overview(result),
    )


def additional_notes(result: AnalysisResult) -> list[str]:
    """Return counts and times that the analysis measured, and its notes."""
    measured = [
        f"{words(name)}: {sections.measured(name, value)}"
        for name, value in result.metrics.items()
        if not isinstance(value, dict | list)
    ]
    return [*measured, *map(to_text, result.notes)] or ["None."]


def measures_table(metrics: Mapping[str, JsonValue]) -> Markdown:
    """Return the plain values of metrics, one level deep, as a table."""
    rows: list[tuple[str, str]] = []
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            rows += [
                (f"{words(name)}: {words(inner).lower()}", sections.measured(inner, item))
                for inner, item in value.items()
                if not isinstance(item, dict | list)
            ]
        elif not isinstance(value, list):
            rows.append((words(name), sections.measured(name, value)))
    return table(("Metric", "Value"), rows)


def words(name: str) -> str:
    """Return a metric's key as a label: ``idle_time_percent`` -> ``Idle time (%)``."""
    for ending, unit in UNITS.items():
        if name.endswith(ending):
            return f"{_sentence(name.removesuffix(ending))} ({unit})"
    return _sentence(name)


def _sentence(name: str) -> str:
    text = " ".join(ACRONYMS.get(word, word) for word in re.split(r"_+", name) if word)
    return text[:1].upper() + text[1:]


def no_data(result: AnalysisResult) -> str:
    """Return why an analysis has no data."""
    if result.error:
        return result.error
    if result.tier == "compute":
        return f"No {result.title} operations found in the trace."
    return "The trace has no GPU work to analyze."


REPORTER = FindingsReporter()
