"""The trend of a project or model: its times over its runs."""

from collections import Counter
from collections.abc import Sequence

import polars as pl
import streamlit as st

from jarvis.charts import drawing_of
from jarvis.charts.trend import MAX_SERIES, trend
from jarvis.dashboard.pages.runs.filters import PAGE
from jarvis.dashboard.pages.runs.rows import RunRow
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.controls import keyed_choice
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.text.format import counted
from jarvis.text.markdown import escape

STEP_TIME = "step_time"
MIN_RUNS = 2


def trend_card(rows: Sequence[RunRow]) -> None:
    """Draw the chart of the rows of one project or model, with the choice of both axes."""
    groups = groups_of(rows)
    with st.container(border=True):
        if not groups:
            st.caption("A trend needs two runs of one project or model in the table.")
            return
        of, shown = st.columns(2)
        with of:
            labels = {key: f"{_title(key)} ({len(found)})" for key, found in groups.items()}
            key = keyed_choice(
                f"{PAGE}_trend", "Trend of", labels, next(iter(labels)), "Runs in the table."
            )
        titles = {STEP_TIME: "Step time"}
        for row in groups[key]:
            titles |= row.figures.titles
        with shown:
            time = keyed_choice(
                f"{PAGE}_shown", "Time", titles, STEP_TIME, "Per step, or of runs without steps."
            )
        points = points_of(groups[key], time)
        left_out = points["series"].n_unique() - MAX_SERIES
        if left_out > 0:
            points = _largest_series(points)
        st.markdown(f"**{escape(titles[time])} of {escape(_title(key))} over its runs**")
        render_chart(
            drawing_of(trend(points, f"{titles[time]} (ms)", palette())),
            f"{titles[time]} over {counted(points.height, 'run')}",
        )
        if left_out > 0:
            st.caption(f"Not shown: {counted(left_out, 'line')} with fewer runs. Filter the table.")


def groups_of(rows: Sequence[RunRow]) -> dict[str, list[RunRow]]:
    """Return the runs of each project and each model that has several, newest group first."""
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        keys = [f"model:{_model(row)}"]
        if row.labels.project:
            keys.insert(0, f"project:{row.labels.project}")
        for key in keys:
            groups.setdefault(key, []).append(row)
    return {key: found for key, found in groups.items() if len(found) >= MIN_RUNS}


def _model(row: RunRow) -> str:
    """Return the model, with the number of ranks of a distributed run: others do not compare."""
    return f"{row.model} · {counted(len(row.ranks), 'rank')}" if row.ranks else row.model


def points_of(rows: Sequence[RunRow], time: str) -> pl.DataFrame:
    """Return the points of the chart, oldest first; a run without the category took no time."""
    return pl.DataFrame(
        [
            {
                "created": row.created.replace(tzinfo=None),
                "shown_ms": row.figures.time_ms
                if time == STEP_TIME
                else row.figures.times_ms.get(time, 0.0),
                "series": f"{_model(row)} · {row.gpu}",
                "run": f"{row.when} · {row.id}",
            }
            for row in sorted(rows, key=lambda row: (row.created, row.id))
        ]
    )


def _largest_series(points: pl.DataFrame) -> pl.DataFrame:
    counts = Counter(points["series"].to_list())
    most = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_SERIES]
    return points.filter(pl.col("series").is_in(most))


def _title(key: str) -> str:
    kind, _, name = key.partition(":")
    return f"{kind} {name}"
