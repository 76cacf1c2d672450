"""Tables of the gaps and events in the timeline's window, longest first."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.dashboard.pages.timeline import event
from jarvis.dashboard.pages.timeline.window import ShownWindow, show_around
from jarvis.dashboard.session.state import Opened, cached, of_stored
from jarvis.dashboard.widgets.table import (
    BOX_PX,
    ReadyTable,
    card_px,
    draw_table,
    ready_table,
    with_short_texts,
)
from jarvis.run.timeline import IDLE, Window
from jarvis.schemas import TABLES
from jarvis.schemas.columns import number, text
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, milliseconds
from jarvis.text.shapes import operation_shapes
from jarvis.text.short_names import short_frame_name, short_kernel_name, short_operation_name

_GAPS_SHOWN, _EVENTS_SHOWN = 100, 100
MIN_GAP_NS = 1000
"""Shorter gaps, of a few ns between kernels that follow each other, are not listed."""

_START = number("start_ms", "Start (ms)", "ms", "since the start of the recording", ",.4f")
_GAP_COLUMNS = charts.columns_of(
    TABLES["idle_gaps"],
    (
        _START,
        number("gap_ms", "Gap (ms)", "ms", "time in which no counted GPU event runs"),
        text(C.launcher_name, "Launcher", "operator that launched the event after the gap"),
    ),
)
_GAPS = (
    *("start_ms", "gap_ms", C.cause, C.launcher_name),
    *(C.next_name, C.host_call, C.host_call_us),
)
_EVENT_COLUMNS = charts.columns_of(
    TABLES["gpu_work"],
    (
        _START,
        number(C.dur_us, "Duration (µs)", "µs", "of the event", ",.2f"),
        text("what", "Kind", "category of its operation, or kind of work"),
        text("operation", "Operation", "operation, or collective and its message size"),
        text(C.input_dims, "Shapes", "M, N and K of a product, else of each tensor argument"),
        text("track", "Stream", "GPU and stream that it runs on"),
    ),
)
_EVENTS = ("start_ms", C.dur_us, C.name, "what", "operation", C.input_dims, "track")
_WIDTHS = {"start_ms": 74, "gap_ms": 62, C.dur_us: 84, C.host_call_us: 90}
_SHORT = {
    C.name: short_kernel_name,
    C.next_name: short_kernel_name,
    C.launcher_name: short_operation_name,
    "operation": short_operation_name,
    C.host_call: short_frame_name,
}
"""Functions that shorten the texts of a column; the details of an event have the full ones."""


_MAX_CACHED_WINDOWS = 64
"""A window has at most 100 rows of each table."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """Title of a table, its rows and how they are shown; no table for no rows."""

    title: str
    rows: pl.DataFrame
    table: ReadyTable | None = None


def gaps_card(now: Opened, page: ShownWindow) -> None:
    """Draw the idle gaps of the window."""
    gaps = _gaps(now, page.window, card_px() - BOX_PX, page)
    with st.container(border=True):
        st.markdown(gaps.title)
        if gaps.table is None:
            return
        st.caption("Select a gap to show it on the timeline. Causes are likely, not proven.")
        _jumping_table(page, "gaps", gaps.rows, gaps.table)


@cached(_MAX_CACHED_WINDOWS, of_stored)
def _gaps(now: Opened, window: Window, room_px: int, _page: ShownWindow) -> _Listed:
    idle = _page.timeline.gaps.filter(pl.col("what") == IDLE, pl.col(C.dur_ns) >= MIN_GAP_NS)
    gaps = window.of(idle, start=C.start_ns)
    if gaps.is_empty():
        return _Listed("**No idle gap of at least 1 µs in this window**", gaps)
    total = milliseconds(int(gaps[C.dur_ns].sum()) / 1e6)
    title = (
        f"**{counted(gaps.height, 'idle gap')} of at least 1 µs in this window, together "
        f"{total}**, longest first"
    )
    labels = {key.value: words.label for key, words in CAUSES.items()}
    longest = window.longest(idle, _GAPS_SHOWN, start=C.start_ns).with_columns(
        _page.start_ms(C.start_ns),
        pl.col(C.cause).replace(labels),
        gap_ms=pl.col(C.dur_ns) / 1e6,
    )
    return _listed(title, longest, _GAP_COLUMNS, _GAPS, room_px)


def events_card(now: Opened, page: ShownWindow) -> None:
    """Draw the GPU events of the window."""
    events = _events(now, page.window, card_px() - BOX_PX, page)
    with st.container(border=True):
        st.markdown(events.title)
        if events.table is None:
            st.caption("No GPU work in this window.")
            return
        st.caption("Select an event to show it on the timeline, with its operation.")
        _jumping_table(page, "events", events.rows, events.table)


@cached(_MAX_CACHED_WINDOWS, of_stored)
def _events(now: Opened, window: Window, room_px: int, _page: ShownWindow) -> _Listed:
    events = _page.timeline.gpu_event_count(window)
    longest = window.longest(_page.timeline.gpu_events, _EVENTS_SHOWN)
    title = f"**{count(events)} GPU events in this window**, longest first"
    if not events:
        return _Listed(title, longest)
    params = now.run.table("operations").select(C.params, pl.col(C.uid).alias(C.operation_uid))
    rows = longest.join(params, on=C.operation_uid, how="left", maintain_order="left")
    given = rows.select(C.params, C.input_dims).iter_rows()
    rows = rows.with_columns(
        _page.start_ms(),
        pl.Series(C.input_dims, operation_shapes(given), pl.String),
        (pl.col(C.dur_ns) / 1e3).alias(C.dur_us),
    )
    if rows[C.device].n_unique() == 1:
        rows = rows.with_columns(pl.col("track").str.split(" · ").list.last())
    return _listed(title, rows, _EVENT_COLUMNS, _EVENTS, room_px)


def _listed(
    title: str, rows: pl.DataFrame, columns: charts.Columns, shown: Sequence[str], room_px: int
) -> _Listed:
    readable = with_short_texts(rows, _SHORT)
    table = ready_table(readable, columns, shown, _WIDTHS, room_px=room_px)
    followed = [name for name in ("start_ms", C.dur_ns, C.uid) if name in rows.columns]
    return _Listed(title, rows.select(followed), table)


def _jumping_table(page: ShownWindow, name: str, rows: pl.DataFrame, table: ReadyTable) -> None:
    """Draw a table; selecting a row moves the window to it, and selects a GPU event."""
    key = f"timeline_{name}_{page.window.start_ns}_{page.window.length_ns}"

    def jump() -> None:
        picked = st.session_state[key]["selection"]["rows"]
        if picked:
            row = rows.row(picked[0], named=True)
            show_around(row["start_ms"], row[C.dur_ns] / 1e6, page.whole_ms)
            if C.uid in row:
                event.choose(row[C.uid])

    draw_table(table, name, key=key, on_select=jump)
