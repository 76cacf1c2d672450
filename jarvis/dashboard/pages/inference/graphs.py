"""The graphs page: launches of GPU graphs, and what their kernels inherit from captures."""

import polars as pl
import streamlit as st

from jarvis.capture.tables import NO_CAPTURES
from jarvis.charts import columns_of
from jarvis.dashboard.pages.inference.shared import is_missing
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.controls import list_choice, text_input
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.dashboard.widgets.table import small_table, with_short_texts
from jarvis.perf_report.kernel_blocks import title_of
from jarvis.reports.health import health_of
from jarvis.schemas import TABLES
from jarvis.schemas.columns import count as column_count
from jarvis.schemas.columns import number
from jarvis.schemas.columns import text as column_text
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, milliseconds, percent
from jarvis.text.markdown import prose
from jarvis.text.shapes import compact_dims
from jarvis.text.short_names import short_frame_name, short_kernel_name, short_operation_name

LAUNCHES, KERNELS = "graph_launches", "graph_kernel_map"
_GRAPHS = (
    *(C.graph_key, C.launches, C.kernel_count, C.time_ms, C.capture_file, C.batch, C.mode),
    *(C.matched_count, C.coverage_pct, C.rule, C.confidence),
    *(C.replayed_only_count, C.captured_only_count, C.reason),
)
_MAPPED = (
    *(C.position, C.layer, C.kernel, C.mean_us, C.block, C.operation, C.input_dims),
    C.input_types,
    *(C.entry_point,),
)

_OF_CAPTURES = (C.matched_count, C.coverage_pct, C.replayed_only_count, C.captured_only_count)
"""Columns without a meaning if no capture was given."""

_MEAN = number(C.mean_us, "Mean (µs)", "", "mean duration over the launches of the graph")
_ONCE = number(C.mean_us, "Time (µs)", "", "duration in the one launch of the graph")
_SHAPES = column_text(C.input_dims, "Shapes", "of the tensor arguments of the operator")
_GRAPH_WIDTHS = {
    C.graph_key: 98,
    C.launches: 67,
    C.kernel_count: 60,
    C.time_ms: 70,
    C.capture_file: 120,
    C.batch: 50,
    C.mode: 50,
    C.matched_count: 65,
    C.coverage_pct: 90,
    C.rule: 60,
    C.confidence: 78,
}
_WIDTHS = {
    C.position: 60,
    C.layer: 48,
    C.kernel: 210,
    C.mean_us: 75,
    C.block: 78,
    C.operation: 190,
    C.input_dims: 220,
}
"""Widths in pixels, to keep the columns up to the confidence, and up to the shapes, visible in a
window of 1280 pixels."""


def render(now: Opened) -> None:
    """Draw the page for the open run."""
    if is_missing(now, LAUNCHES):
        return
    launches = now.run.table(LAUNCHES)
    if launches.is_empty():
        st.info("This trace replays no GPU graphs.")
        return
    has_captures = launches[C.reason].ne_missing(NO_CAPTURES).any()
    _figures(now, launches, has_captures)
    if launches[C.capture_file].null_count() == launches.height:
        _advice(now)
    graphs = _by_graph(launches)
    columns = columns_of(TABLES[LAUNCHES], (column_count(C.launches, "Launches", "replays of it"),))
    with st.container(border=True):
        order = ", most time first" if graphs.height > 1 else ""
        st.markdown(f"**{counted(graphs.height, 'graph')}{order}**")
        hidden = () if has_captures else _OF_CAPTURES
        filled = [name for name in _GRAPHS if graphs[name].count() and name not in hidden]
        small_table(graphs, columns, "Replayed graphs and their captures", filled, _GRAPH_WIDTHS)
    _kernels(now, graphs)


