"""What ranks send: bandwidth by message size, bytes by pair, and process groups."""

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.charts.arrivals import AT_MOST, MEASURED, bandwidths, pair_map
from jarvis.dashboard.pages.ranks.filters import Chosen
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.table import small_table
from jarvis.ranks.nodes import INTER_NODE, INTRA_NODE
from jarvis.ranks.per_step import basis, step_count
from jarvis.ranks.rows import ROW
from jarvis.ranks.run import DistributedRun
from jarvis.schemas.columns import count, number, text
from jarvis.schemas.names import C
from jarvis.text.format import counted

_COMMUNICATORS = (
    text(C.comm_id, "Communicator", "description or name, and its ranks"),
    text(C.role, "Role", "what is divided over its ranks, else their number and distance"),
    count(C.size, "Ranks", "number of ranks"),
    count(C.traced_ranks, "Recorded", "of its ranks, those with a trace"),
    text(C.kinds, "Kinds", "kinds of its collectives"),
    count(C.instance_count, "Collectives", "collectives that were matched"),
    number(C.message_bytes, "Bytes in all", "bytes", "sum of the messages of its collectives"),
    number(
        *(C.comm_ms, "In collectives (ms)", "ms"),
        "mean over the recorded ranks; matched collectives without edges",
    ),
    number(
        *(C.wait_ms, "Waiting for ranks (ms)", "ms"),
        "of that, until the last rank came, also while the rank that waits computes",
    ),
)


_WIDTHS = {
    C.comm_id: 150,
    C.role: 60,
    C.size: 50,
    C.traced_ranks: 70,
    C.kinds: 80,
    C.instance_count: 80,
    C.message_bytes: 85,
    C.comm_ms: 100,
    C.wait_ms: 115,
}


def bandwidth(chosen: Chosen) -> None:
    """Draw the bandwidth of collectives by message size."""
    is_bound = pl.when(C.transfer_is_bound).then(pl.lit("at most this"))
    gbs = pl.col(C.bus_gbs)
    rows = (
        chosen.instances.filter(gbs > 0, pl.col(C.bytes) > 0)
        .group_by(
            *(C.comm_id, C.kind, C.bytes),
            is_bound.otherwise(pl.lit(MEASURED)).alias(AT_MOST),
        )
        .agg(
            gbs.median(),
            gbs.quantile(0.25, "linear").alias("low_gbs"),
            gbs.quantile(0.75, "linear").alias("high_gbs"),
            pl.col(C.transfer_us).median(),
            (gbs * pl.col(C.transfer_us) / pl.col(C.floor_us)).median().alias("floor_gbs"),
            pl.len().alias(C.count),
        )
        .sort(C.comm_id, C.kind, C.bytes, AT_MOST)
    )
    with st.container(border=True):
        st.markdown("**Bandwidth by message size**")
        if rows.is_empty():
            st.info("The bandwidth is not known: it needs the clocks of the ranks and messages.")
            return
        is_bounded = (rows[AT_MOST] != MEASURED).any()
        communicators = chosen.run.tables["communicators"].filter(
            pl.col(C.comm_id).is_in(rows[C.comm_id].implode())
        )
        links = communicators.select(C.link_gbs, C.node_span).unique().sort(C.link_gbs)
        peaks = links[C.link_gbs].drop_nulls().to_list()
        render_chart(bandwidths(rows, peaks, palette()), "Bandwidth of collectives by message size")
        st.caption(
            "Bus bandwidth as nccl-tests counts it, from the last arrival on; the median of the "
            "collectives of one process group and size, and its middle half as a bar."
            + _links_text(links)
            + (
                " Dotted lines are messages that take no longer than the smallest ones."
                if rows["floor_gbs"].count()
                else ""
            )
            + (" Hollow marks are lower bounds, as ranks are missing." if is_bounded else "")
        )


_WHERE = {INTRA_NODE: "inside a node", INTER_NODE: "between nodes"}


