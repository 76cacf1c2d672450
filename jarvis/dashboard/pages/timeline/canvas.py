"""The drawing of the timeline, which zooms and moves in the browser."""

from functools import partial
from pathlib import Path

import streamlit as st

from jarvis.charts import Palette, host_colors, work_colors
from jarvis.charts.palette import ink
from jarvis.dashboard.pages.timeline import event
from jarvis.dashboard.pages.timeline.window import ShownWindow, show
from jarvis.dashboard.session.current_user import current_user
from jarvis.dashboard.session.state import Opened, palette
from jarvis.run.timeline_rows import TimelineRows
from jarvis.server.ingest.tickets import ticket_of, timeline_purpose
from jarvis.server.page_links import timeline_link

_KEY = "_timeline_canvas"


def _source(ending: str) -> str:
    return Path(__file__).with_suffix(ending).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "jarvis_timeline", html=_source(".html"), css=_source(".css"), js=_source(".js")
)


def timeline_canvas(
    now: Opened, rows: TimelineRows, page: ShownWindow, selected: int | None
) -> None:
    """Draw the rows; the browser reports the window after a gesture, and the selected event."""
    choices = {"host": rows.host, "threads": rows.threads, "depth": rows.depth}
    colors = _colors(rows, palette())
    _component(
        key=_KEY,
        data={
            "address": timeline_link(now.id),
            "ticket": ticket_of(current_user(), timeline_purpose(now.id)),
            "query": choices,
            "version": f"{now.id} {now.stamp} {' '.join(str(value) for value in choices.values())}",
            "whole": round(page.whole_ms * 1e6),
            "window": [page.window.start_ns - page.recording.start_ns, page.window.length_ns],
            "rows": [[row.label, row.lanes, row.is_bar] for row in rows.rows],
            "mapped": _mapped(rows),
            "colors": {what: [color, ink(color)] for what, color in colors.items()},
            "legend": list(colors),
            "selected": selected,
            "places": [] if selected is None else rows.place(selected),
            "arrows": [] if selected is None else rows.arrows(selected),
        },
        on_window_change=partial(_move, page.whole_ms),
        on_event_change=_select,
        on_renewed_change=lambda: None,  # the rerun brings another ticket
    )


def _colors(rows: TimelineRows, colors: Palette) -> dict[str, str]:
    """Return the color of each kind of event that the rows have, in the order of the legend."""
    work = {
        what: color
        for what, color in work_colors(rows.timeline, colors).items()
        if what in rows.kinds
    }
    return work | (host_colors(colors) if any(row.is_bar for row in rows.rows) else {})


def _mapped(rows: TimelineRows) -> list[int]:
    """Return the rows that the map of the whole recording sums: GPU streams, else threads."""
    streams = rows.timeline.tracks
    found = [number for number, row in enumerate(rows.rows) if row.label in streams]
    return found or [number for number, row in enumerate(rows.rows) if row.is_bar]


def _move(whole_ms: float) -> None:
    if window := st.session_state[_KEY].get("window"):
        show(float(window["start"]), float(window["length"]), whole_ms)


def _select() -> None:
    chosen = st.session_state[_KEY].get("event")
    if chosen is None:
        return
    if chosen["uid"] is None:
        event.forget()
    else:
        event.choose(int(chosen["uid"]))
