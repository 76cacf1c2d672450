"""What the step waits for, before and after the changes."""

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.charts import NOW, SIMULATED
from jarvis.dashboard.pages.what_if.simulated import Together, together
from jarvis.dashboard.session.state import Opened, palette
from jarvis.dashboard.widgets.elements import render_altair
from jarvis.pipeline.simulated_steps import PathShare, WhatIf
from jarvis.run import Run
from jarvis.text.format import counted, milliseconds, percent

MAX_PARTS = 12
"""Maximum number of parts; the others are one bar."""

MIN_PCT = 0.05
_OTHERS = "Remaining parts"


def critical_path(now: Opened, found: Together) -> None:
    """Draw the card."""
    unchanged = together(now, ())
    if not isinstance(unchanged, WhatIf) or not unchanged.critical_path:
        return
    paths = {NOW: unchanged}
    if found.texts and found.result is not None:
        paths[SIMULATED] = found.result
    parts = path_rows(now.run, paths)
    with st.container(border=True):
        st.markdown(
            f"**{_title(parts, list(paths))}**",
            help="The chain of calls, kernels and waits that the end of the steps waited for, from "
            "the first step to the end of the work of the last one. Shortening what is not on it "
            "saves nothing; shortening what is on it saves time until another chain is as long.",
        )
        steps = unchanged.steps
        axis = f"Time in {counted(steps, 'step')} (ms)" if steps > 1 else "Time (ms)"
        chart = charts.critical_paths(parts, axis, palette())
        render_altair(chart, "Critical path by category and host cause, before and after")


def _title(parts: pl.DataFrame, whens: list[str]) -> str:
    """Return what takes most of each path."""
    longest = [_longest(parts, when) for when in whens]
    (part, pct), *after = longest
    text = f"Critical path: {part} takes {percent(pct)}"
    if not after:
        return text
    ((part_after, pct_after),) = after
    subject = "" if part_after == part else f"{part_after} "
    return f"{text} now, {subject}{percent(pct_after)} after the changes"


def path_rows(run: Run, paths: dict[str, WhatIf]) -> pl.DataFrame:
    """Return the parts of the paths (``part, when, time_ms, pct, text``), longest first."""
    titles = {key: analysis.title for key, analysis in run.analyses.items()}
    times: dict[str, float] = {}
    for path in paths.values():
        for part in path.critical_path:
            times[part.name] = max(times.get(part.name, 0.0), part.pct)
    shown = [
        name for name in sorted(times, key=lambda name: -times[name]) if times[name] >= MIN_PCT
    ]
    shown = shown[:MAX_PARTS]
    rows = []
    for when, path in paths.items():
        by_name = {part.name: part for part in path.critical_path}
        rest = [part for part in path.critical_path if part.name not in shown]
        named = [
            (titles.get(name, name.capitalize()), [by_name[name]] if name in by_name else [])
            for name in shown
        ]
        for order, (title, own) in enumerate([*named, (_OTHERS, rest)]):
            rows.append((order, title, when, *_sums(own)))
    schema = {
        "order": pl.Int64,
        "part": pl.String,
        "when": pl.String,
        "time_ms": pl.Float64,
        "pct": pl.Float64,
    }
    found = pl.DataFrame(rows, schema=schema, orient="row")
    has_time = pl.col("pct").max().over("part") >= MIN_PCT
    text = [
        f"{milliseconds(ms)} · {percent(pct)}" if ms else ""
        for ms, pct in found["time_ms", "pct"].iter_rows()
    ]
    return (
        found.with_columns(text=pl.Series(text, dtype=pl.String))
        .filter(has_time)
        .sort("order", maintain_order=True)
        .drop("order")
    )


def _sums(parts: list[PathShare]) -> tuple[float, float]:
    """Return the time in ms, and the share of the path."""
    return sum(part.ms for part in parts), sum(part.pct for part in parts)


def _longest(parts: pl.DataFrame, when: str) -> tuple[str, float]:
    """Return the longest part of a path, as within a sentence, and its share."""
    own = parts.filter(pl.col("when") == when).sort("pct", descending=True, maintain_order=True)
    part, pct = own.select("part", "pct").row(0)
    return (part if part.isupper() else f"{part[0].lower()}{part[1:]}"), pct