def _links_text(links: pl.DataFrame) -> str:
    """Return sentences on the peaks of the links, ``link_gbs, node_span``."""
    known = links.drop_nulls().iter_rows()
    peaks = [f"{gbs:,.4g} GB/s {_WHERE[span]}" for gbs, span in known]
    text = f" Dashed: the peak of a link ({', '.join(peaks)})." if peaks else ""
    if not links.filter(pl.col(C.node_span) == INTER_NODE, pl.col(C.link_gbs).is_null()).is_empty():
        text += (
            " The rate of the network between nodes is not in the traces: give it when the ranks "
            "are analyzed (`--network-gbps`)."
        )
    return text


def pair_bytes(chosen: Chosen) -> None:
    """Draw what each rank sends to each other one in a step."""
    tables = chosen.run.tables
    steps = max(step_count(tables), 1)
    label = dict(chosen.rows.select(C.rank, ROW).iter_rows())
    rows = (
        chosen.of_ranks(chosen.of_ranks(tables["pairs"], C.src), C.dst)
        .with_columns(pl.col(C.src, C.dst).replace_strict(label, return_dtype=pl.String))
        .group_by(C.src, C.dst, maintain_order=True)
        .agg(
            (pl.col(C.bytes).sum() / 1e6 / steps).alias("mb"),
            (pl.col(C.count).sum() / steps).alias(C.count),
        )
    )
    if rows.is_empty():
        return
    with st.container(border=True):
        st.markdown(f"**Sent from rank to rank** · {basis(tables)}")
        drawing = pair_map(rows, chosen.labels, palette())
        render_chart(drawing, "Bytes that each rank sends to each other one")
        total, most = rows["mb"].sum(), rows.sort("mb", descending=True).row(0, named=True)
        st.caption(
            f"Sends, and all-to-alls with sizes by rank: {total:,.0f} MB in all, the most from "
            f"{most[C.src]} to {most[C.dst]}, {most['mb']:,.0f} MB."
        )


def communicators(run: DistributedRun) -> None:
    """Draw the process groups: their times are those of one rank in a step, as in ``_ranks``."""
    steps = max(step_count(run.tables), 1)
    instances = (pl.col(C.instance_count) / steps).round().cast(pl.Int64)
    per_step = pl.col(C.message_bytes, C.comm_ms, C.wait_ms) / steps
    of_rank = pl.col(C.comm_ms, C.wait_ms) / pl.col(C.traced_ranks)
    matched = run.tables["instances"]
    inner = matched.filter(~pl.col(C.is_edge)).select(C.instance_id, C.comm_id)
    comm_ms = (
        run.scan("instance_ranks")
        .group_by(C.instance_id)
        .agg((pl.col(C.end_ns) - pl.col(C.start_ns)).sum().alias("ns"))
        .join(inner.lazy(), on=C.instance_id)
        .group_by(C.comm_id)
        .agg((pl.col("ns").sum() / 1e6).alias(C.comm_ms))
        .collect()
    )
    rows = (
        run.tables["communicators"]
        .drop(C.comm_ms)
        .join(comm_ms, on=C.comm_id, how="left", maintain_order="left")
        .with_columns(instances, per_step)
        .with_columns(of_rank)
    )
    with st.container(border=True):
        st.markdown(f"**Communicators** · {basis(run.tables)}")
        is_complete = (rows[C.size] == rows[C.traced_ranks]).all()
        widths = _WIDTHS | ({C.comm_id: 240} if is_complete else {})
        shown = [c.name for c in _COMMUNICATORS if c.name != C.traced_ranks or not is_complete]
        small_table(rows, columns_of(_COMMUNICATORS), "Communicators", shown, widths)
        if edges := matched.height - inner.height:
            st.caption(
                f"Times exclude {edges:,} of {counted(matched.height, 'collective')}, those "
                "at the edge of the recording."
            )
