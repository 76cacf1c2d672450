"""Compare and replay: the operations that the target is slow at, as a package for both GPUs."""

import polars as pl
import streamlit as st

from jarvis.comparison import SLOWER, Comparison
from jarvis.dashboard.pages.compare.controls import PAGE
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.session.links import note_control
from jarvis.dashboard.widgets.controls import choice
from jarvis.dashboard.widgets.replay_section import replay_section

_OPEN, _SELECTED, _SLOWER = f"{PAGE}_replay", "selected row", "slower than explained"


def compare_and_replay(sides: Sides, found: Comparison, pair: int | None) -> None:
    """The package of the selected row, or of all that is slower than the hardware explains; worked
    out only where it is opened."""
    fold = st.expander(
        "Compare and replay",
        icon=":material/replay:",
        key=_OPEN,
        on_change="rerun",
        bind="query-params",
    )
    if not fold.open:
        return
    note_control(_OPEN, "true")
    with fold:
        st.markdown(
            "A package holds the target's calls with a program that times them. Run it on both "
            "GPUs: where the calls alone show the same gap, the kernels make it; where they do "
            "not, look at what surrounds them, such as clocks or other streams."
        )
        which = choice(
            f"{PAGE}_replayed",
            "Operations",
            (_SLOWER, _SELECTED),
            "What the package holds: all operations that are slower than the hardware explains, "
            "or those of the row that is selected in the table of matched operations.",
        )
        wanted = pl.col("pair") == pair if which == _SELECTED else pl.col("outcome").is_in(SLOWER)
        uids = found.operations.filter(wanted)["uids"].explode().drop_nulls()
        if uids.is_empty():
            st.info(
                "Select a row in the table of matched operations."
                if which == _SELECTED
                else "No operation is slower than the hardware explains: choose a row instead."
            )
            return
        replay_section(sides.target, uids.to_list(), page=_OPEN)
