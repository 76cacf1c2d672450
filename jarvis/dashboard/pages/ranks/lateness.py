"""Which ranks were late, and what they did longer than the others."""

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.charts.arrivals import blame_bars
from jarvis.dashboard.pages.ranks.filters import Chosen
from jarvis.dashboard.pages.timeline.event import EVENT
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.table import small_table
from jarvis.ranks.delays import (
    COLUMNS,
    MIN_LATE_MS,
    SHOWN,
    causes_by_rank,
    delays,
    with_causes,
)
from jarvis.ranks.per_step import basis, ranks_per_step, step_count
from jarvis.ranks.rows import ROW
from jarvis.ranks.run import DistributedRun
from jarvis.schemas.names import C

MAX_ROWS = 200
MAX_BARS = 16
"""Ranks with bars, those that the step or the others lose most by."""

MAX_CAUSES = 8
OTHER = "other causes"
_WIDTHS = {
    C.rank: 45,
    C.step: 45,
    C.instance_id: 72,
    "waited_ms": 100,
    "new_ms": 62,
    "cause": 130,
    "extra_ms": 90,
    C.root_rank: 75,
}
"""Widths in pixels; the texts beside them have the rest."""


def late_ranks(chosen: Chosen) -> None:
    """Draw what late ranks cost, and the table of delays, longest first."""
    tables = chosen.run.tables
    rows = delays(tables["lateness"], tables["instances"])
    with st.container(border=True):
        st.markdown("**Why ranks are late**")
        if rows.is_empty():
            st.info(
                f"No rank is later than the others by more than {MIN_LATE_MS * 1000:g} µs, or the "
                "clocks of the ranks are not known."
            )
            return
        _bars(chosen, rows)
        is_own = (rows[C.root_rank] == rows[C.rank]).all()
        left_out = {"also", *((C.root_rank,) if is_own else ())}  # the bars show all causes
        shown = [name for name in SHOWN if name not in left_out]
        listed = chosen.of_ranks(rows)
        if chosen.step is not None:
            listed = listed.filter(pl.col(C.step) == chosen.step)
        listed = with_causes(listed.head(MAX_ROWS), tables)
        small_table(
            listed,
            columns_of(COLUMNS),
            "Delays of ranks",
            shown,
            _WIDTHS,
            key="ranks_delays",
            addresses=event_addresses(chosen.run, listed),
            fits_texts=True,
        )
        st.caption(
            "Each delay has one row, with the collective at which the rank is latest. A delay for "
            "which no rank stops computing costs the step nothing. A click opens the analysis of "
            "the rank, at the event that *Where* is about, if it is known."
        )


def event_addresses(run: DistributedRun, rows: pl.DataFrame) -> list[str]:
    """Return the URL for each row: the event of its main cause on the timeline of the rank, or the
    overview of the rank."""
    ids = {
        rank: str(analysis_id)
        for rank, analysis_id in run.tables["ranks"].select(C.rank, C.analysis_id).iter_rows()
    }
    return [
        navigation.address(navigation.OVERVIEW, ids[rank])
        if uid is None
        else navigation.address(navigation.TIMELINE, ids[rank], **{EVENT: str(uid)})
        for rank, uid in rows.select(C.rank, C.uid).iter_rows()
    ]


def _bars(chosen: Chosen, rows: pl.DataFrame) -> None:
    """Draw the causes of the delays of each rank, what the step would gain, and how long others
    wait."""
    tables = chosen.run.tables
    per_step = max(step_count(tables), 1)
    caused = pl.col(C.caused_exposed_wait_ms).fill_null(0.0).alias("caused_ms")
    ranks = (
        chosen.of_ranks(ranks_per_step(tables))
        .select(C.rank, C.gain_low_ms, C.gain_high_ms, caused)
        .with_columns(pl.col(C.rank).cast(pl.String).alias(ROW))
        .filter((pl.col("caused_ms") > MIN_LATE_MS) | (pl.col(C.gain_high_ms) > MIN_LATE_MS))
        .sort(
            pl.col(C.gain_high_ms).fill_null(0), "caused_ms", C.rank, descending=[True, True, False]
        )
        .head(MAX_BARS)
        .sort(C.rank)
    )
    if ranks.is_empty():
        return
    causes = causes_by_rank(rows, tables["lateness_causes"]).join(ranks, on=C.rank)
    largest = (
        causes.group_by("cause").agg(pl.col("extra_ms").sum()).top_k(MAX_CAUSES, by="extra_ms")
    )
    is_named = pl.col("cause").is_in(largest["cause"].implode())
    named = pl.when(is_named).then("cause").otherwise(pl.lit(OTHER)).alias("cause")
    sums = causes.group_by(ROW, named).agg((pl.col("extra_ms").sum() / per_step).alias("ms"))
    drawing = blame_bars(
        sums.sort(ROW, "cause"), ranks.drop(C.rank), ranks[ROW].to_list(), palette()
    )
    render_chart(drawing, "Causes of the delays of each rank, and what they cost")
    st.caption(
        f"Colors: what a rank did longer than the others before they had to wait for it, "
        f"{basis(tables)}. Ticks: by how much the median step gets shorter if the rank is as fast "
        "as the median, at least and at most. Thin bars: how long the others wait for it without "
        "computing, added up over them."
    )
