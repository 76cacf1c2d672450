"""The two sides of the Compare page: the target (open analysis) and the chosen reference."""

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
from jarvis.schemas.names import C
from jarvis.server.storage.catalog import Catalog, Entry, name_of
from jarvis.text.format import arguments
from jarvis.text.markdown import escape

REFERENCE = "reference"
"""The URL parameter with the id of the reference; ``analysis`` has the target's."""

_BOX = "compare_reference"
_SEEN, _LAST_TARGET = "_reference_parameter", "_compare_target"
_MAX_CACHED_COMPARISONS = 8
_MAX_CACHED_TOLERANCES = 32

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
        return _judged(self._key, tolerance, _sides=self)

    def operations_at(self, tolerance: float) -> pl.DataFrame:
        """Return ``comparison_operations`` with short ``arguments``, without nested columns."""
        return _operations(self._key, tolerance, _sides=self)

    @property
    def _key(self) -> _Key:
        target, reference = self.target, self.reference
        return (target.id, target.stamp), (reference.id, reference.stamp)


@st.cache_resource(max_entries=_MAX_CACHED_TOLERANCES, show_spinner=False)
def _judged(key: _Key, tolerance: float, _sides: Sides) -> Comparison:
    return _compared(key, _sides).at(tolerance)


@st.cache_resource(max_entries=_MAX_CACHED_TOLERANCES, show_spinner=False)
def _operations(key: _Key, tolerance: float, _sides: Sides) -> pl.DataFrame:
    rows = _judged(key, tolerance, _sides).operations
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


def choose_reference(target: Opened, catalog: Catalog) -> str | None:
    """Draw the choice of the reference: the URL's if it changed, else the one chosen here.

    The default is the analysis most similar to the target. Return None if there is no other
    analysis and the URL does not compare the target with itself.
    """
    ordered = _by_similarity(target, catalog)
    given = st.query_params.get(REFERENCE)
    if not ordered and given != target.id:
        _drop(given)
        return None
    # Labels must be unique: the browser returns a label, not an index.
    titles = {entry.id: f"{entry.title} · {entry.id}" for entry in ordered}
    titles[target.id] = f"{name_of(target.run.manifest)} · {target.id} (the target itself)"
    _set_reference(target.id, titles, given)
    chosen: str = st.selectbox(
        "Reference",
        list(titles),
        format_func=lambda key: titles.get(key, key),
        key=_BOX,
        persist_state="session",
        help="The analysis to compare with. The target is the analysis chosen in the sidebar.",
    )
    _write(chosen)
    note_control(REFERENCE, chosen)
    st.session_state[_LAST_TARGET] = target.id
    return chosen


def _set_reference(target: str, titles: dict[str, str], given: str | None) -> None:
    """Set the select box to the URL's reference, the previous choice, or the first analysis.

    If the reference was chosen as the target in the sidebar, swap the two.
    """
    first = next(iter(titles))
    last = st.session_state.get(_LAST_TARGET)
    if given is not None and (given != st.session_state.get(_SEEN) or given not in titles):
        if given not in titles:
            notice(
                f"This server has no analysis {given[:40]!r} to compare with: it was removed, or "
                f"the link is from another server. {escape(titles[first])} is used instead."
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
    """Draw links to both analyses."""
    for role, side in (("target", sides.target), ("reference", sides.reference)):
        navigation.link(
            navigation.OVERVIEW,
            f"Overview of the {role}",
            icon=":material/dashboard:",
            **{links.ANALYSIS: side.id},
        )


def no_reference() -> None:
    """Draw what to do if there is no other analysis."""
    st.info(
        "This server has no other analysis to compare with. Analyze the same model on another GPU, "
        "or before and after a change, in the browser or with `jarvis analyze TRACE --id`; then "
        "choose it here as the reference.",
        icon=":material/compare_arrows:",
    )
    navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")


def _by_similarity(target: Opened, catalog: Catalog) -> list[Entry]:
    """Return the other analyses, the best reference first.

    Order: the reference that the target was analyzed with, common operators, another trace, newest.
    """
    manifest = target.run.manifest
    others = [entry for entry in catalog.entries if entry.id != target.id]
    return sorted(others, key=lambda entry: _similarity(manifest, entry), reverse=True)


def _similarity(target: Manifest, entry: Entry) -> tuple[bool, int, bool]:
    other = entry.manifest
    in_common = {(op.name, op.count) for op in target.top_operations} & {
        (op.name, op.count) for op in other.top_operations
    }
    is_other_trace = other.trace.sha256 != target.trace.sha256
    return entry.id == target.reference, len(in_common) * is_other_trace, is_other_trace
