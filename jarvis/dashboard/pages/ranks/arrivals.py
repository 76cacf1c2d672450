"""When each rank arrives at each collective: the heat map, one collective, and all on one clock."""

import polars as pl
import streamlit as st

from jarvis.charts.arrivals import MAX_INSTANCES, PARTS, arrival_map, lanes
from jarvis.charts.rooflines import PICKED
from jarvis.dashboard.pages.ranks.filters import Chosen
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.controls import whole_number
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.ranks.identity import as_ranges
from jarvis.ranks.per_step import ranks_per_step
from jarvis.ranks.rows import ROW
from jarvis.schemas.names import C
from jarvis.text.format import byte_size, counted, milliseconds
from jarvis.text.markdown import escape

MAX_BARS, MAX_LANES = 64, 16
"""Ranks of one collective, and on one clock, that can be read."""

_MAP, _COLLECTIVE = "ranks_map", "ranks_collective"
_OF_INSTANCES = (C.instance_id, C.kind, C.step, C.is_edge)

MIN_GBS = 0.1
"""Lower bandwidths, of messages of a few bytes, are not printed."""


def arrivals(chosen: Chosen) -> None:
    """Draw the heat map; a click on it chooses a collective."""
    instances = chosen.instances
    shown = instances.head(MAX_INSTANCES)
    with st.container(border=True):
        st.markdown("**Arrival of each rank at each collective**")
        cells = _cells(chosen, shown)
        if cells.is_empty():
            st.info("No collective is matched.")
            return
        absent = _absent(chosen, shown)
        render_chart(
            arrival_map(cells, absent, chosen.labels, palette()),
            "Heat map of arrivals of ranks at collectives",
            key=_MAP,
            selection=PICKED,
            on_select=_choose,
        )
        edges, rest = int(shown[C.is_edge].sum()), instances.height - shown.height
        faded = (
            f" {counted(edges, 'faded column')} at the edge of the recording: the ranks had "
            "not met before, so waiting there may be from before the recording and is not counted. "
            "The collectives after them can still show such a delay."
        )
        more = f" The first {MAX_INSTANCES} are shown, {rest:,} are not." if rest > 0 else ""
        together = (
            " Several ranks share a row, which shows the last one." if _has_blocks(chosen) else ""
        )
        st.caption(
            "Ranks in warm colors arrive after the median of the ranks, blue ones before."
            f"{together}{' Strokes are ranks without a trace.' if absent.height else ''}"
            f"{faded if edges else ''}{more} A click shows the collective below."
        )


def _has_blocks(chosen: Chosen) -> bool:
    return len(chosen.labels) < chosen.rows.height


def _cells(chosen: Chosen, shown: pl.DataFrame) -> pl.DataFrame:
    """Return the arrivals as ``arrival_map`` draws them; of ranks in one row, that of the last."""
    late_ns = pl.col(C.start_ns) - pl.col(C.start_ns).median().over(C.instance_id)
    error_ms = (chosen.run.manifest.clock.p95_us or 0.0) / 1e3
    late = pl.col("late_ms")
    return (
        chosen.run.tables["instance_ranks"]
        .join(shown.select(_OF_INSTANCES), on=C.instance_id)
        .with_columns((late_ns / 1e6).alias("late_ms"))
        .join(chosen.rows, on=C.rank)
        .group_by(*_OF_INSTANCES, ROW, maintain_order=True)
        .agg(late.max())
        .with_columns(pl.when(late.abs() > error_ms).then(late).otherwise(0.0).alias("shown_ms"))
    )