def _figures(now: Opened, launches: pl.DataFrame, has_captures: bool) -> None:
    events, matched = (int(launches[name].sum()) for name in (C.kernel_count, C.matched_count))
    replayed_ms = float(launches[C.time_ms].sum())
    covered_ms = float((launches[C.time_ms] * launches[C.coverage_pct]).sum()) / 100
    whole_ms = float(now.run.table("gpu_work")[C.dur_ns].sum()) / 1e6
    with st.container(horizontal=True):
        metric_card(
            "Graph launches",
            count(launches.height),
            f"{counted(launches[C.graph_key].n_unique(), 'graph')}",
            help_text="Launches with GPU work; replays of the same kernels in the same order "
            "count as one graph.",
        )
        metric_card(
            "Replayed GPU time",
            milliseconds(replayed_ms),
            f"{percent(100 * replayed_ms / whole_ms if whole_ms else None)} of all GPU work",
            help_text="Sum of the durations of replayed events.",
        )
        if not has_captures:
            return
        metric_card(
            "With a captured call",
            percent(100 * covered_ms / replayed_ms if replayed_ms else None),
            f"{count(matched)} of {counted(events, 'event')}",
            help_text="Share of the replayed time with operator, shapes and stack of a capture.",
        )
        metric_card(
            "Only captured",
            count(int(launches[C.captured_only_count].sum())),
            "calls without an event",
            help_text="Captured calls that no replayed event was matched with, over all launches.",
        )


def _advice(now: Opened) -> None:
    """Say how to record what is missing."""
    for fact in health_of(now.run):
        if fact.key == "graph_replay" and fact.remedy:
            st.info(prose(f"{fact.affects} {fact.remedy}"), icon=":material/lightbulb:")


def _by_graph(launches: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each graph, with the figures of all its launches."""
    time, same = pl.col(C.time_ms), (C.capture_file, C.batch, C.mode, C.rule, C.confidence)
    return (
        launches.group_by(C.graph_key, maintain_order=True)
        .agg(
            pl.len().alias(C.launches),
            pl.col(C.kernel_count).first(),
            time.sum(),
            *(pl.col(name).first() for name in (*same, C.reason)),
            ((pl.col(C.coverage_pct) * time).sum() / time.sum()).alias(C.coverage_pct),
            *(
                pl.col(name).first()
                for name in (C.matched_count, C.replayed_only_count, C.captured_only_count)
            ),
        )
        .sort(C.time_ms, descending=True, maintain_order=True)
    )


def _kernels(now: Opened, graphs: pl.DataFrame) -> None:
    """Draw the events of a graph with what they inherit."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            key = list_choice(
                "graphs_graph", "Events of graph", graphs[C.graph_key].to_list(), "Graph to show."
            )
            words = text_input("graphs_search", "Search", "kernel, operator or block").lower()
        rows = now.run.table(KERNELS).filter(pl.col(C.graph_key) == key)
        rows = rows.join(_means(now, key), on=(C.position, C.kernel), how="left")
        rows = with_short_texts(rows, {C.block: title_of})
        text = pl.concat_str(
            C.kernel, C.block, pl.col(C.operation), separator=" ", ignore_nulls=True
        )
        found = rows.filter(text.str.to_lowercase().str.contains(words, literal=True))
        if found.is_empty():
            st.info("No event matches. Clear the search to see all.")
            return
        st.caption(f"{count(found.height)} of {counted(rows.height, 'event')}")
        launches = graphs.row(by_predicate=pl.col(C.graph_key) == key, named=True)[C.launches]
        short = {
            C.kernel: short_kernel_name,
            C.operation: short_operation_name,
            C.input_dims: compact_dims,
            C.entry_point: short_frame_name,
        }
        shown, columns = (
            with_short_texts(found, short),
            columns_of(TABLES[KERNELS], (_SHAPES, _MEAN if launches > 1 else _ONCE)),
        )
        filled = [name for name in _MAPPED if found[name].count()]
        small_table(shown, columns, "Events of the graph", filled, _WIDTHS, max_rows=20)


def _means(now: Opened, key: str) -> pl.DataFrame:
    """Return the mean duration of each event of a graph: ``position, kernel, mean_us``."""
    launches = now.run.table(LAUNCHES).filter(pl.col(C.graph_key) == key)[C.launch_uid]
    events = now.run.table("gpu_work").filter(pl.col(C.launch_uid).is_in(launches.implode()))
    position = pl.int_range(pl.len()).over(C.launch_uid).cast(pl.Int64).alias(C.position)
    return (
        events.sort(C.ts_ns, C.uid)
        .with_columns(position)
        .group_by(C.position, pl.col(C.name).cast(pl.String).alias(C.kernel))
        .agg((pl.col(C.dur_ns).mean() / 1e3).alias(C.mean_us))
    )
