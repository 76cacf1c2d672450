"""What an analysis measured, in words: its overview, metrics and notes."""

import re
from collections.abc import Mapping

from pydantic import JsonValue

from jarvis.findings import AnalysisResult
from jarvis.reports import sections
from jarvis.reports.messages import MESSAGES
from jarvis.text.markdown import Markdown, table
from jarvis.text.messages import Message, to_text

UNITS = {
    "_percent": "%",
    "_pct": "%",
    "_ms": "ms",
    "_us": "µs",
    "_tbs": "TB/s",
    "_tflops": "TFLOP/s",
}
ACRONYMS = {"maf": "MAF", "hbm": "HBM", "bw": "bandwidth", "gpu": "GPU", "cpu": "CPU"}


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
