"""The table of runs and categories: the time of each category in each selected run."""

from collections.abc import Sequence

import polars as pl
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from jarvis.dashboard.pages.runs.rows import RunRow
from jarvis.dashboard.widgets.table import configured
from jarvis.impact import share_pct
from jarvis.schemas import NUMBER, Column
from jarvis.server.storage.catalog import name_of
from jarvis.text.format import MISSING, counted, listed
from jarvis.text.markdown import escape

TITLE, TREND, CHANGE = "part", "over_time", "last_change"
STEP_TIME = "Step time"
_TITLE_PX, _TREND_PX, _CHANGE_PX, _RUN_PX = 170, 130, 90, 150


def categories_table(rows: Sequence[RunRow]) -> None:
    """Draw the times of the runs, oldest first, with a sparkline for each category."""
    ordered = sorted(rows, key=lambda row: (row.created, row.id))
    frame, names = category_frame(ordered)
    st.subheader(f"Categories of {counted(len(rows), 'run')}")
    if words := differences(ordered):
        st.warning(words, icon=":material/difference:")
    config = st.column_config
    columns: dict[str, ColumnConfig] = {
        TITLE: config.TextColumn("Time per step (ms)", width=_TITLE_PX),
        TREND: config.LineChartColumn("Oldest to newest", width=_TREND_PX),
        CHANGE: config.NumberColumn(
            "Change (%)", format="%+.1f", width=_CHANGE_PX, help="From the oldest to the newest run"
        ),
    }
    columns |= {
        name: configured(
            Column(name, title, NUMBER, "ms", meaning=escape(row.headline)), frame[name], _RUN_PX
        )
        for name, title, row in zip(names, column_titles(ordered), ordered, strict=True)
    }
    st.dataframe(
        frame,
        hide_index=True,
        column_config=columns,
        height="content",
        placeholder=MISSING,
        alt="Time of each category in each selected run",
    )
    st.caption(
        "Kernel times of categories per step; those at the same time count in each, so their sum "
        "can exceed the step time."
    )


def column_titles(rows: Sequence[RunRow]) -> list[str]:
    """Return short distinct titles of runs: traces, else dates with commits, else with ids."""
    traces = [name_of(row.entry.manifest) for row in rows]
    dates = [row.when for row in rows]
    for titles in (traces, dates):
        if len(set(titles)) == len(rows):
            return titles
    return [f"{date} · {row.id}" for date, row in zip(dates, rows, strict=True)]


def category_frame(ordered: Sequence[RunRow]) -> tuple[pl.DataFrame, list[str]]:
    """Return a row for the step time and each category, and the names of the columns of the runs.

    Categories by their time in the newest run; a run without a category took no time in it.
    """
    titles: dict[str, str] = {}
    for row in ordered:
        titles |= row.figures.titles
    newest = ordered[-1].figures.times_ms
    keys = sorted(titles, key=lambda key: (-newest.get(key, 0.0), titles[key]))
    times = {STEP_TIME: [row.figures.time_ms for row in ordered]}
    for key in keys:
        found = [row.figures.times_ms.get(key, 0.0) for row in ordered]
        if any(found):
            times[titles[key]] = found
    names = [f"run_{number}" for number in range(len(ordered))]
    changes = [
        share_pct(values[-1] - values[0], values[0]) if values[0] else None
        for values in times.values()
    ]
    frame = pl.DataFrame(
        {TITLE: list(times), TREND: list(times.values()), CHANGE: changes},
        schema_overrides={CHANGE: pl.Float64, TREND: pl.List(pl.Float64)},
    )
    columns = zip(*times.values(), strict=True)
    return frame.with_columns(
        pl.Series(name, values, pl.Float64) for name, values in zip(names, columns, strict=True)
    ), names


def differences(rows: Sequence[RunRow]) -> str:
    """Return in what the runs differ that makes their times differ, as a sentence; "" if none."""
    seen = {
        "models": {row.model for row in rows},
        "GPUs": {row.gpu for row in rows},
        "numbers of ranks": {str(row.entry.manifest.trace.world_size or 1) for row in rows},
        "kinds of times": {row.figures.basis.value for row in rows},
    }
    parts = [
        f"{name} ({escape(listed(sorted(values)))})"
        for name, values in seen.items()
        if len(values) > 1
    ]
    return (
        f"These runs have different {', '.join(parts)}, which also changes their times."
        if parts
        else ""
    )
