"""A window of the timeline prepared for charts and tables, and chart selections."""

from collections.abc import Mapping
from functools import partial

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.charts import Palette, TimelineRow
from jarvis.dashboard.pages.timeline import event
from jarvis.dashboard.pages.timeline.window import length_ms, show
from jarvis.dashboard.session.state import palette
from jarvis.perf_report.work import COMMUNICATION, COPY
from jarvis.run.path_events import HOST, LATENCY
from jarvis.run.timeline import IDLE, KINDS, NOT_LINKED, OTHER_WORK, Timeline, Window
from jarvis.schemas.names import C


class TimelineView:
    """The window of a timeline, with data and times converted for charts and tables."""

    def __init__(self, timeline: Timeline, recording: Window, window: Window) -> None:
        self.timeline, self.window = timeline, window
        self.origin_ns = recording.start_ns
        self.whole_ms = length_ms(recording)

    @property
    def window_ms(self) -> tuple[float, float]:
        """Start and end of the window in ms since the start of the recording."""
        return self.since(self.window.start_ns), self.since(self.window.end_ns)

    def since(self, time_ns: int) -> float:
        """Return a time in ms since the start of the recording."""
        return (time_ns - self.origin_ns) / 1e6

    def start_ms(self, column: str = C.ts_ns) -> pl.Expr:
        """Return a column of times in ms since the start of the recording, as ``start_ms``."""
        return ((pl.col(column) - self.origin_ns) / 1e6).alias("start_ms")

    def share_pct(self, time_ns: int) -> float:
        """Return a duration in percent of the window."""
        return 100 * time_ns / self.window.length_ns

    def bars(self, bins: pl.DataFrame, color: pl.Expr, word: pl.Expr) -> pl.DataFrame:
        """Return the bars of bins for the chart, with height by busy share."""
        busy = 100 * pl.col(C.busy_ns) / (pl.col(C.end_ns) - pl.col(C.start_ns))
        return bins.select(
            C.row,
            self.start_ms(C.start_ns),
            self.start_ms(C.end_ns).alias("end_ms"),
            color=color,
            word=word,
            busy_pct=busy,
            low_pct=0.0,
            high_pct=busy,
        )

    def boxes(self, events: pl.DataFrame, called_by: str, color: str) -> pl.DataFrame:
        """Return the boxes of single events for the chart."""
        return events.select(
            C.row,
            "lane",
            C.uid,
            C.name,
            self.start_ms(),
            ((pl.col(C.ts_ns) + pl.col(C.dur_ns) - self.origin_ns) / 1e6).alias("end_ms"),
            color=color,
            **{C.dur_us: pl.col(C.dur_ns) / 1e3},
            called_by=pl.col(called_by).cast(pl.String),
            shapes=pl.col(C.input_dims).str.head(120),
        )

    def chart(
        self,
        name: str,
        rows: list[TimelineRow],
        bins: pl.DataFrame,
        events: pl.DataFrame,
        colors: Mapping[str, str],
        selected: int | None,
        alt: str,
    ) -> None:
        """Draw lanes; dragging selects a window, clicking selects an event."""
        # The key differs by window, so that the selection of the previous chart is not reused.
        key = f"timeline_{name}_{self.window.start_ns}_{self.window.length_ns}"
        st.altair_chart(
            charts.timeline_chart(rows, bins, events, colors, self.window_ms, palette(), selected),
            key=key,
            on_select=partial(self._follow, key),
            selection_mode=[charts.BRUSHED, charts.CLICKED],
            alt=alt,
        )

    def _follow(self, key: str) -> None:
        """Show the dragged range, or select the clicked event."""
        chosen = st.session_state[key]["selection"]
        brushed = (chosen.get(charts.BRUSHED) or {}).get("start_ms")
        clicked = chosen.get(charts.CLICKED) or []
        if brushed:
            show(min(brushed), max(brushed) - min(brushed), self.whole_ms)
        elif clicked and clicked[0].get("uid") is not None:
            event.choose(int(clicked[0]["uid"]))


def gpu_colors(timeline: Timeline, colors: Palette) -> dict[str, str]:
    """Return a color for each kind of GPU work, consistent with the other charts."""
    named = [colors.categorical[n] for n in (0, 2, 4, 5)]
    fixed = {
        OTHER_WORK: colors.muted,
        KINDS[COMMUNICATION]: colors.categorical[1],
        KINDS[COPY]: colors.categorical[3],
        NOT_LINKED: colors.border,
        IDLE: colors.pale,
        HOST: colors.categorical[6],
        LATENCY: colors.below_threshold,
    }
    categories = [what for what in timeline.whats if what not in fixed]
    return dict(zip(categories, named, strict=False)) | fixed
