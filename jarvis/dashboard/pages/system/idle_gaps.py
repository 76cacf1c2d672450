"""GPU idle time by likely cause, and the longest gaps."""

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.dashboard.pages.timeline.window import parameters_around
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, palette, timeline_of
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.table import LINK, small_table
from jarvis.impact import share_pct
from jarvis.schemas import TABLES
from jarvis.schemas.columns import number
from jarvis.text.format import counted, percent

_TABLE = "idle_gaps"
_LONGEST = 20
_LABELS = {cause.value: words.label for cause, words in CAUSES.items()}
_COLUMNS = charts.columns_of(
    (*TABLES[_TABLE], number("idle_ms", "Idle time (ms)", "ms", "in which no GPU event runs"))
)
_SHOWN = (
    "idle_ms",
    "cause",
    "host_call",
    "host_call_us",
    "host_op",
    "launcher_name",
    "prev_name",
    "next_name",
    "launch_lead_us",
    "host_time_us",
)
_WIDTHS = {"host_call": 170, "launcher_name": 150, "prev_name": 150, "next_name": 150}


def idle_gap_cards(now: Opened) -> None:
    """Draw idle time by cause and the longest gaps; nothing if there are no gaps."""
    found = now.run.table(_TABLE)
    if found.is_empty():
        return
    gaps = found.with_columns(pl.col("cause").replace(_LABELS), idle_ms=pl.col("dur_ns") / 1e6)
    by_cause = charts.bar_totals(gaps, x="idle_ms", y="cause")
    total_ms = float(by_cause["idle_ms"].sum())
    cause, cause_ms = by_cause.select("cause", "idle_ms").row(0)
    with st.container(border=True):
        st.markdown(
            f"**Likely cause of {percent(share_pct(cause_ms, total_ms))} of idle time: "
            f"{cause.lower()}**",
            help="All gaps, each with the cause that best fits the recorded host calls.",
        )
        drawing = charts.bars(gaps, _COLUMNS, palette(), x="idle_ms", y="cause", limit=len(_LABELS))
        render_chart(drawing, "Idle time by likely cause")
        st.caption("Causes are estimated from the recorded host calls and are not proven.")
    longest = gaps.sort("dur_ns", "start_ns", descending=[True, False]).head(_LONGEST)
    known = [name for name in _SHOWN if longest[name].null_count() < longest.height]
    share = share_pct(float(longest["idle_ms"].sum()), total_ms)
    with st.container(border=True):
        st.markdown(
            f"**The longest {longest.height} of {counted(gaps.height, 'gap')}** make up "
            f"{percent(share)} of idle time"
        )
        st.caption("Click the icon of a gap to open it on the timeline.")
        small_table(
            longest.with_columns(_addresses(now, longest)),
            _COLUMNS,
            "The longest gaps",
            known,
            _WIDTHS,
            link="The gap on the timeline",
        )


def _addresses(now: Opened, gaps: pl.DataFrame) -> pl.Series:
    """Return URLs of the timeline around each gap."""
    recording = timeline_of(now).recording
    if recording is None:
        raise ValueError("a run with gaps has a recording")
    addresses = [
        navigation.address(
            navigation.TIMELINE, now.id, **parameters_around(recording, start, start + length)
        )
        for start, length in gaps.select("start_ns", "dur_ns").iter_rows()
    ]
    return pl.Series(LINK, addresses, dtype=pl.String)
