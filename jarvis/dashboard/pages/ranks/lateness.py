"""Which ranks were late, and what they did longer than the others."""

import streamlit as st

from jarvis.charts import columns_of
from jarvis.dashboard.widgets.table import small_table
from jarvis.ranks.delays import COLUMNS, MIN_LATE_MS, SHOWN, delays
from jarvis.ranks.run import DistributedRun

MAX_ROWS = 200


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
        columns = columns_of(COLUMNS)
        small_table(rows.head(MAX_ROWS), columns, "Delays of ranks", SHOWN, {"where": 330})
        st.caption(
            "A delay counts once: at the first collective that shows it. The root rank is the one "
            "whose own time it is from."
        )
