"""Which ranks were late, and what they did longer than the others."""

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.dashboard.widgets.table import small_table
from jarvis.ranks.lateness import is_comparable
from jarvis.ranks.run import DistributedRun
from jarvis.schemas import TABLES, TEXT, Column
from jarvis.schemas.columns import number
from jarvis.schemas.names import C

MIN_LATE_MS = 0.02
"""Shorter delays are noise of the arrivals."""

MAX_ROWS = 200

_COLUMNS = columns_of(
    TABLES["lateness"],
    TABLES["instances"],
    (
        number("new_ms", "Late (ms)", "ms", "lateness that is new at this collective", ",.3f"),
        number("extra_ms", "Longer (ms)", "ms", "what this took longer than for others", ",.3f"),
        Column("cause", "Main cause", TEXT, meaning="state of the GPU that took longer than usual"),
        Column("where", "Where", TEXT, meaning="host call or Python function of an idle cause"),
    ),
)
_SHOWN = (C.rank, C.step, C.instance_id, "new_ms", "cause", "extra_ms", "where", C.root_rank)


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
        small_table(rows.head(MAX_ROWS), _COLUMNS, "Delays of ranks", _SHOWN, {"where": 330})
        st.caption(
            "A delay counts once: at the first collective that shows it. The root rank is the one "
            "whose own time it is from."
        )


def delays(lateness: pl.DataFrame, causes: pl.DataFrame, instances: pl.DataFrame) -> pl.DataFrame:
    """Return the delays that are new at a collective, with what took most of the extra time."""
    main = (
        causes.filter(pl.col(C.extra_ns) > 0)
        .sort(C.extra_ns, C.state, C.detail, descending=[True, False, False])
        .unique((C.instance_id, C.rank), keep="first", maintain_order=True)
        .join(lateness.filter(is_comparable()), on=(C.instance_id, C.rank), how="semi")
        .select(
            C.instance_id,
            C.rank,
            pl.concat_str(C.state, C.detail, separator=": ", ignore_nulls=True)
            .str.replace_all("_", " ")
            .alias("cause"),
            (pl.col(C.extra_ns) / 1e6).alias("extra_ms"),
            pl.coalesce(C.host_frame, C.host_call, C.host_op).alias("where"),
        )
    )
    return (
        lateness.filter(pl.col(C.new_ns) > MIN_LATE_MS * 1e6)
        .with_columns((pl.col(C.new_ns) / 1e6).alias("new_ms"))
        .join(main, on=(C.instance_id, C.rank), how="left")
        .join(instances.select(C.instance_id, C.step), on=C.instance_id, how="left")
        .sort("new_ms", C.instance_id, descending=[True, False])
    )