def _absent(chosen: Chosen, shown: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of ranks that have no kernel in a collective of their group."""
    return (
        shown.select(C.instance_id, C.kind, C.step, pl.col(C.missing_ranks).alias(C.rank))
        .explode(C.rank)
        .join(chosen.rows, on=C.rank)
        .select(C.instance_id, C.kind, C.step, ROW)
        .unique(maintain_order=True)
    )


def _choose() -> None:
    if picked := st.session_state[_MAP]["selection"].get(PICKED):
        st.session_state[_COLLECTIVE] = int(picked[0][C.instance_id])


def collective(chosen: Chosen) -> None:
    """Draw the arrivals at one collective; by default the one where others wait longest."""
    instances = chosen.instances
    if instances.is_empty():
        return
    inner = instances.filter(~pl.col(C.is_edge))
    longest = (inner if inner.height else instances).sort(
        C.exposed_wait_us, C.instance_id, descending=[True, False], nulls_last=True
    )
    every = chosen.run.tables["instances"]
    with st.container(border=True):
        st.markdown("**Ranks at one collective**")
        number = whole_number(
            _COLLECTIVE,
            "Collective",
            int(longest[C.instance_id][0]),
            0,
            int(every[-1, C.instance_id]),
            "Number of the collective; a click on the map above sets it. By default the one where "
            "ranks wait longest without computing.",
        )
        row = every.row(by_predicate=pl.col(C.instance_id) == number, named=True)
        own = chosen.run.tables["instance_ranks"].filter(pl.col(C.instance_id) == number)
        st.markdown(_described(row))
        if row[C.is_edge]:
            st.caption(_of_edge(own, row[C.step], chosen.run.tables["rank_steps"]))
        first_ns = int(own[C.start_ns].to_numpy().min())
        own = own.sort(C.start_ns, C.rank)
        if own.height > MAX_BARS:
            own = pl.concat([own.head(MAX_BARS // 2), own.tail(MAX_BARS // 2)])
            st.caption(f"The first and the last {MAX_BARS // 2} ranks to arrive.")
        labels = own.select(C.rank, pl.col(C.rank).cast(pl.String).alias(ROW))
        parts = _parts(own, labels, every, first_ns)
        drawing = lanes(parts, labels.sort(C.rank)[ROW].to_list(), palette(), has_lines=False)
        render_chart(drawing, "Waiting and transfer of each rank at the collective")


def _described(row: dict[str, object]) -> str:
    """Return what a collective is, and what is known about its ranks, as Markdown."""
    size = row[C.bytes]
    of_size = f" of {byte_size(size)}" if isinstance(size, int) else ""
    step = "" if row[C.step] is None else f", step {row[C.step]}"
    parts = [f"{row[C.kind]}{of_size} in {row[C.comm_id]}{step}"]
    margin, transfer, wait = row[C.margin_us], row[C.transfer_us], row[C.wait_us]
    if row[C.last_rank] is not None and isinstance(margin, float):
        parts.append(f"rank {row[C.last_rank]} is last, {_time(margin)} after the one before")
    elif isinstance(wait, float):
        parts.append("several ranks are last, within the error of the clocks")
    if isinstance(wait, float):
        parts.append(f"ranks wait {_time(wait)} in all")
    else:
        parts.append("waiting is not known")
    if isinstance(transfer, float):
        at_most = "at most " if row[C.transfer_is_bound] else ""
        gbs = row[C.bus_gbs]
        is_shown = isinstance(gbs, float) and gbs >= MIN_GBS
        rate = f" ({gbs:,.1f} GB/s of bus bandwidth)" if is_shown else ""
        parts.append(f"transfer takes {at_most}{_time(transfer)}{rate}")
    missing = row[C.missing_ranks]
    if isinstance(missing, list) and missing:
        parts.append(f"no kernel of {counted(len(missing), 'rank')}: {as_ranges(missing)}")
    return escape(" · ".join(parts))


def _of_edge(events: pl.DataFrame, step: int | None, rank_steps: pl.DataFrame) -> str:
    """Return what an instance at the edge of the recording shows.

    Args:
        events: Its events.
        step: Its step.
        rank_steps: Table ``rank_steps``.
    """
    text = "At the edge of the recording, so waiting may be from before it."
    begins = rank_steps.filter(pl.col(C.step).eq_missing(step)).select(C.rank, begin=C.start_ns)
    way = (pl.col(C.start_ns) - pl.col("begin")).alias("way")
    known = events.join(begins, on=C.rank).select(C.rank, "begin", way)
    is_same = known["begin"].n_unique() == known["way"].n_unique() == 1
    if known.height < events.height or is_same:
        return text
    last, slowest = (
        known.sort(column, C.rank, descending=[True, False]) for column in ("begin", "way")
    )
    apart_ms, longer_ms = (
        milliseconds((rows[0, column] - rows[-1, column]) / 1e6)
        for rows, column in ((last, "begin"), (slowest, "way"))
    )
    return (
        f"{text} Step {step} begins up to {apart_ms} apart, on rank {last[0, C.rank]} last. From "
        f"there to the collective, rank {slowest[0, C.rank]} takes longest, {longer_ms} more than "
        f"rank {slowest[-1, C.rank]}."
    )


def _time(us: float) -> str:
    return milliseconds(us / 1e3)


def _parts(
    events: pl.DataFrame, labels: pl.DataFrame, instances: pl.DataFrame, first_ns: int
) -> pl.DataFrame:
    """Return waiting and transfer of events as ``lanes`` draws them, from ``first_ns`` on."""
    waits, transfers, unknown = PARTS
    placed = (
        events.join(labels.with_row_index("order"), on=C.rank)
        .join(instances.select(C.instance_id, C.kind), on=C.instance_id)
        .with_columns(
            (pl.col(C.start_ns) + pl.col(C.wait_ns).fill_null(0)).alias("until_ns"),
            arrival_ms=(pl.col(C.start_ns) - first_ns) / 1e6,
        )
    )
    of_transfer = (
        pl.when(pl.col(C.wait_ns).is_null()).then(pl.lit(unknown)).otherwise(pl.lit(transfers))
    )
    spans = (
        (pl.lit(waits), C.start_ns, "until_ns"),
        (of_transfer, "until_ns", C.end_ns),
    )
    return pl.concat(
        placed.select(
            *(C.instance_id, ROW, "order", C.kind, "arrival_ms"),
            part.alias("part"),
            ((pl.col(begin) - first_ns) / 1e6).alias("start_ms"),
            ((pl.col(end) - first_ns) / 1e6).alias("end_ms"),
            ((pl.col(end) - pl.col(begin)) / 1e6).alias("ms"),
        ).filter(pl.col("ms") > 0)
        for part, begin, end in spans
    ).sort(C.instance_id, "order", "start_ms")


def timeline(chosen: Chosen) -> None:
    """Draw the collectives of a step on one clock, of at most MAX_LANES ranks."""
    steps = chosen.instances[C.step].drop_nulls().unique().sort()
    step = chosen.step if chosen.step is not None else (steps[-1] if len(steps) else None)
    instances = chosen.instances.filter(pl.col(C.step).eq_missing(step)).head(MAX_INSTANCES)
    ranks = _lane_ranks(chosen)
    events = chosen.events.filter(pl.col(C.rank).is_in(ranks)).join(
        instances, on=C.instance_id, how="semi"
    )
    if events.is_empty():
        return
    labels = pl.DataFrame({C.rank: ranks}, schema={C.rank: pl.Int64}).with_columns(
        pl.col(C.rank).cast(pl.String).alias(ROW)
    )
    title = "Collectives on one clock" + ("" if step is None else f" · step {step}")
    with st.container(border=True):
        st.markdown(f"**{title}**")
        parts = _parts(events, labels, instances, int(events[C.start_ns].to_numpy().min()))
        drawing = lanes(parts, labels[ROW].to_list(), palette(), has_lines=True)
        render_chart(drawing, "Collectives of ranks on one clock")
        of_more = (
            f" {len(ranks)} of {counted(chosen.rows.height, 'rank')}: those for which the others "
            "wait longest, those that wait longest, and one between. The filter chooses others."
        )
        st.caption(
            "Lines join the arrivals at one collective. Drag and scroll to move and zoom."
            f"{of_more if chosen.rows.height > len(ranks) else ''}"
        )


def _lane_ranks(chosen: Chosen) -> list[int]:
    """Return the ranks whose clock is known; of many those that the others wait for, those that
    wait, and the one between."""
    known = ranks_per_step(chosen.run.tables).drop_nulls(C.clock_offset_us)
    ranks = chosen.of_ranks(known).sort(
        pl.col(C.caused_exposed_wait_ms).fill_null(0), C.rank, descending=[True, False]
    )[C.rank]
    if len(ranks) <= MAX_LANES:
        return sorted(ranks)
    half = MAX_LANES // 2
    middle = ranks[len(ranks) // 2]
    return sorted({*ranks.head(half), middle, *ranks.tail(half - 1)})
