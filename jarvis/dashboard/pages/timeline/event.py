"""The selected event of the timeline (from a click, a table or the URL) and its details."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from jarvis.changes import Work
from jarvis.dashboard.pages.timeline.window import parameters_around
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.links import check_parameter, note_control
from jarvis.dashboard.session.state import Opened, opened, palette, timeline_of
from jarvis.dashboard.widgets.room import room, slowdown_of
from jarvis.run.timeline import HOST_LABELS, Timeline, Window
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, byte_size, milliseconds
from jarvis.text.markdown import code, escape

EVENT = "timeline_event"
"""URL parameter: ``uid`` of the selected GPU event or host call."""


_DETAILS = "timeline_details"
_IN_VIEW = """<style>
[data-testid=stLayoutWrapper]:has(> .st-key-%s) {
  position: sticky; top: 4rem; bottom: 1rem; z-index: 2;
}
.st-key-%s {
  background: %s; max-height: 45vh; overflow-y: auto; box-shadow: 0 2px 12px rgb(0 0 0 / 0.25);
}
</style>"""
"""The details stay in view while the page is scrolled."""


def choose(uid: int) -> None:
    """Select an event on the next rerun of the page."""
    st.query_params[EVENT] = str(uid)


def chosen(timeline: Timeline) -> int | None:
    """Return the selected ``uid`` of the URL; an unknown one is removed with a notice."""

    def is_known(value: str) -> bool:
        return value.isdecimal() and len(value) < 19 and timeline.event(int(value)) is not None

    check_parameter(EVENT, is_known, "no event")
    given = st.query_params.get(EVENT)
    if given is None or not is_known(given):
        st.query_params.pop(EVENT, None)
        return None
    note_control(EVENT, given)
    return int(given)


def forget() -> None:
    """Clear the selection."""
    st.query_params.pop(EVENT, None)


def details(now: Opened, recording: Window, uid: int) -> None:
    """Draw details of the selected event, with links to its operation and its launch."""
    timeline = timeline_of(now)
    event = timeline.event(uid)
    if event is None:
        return
    is_gpu = "track" in event
    st.html(_IN_VIEW % (_DETAILS, _DETAILS, palette().background))
    with st.container(border=True, key=_DETAILS):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            kind = event["what"] if is_gpu else HOST_LABELS[event[C.kind]]
            st.markdown(f"**Selected: {escape(kind)}** · {milliseconds(event[C.dur_ns] / 1e6)}")
            st.button("Close", icon=":material/close:", type="tertiary", on_click=forget)
        st.code(event[C.name], language=None, wrap_lines=True)
        facts = _gpu_facts(event) if is_gpu else _host_facts(event, timeline)
        start_ms = (event[C.ts_ns] - recording.start_ns) / 1e6
        st.caption(" · ".join([f"starts at {start_ms:,.4f} ms", *facts]))
        if is_gpu and (step := _in_the_step(now, uid)):
            st.markdown(escape(step))
        with st.container(horizontal=True):
            if is_gpu:
                _operation_link(event)
                _launch_link(timeline, recording, event)


def example_link(timeline: Timeline, operation: Mapping[str, Any]) -> None:
    """Draw a link from an operation to an example call on the timeline."""
    events = timeline.example(operation[C.uid], operation[C.launcher_uids] or ())
    recording = timeline.recording
    if events.is_empty() or recording is None:
        return
    ends = events[C.ts_ns] + events[C.dur_ns]
    longest = events.sort(C.dur_ns, C.uid, descending=[True, False])
    navigation.link(
        navigation.TIMELINE,
        "Show an example call on the timeline",
        icon=":material/view_timeline:",
        **parameters_around(recording, int(events[C.ts_ns][0]), int(ends.max())),  # type: ignore[arg-type]
        **{EVENT: str(longest[C.uid][0])},
    )


def _gpu_facts(event: dict[str, Any]) -> list[str]:
    facts = [event["track"]]
    if event[C.bytes] is not None:
        facts.append(f"{byte_size(event[C.bytes])} {escape(event[C.direction] or '')}")
    facts.append(f"launched by {code(event[C.launcher_name] or MISSING)}")
    if event["operation"] is not None:
        facts.append(f"operation {code(event['operation'])} {escape(event[C.input_dims] or '')}")
    if not event["is_counted"]:
        facts.append("not counted in the GPU timeline, as its launch is not recorded")
    return facts


def _in_the_step(now: Opened, uid: int) -> str | None:
    """Return whether an event is on the critical path, and its room; None if that is not known."""
    slowdown = slowdown_of(now, Work(uids=(uid,)))
    if slowdown is None:
        return None
    is_on_path = timeline_of(now).path[C.uid].eq(uid).any()
    return f"{'On' if is_on_path else 'Not on'} the critical path · {room(slowdown)}"


def _host_facts(event: dict[str, Any], timeline: Timeline) -> list[str]:
    name = timeline.thread_label(event[C.thread])
    return [escape(text) for text in (name, event[C.input_dims]) if text]


def _operation_link(event: dict[str, Any]) -> None:
    """Draw a link to the row of its operation on the category page."""
    analysis = opened().stored.analyses.get(event[C.category] or "")
    if analysis is not None:
        navigation.link(
            analysis.key,
            f"Show its operation on page {analysis.title}",
            icon=":material/table_rows:",
            **{f"{analysis.key}_op": str(event[C.operation_uid])},
        )


def _launch_link(timeline: Timeline, recording: Window, event: dict[str, Any]) -> None:
    """Draw a link to a window that includes the launching call, if the run has that call."""
    launch = None if event[C.launch_uid] is None else timeline.event(event[C.launch_uid])
    if launch is None:
        return
    lead_ms = (event[C.ts_ns] - launch[C.ts_ns]) / 1e6
    start, end = min(launch[C.ts_ns], event[C.ts_ns]), event[C.ts_ns] + event[C.dur_ns]
    navigation.link(
        navigation.TIMELINE,
        f"Show its launch, {milliseconds(lead_ms)} earlier",
        icon=":material/arrow_back:",
        **parameters_around(recording, start, end),
        **{EVENT: str(event[C.uid])},
    )
