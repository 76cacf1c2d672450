"""The page of a system analysis: grades, what the GPU waited for, and the findings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import polars as pl
import streamlit as st
from pydantic import JsonValue

from jarvis import charts
from jarvis.analyses.base import Analysis, Target
from jarvis.analyses.window import timeline_window
from jarvis.dashboard.controls import percent_slider
from jarvis.dashboard.figures import figure
from jarvis.dashboard.finding_cards import finding_cards
from jarvis.dashboard.fusion import fusion_section
from jarvis.dashboard.idle_gaps import idle_gap_cards
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.panels import panel_card
from jarvis.dashboard.projection import recovered
from jarvis.dashboard.small_table import small_table
from jarvis.dashboard.state import Opened, opened, palette
from jarvis.findings import AnalysisResult, Severity, Status
from jarvis.impact import TARGET_PCT, share_pct
from jarvis.perf_report import Totals
from jarvis.reports.markup import escape, prose
from jarvis.reports.quantities import count, microseconds, milliseconds, percent
from jarvis.schemas import TABLES

_SEVERITY_COLOURS: Mapping[
    Severity, Literal["red", "orange", "yellow", "blue", "gray", "green"]
] = {
    Severity.CRITICAL: "red",
    Severity.HIGH: "orange",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "blue",
    Severity.ACCEPTABLE: "gray",
    Severity.GOOD: "green",
    Severity.NOT_AVAILABLE: "gray",
}
_LONGEST = 10
_COLLECTIVE_COLUMNS = (
    "name",
    "collective",
    "dur_us",
    "message_mb",
    "dtype",
    "group",
    "group_size",
    "stream",
)


def render(analysis: Analysis) -> None:
    """Draw the page of ``analysis`` for the open run."""
    now = opened()
    page_head(analysis.title, analysis.icon, now)
    result = now.run.results.get(analysis.key)
    if result is None or result.status is Status.NO_DATA:
        st.info("This run has nothing for this page: the trace holds no GPU timeline.")
        return
    if result.status is Status.ERROR:
        st.error(f"The analysis failed: {escape(result.error or '')}.", icon=":material/error:")
        return
    target_pct = _target_card(analysis, result, now.run.manifest.totals)
    _SECTIONS.get(analysis.key, _panels)(analysis, now, result)
    st.subheader("Findings")
    finding_cards(
        result.findings,
        lambda finding: recovered(finding, analysis.target, target_pct, now.run.manifest.totals),
    )


def _target_card(analysis: Analysis, result: AnalysisResult, totals: Totals) -> float:
    """The slider of the page and what reaching it would recover; the target in percent."""
    page, target = analysis.key, analysis.target
    if target is None:
        return 0.0
    with st.container(border=True):
        slider, recovery = st.columns([3, 2], vertical_alignment="center")
        with slider:
            pct = percent_slider(f"{page}_target", target.label, target.default_pct, target.meaning)
        saved_ms = _recoverable_ms(result, target, totals, pct)
        with recovery:
            figure(
                f"Recovered at {pct}%",
                milliseconds(saved_ms),
                f"{percent(share_pct(saved_ms, totals.total_time_ms))} of GPU time",
                help_text="What reaching the target would save, measured in the trace.",
            )
    return pct


def _recoverable_ms(result: AnalysisResult, target: Target, totals: Totals, pct: float) -> float:
    """What the target recovers, as the finding has it that follows the slider, if there is one."""
    impacts = (
        recovered(finding, target, pct, totals)
        for finding in result.findings
        if finding.check == target.check
    )
    found = next((impact for impact in impacts if impact is not None), None)
    return target.recovered_ms(totals, pct) if found is None else found.saved_ms.mid


def _panels(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    """What an analysis without a section of its own here declares."""
    if not analysis.panels:
        return
    for number, (place, panel) in enumerate(
        zip(st.columns(len(analysis.panels)), analysis.panels, strict=True)
    ):
        rows, columns = now.run.table(panel.source), charts.columns_of(TABLES[panel.source])
        with place:
            panel_card(panel, rows, columns, TARGET_PCT, f"{analysis.key}_panel_{number}")


def _multi_kernel(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    totals = now.run.manifest.totals
    blocking = result.metrics["nccl_blocking_assessment"]
    overlap = result.metrics["overlap_assessment"]
    copies = result.metrics["memcpy_assessment"]
    cards = st.columns(3)
    with cards[0]:
        _grade_card("Exposed communication", percent(totals.exposed_comm_pct), blocking)
    with cards[1]:
        _grade_card("Communication hidden behind compute", _share(overlap), overlap)
    with cards[2]:
        _grade_card("Memory copies", milliseconds(totals.total_memcpy_time_ms), copies)
    with st.container(border=True):
        st.markdown("**What runs beside compute, and what the GPU waits for**")
        exposure = pl.DataFrame(
            {
                "kind": ["Communication"] * 2 + ["Copies"] * 2,
                "part": ["hidden", "exposed"] * 2,
                "time_ms": [
                    totals.total_comm_time_ms - totals.exposed_comm_time_ms,
                    totals.exposed_comm_time_ms,
                    totals.total_memcpy_time_ms - totals.exposed_memcpy_time_ms,
                    totals.exposed_memcpy_time_ms,
                ],
            }
        )
        if exposure["time_ms"].sum() > 0:
            st.altair_chart(charts.exposure(exposure, palette()), alt="Hidden and exposed time")
        else:
            st.caption("The trace holds no communication and no memory copies.")
    copies_table = now.run.table("memory_copies")
    _table_card("Copies by direction", copies_table, "memory_copies", "No memory copies.")
    counted = timeline_window(now.run.table("gpu_work")).select("uid")
    longest = (
        now.run.table("collectives")
        .join(counted, on="uid", how="semi")
        .sort("dur_us", "uid", descending=[True, False])
        .head(_LONGEST)
    )
    title = f"The longest {_LONGEST} communication kernels"
    _table_card(title, longest, "collectives", "No communication kernels.", _COLLECTIVE_COLUMNS)


def _grade_card(title: str, value: str, assessment: JsonValue) -> None:
    """A figure with its grade in words and colour, and the sentence behind it."""
    facts = _facts(assessment)
    grade = Severity(str(facts.get("severity", Severity.NOT_AVAILABLE)))
    with st.container(border=True, height="stretch"):
        st.metric(title, value)
        st.badge(grade.lower(), color=_SEVERITY_COLOURS[grade])
        if description := facts.get("description"):
            st.caption(prose(str(description)))


def _share(overlap: JsonValue) -> str:
    value = _facts(overlap).get("overlap_percent")
    return "not available" if value is None else percent(value)


def _facts(metric: JsonValue) -> Mapping[str, Any]:
    return metric if isinstance(metric, dict) else {}


def _table_card(
    title: str,
    rows: pl.DataFrame,
    table: str,
    empty: str,
    names: Sequence[str] | None = None,
) -> None:
    """A card with rows of ``table``, or the sentence for none."""
    with st.container(border=True):
        st.markdown(f"**{title}**")
        if rows.is_empty():
            st.caption(empty)
        else:
            small_table(rows, charts.columns_of(TABLES[table]), title, names)


def _cpu_idle(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    totals = now.run.manifest.totals
    facts = _facts(result.metrics["kernel_analysis"])
    cards = st.columns(4)
    with cards[0]:
        _grade_card("GPU idle", percent(totals.idle_pct), {"severity": result.metrics["severity"]})
    with cards[1]:
        figure(
            "Idle time",
            milliseconds(totals.idle_time_ms),
            f"of {milliseconds(totals.total_time_ms)} GPU time",
            help_text="Time between the first and the last GPU event in which none runs.",
        )
    with cards[2]:
        figure(
            "Kernels",
            count(facts.get("total_kernel_count")),
            f"{microseconds(facts.get('avg_kernel_time_us'))} on average",
            help_text="Kernels in the window of the GPU timeline, without copies and fills.",
        )
    with cards[3]:
        figure(
            f"Shorter than {microseconds(facts.get('short_kernel_limit_us'))}",
            percent(facts.get("short_kernel_percent")),
            f"{count(facts.get('short_kernel_count'))} kernels",
            help_text="Kernels so short that launching the next one takes about as long.",
        )
    idle_gap_cards(now.run)
    window = timeline_window(now.run.table("gpu_work"))
    left, right = st.columns(2)
    with left.container(border=True, height="stretch"):
        st.markdown("**Idle gaps**: how long they are, and what gaps of a length add up to")
        gaps = charts.idle_gaps_us(window)
        if gaps.is_empty():
            st.caption("The GPU never waits.")
        else:
            chart = charts.log_histogram(gaps, palette(), "Length of a gap", "Idle time")
            st.altair_chart(chart, alt="Histogram of idle gaps")
    with right.container(border=True, height="stretch"):
        st.markdown("**Kernels**: how long they run, and what kernels of a length add up to")
        lengths = window.filter(pl.col("cat") == "kernel")["dur_ns"] / 1000
        chart = charts.log_histogram(lengths, palette(), "Length of a kernel", "Kernel time")
        st.altair_chart(chart, alt="Histogram of kernel durations")


_SECTIONS: Mapping[str, Callable[[Analysis, Opened, AnalysisResult], None]] = {
    "multi_kernel": _multi_kernel,
    "cpu_idle": _cpu_idle,
    "kernel_fusion": fusion_section,
}
