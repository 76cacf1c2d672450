"""What the step waits for, before and after the changes."""

from collections.abc import Mapping

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.charts import NOW, SIMULATED, EncodedDrawing, Palette, path_color
from jarvis.dashboard.pages.what_if.simulated import Together, together
from jarvis.dashboard.session.state import Opened, cached, of_opened, palette
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.pipeline.simulated_steps import WhatIf
from jarvis.run import Run
from jarvis.simulation.path import UNEXPLAINED
from jarvis.text.format import counted, milliseconds, percent
from jarvis.text.markdown import escape

MAX_PARTS = 12
"""Maximum number of parts; the others are one bar."""

MIN_PCT = 0.05
_MAX_CACHED = 256
_OTHERS = "Remaining parts"


def critical_path(now: Opened, found: Together) -> None:
    """Draw the card."""
    unchanged = together(now, ())
    if not isinstance(unchanged, WhatIf) or not unchanged.critical_path:
        return
    paths = {NOW: unchanged}
    if found.texts and found.result is not None:
        paths[SIMULATED] = found.result
    shown = _chart(now, palette(), found.texts if SIMULATED in paths else (), paths)
    if shown is None:
        return
    title, drawing = shown
    with st.container(border=True):
        st.markdown(
            f"**{escape(title)}**",
            help="The chain of calls, kernels and waits that determines when the steps end, from "
            "the first step to the end of the work of the last one. Shortening what is not on it "
            "saves nothing; shortening what is on it saves time until another chain is as long. "
            f"{UNEXPLAINED.capitalize()}: in no recorded event of the steps. "
            f"{_OTHERS}: several named parts, each below {MIN_PCT:g}% or beyond the first "
            f"{MAX_PARTS}.",
        )
        render_chart(drawing, "Critical path by category and host cause, before and after")


@cached(_MAX_CACHED, of_opened)
def _chart(
    now: Opened, colors: Palette, texts: tuple[str, ...], _paths: Mapping[str, WhatIf]
) -> tuple[str, EncodedDrawing] | None:
    """Return title and chart of the paths under changes; None if they have no parts."""
    parts = path_rows(now.run, _paths)
    if parts.is_empty():
        return None
    steps = _paths[NOW].steps
    axis = f"Time in {counted(steps, 'step')} (ms)" if steps > 1 else "Time (ms)"
    color_of = {key: path_color(key, colors) for key in parts["key"].unique()}
    colored = parts.with_columns(color=pl.col("key").replace_strict(color_of))
    drawing = charts.drawing_of(charts.critical_paths(colored, axis, colors))
    return _title(parts, list(_paths)), drawing.encoded()


def _title(parts: pl.DataFrame, whens: list[str]) -> str:
    """Return what takes most of each path."""
    longest = [_longest(parts, when) for when in whens]
    if len(longest) == 1:
        return f"Longest on the critical path: {longest[0]}"
    before, after = longest
    return f"Longest on the critical path: {before} now, {after} after the changes"


def _longest(parts: pl.DataFrame, when: str) -> str:
    """Return the longest part of a path with its share, as within a sentence."""
    own = parts.filter(pl.col("when") == when).sort("pct", descending=True, maintain_order=True)
    part, pct = own.select("part", "pct").row(0)
    named = part if part[:2].isupper() else f"{part[0].lower()}{part[1:]}"
    return f"{named} ({percent(pct)})"


def path_rows(run: Run, paths: Mapping[str, WhatIf]) -> pl.DataFrame:
    """Return the parts of the paths (``key, part, when, time_ms, pct, text``), longest first.

    Without stalls, which every replay takes as given.
    """
    times = {when: _times(run, path) for when, path in paths.items()}
    whole = {when: sum(own.values()) or 1.0 for when, own in times.items()}
    names = {name for own in times.values() for name in own}
    shares = {
        name: max(100 * own.get(name, 0.0) / whole[when] for when, own in times.items())
        for name in names
    }
    ordered = sorted(names, key=lambda name: (-shares[name], name))
    shown = [name for name in ordered if shares[name] >= MIN_PCT][:MAX_PARTS]
    titles = {key: analysis.title for key, analysis in run.analyses.items()}
    parts = [(titles.get(name, f"{name[:1].upper()}{name[1:]}"), [name]) for name in shown]
    if rest := ordered[len(shown) :]:
        parts.append((_OTHERS, rest))
    rows = []
    for title, of_part in parts:
        for when, own in times.items():
            time_ms = sum(own.get(name, 0.0) for name in of_part)
            pct = 100 * time_ms / whole[when]
            text = f"{milliseconds(time_ms)} · {percent(pct)}" if time_ms else ""
            rows.append(("" if title == _OTHERS else of_part[0], title, when, time_ms, pct, text))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


_SCHEMA = {
    "key": pl.String,
    "part": pl.String,
    "when": pl.String,
    "time_ms": pl.Float64,
    "pct": pl.Float64,
    "text": pl.String,
}


def _times(run: Run, path: WhatIf) -> dict[str, float]:
    """Return the time in ms of each part of a path, without stalls on it."""
    times = {part.name: part.ms for part in path.critical_path}
    info = run.manifest.simulation
    stalled_ms = sum(stall.ns for stall in info.quality.stalls) / 1e6 if info else 0.0
    if times.get(UNEXPLAINED, 0.0) >= stalled_ms:
        times[UNEXPLAINED] = times.get(UNEXPLAINED, 0.0) - stalled_ms
    return {name: time_ms for name, time_ms in times.items() if time_ms > 0}
