"""Metrics and charts of the idle time page."""

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.base import Analysis
from jarvis.analyses.window import timeline_window
from jarvis.dashboard.pages.system.idle_gaps import idle_gap_cards
from jarvis.dashboard.session.state import Opened, palette
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.dashboard.widgets.other_tools import why_another_tool
from jarvis.dashboard.widgets.severity_card import facts_of, grade_card
from jarvis.findings import AnalysisResult
from jarvis.perf_report.timeline.other_definitions import Quantity
from jarvis.text.format import count, microseconds, milliseconds, percent


def cpu_idle_section(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    """Draw metrics, idle time by cause, the longest gaps, and histograms of gaps and kernels."""
    totals = now.run.manifest.totals
    facts = facts_of(result.metrics["kernel_analysis"])
    cards = st.columns(4)
    with cards[0]:
        grade_card(
            "GPU idle",
            percent(totals.idle_pct),
            {"severity": result.metrics["severity"]},
            "Time between the first and the last GPU event in which none runs, in percent.",
        )
    with cards[1]:
        metric_card(
            "Idle time",
            milliseconds(totals.idle_time_ms),
            f"of {milliseconds(totals.total_time_ms)} GPU time",
            help_text="Time between the first and the last GPU event in which none runs.",
        )
    with cards[2]:
        metric_card(
            "Kernels",
            count(facts.get("total_kernel_count")),
            f"{microseconds(facts.get('avg_kernel_time_us'))} on average",
            help_text="Kernels in the window of the GPU timeline, without copies and fills.",
        )
    with cards[3]:
        metric_card(
            f"Shorter than {microseconds(facts.get('short_kernel_limit_us'))}",
            percent(facts.get("short_kernel_percent")),
            f"{count(facts.get('short_kernel_count'))} kernels",
            help_text="Kernels so short that launching the next kernel takes about as long.",
        )
    idle_gap_cards(now)
    window = timeline_window(now.run.table("gpu_work"))
    left, right = st.columns(2)
    with left.container(border=True, height="stretch"):
        _histogram(charts.idle_gaps_us(window), "gap", "Idle time")
    with right.container(border=True, height="stretch"):
        lengths = window.filter(pl.col("cat") == "kernel")["dur_ns"] / 1000
        _histogram(lengths, "kernel", "Kernel time")
    why_another_tool(now, analysis.key, (Quantity.IDLE, Quantity.STREAM_IDLE, Quantity.BUSY))


def _histogram(lengths_us: pl.Series, item: str, total: str) -> None:
    """Draw a histogram of lengths with logarithmic bins; the height is the sum of each bin."""
    known = lengths_us.filter(lengths_us > 0)
    if known.is_empty():
        st.markdown(f"**No {item}s** in this trace")
        return
    typical = milliseconds(half_above(known) / 1000)
    if known.len() == 1:
        st.markdown(f"**One {item}** of {typical}")
    else:
        st.markdown(
            f"**Half of the {total.lower()} is in {item}s of {typical} or more**, of "
            f"{count(known.len())}",
            help=f"Bins by length of a {item}; the height is the total time of the {item}s in it.",
        )
    chart = charts.log_histogram(known, palette(), f"Length of a {item}", total)
    st.altair_chart(chart, alt=f"Histogram of {item}s by length")


def half_above(lengths: pl.Series) -> float:
    """Return the length such that items of at least this length make up half of the total."""
    longest = lengths.sort(descending=True)
    index = (longest.cum_sum() >= longest.sum() / 2).arg_max() or 0
    return float(longest[index])
