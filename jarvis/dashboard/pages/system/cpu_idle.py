"""Metrics and charts of the idle time page."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.base import Analysis
from jarvis.analyses.operations import timeline_window
from jarvis.analyses.severity import grade, with_findings
from jarvis.analyses.system.cpu_idle.causes import IDLE_PCT
from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.dashboard.pages.timeline.tables import MIN_GAP_NS
from jarvis.dashboard.pages.timeline.window import parameters_around
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, cached, of_stored, palette, timeline_of
from jarvis.dashboard.widgets.elements import (
    metric_card,
    render_chart,
    scale_note,
)
from jarvis.dashboard.widgets.finding_cards import facts_of, grade_card
from jarvis.dashboard.widgets.other_tools import why_another_tool
from jarvis.dashboard.widgets.table import (
    ReadyTable,
    card_px,
    draw_cells,
    ready_table,
    with_short_texts,
)
from jarvis.findings import IDLE_POOL, AnalysisResult, Severity
from jarvis.impact import share_pct
from jarvis.perf_report.timeline.other_definitions import Quantity
from jarvis.perf_report.timeline.step_account import LABELS, step_name
from jarvis.perf_report.timeline.steps import IDLE_PARTS
from jarvis.perf_report.work import COMPUTE
from jarvis.reports.account import account_of, title
from jarvis.run.timeline_events import idle_gaps
from jarvis.schemas import TABLES
from jarvis.schemas.columns import number
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, microseconds, milliseconds, percent
from jarvis.text.short_names import short_frame_name, short_kernel_name, short_operation_name

_LONGEST = 20
_LABELS = {cause.value: words.label for cause, words in CAUSES.items()}
_COLUMNS = charts.columns_of(
    (
        *TABLES["idle_gaps"],
        *TABLES["step_gaps"],
        number("idle_ms", "Idle (ms)", "ms", "time in which no GPU event runs"),
    )
)
_SHORT = {
    C.host_call: short_frame_name,
    C.launcher_name: short_operation_name,
    C.prev_name: short_kernel_name,
    C.next_name: short_kernel_name,
}
"""Functions that shorten the names of a column."""

_MAX_CACHED = 64
_MIN_SHOWN_PCT = 0.1
"""Minimum share of idle time of a cause that has a bar."""

_SHOWN = (
    *(C.idle_ms, C.cause, C.host_call, C.host_call_us),
    *(C.launcher_name, C.prev_name, C.next_name),
)
_WIDTHS = {C.idle_ms: 66, C.host_call_us: 92}


@dataclass(frozen=True, slots=True)
class _Causes:
    """Idle time by cause, and how many causes are too small for the chart."""

    title: str
    drawing: charts.EncodedDrawing
    left_out: int


@dataclass(frozen=True, slots=True)
class _LongestGaps:
    """The longest gaps, with the address of each."""

    title: str
    table: ReadyTable
    addresses: Sequence[str]


def idle_gap_cards(now: Opened) -> None:
    """Draw idle time by cause and the longest gaps; nothing if there are no gaps."""
    causes, longest = _idle_gaps(now, palette(), card_px())
    if causes is not None:
        with st.container(border=True):
            st.markdown(
                causes.title,
                help="All gaps, each with the cause that best fits the recorded host calls.",
            )
            render_chart(causes.drawing, "Idle time by likely cause")
            st.caption(
                "Causes are estimated from the recorded host calls and are not proven."
                + (
                    f" Not shown: {counted(causes.left_out, 'cause')} below {_MIN_SHOWN_PCT:g}%."
                    if causes.left_out
                    else ""
                )
            )
    if longest is not None:
        with st.container(border=True):
            st.markdown(longest.title)
            st.caption("Click a gap to open it on the timeline.")
            draw_cells(longest.table, "The longest gaps", "cpu_idle_gaps", longest.addresses)


@cached(_MAX_CACHED, of_stored)
def _idle_gaps(
    now: Opened, colors: charts.Palette, room_px: int
) -> tuple[_Causes | None, _LongestGaps | None]:
    found = idle_gaps(now.run)
    if found.is_empty():
        return None, None
    gaps = found.with_columns(
        pl.col(C.cause).replace(_LABELS), (pl.col(C.dur_ns) / 1e6).alias(C.idle_ms)
    )
    by_cause = charts.bar_totals(gaps, x=C.idle_ms, y=C.cause)
    total_ms = float(by_cause[C.idle_ms].sum())
    cause, cause_ms = by_cause.select(C.cause, C.idle_ms).row(0)
    least_ms = _MIN_SHOWN_PCT / 100 * total_ms
    shown = by_cause.filter(pl.col(C.idle_ms) >= least_ms)[C.cause]
    of_shown = gaps.filter(pl.col(C.cause).is_in(shown.implode()))
    drawing = charts.bars(of_shown, _COLUMNS, colors, x="idle_ms", y=C.cause, limit=len(_LABELS))
    causes = _Causes(
        f"**Likely cause of {percent(share_pct(cause_ms, total_ms))} of idle time "
        f"({milliseconds(total_ms)} in {_extent(now)}): {cause.lower()}**",
        drawing.encoded(),
        by_cause.height - shown.len(),
    )
    listed = gaps.filter(pl.col(C.dur_ns) >= MIN_GAP_NS)
    if listed.is_empty():
        return causes, None
    longest = listed.sort(C.dur_ns, C.start_ns, descending=[True, False]).head(_LONGEST)
    share = share_pct(float(longest[C.idle_ms].sum()), total_ms)
    of_all = "" if longest.height == listed.height else f"The longest {longest.height} of "
    verb = "makes" if longest.height == 1 else "make"
    readable = _with_unlinked(now, with_short_texts(longest, _SHORT))
    return causes, _LongestGaps(
        f"**{of_all}{counted(listed.height, 'gap')} of at least 1 µs** in {_extent(now)} "
        f"{verb} up {percent(share)} of idle time",
        ready_table(readable, _COLUMNS, _SHOWN, _WIDTHS, room_px=room_px),
        gap_addresses(now, longest),
    )


def _with_unlinked(now: Opened, gaps: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with the kernel before also where its launch is not recorded."""
    ends = pl.col(C.ts_ns) + pl.col(C.dur_ns)
    kernels = now.run.table("gpu_work").filter(~pl.col(C.linked)).select(C.name, ends_ns=ends)
    before = dict(kernels.select("ends_ns", C.name).iter_rows())
    names = [
        name or (f"{short_kernel_name(before[start])} (not linked)" if start in before else None)
        for start, name in gaps.select(C.start_ns, C.prev_name).iter_rows()
    ]
    return gaps.with_columns(pl.Series(C.prev_name, names, pl.String))


