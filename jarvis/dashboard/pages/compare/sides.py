"""The two sides of the Compare page: the open analysis is the target, the reference is chosen."""

from dataclasses import dataclass

import polars as pl
import polars.selectors as cs
import streamlit as st

from jarvis.comparison import Comparison
from jarvis.dashboard.session import links, navigation, state
from jarvis.dashboard.session.links import note_control, notice
from jarvis.dashboard.session.state import Opened
from jarvis.pipeline import compare
from jarvis.run import Manifest
from jarvis.server.storage.catalog import Catalog, Entry, name_of
from jarvis.text.format import arguments
from jarvis.text.markdown import escape

REFERENCE = "reference"
"""The URL parameter that names the reference, as ``analysis`` names the target."""

_BOX = "compare_reference"
_SEEN, _LAST_TARGET = "_reference_parameter", "_compare_target"
_KEPT_COMPARISONS = 8
_KEPT_TOLERANCES = 32

_Key = tuple[tuple[str, int], tuple[str, int]]
"""Tells comparisons apart: id and stamp of the target, id and stamp of the reference."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Two analyses to compare; they may be one and the same."""

    target: Opened
    reference: Opened

    @property
    def are_one(self) -> bool:
        """Whether an analysis is compared with itself."""
        return self.target.id == self.reference.id

    def at(self, tolerance: float) -> Comparison:
        """The comparison; one of the same two analyses under another tolerance is soon made."""
        return _judged(self._key, tolerance, _sides=self)

    def operations_at(self, tolerance: float) -> pl.DataFrame:
        """``comparison_operations`` with ``arguments`` in short, without what is nested."""
        return _operations(self._key, tolerance, _sides=self)

    @property
    def _key(self) -> _Key:
        target, reference = self.target, self.reference
        return (target.id, target.stamp), (reference.id, reference.stamp)


@st.cache_resource(max_entries=_KEPT_TOLERANCES, show_spinner=False)
def _judged(key: _Key, tolerance: float, _sides: Sides) -> Comparison:
    return _compared(key, _sides).at(tolerance)


@st.cache_resource(max_entries=_KEPT_TOLERANCES, show_spinner=False)
def _operations(key: _Key, tolerance: float, _sides: Sides) -> pl.DataFrame:
    rows = _judged(key, tolerance, _sides).operations
    return rows.select(~cs.nested()).with_columns(_arguments(key, _sides))


@st.cache_resource(max_entries=_KEPT_COMPARISONS, show_spinner=False)
def _arguments(key: _Key, _sides: Sides) -> pl.Series:
    """The arguments of the rows in short; they are the same under every tolerance."""
    rows = _compared(key, _sides).operations
    texts = [arguments(*row) for row in rows.select("input_dims", "input_types").iter_rows()]
    return pl.Series("arguments", texts, pl.String)


@st.cache_resource(max_entries=_KEPT_COMPARISONS, show_spinner="Comparing …")
def _compared(key: _Key, _sides: Sides) -> Comparison:
    return compare(_sides.target.run, _sides.reference.run)


def choose_reference(target: Opened, catalog: Catalog) -> str | None:
    """Draw the choice of the reference: the URL's where it changed, else the one chosen here.

    None where nothing but the target is kept and no link asks to compare it with itself. Without a
    choice it is the analysis that is most like the target.
    """
    ordered = _by_likeness(target, catalog)
    given = st.query_params.get(REFERENCE)
    if not ordered and given != target.id:
        _drop(given)
        return None
    # Labels must differ: the browser answers with a label, not with a position.
    titles = {entry.id: f"{entry.title} · {entry.id}" for entry in ordered}
    titles[target.id] = f"{name_of(target.run.manifest)} · {target.id} (the target itself)"
    _settle(target.id, titles, given)
    chosen: str = st.selectbox(
        "Reference",
        list(titles),
        format_func=lambda key: titles.get(key, key),
        key=_BOX,
        persist_state="session",
        help="The analysis that shows what is attainable. The target is the analysis that is "
        "chosen in the sidebar.",
    )
    _write(chosen)
    note_control(REFERENCE, chosen)
    st.session_state[_LAST_TARGET] = target.id
    return chosen


def _settle(target: str, titles: dict[str, str], given: str | None) -> None:
    """Put into the box what the URL asks for, what was chosen before, or the first of all.

    Where the analysis of the sidebar becomes the one that was the reference, the two swap.
    """
    first = next(iter(titles))
    last = st.session_state.get(_LAST_TARGET)
    if given is not None and (given != st.session_state.get(_SEEN) or given not in titles):
        if given not in titles:
            notice(
                f"No analysis {given[:40]!r} is stored here to compare with: it was removed, or "
                "the link comes from another server. "
                f"{escape(titles[first])} is the reference instead."
            )
        st.session_state[_BOX] = given if given in titles else first
    elif st.session_state.get(_BOX) not in titles:
        st.session_state[_BOX] = first
    elif last not in (None, target) and st.session_state[_BOX] == target:
        st.session_state[_BOX] = last if last in titles else first


def _write(chosen: str) -> None:
    if st.query_params.get(REFERENCE) != chosen:
        st.query_params[REFERENCE] = chosen
    st.session_state[_SEEN] = chosen


def _drop(given: str | None) -> None:
    """Take a reference that is not kept out of the URL, with a word about it."""
    if given is not None:
        notice(f"No analysis {given[:40]!r} is stored here to compare with.")
        st.query_params.pop(REFERENCE, None)


def swap_button(sides: Sides) -> None:
    """A button that makes the reference the target and the target the reference."""
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
    """Links to both analyses."""
    for role, side in (("target", sides.target), ("reference", sides.reference)):
        navigation.link(
            navigation.OVERVIEW,
            f"Overview of the {role}",
            icon=":material/dashboard:",
            **{links.ANALYSIS: side.id},
        )


def no_reference() -> None:
    """What to do where there is nothing to compare with."""
    st.info(
        "No other analysis is stored here to compare with. Analyze the same model on another GPU, "
        "or before and after a change, in the browser or with `jarvis analyze TRACE --id`; then "
        "choose it here as the reference.",
        icon=":material/compare_arrows:",
    )
    navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")


def _by_likeness(target: Opened, catalog: Catalog) -> list[Entry]:
    """The other analyses, the one to suggest first: the reference that the target was analyzed
    with, then by operators in common, then of another trace, then the newest."""
    manifest = target.run.manifest
    others = [entry for entry in catalog.entries if entry.id != target.id]
    return sorted(others, key=lambda entry: _likeness(manifest, entry), reverse=True)


def _likeness(target: Manifest, entry: Entry) -> tuple[bool, int, bool]:
    other = entry.manifest
    in_common = {(op.name, op.count) for op in target.top_operations} & {
        (op.name, op.count) for op in other.top_operations
    }
    is_other_trace = other.trace.sha256 != target.trace.sha256
    return entry.id == target.reference, len(in_common) * is_other_trace, is_other_trace
