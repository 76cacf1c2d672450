"""Sentences about the window of the timeline, and about what its rows leave out."""

import polars as pl

from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.dashboard.pages.timeline.window import ShownWindow
from jarvis.dashboard.session.state import Opened, cached, of_stored
from jarvis.perf_report.timeline.host import HostCall
from jarvis.perf_report.work import COMMUNICATION
from jarvis.run.timeline import HOST_LABELS, IDLE, KINDS, Window
from jarvis.run.timeline_rows import HostChoice, TimelineRows
from jarvis.schemas.names import C
from jarvis.text.format import MIN_PCT, counted, microseconds, percent
from jarvis.text.markdown import escape

_PYTHON = HOST_LABELS[HostCall.PYTHON]
_MAX_CACHED_WINDOWS = 256


@cached(_MAX_CACHED_WINDOWS, of_stored)
def summary(
    now: Opened,
    window: Window,
    host: HostChoice,
    threads: int,
    depth: int,
    _page: ShownWindow,
    _rows: TimelineRows,
) -> tuple[str, str]:
    """Return the time shares of the window, and notes on what these rows show, as Markdown."""
    shares = "  \n".join(map(escape, (gpu_summary(_page), host_summary(_page, _rows))))
    return shares, escape(notes(_rows))


def gpu_summary(page: ShownWindow) -> str:
    """Return the time shares of GPU work in the window as text."""
    if page.timeline.gpu_events.is_empty():
        return "The trace has no GPU work: only host lanes are shown."
    shares = page.timeline.shares_ns(page.window)
    if not shares:
        return "GPU: nothing runs in this window"
    parts = [
        f"{name.lower()} {percent(page.share_pct(time_ns))}" for name, time_ns in shares.items()
    ]
    if unlinked_ns := page.timeline.unlinked_ns(page.window, COMMUNICATION):
        unlinked = percent(page.share_pct(unlinked_ns))
        place = list(shares).index(KINDS[COMMUNICATION])
        parts[place] += f" ({unlinked} without a recorded launch)"
    outside_pct = page.share_pct(page.window.length_ns - sum(shares.values()))
    if outside_pct >= MIN_PCT:
        parts.append(f"before or after all GPU work {percent(outside_pct)}")
    text = f"GPU: {', '.join(parts)} of this window"
    waits = page.timeline.statistics(page.window).filter(pl.col(C.row) == IDLE)
    if waits.height:
        labels = {cause.value: words.label for cause, words in CAUSES.items()}
        text += f"; most likely cause of idle time: {labels[waits['what'][0]].lower()}"
    return text


def host_summary(page: ShownWindow, rows: TimelineRows) -> str:
    """Return the time shares of the thread with most operator and runtime calls as text."""
    timeline = page.timeline
    if timeline.threads.is_empty():
        return (
            "No host calls: the trace has none, or the analysis is older than this page. Analyze "
            "the trace again to check."
        )
    bins = timeline.host_bins(page.window, timeline.shown_threads(rows.threads))
    if bins.is_empty():
        return "Host: no recorded call of the shown threads runs in this window"
    is_work = pl.col("what") != _PYTHON
    work = bins.group_by(C.row).agg(pl.col(C.busy_ns).filter(is_work).sum())
    first = work.sort(C.busy_ns, C.row, descending=[True, False])[C.row][0]
    of_first = bins.filter(pl.col(C.row) == first)
    busy = dict(of_first.group_by("what").agg(pl.col(C.busy_ns).sum()).iter_rows())
    parts = [
        f"{_PYTHON if label == _PYTHON else label.lower()} {percent(page.share_pct(busy[label]))}"
        for label in HOST_LABELS.values()
        if label in busy
    ]
    return f"Host: {timeline.thread_label(int(first))} runs: {', '.join(parts)} of this window"


def notes(rows: TimelineRows) -> str:
    """Return how to use the timeline, and which threads, streams and calls it does not show."""
    timeline = rows.timeline
    found = ["Scroll to zoom, drag to move, Shift-drag to measure, click an event for its details."]
    hidden_threads = timeline.threads.height - len(timeline.shown_threads(rows.threads))
    hidden = [
        counted(number, noun)
        for number, noun in (
            (rows.hidden_streams, "GPU stream"),
            (hidden_threads, "thread"),
            (rows.deeper_count, "deeper call"),
            (rows.starter_count, "interpreter frame"),
        )
        if number > 0
    ]
    if hidden:
        found.append(f"Not shown: {', '.join(hidden)}.")
    if (shortest := timeline.left_out_ns) is not None:
        found.append(
            f"Calls shorter than {microseconds(shortest / 1e3)} are only included in the bars of "
            "wide windows, as the trace has very many calls."
        )
    return " ".join(found)
