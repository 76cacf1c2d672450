"""The timeline page: GPU lanes, host lanes, idle gaps and the selected event."""

import streamlit as st

from jarvis.dashboard.pages.timeline import event
from jarvis.dashboard.pages.timeline.canvas import timeline_canvas
from jarvis.dashboard.pages.timeline.perfetto import perfetto_row
from jarvis.dashboard.pages.timeline.summary import summary
from jarvis.dashboard.pages.timeline.tables import events_card, gaps_card
from jarvis.dashboard.pages.timeline.window import ShownWindow, window_fields
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, timeline_of
from jarvis.dashboard.widgets.controls import choice, whole_number
from jarvis.dashboard.widgets.elements import is_unavailable
from jarvis.run.timeline_rows import MAX_DEPTH, MAX_THREADS, HostChoice, TimelineRows
from jarvis.server.storage.loaded_runs import loaded_rows


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
    with st.container(horizontal=True, vertical_alignment="bottom"):
        window = window_fields(recording, timeline.steps)
        rows = _chosen_rows(now)
    page = ShownWindow(timeline, recording, window)
    selected = event.chosen(timeline)
    with st.container(border=True):
        window_summary, row_notes = summary(
            now, window, rows.host, rows.threads, rows.depth, page, rows
        )
        st.markdown(window_summary)
        timeline_canvas(now, rows, page, selected)
        st.caption(row_notes)
    if selected is not None:
        event.details(now, recording, selected)
    perfetto_row(now, window)
    gaps_card(now, page)
    events_card(now, page)


def _chosen_rows(now: Opened) -> TimelineRows:
    """Draw the controls of host calls, and return the rows of the timeline."""
    host = choice(
        "timeline_host",
        "Host calls",
        list(HostChoice),
        "Calls shown below each thread: operators with runtime calls, Python frames, or all. The "
        "bar of a thread includes all calls.",
    )
    threads = whole_number(
        "timeline_threads",
        "Threads",
        3,
        0,
        MAX_THREADS,
        "Number of host threads, busiest first.",
    )
    depth = whole_number(
        "timeline_depth", "Depth", 4, 0, MAX_DEPTH, "Levels of nested calls shown for a thread."
    )
    return loaded_rows(str(now.root), now.stamp, HostChoice(host), threads, depth)
