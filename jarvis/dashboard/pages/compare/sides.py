"""The two sides of the Compare page: the target (open analysis) and the chosen reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import polars.selectors as cs
import streamlit as st

from jarvis.comparison import Comparison
from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.dashboard.pages.runs.filters import SELECTED
from jarvis.dashboard.pages.runs.rows import RunRow
from jarvis.dashboard.session import links, navigation, state
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.links import REFERENCE, note_control, notice
from jarvis.dashboard.session.state import Opened
from jarvis.pipeline import compare
from jarvis.run.figures import Kind, Likeness, likeness
from jarvis.schemas.names import C
from jarvis.server.storage.catalog import Catalog, Entry, name_of
from jarvis.text.format import arguments, count, counted, milliseconds
from jarvis.text.markdown import escape

_BOX = "compare_reference"
_SEEN, _LAST_TARGET = "_reference_parameter", "_compare_target"
_MAX_CACHED_COMPARISONS = 8
_MAX_CACHED_TOLERANCES = 32
_MAX_OFFERED = 10

_Key = tuple[tuple[str, int], tuple[str, int]]
"""Cache key of a comparison: id and stamp of the target and of the reference."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Two analyses to compare; they can be the same."""

    target: Opened
    reference: Opened

    @property
    def are_one(self) -> bool:
        """Whether an analysis is compared with itself."""
        return self.target.id == self.reference.id

    def at(self, tolerance: float) -> Comparison:
        """Return the comparison; another tolerance for the same analyses is fast."""
        return _at_tolerance(self._key, tolerance, _sides=self)

    def operations_at(self, tolerance: float) -> pl.DataFrame:
        """Return ``comparison_operations`` with short ``arguments``, without nested columns."""
        return _operations(self._key, tolerance, _sides=self)

    @property
    def _key(self) -> _Key:
        target, reference = self.target, self.reference
        return (target.id, target.stamp), (reference.id, reference.stamp)


@st.cache_resource(max_entries=_MAX_CACHED_TOLERANCES, show_spinner=False)
def _at_tolerance(key: _Key, tolerance: float, _sides: Sides) -> Comparison:
    return _compared(key, _sides).at(tolerance)


@st.cache_resource(max_entries=_MAX_CACHED_TOLERANCES, show_spinner=False)
def _operations(key: _Key, tolerance: float, _sides: Sides) -> pl.DataFrame:
    rows = _at_tolerance(key, tolerance, _sides).operations
    return rows.select(~cs.nested()).with_columns(_arguments(key, _sides))


@st.cache_resource(max_entries=_MAX_CACHED_COMPARISONS, show_spinner=False)
def _arguments(key: _Key, _sides: Sides) -> pl.Series:
    """Return the short arguments of the rows, which do not depend on the tolerance."""
    rows = _compared(key, _sides).operations
    texts = [arguments(*row) for row in rows.select(C.input_dims, C.input_types).iter_rows()]
    return pl.Series("arguments", texts, pl.String)


