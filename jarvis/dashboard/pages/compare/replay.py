"""Replay package of the target's slow operations, to run on both GPUs."""

import polars as pl
import streamlit as st

from jarvis.comparison import SLOWER, Comparison
from jarvis.dashboard.pages.compare.controls import PAGE
from jarvis.dashboard.pages.compare.sides import Sides
from jarvis.dashboard.session.links import note_control
from jarvis.dashboard.widgets.controls import choice
from jarvis.dashboard.widgets.replay_section import replay_section

_OPEN, _SELECTED, _SLOWER = f"{PAGE}_replay", "selected row", "slower than explained"


def compare_and_replay(sides: Sides, comparison: Comparison, pair: int | None) -> None:
    """Draw the package of the selected row or of all unexpectedly slow operations.

    It is computed only while the expander is open.
    """
    expander = st.expander(
        "Compare and replay",
        icon=":material/replay:",
        key=_OPEN,
        on_change="rerun",
        bind="query-params",
    )
    if not expander.open:
        return
    note_control(_OPEN, "true")
    with expander:
        st.markdown(
            "A package has the target's calls and a program that times them. Run it on both GPUs: "
            "if the calls alone show the same gap, the kernels cause it; if not, check their "
            "environment, such as clocks or other streams."
        )
        which = choice(
            f"{PAGE}_replayed",
            "Operations",
            (_SLOWER, _SELECTED),
            "Contents of the package: all operations that are slower than the hardware explains, "
            "or the selected row of the table of matched operations.",
        )
        is_used = pl.col("pair") == pair if which == _SELECTED else pl.col("outcome").is_in(SLOWER)
        uids = comparison.operations.filter(is_used)["uids"].explode().drop_nulls()
        if uids.is_empty():
            st.info(
                "Select a row in the table of matched operations."
                if which == _SELECTED
                else "No operation is slower than the hardware explains: select a row instead."
            )
            return
        replay_section(sides.target, uids.to_list(), page=_OPEN)
