"""Metrics, charts and tables of the communication and copies page."""

from functools import partial

import polars as pl
import streamlit as st
from pydantic import JsonValue

from jarvis import charts
from jarvis.analyses.base import Analysis
from jarvis.analyses.operations import timeline_window
from jarvis.analyses.severity import grade, with_findings
from jarvis.analyses.system.multi_kernel.communication import EXPOSED_PCT
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.state import Opened, cached, of_stored, palette
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.finding_cards import facts_of, grade_card
from jarvis.dashboard.widgets.other_tools import why_another_tool
from jarvis.dashboard.widgets.table import small_table, with_short_texts
from jarvis.findings import COMMUNICATION_POOL, AnalysisResult, Severity
from jarvis.impact import share_pct
from jarvis.perf_report.timeline.other_definitions import Quantity
from jarvis.perf_report.timeline.step_account import step_name, steps_name
from jarvis.preconditions import BYTES_PER_MIB
from jarvis.reports.account import account_of, uneven_collectives
from jarvis.run import Run
from jarvis.savings import over_steps
from jarvis.schemas import INTEGER, NUMBER, TABLES, Column
from jarvis.schemas.columns import number, text
from jarvis.schemas.names import C
from jarvis.text.format import byte_size, counted, milliseconds, percent, short_dtype
from jarvis.text.markdown import escape
from jarvis.text.short_names import short_kernel_name

_LONGEST = 10
_MAX_CACHED = 64
_MIN_LISTED = 0.001
"""Minimum share of the time of all communication kernels, for a kernel in the table."""

_SIZES = (
    text(C.total_bytes, "Size", "bytes copied; empty if not recorded"),
    text(C.avg_bytes, "Mean size", "size of one copy"),
)
"""Columns whose values differ by so much that each has its own unit."""

_COLLECTIVE_COLUMNS = (
    text(C.step, "Step", "step that launches it"),
    text(C.collective, "Collective", "as recorded; the kernel if no collective is recorded"),
    Column(C.bytes, "Bytes", INTEGER, "bytes", ",d", "larger of sent and received"),
    number(C.dur_us, "Time (µs)", "µs", "duration, including waiting for other ranks"),
    number("exposed_us", "Exposed (µs)", "µs", "time in which no compute runs"),
    Column("overlap_pct", "Overlap (%)", NUMBER, "%", ",.1f", "share of its time beside compute"),
    number(
        C.algo_gbs,
        "Algorithm (GB/s)",
        "GB/s",
        "algorithm bandwidth: size / time. The time includes waiting for other ranks, so links can "
        "be faster",
    ),
)
_WIDTHS = {
    C.step: 130,
    C.collective: 120,
    C.bytes: 85,
    C.dur_us: 85,
    "exposed_us": 105,
    "overlap_pct": 95,
    C.algo_gbs: 130,
}
_COMMON = (C.dtype, C.group, C.group_size, C.stream)
"""Columns that are shown only where kernels differ in them; else the caption names them."""


def uneven_steps(now: Opened) -> None:
    """Draw which steps differ in the time of equal collectives."""
    if uneven := uneven_note(now):
        st.warning(uneven, icon=":material/difference:")


@cached(_MAX_CACHED, of_stored)
def uneven_note(now: Opened) -> str:
    """Return ``uneven_collectives`` of an analysis."""
    return uneven_collectives(now.run)


