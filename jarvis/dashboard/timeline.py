"""The timeline: GPU lanes over host lanes, the gaps between, and one selected event."""

from collections.abc import Mapping
from functools import partial

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.charts import Palette, TimelineRow
from jarvis.dashboard import navigation, timeline_event
from jarvis.dashboard.controls import choice
from jarvis.dashboard.links import check_parameter, note_control
from jarvis.dashboard.small_table import small_table
from jarvis.dashboard.state import Opened, palette, timeline_of
from jarvis.dashboard.timeline_window import length_ms, show, show_around, window_controls
from jarvis.perf_report.host_timeline import HostCall
from jarvis.perf_report.work import COMMUNICATION, COPY
from jarvis.reports.markup import escape
from jarvis.reports.quantities import count, microseconds, milliseconds, percent
from jarvis.run.timeline import (
    HOST_LABELS,
    IDLE,
    KINDS,
    NOT_LINKED,
    OTHER_WORK,
    HostSlices,
    Timeline,
    Window,
)
from jarvis.schemas import TABLES
from jarvis.schemas.columns import number, text

_GAPS_SHOWN, _EVENTS_SHOWN = 100, 100
_TABLE_PX = 330
_HOST_CHOICES: Mapping[str, tuple[HostCall, ...]] = {
    "operators": (HostCall.ANNOTATION, HostCall.OPERATOR, HostCall.RUNTIME),
    "python": (HostCall.ANNOTATION, HostCall.PYTHON),
    "all": tuple(HostCall),
}
_START = number("start_ms", "Start (ms)", "ms", "since the start of the recording", ",.4f")
_GAP_COLUMNS = charts.columns_of(
    TABLES["idle_gaps"],
    (
        _START,
        number("gap_us", "Gap (µs)", "µs", "in which no counted GPU event runs", ",.1f"),
        text("launcher_name", "Launched next", "operator that launched the event after the gap"),
    ),
)
_GAP_SHOWN = (
    *("start_ms", "gap_us", "launcher_name", "cause", "next_name", "host_call"),
    *("host_call_us", "launch_lead_us"),
)
_GAP_WIDTHS = {"start_ms": 90, "gap_us": 75, "launcher_name": 150, "next_name": 150, "cause": 165}
_EVENT_COLUMNS = charts.columns_of(
    TABLES["gpu_work"],
    (
        _START,
        number("dur_us", "Duration (µs)", "µs", "of the event", ",.2f"),
        text("what", "Kind", "category of its operation, or kind of work"),
        text("operation", "Operation", "operation that it belongs to"),
        text("input_dims", "Input dims", "shapes of the arguments of that operation"),
        text("track", "Stream", "GPU and stream that it runs on"),
    ),
)
_EVENT_SHOWN = ("start_ms", "dur_us", "name", "what", "operation", "input_dims", "track")
_EVENT_WIDTHS = {"start_ms": 90, "dur_us": 90, "name": 200, "what": 100, "input_dims": 130}


def render(now: Opened) -> None:
    """Draw the page for the open run."""
    timeline = timeline_of(now)
    recording = timeline.recording
    if recording is None:
        st.info("The trace holds neither GPU work nor host calls, so there is nothing to draw.")
        navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
        return
    with st.container(border=True):
        fields = st.container(horizontal=True, vertical_alignment="bottom")
        window = window_controls(recording, fields, st.container(horizontal=True))
        with fields:
            kinds, threads, depth = _host_controls()
    page = _Page(timeline, recording, window)
    selected = timeline_event.chosen(timeline)
    _gpu_card(page, selected)
    _host_card(page, kinds, threads, depth, selected)
    if selected is not None:
        timeline_event.details(timeline, recording, selected)
    left, right = st.columns(2)
    with left:
        _gaps_card(page)
    with right:
        _events_card(page)


