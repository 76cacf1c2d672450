"""The controls of the Compare page: the reference, the tolerance, and which rows to show."""

from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis.comparison import FASTER, SLOWER, TOLERANCE, Comparison, Outcome
from jarvis.dashboard.pages.compare.sides import Sides, choose_reference, side_links, swap_button
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.state import Opened, kept
from jarvis.dashboard.widgets.controls import ALL, choice, keyed_choice, percent_slider, text_input

PAGE = "compare"
_JUDGED = {
    "slower": SLOWER,
    "as expected": (Outcome.EXPECTED.value,),
    "faster": FASTER,
    "not judged": (Outcome.SHORT.value, Outcome.UNKNOWN.value),
}
_SEARCHED = (
    *("name", "reference_name", "arguments", "input_dims", "kernel", "reference_kernel", "place"),
    *("module", "path", "collective", "dtype"),
)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows of the tables to show."""

    category: str
    judged: str
    search: str

    def chosen(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that the filters let through; one concerns only tables that have its column."""
        shown = pl.lit(value=True)
        if self.category != ALL and "category" in rows.columns:
            shown &= pl.col("category") == self.category
        if self.judged != ALL and "outcome" in rows.columns:
            shown &= pl.col("outcome").is_in(_JUDGED[self.judged])
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
        """Tells apart what rows a table shows."""
        return f"{self.category}-{self.judged}-{self.search}"


def choose_sides(target: Opened) -> tuple[Sides, float] | None:
    """The card with the reference and the tolerance; None where there is nothing to compare with.

    The tolerance is the factor by which a call may be off the expected ratio.
    """
    with st.container(border=True):
        box, tolerance = st.columns([3, 2])
        with box:
            chosen = choose_reference(target, visible_catalog())
        if chosen is None:
            return None
        with tolerance:
            pct = percent_slider(
                f"{PAGE}_tolerance",
                "Tolerance",
                round(100 * (TOLERANCE - 1)),
                "By how much a call may be off what bandwidths or compute peaks of the two GPUs "
                "explain before it counts as unexpected.",
            )
        sides = Sides(target, kept(chosen))
        with st.container(horizontal=True, vertical_alignment="center"):
            swap_button(sides)
            side_links(sides)
    return sides, 1 + pct / 100


def row_filters(found: Comparison) -> Filters:
    """The card with the filters of charts and tables."""
    titles = dict(found.categories.select("category", "title").drop_nulls().iter_rows())
    with st.container(border=True):
        category, judged, search = st.columns([2, 3.4, 2])
        with category:
            chosen = keyed_choice(
                f"{PAGE}_category",
                "Category",
                {ALL: "All categories", **titles},
                ALL,
                "Which operations the calls and tables below show.",
            )
        with judged:
            word = choice(
                f"{PAGE}_judged",
                "Target is",
                (ALL, *_JUDGED),
                "Against what the hardware explains: within the tolerance it is as expected. Not "
                "judged are calls so short that launching decides, and those of which nothing is "
                "expected.",
            )
        with search:
            text = text_input(
                f"{PAGE}_search", "Search", "name, shape or kernel", "Part of a name or a shape."
            )
    return Filters(chosen, word, text)