def gap_addresses(now: Opened, gaps: pl.DataFrame) -> list[str]:
    """Return URLs of the timeline around each gap."""
    recording = timeline_of(now).recording
    if recording is None:
        raise ValueError("a run with gaps has a recording")
    return [
        navigation.address(
            navigation.TIMELINE, now.id, **parameters_around(recording, start, start + length)
        )
        for start, length in gaps.select(C.start_ns, C.dur_ns).iter_rows()
    ]


def cpu_idle_section(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    """Draw metrics, idle time by cause, the longest gaps, and histograms of gaps and kernels."""
    facts = facts_of(result.metrics["kernel_analysis"])
    cards = st.columns(4)
    with cards[0]:
        _idle_card(now, result)
    with cards[1]:
        _place_card(now)
    kernels = now.run.table("gpu_work").filter(pl.col(C.cat) == "kernel")
    counted_kernels = timeline_window(now.run.table("gpu_work")).filter(pl.col(C.cat) == "kernel")
    has_others = kernels.height > counted_kernels.height
    computing = counted_kernels.filter(pl.col(C.kind) == COMPUTE)
    with cards[2]:
        metric_card(
            "Linked kernels" if has_others else "Kernels",
            count(facts.get("total_kernel_count")),
            f"{microseconds(_mean_us(computing))} on average",
            help_text="Kernels in the window of the GPU timeline, without copies, fills and "
            "kernels that are not linked to a launch. The average is without communication "
            "kernels, which include waiting.",
        )
    with cards[3]:
        metric_card(
            f"Shorter than {microseconds(facts.get('short_kernel_limit_us'))}",
            percent(facts.get("short_kernel_percent")),
            f"{count(facts.get('short_kernel_count'))} kernels",
            help_text="Kernels so short that launching the next kernel takes about as long.",
        )
    gaps = idle_gaps(now.run)
    idle_gap_cards(now)
    left, right = st.columns(2)
    with left.container(border=True, height="stretch"):
        listed = gaps[C.dur_ns].filter(gaps[C.dur_ns] >= MIN_GAP_NS)
        _histogram(now, listed / 1000, "gap", "Idle time")
        if short := gaps.height - listed.len():
            st.caption(f"Not included: {counted(short, 'gap')} of less than 1 µs.")
    with right.container(border=True, height="stretch"):
        _histogram(now, computing[C.dur_ns] / 1000, "kernel", "Kernel time")
        left_out = [
            counted(number, noun)
            for number, noun in (
                (counted_kernels.height - computing.height, "communication kernel"),
                (kernels.height - counted_kernels.height, "kernel"),
            )
            if number
        ]
        if left_out:
            of_launch = " not linked to a launch" if has_others else ""
            st.caption(f"Not included: {' and '.join(left_out)}{of_launch}.")
    why_another_tool(now, analysis.key, (Quantity.IDLE, Quantity.STREAM_IDLE, Quantity.BUSY))


def _mean_us(kernels: pl.DataFrame) -> float | None:
    return None if kernels.is_empty() else float(kernels[C.dur_ns].sum()) / kernels.height / 1e3


def _idle_card(now: Opened, result: AnalysisResult) -> None:
    """Draw the idle share of the step time as on the Overview; of the GPU window if there are no
    steps."""
    account = account_of(now.run)
    idle_pct, whole = now.run.manifest.totals.idle_pct, "the GPU window"
    severity = Severity(str(result.metrics["severity"]))
    if account is not None:
        idle_pct, whole = account.pct(account.idle_ns), step_name(account.is_marked)
        severity = grade(idle_pct, IDLE_PCT, Severity.GOOD)
    severity = with_findings(severity, result.findings, IDLE_POOL)
    grade_card(
        "GPU idle",
        percent(idle_pct),
        {"severity": severity, "description": f"in percent of {whole}"},
        f"Time in which no GPU event runs, in percent of {whole}. {scale_note(IDLE_PCT)}",
    )


def _place_card(now: Opened) -> None:
    """Draw where in a step most of its idle time is; of the GPU window if there are no steps."""
    totals, account = now.run.manifest.totals, account_of(now.run)
    if account is None:
        metric_card(
            "Idle in the GPU window",
            milliseconds(totals.idle_time_ms),
            f"{percent(totals.idle_pct)} of {milliseconds(totals.total_time_ms)}",
            help_text="Time between the first and the last GPU event in which none runs. The gaps "
            "below add up to it.",
        )
        return
    most = max(IDLE_PARTS, key=account.parts_ns.__getitem__)
    each = "per step" if account.is_marked else "in the recording"
    longest, every = (
        milliseconds(account.mean_ms(ns)) for ns in (account.parts_ns[most], account.idle_ns)
    )
    metric_card(
        title(LABELS[most]),
        longest,
        f"all idle time {each}" if longest == every else f"of {every} idle {each}",
        help_text=", ".join(
            f"{title(LABELS[part])}: {percent(account.pct(account.parts_ns[part]))}"
            for part in IDLE_PARTS
        )
        + f" of {step_name(account.is_marked)}. The gaps below add up to it.",
    )


def _extent(now: Opened) -> str:
    """Return the time that the gaps are in: ``the 2 steps``, ``the GPU window``."""
    account = account_of(now.run)
    if account is None:
        return "the GPU window"
    if not account.is_marked:
        return "the recording"
    return "the step" if account.step_count == 1 else f"the {account.step_count} steps"


def _histogram(now: Opened, lengths_us: pl.Series, item: str, total: str) -> None:
    """Draw a histogram of lengths with logarithmic bins; the height is the sum of each bin."""
    known = lengths_us.filter(lengths_us > 0)
    if known.is_empty():
        st.markdown(f"**No {item}s** in this trace")
        return
    half_us = half_above(known)
    typical = milliseconds(half_us / 1000)
    if known.len() == 1:
        st.markdown(f"**One {item}** of {typical}")
    else:
        number = int((known >= half_us).sum())
        lengths = f"of {typical}" if number == 1 else f"of {typical} or more each"
        st.markdown(
            f"**Half of the {total.lower()} is in {count(number)} of "
            f"{counted(known.len(), item)}**, {lengths}",
            help=f"Bins by length of a {item}; the height is the total time of the {item}s in it.",
        )
    drawing = _histogram_drawing(now, palette(), item, total, known)
    render_chart(drawing, f"Histogram of {item}s by length")


@cached(_MAX_CACHED, of_stored)
def _histogram_drawing(
    now: Opened, colors: charts.Palette, item: str, total: str, _lengths_us: pl.Series
) -> charts.EncodedDrawing:
    chart = charts.log_histogram(_lengths_us, colors, f"Length of a {item}", total)
    return charts.drawing_of(chart).encoded()


def half_above(lengths: pl.Series) -> float:
    """Return the length such that items of at least this length make up half of the total."""
    longest = lengths.sort(descending=True)
    index = (longest.cum_sum() >= longest.sum() / 2).arg_max() or 0
    return float(longest[index])