def multi_kernel_section(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    """Draw grades, hidden and exposed time, and the longest communication kernels."""
    totals = now.run.manifest.totals
    if totals.total_comm_time_ms > 0:
        _other_ranks(now)
    _grades(now.run, result)
    copies = now.run.table("memory_copies")
    if totals.total_comm_time_ms == 0 and copies.is_empty():
        with st.container(border=True):
            st.caption("The trace has no communication and no memory copies.")
        return
    cards = [partial(_communication, now)] if totals.total_comm_time_ms > 0 else []
    cards += [partial(_copies, now, copies)] if not copies.is_empty() else []
    for place, draw in zip(st.columns(len(cards)), cards, strict=True):
        with place.container(border=True, height="stretch"):
            draw()
    if not copies.is_empty():
        with st.container(border=True):
            st.markdown("**Copies by direction**")
            columns = charts.columns_of(TABLES["memory_copies"], _SIZES[:2])
            sizes = {name: _size_texts(copies[name]) for name in (C.total_bytes, C.avg_bytes)}
            names = [column.name for column in TABLES["memory_copies"]]
            small_table(copies.with_columns(**sizes), columns, "Copies by direction", names)
    _longest(now.run)
    quantities = (Quantity.COMMUNICATION, Quantity.HIDDEN)
    if totals.total_comm_time_ms > 0:
        why_another_tool(now, analysis.key, quantities)


def _size_texts(sizes: pl.Series) -> pl.Series:
    return pl.Series([None if size is None else byte_size(size) for size in sizes], dtype=pl.String)


def _other_ranks(now: Opened) -> None:
    """Draw the link to the distributed run of this rank, which shows who waits for whom."""
    for entry in visible_catalog().with_rank(now.id)[:1]:
        rank = next(each.rank for each in entry.manifest.usable if each.analysis_id == now.id)
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            st.markdown(
                f"This is rank {rank} of {entry.manifest.world_size.value:,}. Its communication "
                "includes waiting for other ranks, and they may wait for it."
            )
            label = "Who waits for whom: Ranks"
            navigation.link(navigation.RANKS, label, icon=":material/lan:", ranks_run=entry.id)


def _grades(run: Run, result: AnalysisResult) -> None:
    totals, account = run.manifest.totals, account_of(run)
    overlap, exposed = (
        result.metrics[f"{name}_assessment"] for name in ("overlap", "nccl_blocking")
    )
    exposed_pct, whole = totals.exposed_comm_pct, "the GPU window"
    if account is not None:
        exposed_pct = account.pct(account.parts_ns[C.exposed_comm_ns])
        whole = step_name(account.is_marked)
        exposed = {**facts_of(exposed), "description": f"in percent of {whole}"}
        if totals.total_comm_time_ms:
            severity = grade(exposed_pct, EXPOSED_PCT, Severity.GOOD)
            exposed["severity"] = with_findings(severity, result.findings, COMMUNICATION_POOL)
    in_window = ", ".join(filter(None, ("in the GPU window", over_steps(totals))))
    of_communication = (
        (
            "Exposed communication",
            percent(exposed_pct),
            exposed,
            f"Communication time without concurrent compute, in percent of {whole}.",
        ),
        (
            "Hidden communication",
            _share(overlap),
            {**facts_of(overlap), "description": "of the communication time in the GPU window"},
            "Communication time with concurrent compute, in percent of communication time.",
        ),
    )
    of_copies = (
        "Memory copies",
        milliseconds(totals.total_memcpy_time_ms),
        {**facts_of(result.metrics["memcpy_assessment"]), "description": in_window},
        "Time in which any copy runs, hidden or exposed.",
    )
    cards = (*(of_communication if totals.total_comm_time_ms > 0 else ()), of_copies)
    for place, card in zip(st.columns(3), cards, strict=False):
        with place:
            grade_card(*card)


def _share(overlap: JsonValue) -> str:
    value = facts_of(overlap).get("overlap_percent")
    return "not available" if value is None else percent(value)


def _communication(now: Opened) -> None:
    totals, account = now.run.manifest.totals, account_of(now.run)
    whole_ms, exposed_ms = totals.total_comm_time_ms, totals.exposed_comm_time_ms
    st.markdown(
        f"**{percent(share_pct(exposed_ms, whole_ms))} of communication is exposed**: "
        f"{milliseconds(exposed_ms)} of {milliseconds(whole_ms)} in the GPU window",
        help="Hidden: communication with concurrent compute. Exposed: without.",
    )
    parts = {"hidden": whole_ms - exposed_ms, "exposed": exposed_ms}
    rows = [("Communication", part, time_ms) for part, time_ms in parts.items()]
    _exposure(now, pl.DataFrame(rows, schema=_EXPOSURE, orient="row"), "communication")
    if account is not None:
        of_steps = milliseconds(account.parts_ns[C.exposed_comm_ns] / 1e6)
        if of_steps != milliseconds(exposed_ms):
            st.caption(
                "In the GPU window, without work that is not linked to its launch. In "
                f"{steps_name(account.is_marked, account.step_count)}, with all GPU work, "
                f"{of_steps} is exposed."
            )


def _copies(now: Opened, copies: pl.DataFrame) -> None:
    first = copies.row(0, named=True)
    time, exposed = (
        milliseconds(first[name] / 1000) for name in (C.total_time_us, C.exposed_time_us)
    )
    st.markdown(
        f"**{first[C.direction]} copies take {time}**, "
        f"{'all' if exposed == time else exposed} of it exposed",
        help="H2D: host to device, D2H: device to host, D2D: within the device. Hidden: with "
        "concurrent compute or communication.",
    )
    hidden = pl.max_horizontal(pl.col(C.total_time_us) - pl.col(C.exposed_time_us), pl.lit(0.0))
    rows = pl.concat(
        copies.select(
            **{C.kind: pl.col(C.direction), "part": pl.lit(part), C.time_ms: time_us / 1000}
        )
        for part, time_us in (("hidden", hidden), ("exposed", pl.col(C.exposed_time_us)))
    )
    _exposure(now, rows, "copies of each direction")


_EXPOSURE = {C.kind: pl.String, "part": pl.String, C.time_ms: pl.Float64}


def _exposure(now: Opened, rows: pl.DataFrame, what: str) -> None:
    render_chart(
        _exposure_drawing(now, palette(), what, rows), f"Hidden and exposed time of {what}"
    )


@cached(_MAX_CACHED, of_stored)
def _exposure_drawing(
    now: Opened, colors: charts.Palette, what: str, _rows: pl.DataFrame
) -> charts.EncodedDrawing:
    return charts.drawing_of(charts.exposure(_rows, colors)).encoded()


def _longest(run: Run) -> None:
    """Draw the longest communication kernels of the timeline."""
    in_timeline = timeline_window(run.table("gpu_work")).select(C.uid)
    every = run.table("collectives")
    kernels = every.join(in_timeline, on=C.uid, how="semi")
    rest = every.join(in_timeline, on=C.uid, how="anti")
    if kernels.is_empty():
        return
    time_us = float(kernels[C.dur_us].sum())
    longest = (
        kernels.sort(C.dur_us, C.uid, descending=[True, False])
        .filter(pl.col(C.dur_us) >= _MIN_LISTED * time_us)
        .head(_LONGEST)
    )
    share = share_pct(float(longest[C.dur_us].sum()), time_us)
    with st.container(border=True):
        st.markdown(
            f"**The longest {longest.height} of {counted(kernels.height, 'communication kernel')}**"
            f" take {percent(share)} of their time",
            help="The time of a communication kernel includes waiting for other ranks.",
        )
        rows = _with_rates(longest, run)
        columns = charts.columns_of(TABLES["collectives"], _COLLECTIVE_COLUMNS)
        common = [name for name in _COMMON if rows[name].n_unique() == 1]
        names = [c.name for c in _COLLECTIVE_COLUMNS] + [c for c in _COMMON if c not in common]
        known = [name for name in names if name in rows.columns and rows[name].count()]
        title = "The longest communication kernels"
        alike = tuple(name for name in (C.dur_us, "exposed_us") if name in known)
        small_table(rows, columns, title, known, _WIDTHS, alike=alike)
        named = [
            f"{columns[name].label.lower()} {escape(str(rows[name][0]))}"
            for name in common
            if rows[name].count()
        ]
        notes = [f"Equal in all rows: {', '.join(named)}."] if named else []
        if rest.height:
            most_us = charts.largest(rest[C.dur_us])
            notes.append(
                f"Not included: {counted(rest.height, 'communication kernel')} whose launch is not "
                f"recorded, of up to {milliseconds(most_us / 1000)}: see *Timeline*."
            )
        if notes:
            st.caption(" ".join(notes))


def _with_rates(kernels: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Return communication kernels with the name of their step, size, and bandwidth; also exposed
    time and overlap, which earlier releases did not store."""
    nbytes = pl.col(C.message_mb) * BYTES_PER_MIB
    kernels = with_short_texts(kernels, {C.name: short_kernel_name, C.dtype: short_dtype})
    kernels = kernels.with_columns(
        pl.coalesce(C.collective, C.name).alias(C.collective),
        nbytes.alias(C.bytes),
        (nbytes / pl.col(C.dur_us) / 1e3).alias(C.algo_gbs),
    )
    if C.exposed_ns not in kernels.columns or "steps" not in run.tables:
        return kernels.drop(C.step, strict=False)
    names = run.table("steps").select(C.step, step_name=C.name)
    exposed, hidden = pl.col(C.exposed_ns), pl.col(C.overlap_ns)
    return kernels.join(names, on=C.step, how="left", maintain_order="left").with_columns(
        pl.col("step_name").alias(C.step),
        (exposed / 1e3).alias("exposed_us"),
        (100 * hidden / (hidden + exposed)).alias("overlap_pct"),
    )
