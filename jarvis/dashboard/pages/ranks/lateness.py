"""Which ranks were late, and what they did longer than the others."""

import streamlit as st

from jarvis.charts import columns_of
from jarvis.dashboard.widgets.table import small_table
from jarvis.ranks.delays import COLUMNS, MIN_LATE_MS, SHOWN, delays
from jarvis.ranks.run import DistributedRun
from jarvis.schemas.names import C

MAX_ROWS = 200
_WIDTHS = {C.rank: 50, C.step: 50, C.instance_id: 80, "cause": 180, "where": 220}


def late_ranks(run: DistributedRun) -> None:
    """Draw the table of delays, longest first."""
    rows = delays(run.tables["lateness"], run.tables["lateness_causes"], run.tables["instances"])
    with st.container(border=True):
        st.markdown("**Why ranks are late**")
        if rows.is_empty():
            st.info(
                f"No rank is later than the others by more than {MIN_LATE_MS * 1000:g} µs, or the "
                "clocks of the ranks are not known."
            )
            return
        is_own = (rows[C.root_rank] == rows[C.rank]).all()
        shown = [name for name in SHOWN if name != C.root_rank or not is_own]
        small_table(rows.head(MAX_ROWS), columns_of(COLUMNS), "Delays of ranks", shown, _WIDTHS)
        st.caption(
            "Each delay has one row, with the collective at which the rank is latest. A delay for "
            "which no rank stops computing costs the step nothing."
        )
