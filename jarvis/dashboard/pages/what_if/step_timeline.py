"""The simulated step as a timeline below the recorded one."""

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.charts import EncodedDrawing, Palette, TimelineRow, work_colors
from jarvis.dashboard.pages.what_if.simulated import Together, step_lanes, steps_of, tail_ms
from jarvis.dashboard.session.state import Opened, cached, of_opened, palette, timeline_of
from jarvis.dashboard.widgets.controls import keyed_choice
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.run.replayed_steps import LAUNCH, OTHER_CALL, WAITING, StepLanes
from jarvis.run.timeline import Timeline, Window
from jarvis.run.timeline_events import binned, stacked
from jarvis.schemas.names import C
from jarvis.text.format import count, milliseconds

MAX_MARKS = 3000
"""Maximum number of bins in the chart."""

MAX_EVENTS = 1500
"""Steps with more events are drawn as bins."""

_MAX_CACHED = 32
_STEP = "Step"
_STEP_BAR_PCT = pl.lit(35.0), pl.lit(65.0)
"""Lower and upper edge of the bar of a step, in percent of a row."""

_STEPS = {"recorded": "Recorded step", "simulated": "Simulated step"}


def step_timeline(now: Opened, found: Together) -> None:
    """Draw the card."""
    steps = steps_of(now)
    names = {str(number): name for number, name in enumerate(steps.names)}
    texts = found.texts if found.result else ()
    with st.container(border=True):
        head = st.container(
            horizontal=True, horizontal_alignment="distribute", vertical_alignment="top"
        )
        number = 0
        if len(names) > 1:
            with head:
                title = st.container(width="content")
                number = int(
                    keyed_choice(
                        "what_if_step",
                        "Step",
                        names,
                        str(steps.median),
                        "The step that is drawn. The first one shown has the median time.",
                    )
                )
        else:
            title = head
        shown = {"recorded": step_lanes(now, (), number)}
        if texts:
            shown["simulated"] = step_lanes(now, texts, number)
        lengths = " → ".join(milliseconds(step.length_ns / 1e6) for step in shown.values())
        name = names[str(number)] if len(names) > 1 else "Step"
        if number == len(names) - 1 and tail_ms(now):
            name += " with its GPU work after the mark"
        title.markdown(f"**{name}: {lengths}**")
        drawing, note = _chart(now, palette(), texts, number, shown)
        st.caption(f"{note} Scroll to zoom in, drag to move, double-click for the whole step.")
        render_chart(drawing, "Recorded and simulated step: host threads and GPU streams")


@cached(_MAX_CACHED, of_opened)
def _chart(
    now: Opened, colors: Palette, texts: tuple[str, ...], number: int, _steps: dict[str, StepLanes]
) -> tuple[EncodedDrawing, str]:
    """Return the chart of a step, and what it shows and leaves out, as sentences."""
    found, hidden = steps_of(now).lanes(list(_steps.values()))
    labels = {lane.key: lane.label for lane in found}
    events = {
        key: step.events.filter(pl.col(C.row).is_in(list(labels))) for key, step in _steps.items()
    }
    has_bins = sum(table.height for table in events.values()) > MAX_EVENTS
    bins_per_lane = MAX_MARKS // max(len(_steps) * len(labels), 1)
    length_ms = max(step.length_ns for step in _steps.values()) / 1e6
    rows, bins, boxes = [], [], []
    for key, step in _steps.items():
        window = Window(0, max(step.length_ns, 1))
        rows.append(TimelineRow(key, _STEPS[key]))
        bins.append(_step_bar(key, step.length_ns))
        own = events[key].with_columns(pl.concat_str(pl.lit(f"{key} "), C.row).alias(C.row))
        clear = own.clear() if has_bins else own
        placed = stacked(clear.with_columns(pl.col(C.dur_ns).cast(pl.Int64)))
        boxes.append(_boxes(placed))
        lanes_of = dict(placed.group_by(C.row).agg(pl.col("lane").max() + 1).iter_rows())
        rows += [
            TimelineRow(f"{key} {lane}", label, 0 if has_bins else lanes_of.get(f"{key} {lane}", 1))
            for lane, label in labels.items()
        ]
        if has_bins:
            binned_rows = binned(own, window.edges(bins_per_lane))
            bins.append(_bars(binned_rows))
    note = (
        "Bar height: busy share; color: what runs most."
        if has_bins
        else f"{count(sum(table.height for table in events.values()))} single events."
    )
    if hidden:
        note += f" Not shown: {hidden} with less time."
    chart = charts.timeline_chart(
        rows,
        pl.concat(bins),
        pl.concat(boxes),
        _colors(timeline_of(now), colors),
        (0.0, length_ms),
        colors,
        "Time since the start of the step (ms)",
    )
    return charts.drawing_of(chart).encoded(), note


def _step_bar(key: str, length_ns: int) -> pl.DataFrame:
    """Return the bar of a whole step, lower than a row."""
    whole = pl.DataFrame(
        {C.row: [key], "what": [_STEP], C.start_ns: [0], C.end_ns: [length_ns]}
    ).with_columns(pl.col(C.end_ns).alias(C.busy_ns))
    low, high = _STEP_BAR_PCT
    return _bars(whole).with_columns(low_pct=low, high_pct=high)


def _bars(bins: pl.DataFrame) -> pl.DataFrame:
    """Return the bars of bins for the chart, with height by busy share."""
    busy = 100 * pl.col(C.busy_ns) / (pl.col(C.end_ns) - pl.col(C.start_ns))
    return bins.select(
        C.row,
        start_ms=pl.col(C.start_ns) / 1e6,
        end_ms=pl.col(C.end_ns) / 1e6,
        color="what",
        word="what",
        busy_pct=busy,
        low_pct=0.0,
        high_pct=busy,
    )


def _boxes(events: pl.DataFrame) -> pl.DataFrame:
    """Return the boxes of single events for the chart."""
    return events.select(
        C.row,
        "lane",
        C.name,
        start_ms=pl.col(C.ts_ns) / 1e6,
        end_ms=(pl.col(C.ts_ns) + pl.col(C.dur_ns)) / 1e6,
        color="what",
        **{C.dur_us: pl.col(C.dur_ns) / 1e3},
        called_by=pl.col("operation").cast(pl.String),
        shapes=pl.col(C.input_dims).str.head(120),
    )


def _colors(timeline: Timeline, colors: Palette) -> dict[str, str]:
    return {
        _STEP: colors.text,
        LAUNCH: colors.host[0],
        WAITING: colors.pale,
        OTHER_CALL: colors.categorical[6],
        **work_colors(timeline, colors),
    }