@st.cache_resource(max_entries=_MAX_CACHED_COMPARISONS, show_spinner="Comparing …")
def _compared(key: _Key, _sides: Sides) -> Comparison:
    return compare(_sides.target.run, _sides.reference.run)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An analysis that can be the reference, and how alike it is to the target.

    ``is_given``: the target was analyzed with it as the reference. ``ran_at_once``: both are ranks
    of one distributed run.
    """

    entry: Entry
    likeness: Likeness
    is_given: bool
    ran_at_once: bool

    @property
    def is_alike(self) -> bool:
        """Whether it can be the reference without being chosen."""
        is_other_run = self.likeness.kind is not Kind.UNLIKE and not self.ran_at_once
        return self.is_given or is_other_run


def candidates(target: Opened, catalog: Catalog) -> list[Candidate]:
    """Return the other analyses, the best reference first.

    Order: the reference that the target was analyzed with, same model, same project, same trace,
    then the rest; of equal ones other runs before ranks of the same one, the same project, the same
    rank, the newest; of the rest the most alike.
    """
    manifest = target.run.manifest
    at_once = {
        each.analysis_id for job in catalog.with_rank(target.id) for each in job.manifest.usable
    }
    labels = next((each.labels for each in catalog.entries if each.id == target.id), NO_LABELS)
    found = [
        Candidate(
            entry,
            likeness(manifest, entry.manifest, labels, entry.labels),
            is_given=entry.id == manifest.reference,
            ran_at_once=entry.id in at_once,
        )
        for entry in catalog.entries
        if entry.id != target.id
    ]
    rank = manifest.trace.rank
    return sorted(found, key=lambda each: _order(each, labels, rank), reverse=True)


def _order(candidate: Candidate, labels: RunLabels, rank: int | None) -> tuple[float, ...]:
    found, project = candidate.likeness, labels.project
    return (
        candidate.is_given,
        found.kind,
        not candidate.ran_at_once,
        project is not None and project == candidate.entry.labels.project,
        rank is not None and candidate.entry.manifest.trace.rank == rank,
        (found.common_pct or 0.0) if found.kind is Kind.UNLIKE else 0.0,
    )


def choose_reference(target: Opened, others: Sequence[Candidate]) -> str | None:
    """Draw the choice of the reference: the URL's if it changed, else the one chosen here.

    The default is the best candidate that is alike; there may be none. Return None if none is
    chosen.
    """
    given = st.query_params.get(REFERENCE)
    if not others and given != target.id:
        _drop(given)
        return None
    # Labels must be unique: the browser returns a label, not an index.
    titles = {
        each.entry.id: f"{each.entry.title} · {each.likeness.title} · {each.entry.id}"
        for each in others
    }
    titles[target.id] = f"{name_of(target.run.manifest)} · {target.id} (the target itself)"
    _set_reference(target.id, others, titles, given)
    chosen: str | None = st.selectbox(
        "Reference",
        list(titles),
        index=None,
        format_func=lambda key: titles.get(key, key),
        key=_BOX,
        placeholder="Choose a reference",
        persist_state="session",
        help="The analysis to compare with. The target is the analysis chosen in the sidebar.",
    )
    st.session_state[_LAST_TARGET] = target.id
    if chosen is None:
        st.query_params.pop(REFERENCE, None)
        st.session_state[_SEEN] = None
        return None
    _write(chosen)
    note_control(REFERENCE, chosen)
    return chosen


def _set_reference(
    target: str, others: Sequence[Candidate], titles: dict[str, str], given: str | None
) -> None:
    """Set the select box to the URL's reference, the previous choice, or the best one.

    If the reference was chosen as the target in the sidebar, swap the two. The reference of another
    target stays only if it is alike.
    """
    alike = [each.entry.id for each in others if each.is_alike]
    best = alike[0] if alike else None
    last = st.session_state.get(_LAST_TARGET)
    chosen = st.session_state.get(_BOX)
    if given is not None and (given != st.session_state.get(_SEEN) or given not in titles):
        if given not in titles:
            instead = (
                "Choose another reference." if best is None else f"{titles[best]} is used instead."
            )
            notice(
                f"This server has no analysis {given[:40]!r} to compare with: it was removed, or "
                f"the link is from another server. {escape(instead)}"
            )
        st.session_state[_BOX] = given if given in titles else best
    elif chosen not in titles:
        st.session_state[_BOX] = best
    elif last not in (None, target):
        if chosen == target:
            st.session_state[_BOX] = last if last in titles else best
        elif chosen not in alike:
            st.session_state[_BOX] = best


def _write(chosen: str) -> None:
    if st.query_params.get(REFERENCE) != chosen:
        st.query_params[REFERENCE] = chosen
    st.session_state[_SEEN] = chosen


def _drop(given: str | None) -> None:
    """Remove an unknown reference from the URL, with a notice."""
    if given is not None:
        notice(f"This server has no analysis {given[:40]!r} to compare with.")
        st.query_params.pop(REFERENCE, None)


def swap_button(sides: Sides) -> None:
    """Draw a button that swaps target and reference."""
    st.button(
        "Swap sides",
        icon=":material/swap_horiz:",
        key="compare_swap",
        on_click=_swap,
        args=(sides.target.id, sides.reference.id),
        disabled=sides.are_one,
        help="Swap reference and target.",
    )


def _swap(target: str, reference: str) -> None:
    state.open_next(reference)
    st.session_state[_BOX] = target
    _write(target)


def side_links(sides: Sides) -> None:
    """Draw links to both analyses, and to the table of runs and categories with both selected."""
    for role, side in (("target", sides.target), ("reference", sides.reference)):
        navigation.link(
            navigation.OVERVIEW,
            f"Overview of the {role}",
            icon=":material/dashboard:",
            **{links.ANALYSIS: side.id},
        )
    if not sides.are_one:
        navigation.link(
            navigation.RUNS,
            "Compare more runs",
            icon=":material/table_chart:",
            **{SELECTED: f"{sides.target.id},{sides.reference.id}"},
        )


def no_reference(others: Sequence[Candidate]) -> None:
    """Draw what to do if no reference is chosen: the candidates, or how to add one."""
    if not others:
        st.info(
            "This server has no other analysis to compare with. Analyze the same model on another "
            "GPU, or before and after a change, in the browser or with `jarvis analyze TRACE "
            "--id`; then choose it here as the reference.",
            icon=":material/compare_arrows:",
        )
        navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")
        return
    ran_at_once = any(each.ran_at_once for each in others)
    other = " except the other ranks of this run" if ran_at_once else ""
    st.info(
        f"No analysis of the same model, project or trace is stored{other}, so none is chosen as "
        "the reference. Choose one below, or analyze the same model on another GPU, or before and "
        "after a change.",
        icon=":material/compare_arrows:",
    )
    shown = _one_of_each_job(others)
    groups: dict[str, list[Candidate]] = {}
    for each in shown[:_MAX_OFFERED]:
        groups.setdefault(each.likeness.words, []).append(each)
    st.subheader(f"Other runs{', the most similar first' if len(groups) > 1 else ''}")
    for words, alike in groups.items():
        st.markdown(escape(f"{words[:1].upper()}{words[1:]}:"))
        with st.container(horizontal=True):
            for each in alike:
                _offer(each)
    hidden, ranks = max(len(shown) - _MAX_OFFERED, 0), len(others) - len(shown)
    further = [
        counted(number, noun)
        for number, noun in ((hidden, "more run"), (ranks, "more rank"))
        if number
    ]
    if further:
        st.caption(f"{' and '.join(further)} under *Reference* above.")
    navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")


def _one_of_each_job(others: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with one rank of each distributed run, the first."""
    jobs = {
        str(rank.analysis_id): job.id
        for job in visible_catalog().distributed
        for rank in job.manifest.usable
    }
    found: dict[str, Candidate] = {}
    for each in others:
        found.setdefault(jobs.get(each.entry.id, each.entry.id), each)
    return list(found.values())


def _offer(candidate: Candidate) -> None:
    """Draw a button that compares with a run."""
    run = RunRow(candidate.entry)
    trace = candidate.entry.manifest.trace
    is_one_of_several = trace.rank is not None and trace.world_size != 1
    of_rank = f", rank {trace.rank} of {count(trace.world_size)}" if is_one_of_several else ""
    name = name_of(candidate.entry.manifest)
    model = "" if run.model == name else f" · {run.model}"
    st.button(
        escape(
            f"{name}{of_rank}{model} · {run.gpu_and_preset} · {milliseconds(run.figures.time_ms)}"
        ),
        key=f"compare_with_{run.id}",
        icon=":material/compare_arrows:",
        on_click=_choose,
        args=(run.id,),
        help=f"Compare with the analysis {run.id}",
    )


def _choose(reference: str) -> None:
    st.session_state[_BOX] = reference
    _write(reference)
