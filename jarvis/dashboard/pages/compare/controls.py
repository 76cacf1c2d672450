"""Controls of the Compare page: reference, tolerance and row filters."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis.comparison import FASTER, SLOWER, TOLERANCE, Comparison, Outcome
from jarvis.dashboard.pages.compare.sides import (
    Candidate,
    Sides,
    choose_reference,
    side_links,
    swap_button,
)
from jarvis.dashboard.session.state import Opened, load_stored
from jarvis.dashboard.widgets.controls import (
    ALL,
    keyed_choice,
    keyed_segments,
    percent_slider,
    text_input,
)
from jarvis.schemas.names import C

PAGE = "compare"
_OUTCOMES = {
    "slower": SLOWER,
    "as expected": (Outcome.EXPECTED.value,),
    "faster": FASTER,
    "not judged": (Outcome.SHORT.value, Outcome.UNKNOWN.value),
}
"""Outcomes of the rows to show, by the value in links."""

_LABELS = {word: word for word in (ALL, *_OUTCOMES)} | {"not judged": "not rated"}
_SEARCHED = (
    *(C.name, C.reference_name, "arguments", C.input_dims, C.kernel, C.reference_kernel, C.place),
    *(C.module, C.path, C.collective, C.dtype),
)


@dataclass(frozen=True, slots=True)
class Filters:
    """Row filters of charts and tables."""

    category: str
    outcome: str
    search: str

    def chosen(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that pass the filters; a filter without its column is ignored."""
        shown = pl.lit(value=True)
        if self.category != ALL and C.category in rows.columns:
            shown &= pl.col(C.category) == self.category
        if self.outcome != ALL and C.outcome in rows.columns:
            shown &= pl.col(C.outcome).is_in(_OUTCOMES[self.outcome])
        searched = [pl.col(name).fill_null("") for name in _SEARCHED if name in rows.columns]
        if self.search and searched:
            shown &= pl.any_horizontal(
                text.str.to_lowercase().str.contains(self._words, literal=True) for text in searched
            )
        return rows.filter(shown)

    @property
    def _words(self) -> str:
        return self.search.lower()

    @property
    def filter_id(self) -> str:
        """Key of the filters."""
        return f"{self.category}-{self.outcome}-{self.search}"


def choose_sides(target: Opened, others: Sequence[Candidate]) -> tuple[Sides, float] | None:
    """Draw the reference and the tolerance; return None if none is chosen.

    The tolerance is the factor by which a call may deviate from the expected ratio.
    """
    with st.container(border=True):
        box, tolerance = st.columns([3, 2])
        with box:
            chosen = choose_reference(target, others)
        if chosen is None:
            return None
        with tolerance:
            pct = percent_slider(
                f"{PAGE}_tolerance",
                "Tolerance",
                round(100 * (TOLERANCE - 1)),
                "How far a call may deviate from the ratio of the two GPUs' bandwidths or compute "
                "peaks before it is unexpected.",
            )
        sides = Sides(target, load_stored(chosen))
        with st.container(horizontal=True, vertical_alignment="center"):
            swap_button(sides)
            side_links(sides)
    return sides, 1 + pct / 100


def row_filters(comparison: Comparison) -> Filters:
    """Draw the filters of charts and tables."""
    titles = dict(comparison.categories.select(C.category, C.title).drop_nulls().iter_rows())
    with st.container(border=True):
        category, outcome, search = st.columns([2, 3.4, 2])
        with category:
            chosen = keyed_choice(
                f"{PAGE}_category",
                "Category",
                {ALL: "All categories", **titles},
                ALL,
                "Filter the operations in the chart of calls and the tables.",
            )
        with outcome:
            word = keyed_segments(
                f"{PAGE}_judged",
                "Target is",
                _LABELS,
                "Relative to the time expected from the hardware, with the tolerance. Not rated: "
                "calls so short that launch overhead dominates, and calls without an expected "
                "ratio.",
            )
        with search:
            text = text_input(
                f"{PAGE}_search", "Search", "name, shape or kernel", "Part of a name or a shape."
            )
    return Filters(chosen, word, text)