class _Page:
    """The window that the page shows, and times in it as the charts and tables want them."""

    def __init__(self, timeline: Timeline, recording: Window, window: Window) -> None:
        self.timeline, self.window = timeline, window
        self.origin_ns = recording.start_ns
        self.whole_ms = length_ms(recording)

    @property
    def window_ms(self) -> tuple[float, float]:
        """Start and end of the window since the start of the recording."""
        return self.since(self.window.start_ns), self.since(self.window.end_ns)

    def since(self, time_ns: int) -> float:
        """A time in ms since the start of the recording."""
        return (time_ns - self.origin_ns) / 1e6

    def start_ms(self, column: str = "ts_ns") -> pl.Expr:
        """A column of times likewise."""
        return ((pl.col(column) - self.origin_ns) / 1e6).alias("start_ms")

    def share_pct(self, time_ns: int) -> float:
        """A time in percent of the window."""
        return 100 * time_ns / self.window.length_ns

    def bars(self, bins: pl.DataFrame, colour: pl.Expr, word: pl.Expr) -> pl.DataFrame:
        """Bins as the chart wants them, one bar of full width for each."""
        busy = 100 * pl.col("busy_ns") / (pl.col("end_ns") - pl.col("start_ns"))
        return bins.select(
            "row",
            self.start_ms("start_ns"),
            self.start_ms("end_ns").alias("end_ms"),
            colour=colour,
            word=word,
            busy_pct=busy,
            low_pct=0.0,
            high_pct=busy,
        )

    def boxes(self, events: pl.DataFrame, called_by: str, colour: str) -> pl.DataFrame:
        """Single events as the chart wants them."""
        return events.select(
            "row",
            "lane",
            "uid",
            "name",
            self.start_ms(),
            ((pl.col("ts_ns") + pl.col("dur_ns") - self.origin_ns) / 1e6).alias("end_ms"),
            colour=colour,
            dur_us=pl.col("dur_ns") / 1e3,
            called_by=pl.col(called_by).cast(pl.String),
            shapes=pl.col("input_dims").str.head(120),
        )

    def chart(
        self,
        name: str,
        rows: list[TimelineRow],
        bins: pl.DataFrame,
        events: pl.DataFrame,
        colours: Mapping[str, str],
        selected: int | None,
        alt: str,
    ) -> None:
        """Draw lanes whose window and events can be chosen with the mouse."""
        # A new window makes a new chart, so that the old brush does not stay on it.
        key = f"timeline_{name}_{self.window.start_ns}_{self.window.length_ns}"
        st.altair_chart(
            charts.timeline_chart(rows, bins, events, colours, self.window_ms, palette(), selected),
            key=key,
            on_select=partial(self._follow, key),
            selection_mode=[charts.BRUSHED, charts.CLICKED],
            alt=alt,
        )

    def _follow(self, key: str) -> None:
        """Go to what was brushed, else select what was clicked."""
        chosen = st.session_state[key]["selection"]
        brushed = (chosen.get(charts.BRUSHED) or {}).get("start_ms")
        clicked = chosen.get(charts.CLICKED) or []
        if brushed:
            show(min(brushed), max(brushed) - min(brushed), self.whole_ms)
        elif clicked:
            timeline_event.choose(int(clicked[0]["uid"]))


def _host_controls() -> tuple[tuple[HostCall, ...], int, int]:
    """Which host calls, how many threads, and how many calls below each other."""
    chosen = choice(
        "timeline_host",
        "Host calls",
        list(_HOST_CHOICES),
        "Which calls stand below each thread: operators with runtime calls, Python frames, or all. "
        "The bar of a thread counts all of them.",
    )
    threads = _whole_number(
        "timeline_threads", "Threads", 3, 0, 32, "Host threads shown, the busiest ones first."
    )
    depth = _whole_number(
        "timeline_depth", "Depth", 4, 0, 40, "Calls inside each other shown for a thread."
    )
    return _HOST_CHOICES[chosen], threads, depth


def _whole_number(key: str, label: str, default: int, least: int, most: int, meaning: str) -> int:
    def is_valid(value: str) -> bool:
        return value.isdecimal() and least <= int(value) <= most

    check_parameter(key, is_valid, default)
    value = st.number_input(
        label, least, most, default, key=key, width=110, help=meaning, bind="query-params"
    )
    note_control(key, value)
    return int(value)


