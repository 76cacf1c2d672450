"""The timeline page: GPU lanes, host lanes, idle gaps and the selected event."""

from collections.abc import Mapping

import polars as pl
import streamlit as st

from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.charts import Palette, TimelineRow
from jarvis.dashboard.pages.timeline import event
from jarvis.dashboard.pages.timeline.perfetto import perfetto_row
from jarvis.dashboard.pages.timeline.tables import events_card, gaps_card
from jarvis.dashboard.pages.timeline.view import TimelineView, gpu_colors
from jarvis.dashboard.pages.timeline.window import window_controls
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, palette, timeline_of
from jarvis.dashboard.widgets.controls import choice, whole_number
from jarvis.dashboard.widgets.elements import is_unavailable
from jarvis.perf_report.timeline.host import HostCall
from jarvis.run.timeline import (
    HOST_LABELS,
    IDLE,
    KINDS,
    NOT_LINKED,
    PATH,
    HostSlices,
)
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, microseconds, percent
from jarvis.text.markdown import escape

_HOST_CHOICES: Mapping[str, tuple[HostCall, ...]] = {
    "operators": (HostCall.ANNOTATION, HostCall.OPERATOR, HostCall.RUNTIME),
    "python": (HostCall.ANNOTATION, HostCall.PYTHON),
    "all": tuple(HostCall),
}


def render(now: Opened) -> None:
    """Draw the page for the open run."""
    if is_unavailable(now.run, ("gpu_work", "host_threads")):
        return
    timeline = timeline_of(now)
    recording = timeline.recording
    if recording is None:
        st.info("The trace has neither GPU work nor host calls, so the timeline is empty.")
        navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
        return
    with st.container(border=True):
        fields = st.container(horizontal=True, vertical_alignment="bottom")
        window = window_controls(recording, fields, st.container(horizontal=True))
        with fields:
            kinds, threads, depth = _host_controls()
    perfetto_row(now, window)
    page = TimelineView(timeline, recording, window)
    selected = event.chosen(timeline)
    _gpu_card(page, selected)
    _host_card(page, kinds, threads, depth, selected)
    if selected is not None:
        event.details(now, recording, selected)
    gaps_card(page)
    events_card(page)


def _host_controls() -> tuple[tuple[HostCall, ...], int, int]:
    """Draw the controls of host calls; return kinds, number of threads and depth."""
    chosen = choice(
        "timeline_host",
        "Host calls",
        list(_HOST_CHOICES),
        "Calls shown below each thread: operators with runtime calls, Python frames, or all. The "
        "bar of a thread includes all calls.",
    )
    threads = whole_number(
        "timeline_threads", "Threads", 3, 0, 32, "Number of host threads, busiest first."
    )
    depth = whole_number(
        "timeline_depth", "Depth", 4, 0, 40, "Levels of nested calls shown for a thread."
    )
    return _HOST_CHOICES[chosen], threads, depth


def _gpu_card(page: TimelineView, selected: int | None) -> None:
    timeline, window = page.timeline, page.window
    if timeline.gpu_events.is_empty():
        st.info("The trace has no GPU work: only host lanes are shown.")
        return
    bins = timeline.gpu_bins(window)
    cause = {key.value: words.label for key, words in CAUSES.items()}
    is_idle = pl.col(C.row) == IDLE
    bars = page.bars(
        bins,
        color=pl.when(is_idle).then(pl.lit(IDLE)).otherwise("what"),
        word=pl.when(is_idle).then(pl.col("what").replace(cause)).otherwise("what"),
    )
    rows = [TimelineRow(name, name) for name in timeline.gpu_rows]
    path = timeline.path_slices(window)
    if not timeline.path.is_empty():
        rows.insert(0, TimelineRow(PATH, PATH, 0 if path is None else 1))
    slices = timeline.gpu_slices(window)
    if slices is None:
        streams = timeline.stream_bins(window)
        bars = pl.concat([bars, page.bars(streams, pl.col("what"), pl.col("what"))])
        boxes = page.boxes(
            timeline.gpu_events.clear().with_columns(
                pl.lit("").alias(C.row), lane=pl.lit(0, pl.Int64)
            ),
            "operation",
            "what",
        )
        rows += [TimelineRow(name, name) for name in timeline.streams(window)]
        note = "Streams show how busy they are: zoom in for single kernels."
    else:
        boxes = page.boxes(slices, "operation", "what")
        lanes = dict(slices.group_by(C.row).agg(pl.col("lane").max() + 1).iter_rows())
        rows += [TimelineRow(name, name, lanes[name]) for name in timeline.streams(window)]
        note = f"Streams show {count(slices.height)} single events: click one for its details."
    if path is None:
        bins_of_path = timeline.path_bins(window)
        bars = pl.concat([bars, page.bars(bins_of_path, pl.col("what"), pl.col("what"))])
    else:
        boxes = pl.concat([page.boxes(path, "operation", "what"), boxes])
    with st.container(border=True):
        st.markdown(f"**GPU: {escape(_gpu_summary(page, bins, cause))}**")
        st.caption(f"{note} Bar height: busy share; color: what runs most. Drag to zoom.")
        page.chart("gpu", rows, bars, boxes, gpu_colors(timeline, palette()), selected, "GPU")


