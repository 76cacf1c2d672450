"""The analysis that is open, and the caches over what is on disk."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
import streamlit as st

from jarvis.charts import PALETTES, Palette
from jarvis.core.errors import JarvisError
from jarvis.core.workspace import RunPaths
from jarvis.dashboard.session.current_user import visitor
from jarvis.perf_report import CallPath
from jarvis.run import Run
from jarvis.run.timeline import Timeline
from jarvis.server.actions import visible_run_dir
from jarvis.server.storage.artifacts import is_local

CURRENT = "_analysis_id"
_NEXT = "_next_analysis_id"
_KEPT_RUNS = 8
_KEPT_CATEGORIES = 32


class NoAnalysisError(JarvisError):
    """Nothing was analyzed yet."""

    def __init__(self) -> None:
        super().__init__("No analysis yet: analyze a trace first, the sample for instance.")


@dataclass(frozen=True, slots=True)
class Opened:
    """The analysis that the pages show."""

    id: str
    root: Path
    run: Run
    stamp: int
    """When its manifest was written; a key of what is cached."""


HASH_OPENED: dict[str | type[Any], Callable[[Any], Any]] = {
    Opened: lambda now: (str(now.root), now.stamp)
}
"""For caches of functions that take an ``Opened``."""


def current_id() -> str | None:
    """The id that the URL or the sidebar names, whether or not there is such an analysis."""
    chosen: str | None = st.session_state.get(CURRENT)
    return chosen


def open_next(analysis_id: str) -> None:
    """Open an analysis from the next run of the page on; in this one the sidebar is drawn."""
    st.session_state[_NEXT] = analysis_id


def close() -> None:
    """Let go of the open analysis: the next page opens the newest one."""
    st.session_state.pop(CURRENT, None)


def take_next() -> str | None:
    """What ``open_next`` asked for since the last run."""
    asked: str | None = st.session_state.pop(_NEXT, None)
    return asked


def opened() -> Opened:
    """The open analysis.

    Raises NoAnalysisError where nothing is kept, UnknownAnalysisError where the id is not, and a
    RunError where its folder cannot be read; the shell shows each as a sentence.
    """
    analysis_id = current_id()
    if analysis_id is None:
        raise NoAnalysisError
    return kept(analysis_id)


def kept(analysis_id: str) -> Opened:
    """A stored analysis that the visitor may see, whether or not it is the open one.

    Raises as ``opened`` does.
    """
    waiting = nullcontext() if is_local(analysis_id) else st.spinner("Fetching the analysis")
    with waiting:
        root = visible_run_dir(visitor(), analysis_id)
    stamp = RunPaths(root).manifest.stat().st_mtime_ns
    return Opened(analysis_id, root, _load(str(root), stamp), stamp)


def timeline_of(analysis: Opened) -> Timeline:
    """The timeline of the open analysis, with what it worked out for earlier windows."""
    return _timeline(str(analysis.root), analysis.stamp)


def rows_of(analysis: Opened, key: str) -> pl.DataFrame:
    """The operations of a category, most time first, without what only the details of one need.

    Filters and orders copy rows, and lists are what makes that slow.
    """
    return _rows(str(analysis.root), analysis.stamp, key)


def call_path_of(analysis: Opened, key: str, uid: int) -> CallPath | None:
    """Parent chain and subtree of an operation of a category, where the run has them."""
    return _call_paths(str(analysis.root), analysis.stamp, key).get(uid)


def palette() -> Palette:
    """The colors of the theme that the browser shows."""
    return PALETTES[st.context.theme.type or "light"]


@st.cache_resource(max_entries=_KEPT_RUNS, show_spinner=False)
def _load(root: str, stamp: int) -> Run:
    """A run is immutable and shared between sessions; ``stamp`` tells a replaced one apart."""
    return Run.load(Path(root))


@st.cache_resource(max_entries=_KEPT_RUNS, show_spinner=False)
def _timeline(root: str, stamp: int) -> Timeline:
    return Timeline(_load(root, stamp))


@st.cache_resource(max_entries=_KEPT_CATEGORIES, show_spinner=False)
def _rows(root: str, stamp: int, key: str) -> pl.DataFrame:
    rows = _load(root, stamp).category_operations(key).select(~cs.nested())
    # They come in this order; but Polars sorts them no more once it knows so.
    return rows.sort("kernel_time_us", descending=True, maintain_order=True)


@st.cache_resource(max_entries=_KEPT_CATEGORIES, show_spinner=False)
def _call_paths(root: str, stamp: int, key: str) -> Mapping[int, CallPath]:
    return _load(root, stamp).call_paths(key)
