"""The open analysis, and caches of its data."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, wraps
from inspect import signature
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import polars as pl
import polars.selectors as cs
import streamlit as st

from jarvis.charts import PALETTES, Palette, with_short_names
from jarvis.core.errors import DistributedRunError, JarvisError
from jarvis.core.request import Targets
from jarvis.core.workspace import RunPaths
from jarvis.dashboard.session.current_user import current_user
from jarvis.impact import BOTTLENECK_EFFICIENCY_PCT
from jarvis.perf_report import CallPath
from jarvis.pipeline import at_targets
from jarvis.preconditions import CHECKPOINT
from jarvis.reports.utilization import recomputed_calls
from jarvis.run import Run
from jarvis.run.timeline import Timeline
from jarvis.schemas.names import C
from jarvis.server.actions import visible_run_dir
from jarvis.server.storage.artifacts import is_local
from jarvis.server.storage.loaded_runs import loaded_run, loaded_timeline

_P = ParamSpec("_P")
_R = TypeVar("_R")

CURRENT = "_analysis_id"
_NEXT = "_next_analysis_id"
_OPENED = "_opened"
_MAX_CACHED_CATEGORIES = 32
_MAX_CACHED_TARGETS = 128


class NoAnalysisError(JarvisError):
    """There is no analysis yet."""

    def __init__(self) -> None:
        super().__init__("No analysis yet: analyze a trace first, for example the sample.")


class NotOneRankError(JarvisError):
    """The analysis is a distributed run, where a page shows the analysis of one trace."""

    def __init__(self, analysis_id: str) -> None:
        super().__init__(f"{analysis_id} is a distributed run: open *Ranks* or one of its ranks.")
        self.analysis_id = analysis_id


@dataclass(frozen=True)
class Opened:
    """The analysis that the pages show, as it is ``stored`` and at the targets of their sliders.

    ``stamp`` is the modification time of its manifest in ns, a part of cache keys; ``below_pct``
    the efficiency below which operations are highlighted; ``chosen`` are the targets of the
    sliders, None if they are those stored.
    """

    id: str
    root: Path
    stored: Run
    stamp: int
    below_pct: float = BOTTLENECK_EFFICIENCY_PCT
    chosen: Targets | None = None

    @property
    def targets(self) -> Targets:
        """Return the targets of the sliders."""
        return self.chosen or self.stored.targets

    @cached_property
    def run(self) -> Run:
        """The analysis with its findings at these targets, which takes time to compute: what does
        not need them takes ``stored``, so that a page can show it first."""
        if self.targets == self.stored.targets:
            return self.stored
        return _at(self, self.targets)

    @property
    def other_targets(self) -> tuple[float | None, str | None]:
        """Return target and targets of categories for a job, None if they are those stored."""
        if self.targets == self.stored.targets:
            return None, None
        return self.targets.pct, self.targets.own_text


def of_stored(now: Opened) -> Hashable:
    """Return the key of what does not depend on the targets of an analysis."""
    return str(now.root), now.stamp


def of_opened(now: Opened) -> Hashable:
    """Return the key of what depends on its targets, as findings do."""
    return str(now.root), now.stamp, now.targets.pct, now.targets.own


HASH_STORED: dict[str | type[Any], Callable[[Any], Any]] = {
    Opened: of_stored,
    Targets: lambda targets: (targets.pct, targets.own),
}
"""Hash functions for caches of what does not depend on the targets of an ``Opened``."""

HASH_OPENED: dict[str | type[Any], Callable[[Any], Any]] = {Opened: of_opened}
"""Hash functions for caches of what depends on its targets."""


@st.cache_resource(
    max_entries=_MAX_CACHED_TARGETS, show_spinner="Findings at this target", hash_funcs=HASH_STORED
)
def _at(now: Opened, targets: Targets) -> Run:
    return at_targets(now.stored, targets)


def cached(
    most: int, key: Callable[[Opened], Hashable]
) -> Callable[[Callable[Concatenate[Opened, _P], _R]], Callable[Concatenate[Opened, _P], _R]]:
    """Return a decorator that keeps the ``most`` recent results of a function of an analysis, for
    all sessions; do not modify them.

    They belong to the ``key`` of the analysis and the other arguments; those whose names begin with
    ``_`` depend on these. Sessions that need the same result at once wait for one of them. A page
    has many such calls: ``st.cache_resource`` inspects the function at each, a tenth of a rerun.
    """

    def decorate(
        make: Callable[Concatenate[Opened, _P], _R],
    ) -> Callable[Concatenate[Opened, _P], _R]:
        count = sum(not name.startswith("_") for name in signature(make).parameters) - 1
        cell_of = lru_cache(most)(lambda *_: _Cell[_R]())

        @wraps(make)
        def result(now: Opened, /, *others: _P.args, **named: _P.kwargs) -> _R:
            cell = cell_of(key(now), *others[:count], *named.items())
            if not cell.values:
                with cell.lock:
                    if not cell.values:
                        cell.values = (make(now, *others, **named),)
            return cell.values[0]

        return result

    return decorate


@dataclass(slots=True)
class _Cell(Generic[_R]):
    """A result, if it is known."""

    lock: Lock = field(default_factory=Lock)
    values: tuple[_R] | tuple[()] = ()


def current_id() -> str | None:
    """Return the id in the URL or the sidebar, even if there is no such analysis."""
    chosen: str | None = st.session_state.get(CURRENT)
    return chosen


def open_next(analysis_id: str) -> None:
    """Switch analyses on the next rerun (the sidebar is already rendered)."""
    st.session_state[_NEXT] = analysis_id


def close() -> None:
    """Close the open analysis; the next page opens the newest one."""
    st.session_state.pop(CURRENT, None)


def pop_next() -> str | None:
    """Return and clear the id passed to ``open_next`` since the last rerun."""
    analysis_id: str | None = st.session_state.pop(_NEXT, None)
    return analysis_id


@contextmanager
def one_rerun() -> Iterator[None]:
    """Look for the open analysis once within the block, in which a page is drawn."""
    st.session_state[_OPENED] = {}
    try:
        yield
    finally:
        st.session_state.pop(_OPENED, None)  # a session that waits must not keep the tables


def opened() -> Opened:
    """Return the open analysis.

    Raises:
        NoAnalysisError: There is no analysis yet.
        UnknownAnalysisError: The id does not exist.
        NotOneRankError: It is a distributed run.
        RunError: The run directory cannot be read.
    """
    analysis_id = current_id()
    if analysis_id is None:
        raise NoAnalysisError
    known: dict[str, Opened] = st.session_state.get(_OPENED, {})
    if analysis_id not in known:
        known[analysis_id] = load_stored(analysis_id)
    return known[analysis_id]


def load_stored(analysis_id: str) -> Opened:
    """Return a stored analysis that the user may see, open or not; raises like ``opened``."""
    waiting = nullcontext() if is_local(analysis_id) else st.spinner("Fetching the analysis")
    with waiting:
        root = visible_run_dir(current_user(), analysis_id)
    stamp = RunPaths(root).manifest.stat().st_mtime_ns
    try:
        run = loaded_run(str(root), stamp)
    except DistributedRunError:  # its message has the path on the server
        raise NotOneRankError(analysis_id) from None
    return Opened(analysis_id, root, run, stamp)


def timeline_of(analysis: Opened) -> Timeline:
    """Return the timeline of an analysis, with its cached windows."""
    return loaded_timeline(str(analysis.root), analysis.stamp)


def rows_of(analysis: Opened, key: str) -> pl.DataFrame:
    """Return the operations of a category, longest first, with short names, without nested
    columns.

    Filtering and sorting copy rows, and nested columns make that slow.
    """
    return _rows(analysis, key)


def recomputed_of(analysis: Opened) -> Collection[int]:
    """Return the ``uid`` of calls that activation checkpointing repeats."""
    return _recomputed(analysis)


def call_path_of(analysis: Opened, key: str, uid: int) -> CallPath | None:
    """Return the parent chain and subtree of an operation, if the run has them."""
    return _call_paths(analysis, key).get(uid)


def palette() -> Palette:
    """Return the colors of the browser's theme."""
    return PALETTES[st.context.theme.type or "light"]


@cached(_MAX_CACHED_CATEGORIES, of_stored)
def _rows(now: Opened, key: str) -> pl.DataFrame:
    rows = now.stored.category_operations(key).select(~cs.nested())
    if rows[C.kernel_time_us].is_sorted(descending=True):  # usual; a sort would copy all columns
        rows = rows.with_columns(pl.col(C.kernel_time_us).set_sorted(descending=True))
    else:
        rows = rows.sort(C.kernel_time_us, descending=True, maintain_order=True)
    return with_short_names(rows, recomputed=_recomputed(now))


@cached(_MAX_CACHED_CATEGORIES, of_stored)
def _recomputed(now: Opened) -> Collection[int]:
    """Return the calls that activation checkpointing repeats."""
    tree = now.stored.tables.get("call_tree")
    if tree is None or not tree[C.name].str.contains(CHECKPOINT).any():
        return ()  # without reading the long table of host calls
    return frozenset(recomputed_calls(now.stored))


@cached(_MAX_CACHED_CATEGORIES, of_stored)
def _call_paths(now: Opened, key: str) -> Mapping[int, CallPath]:
    return now.stored.call_paths(key)