def _gpu_summary(page: TimelineView, bins: pl.DataFrame, causes: Mapping[str, str]) -> str:
    """Return the time shares of GPU work in the window as text."""
    busy = dict(bins.group_by(C.row).agg(pl.col(C.busy_ns).sum()).iter_rows())
    if not busy:
        return "nothing runs in this window"
    parts = [
        f"{name.lower()} {percent(page.share_pct(busy[name]))}"
        for name in (*KINDS.values(), IDLE, NOT_LINKED)
        if name in busy
    ]
    outside_ns = page.timeline.outside_ns(page.window)
    if outside_ns > 0:
        parts.append(f"before or after all GPU work {percent(page.share_pct(outside_ns))}")
    text = ", ".join(parts) + " of this window"
    waits = bins.filter(pl.col(C.row) == IDLE).group_by("what").agg(pl.col(C.busy_ns).sum())
    if waits.height:
        main = waits.sort(C.busy_ns, "what", descending=[True, False])["what"][0]
        text += f"; most likely cause of idle time: {causes[main].lower()}"
    return text


def _host_card(
    page: TimelineView,
    kinds: tuple[HostCall, ...],
    max_threads: int,
    depth: int,
    selected: int | None,
) -> None:
    timeline, window = page.timeline, page.window
    if timeline.threads.is_empty():
        st.info(
            "No host calls: the trace has none, or the analysis is older than this page. Analyze "
            "the trace again to check."
        )
        return
    threads = timeline.busiest_threads(window, max_threads)
    bins = timeline.host_bins(window, threads)
    slices = timeline.host_slices(window, threads, kinds, depth)
    lanes = dict(slices.rows.group_by(C.row).agg(pl.col("lane").max() + 1).iter_rows())
    rows = []
    for thread in threads:
        key, label = str(thread), timeline.thread_label(thread)
        rows.append(TimelineRow(_bar_key(key), label))
        if key in lanes:
            rows.append(TimelineRow(key, "", lanes[key]))
    with st.container(border=True):
        st.markdown(f"**Host: {escape(_host_summary(page, bins, threads))}**")
        st.caption(_host_note(page, slices, len(threads)))
        if threads:
            page.chart(
                "host",
                rows,
                _stacked_bars(page, bins),
                page.boxes(slices.rows, "what", "what"),
                _host_colors(palette()),
                selected,
                "Host",
            )


def _bar_key(thread: str) -> str:
    return f"{thread} busy"


def _stacked_bars(page: TimelineView, bins: pl.DataFrame) -> pl.DataFrame:
    """Return the bars of the kinds of calls, stacked for each bin."""
    bars = page.bars(bins, pl.col("what"), pl.col("what"))
    top = pl.col("busy_pct").cum_sum().over(C.row, "start_ms")
    return bars.with_columns(
        high_pct=top, low_pct=top - pl.col("busy_pct"), **{C.row: pl.format("{} busy", "row")}
    )


def _host_summary(page: TimelineView, bins: pl.DataFrame, threads: list[int]) -> str:
    """Return the time shares of the thread with most operator and runtime calls as text."""
    if not threads or bins.is_empty():
        return "no recorded call runs in this window"
    is_work = pl.col("what") != HOST_LABELS[HostCall.PYTHON]
    work = bins.group_by(C.row).agg(pl.col(C.busy_ns).filter(is_work).sum())
    first = work.sort(C.busy_ns, C.row, descending=[True, False])[C.row][0]
    rows = bins.filter(pl.col(C.row) == first)
    busy = dict(rows.group_by("what").agg(pl.col(C.busy_ns).sum()).iter_rows())
    parts = [
        f"{label.lower()} {percent(page.share_pct(busy[label]))}"
        for label in HOST_LABELS.values()
        if label in busy
    ]
    return f"{page.timeline.thread_label(int(first))} runs: {', '.join(parts)} of this window"


def _host_note(page: TimelineView, slices: HostSlices, threads: int) -> str:
    """Return what the bars show, and which calls are not drawn."""
    notes = ["Bars: time in runtime calls, else in operators, else in Python."]
    hidden_threads = page.timeline.threads.height - threads
    if hidden_threads > 0:
        notes.append(f"Not shown: {counted(hidden_threads, 'more thread')}.")
    if slices.hidden_count:
        hidden = counted(slices.hidden_count, "call")
        notes.append(f"Too short to show: {hidden}. Zoom in to see them.")
    if slices.deeper_count:
        notes.append(f"Deeper than shown: {counted(slices.deeper_count, 'call')}.")
    if (shortest := page.timeline.left_out_ns) is not None:
        notes.append(
            f"Calls shorter than {microseconds(shortest / 1e3)} are only included in the bars of "
            "wide windows, as the trace has very many calls."
        )
    return " ".join(notes)


def _host_colors(colors: Palette) -> dict[str, str]:
    runtime, operator, python, annotation = HOST_LABELS.values()
    return {
        runtime: colors.categorical[5],
        operator: colors.categorical[0],
        python: colors.pale,
        annotation: colors.muted,
    }