def _gpu_card(page: _Page, selected: int | None) -> None:
    timeline, window = page.timeline, page.window
    if timeline.gpu_events.is_empty():
        st.info("The trace holds no GPU work: only host lanes are shown.")
        return
    bins = timeline.gpu_bins(window)
    cause = {key.value: words.label for key, words in CAUSES.items()}
    is_idle = pl.col("row") == IDLE
    bars = page.bars(
        bins,
        colour=pl.when(is_idle).then(pl.lit(IDLE)).otherwise("what"),
        word=pl.when(is_idle).then(pl.col("what").replace(cause)).otherwise("what"),
    )
    rows = [TimelineRow(name, name) for name in timeline.gpu_rows]
    slices = timeline.gpu_slices(window)
    if slices is None:
        streams = timeline.stream_bins(window)
        bars = pl.concat([bars, page.bars(streams, pl.col("what"), pl.col("what"))])
        boxes = page.boxes(
            timeline.gpu_events.clear().with_columns(row=pl.lit(""), lane=0), "operation", "what"
        )
        rows += [TimelineRow(name, name) for name in timeline.streams(window)]
        how = "Streams show how busy they are: zoom in for single kernels."
    else:
        boxes = page.boxes(slices, "operation", "what")
        lanes = dict(slices.group_by("row").agg(pl.col("lane").max() + 1).iter_rows())
        rows += [TimelineRow(name, name, lanes[name]) for name in timeline.streams(window)]
        how = f"Streams show {count(slices.height)} single events: click one for its details."
    with st.container(border=True):
        st.markdown(f"**GPU: {escape(_gpu_words(page, bins, cause))}**")
        st.caption(
            f"{how} The height of a bar is the busy share, its colour what runs most. Drag to zoom."
        )
        page.chart("gpu", rows, bars, boxes, _gpu_colours(timeline, palette()), selected, "GPU")


def _gpu_words(page: _Page, bins: pl.DataFrame, causes: Mapping[str, str]) -> str:
    """What the GPU does in the window, in percent of it."""
    busy = dict(bins.group_by("row").agg(pl.col("busy_ns").sum()).iter_rows())
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
    said = ", ".join(parts) + " of this window"
    waits = bins.filter(pl.col("row") == IDLE).group_by("what").agg(pl.col("busy_ns").sum())
    if waits.height:
        most = waits.sort("busy_ns", "what", descending=[True, False])["what"][0]
        said += f"; idle most likely for: {causes[most].lower()}"
    return said


def _gpu_colours(timeline: Timeline, colours: Palette) -> dict[str, str]:
    """A colour for each kind of GPU work; communication and copies as in the other charts."""
    named = [colours.categorical[n] for n in (0, 2, 4, 5)]
    fixed = {
        OTHER_WORK: colours.muted,
        KINDS[COMMUNICATION]: colours.categorical[1],
        KINDS[COPY]: colours.categorical[3],
        NOT_LINKED: colours.border,
        IDLE: colours.pale,
    }
    categories = [what for what in timeline.whats if what not in fixed]
    return dict(zip(categories, named, strict=False)) | fixed


def _host_card(
    page: _Page, kinds: tuple[HostCall, ...], most: int, depth: int, selected: int | None
) -> None:
    timeline, window = page.timeline, page.window
    if timeline.threads.is_empty():
        st.info(
            "No host calls to show: the trace holds none, or the analysis is older than this page. "
            "Analyse the trace again to find out."
        )
        return
    threads = timeline.busiest_threads(window, most)
    bins = timeline.host_bins(window, threads)
    found = timeline.host_slices(window, threads, kinds, depth)
    lanes = dict(found.rows.group_by("row").agg(pl.col("lane").max() + 1).iter_rows())
    rows = []
    for thread in threads:
        key, label = str(thread), timeline.thread_label(thread)
        rows.append(TimelineRow(_bar_key(key), label))
        if key in lanes:
            rows.append(TimelineRow(key, "", lanes[key]))
    with st.container(border=True):
        st.markdown(f"**Host: {escape(_host_words(page, bins, threads))}**")
        st.caption(_host_note(page, found, len(threads)))
        if threads:
            page.chart(
                "host",
                rows,
                _stacked_bars(page, bins),
                page.boxes(found.rows, "what", "what"),
                _host_colours(palette()),
                selected,
                "Host",
            )


def _bar_key(thread: str) -> str:
    return f"{thread} busy"


def _stacked_bars(page: _Page, bins: pl.DataFrame) -> pl.DataFrame:
    """The kinds of calls of each bin on top of each other."""
    bars = page.bars(bins, pl.col("what"), pl.col("what"))
    top = pl.col("busy_pct").cum_sum().over("row", "start_ms")
    return bars.with_columns(
        high_pct=top, low_pct=top - pl.col("busy_pct"), row=pl.format("{} busy", "row")
    )


def _host_words(page: _Page, bins: pl.DataFrame, threads: list[int]) -> str:
    """What the thread with most operators and runtime calls does in the window, in percent."""
    if not threads or bins.is_empty():
        return "no recorded call runs in this window"
    is_work = pl.col("what") != HOST_LABELS[HostCall.PYTHON]
    work = bins.group_by("row").agg(pl.col("busy_ns").filter(is_work).sum())
    first = work.sort("busy_ns", "row", descending=[True, False])["row"][0]
    mine = bins.filter(pl.col("row") == first)
    busy = dict(mine.group_by("what").agg(pl.col("busy_ns").sum()).iter_rows())
    parts = [
        f"{label.lower()} {percent(page.share_pct(busy[label]))}"
        for label in HOST_LABELS.values()
        if label in busy
    ]
    return f"{page.timeline.thread_label(int(first))} runs: {', '.join(parts)} of this window"


def _host_note(page: _Page, found: HostSlices, threads: int) -> str:
    """What the bars are, and what of the host is not drawn."""
    notes = ["The bar of a thread is the time in runtime calls, else in operators, else in Python."]
    hidden_threads = page.timeline.threads.height - threads
    if hidden_threads > 0:
        notes.append(f"{count(hidden_threads)} more threads are not shown.")
    if found.hidden_count:
        notes.append(f"{count(found.hidden_count)} calls are too short to be drawn here: zoom in.")
    if found.deeper_count:
        notes.append(f"{count(found.deeper_count)} calls lie deeper than shown.")
    if (shortest := page.timeline.left_out_ns) is not None:
        notes.append(
            f"The trace has so many calls that those shorter than {microseconds(shortest / 1e3)} "
            "are only counted in the bars of wide windows."
        )
    return " ".join(notes)


def _host_colours(colours: Palette) -> dict[str, str]:
    runtime, operator, python, annotation = HOST_LABELS.values()
    return {
        runtime: colours.categorical[5],
        operator: colours.categorical[0],
        python: colours.pale,
        annotation: colours.muted,
    }


def _gaps_card(page: _Page) -> None:
    lengths = page.timeline.gaps.select("start_ns", "dur_ns")
    gaps = page.window.of(lengths, start="start_ns")
    longest = page.window.longest(page.timeline.gaps, _GAPS_SHOWN, start="start_ns")
    with st.container(border=True, height="stretch"):
        total = milliseconds(int(gaps["dur_ns"].sum()) / 1e6)
        st.markdown(f"**{count(gaps.height)} idle gaps of {total} in this window**, longest first")
        if gaps.is_empty():
            st.caption("The GPU never waits here.")
            return
        st.caption("Select one to see it on the timeline. Causes are likely ones, not proved.")
        labels = {key.value: words.label for key, words in CAUSES.items()}
        rows = longest.with_columns(
            page.start_ms("start_ns"),
            pl.col("cause").replace(labels),
            gap_us=pl.col("dur_ns") / 1e3,
        )
        _jumping_table(page, "gaps", rows, _GAP_COLUMNS, _GAP_SHOWN, _GAP_WIDTHS, "gap_us")


def _events_card(page: _Page) -> None:
    events = page.timeline.gpu_event_count(page.window)
    longest = page.window.longest(page.timeline.gpu_events, _EVENTS_SHOWN)
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{count(events)} GPU events in this window**, longest first")
        if not events:
            st.caption("No GPU work here.")
            return
        st.caption("Select one to see it on the timeline, with its operation.")
        rows = longest.with_columns(page.start_ms(), dur_us=pl.col("dur_ns") / 1e3)
        _jumping_table(page, "events", rows, _EVENT_COLUMNS, _EVENT_SHOWN, _EVENT_WIDTHS, "dur_us")


def _jumping_table(
    page: _Page,
    name: str,
    rows: pl.DataFrame,
    columns: charts.Columns,
    shown: tuple[str, ...],
    widths: Mapping[str, int],
    length: str,
) -> None:
    """A table whose selected row becomes the window; a GPU event is selected too."""
    key = f"timeline_{name}_{page.window.start_ns}_{page.window.length_ns}"

    def jump() -> None:
        picked = st.session_state[key]["selection"]["rows"]
        if picked:
            row = rows.row(picked[0], named=True)
            show_around(row["start_ms"], row[length] / 1e3, page.whole_ms)
            if "uid" in row:
                timeline_event.choose(row["uid"])

    small_table(rows, columns, name, shown, widths, key=key, on_select=jump, height=_TABLE_PX)
