"""The ranks page: a distributed run, with who is late and why."""

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.charts.arrivals import (
    AT_MOST,
    MAX_INSTANCES,
    MEASURED,
    arrival_map,
    bandwidths,
    step_map,
)
from jarvis.charts.marks import Tip
from jarvis.dashboard.pages.ranks.figures import figures
from jarvis.dashboard.pages.ranks.findings import rank_findings
from jarvis.dashboard.pages.ranks.lateness import late_ranks
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.state import current_id, palette
from jarvis.dashboard.widgets.controls import keyed_choice, list_choice
from jarvis.dashboard.widgets.elements import render_altair
from jarvis.dashboard.widgets.table import small_table
from jarvis.ranks.identity import missing_text
from jarvis.ranks.manifest import DistributedManifest
from jarvis.ranks.run import DistributedRun
from jarvis.schemas import TABLES
from jarvis.schemas.names import C
from jarvis.server.storage.catalog import DistributedEntry
from jarvis.text.format import counted, microseconds
from jarvis.text.markdown import code, escape

ALL_STEPS = "all"
MIN_STEPS = 2
"""Steps of which a comparison shows something that the table of ranks does not."""

_MEASURES = (
    *(C.duration_ms, C.compute_ms, C.idle_ms, C.exposed_comm_ms, C.exposed_wait_ms),
    *(C.exposed_transfer_ms, C.lateness_ms),
)
_RANKS = (
    *(C.rank, C.gain_low_ms, C.gain_high_ms, C.gain_method, C.speed_ratio),
    *(C.caused_exposed_wait_ms, C.exposed_wait_ms, C.exposed_transfer_ms, C.compute_ms),
    *(C.idle_ms, C.exposed_copy_ms, C.window_ms, C.times_last, C.edge_wait_ms, C.wait_ms),
    *(C.clock_offset_us, C.clock_error_us, C.device_name, C.file_name),
)
_COMMUNICATORS = (
    *(C.comm_id, C.size, C.traced_ranks, C.kinds, C.instance_count, C.message_bytes, C.comm_ms),
    *(C.wait_ms,),
)


def render() -> None:
    """Draw the page for the chosen distributed run, by default that of the open analysis."""
    catalog = visible_catalog()
    stored = catalog.distributed
    if not stored:
        st.info(
            "No distributed run is stored yet. Upload the traces of all ranks of a job together, "
            "or an archive of them; or analyze them on this machine:",
            icon=":material/lan:",
        )
        navigation.link(navigation.INGEST, "Upload traces", icon=":material/upload:")
        st.code("jarvis analyze FOLDER_OF_TRACES --id", language="sh")
        return
    titles = {entry.id: entry.title for entry in stored}
    opened = str(current_id())
    of_opened = [opened, *(entry.id for entry in catalog.with_rank(opened)), stored[0].id]
    default = next(each for each in of_opened if each in titles)
    chosen = keyed_choice(
        "ranks_run", "Distributed run", titles, default, "Traces that were analyzed together."
    )
    entry = next(entry for entry in stored if entry.id == chosen)
    run = DistributedRun.load(entry.root)
    _facts(entry)
    figures(run)
    rank_findings(run)
    _arrivals(run)
    late_ranks(run)
    _steps(run)
    _bandwidth(run)
    _ranks(run)
    _communicators(run)


def _facts(entry: DistributedEntry) -> None:
    """Draw what the run consists of, and what is missing."""
    manifest = entry.manifest
    clock = manifest.clock
    agreement = (
        "the clocks of the ranks are not known"
        if not clock.is_waiting_known or clock.p95_us is None
        else f"ends of collectives agree within {microseconds(clock.p95_us)}"
    )
    st.caption(
        f"{escape(manifest.title)} · {counted(manifest.matching.instances, 'matched collective')} "
        f"· {agreement}"
    )
    for warning in _warnings(manifest):
        st.warning(escape(warning), icon=":material/warning:")


def _warnings(manifest: DistributedManifest) -> list[str]:
    lines = []
    if manifest.missing:
        size = manifest.world_size
        missing = missing_text(manifest.missing, size.value, size.source)
        lines.append(
            f"{missing[0].upper()}{missing[1:]}. Waiting is a lower bound, transfer an upper one: "
            "a missing rank may have arrived last."
        )
    lines += [f"{failed.file_name}: {failed.error}" for failed in manifest.failed]
    lines += manifest.conflicts
    lines += [
        f"Rank {rank} has several files; {', '.join(names)} is left out."
        for rank, names in manifest.duplicates.items()
    ]
    if unmatched := manifest.matching.unmatched_kernels:
        lines.append(f"{counted(unmatched, 'communication kernel')} could not be matched.")
    return lines


def _arrivals(run: DistributedRun) -> None:
    """Draw when each rank arrives at each collective."""
    events = run.tables["instance_ranks"]
    of_instances = run.tables["instances"].select(C.instance_id, C.kind, C.step, C.is_edge)
    steps = of_instances[C.step].drop_nulls().unique().sort()
    with st.container(border=True):
        st.markdown("**Arrival of each rank at each collective**")
        chosen = list_choice(
            "ranks_step", "Step", [ALL_STEPS, *map(str, steps)], "Step whose collectives are shown."
        )
        if chosen != ALL_STEPS:
            of_instances = of_instances.filter(pl.col(C.step) == int(chosen))
        shown = of_instances.head(MAX_INSTANCES)
        late = pl.col(C.start_ns) - pl.col(C.start_ns).median().over(C.instance_id)
        arrivals = events.join(shown, on=C.instance_id).with_columns((late / 1e6).alias("late_ms"))
        if arrivals.is_empty():
            st.info("No collective is matched.")
            return
        columns = (C.instance_id, C.rank, "late_ms", C.kind, C.step, C.is_edge)
        chart = arrival_map(arrivals.select(columns), palette())
        render_altair(chart, "Heat map of arrivals of ranks at collectives")
        rest = of_instances.height - shown.height
        more = f" The first {MAX_INSTANCES} are shown, {rest:,} are not." if rest > 0 else ""
        st.caption(
            "Ranks in warm colors arrive after the median of the ranks, blue ones before. Pale "
            f"columns are edges: what they show happened before the recording.{more}"
        )


def _steps(run: DistributedRun) -> None:
    """Draw a measure of each step of each rank."""
    steps = run.tables["rank_steps"]
    measures = {
        name: column
        for name, column in columns_of(TABLES["rank_steps"]).items()
        if name in _MEASURES and steps[name].count()
    }
    if not measures or steps[C.step].n_unique() < MIN_STEPS:
        return
    with st.container(border=True):
        st.markdown("**Steps of each rank**")
        labels = {column.label: name for name, column in measures.items()}
        chosen = labels[
            list_choice("ranks_measure", "Measure", [*labels], "What the colors compare.")
        ]
        value = pl.col(chosen)
        rows = steps.drop_nulls(chosen).with_columns(
            (value - value.median().over(C.step)).alias("beyond")
        )
        measure = Tip(chosen, measures[chosen].label, ",.3f")
        columns = (C.rank, C.step, chosen, "beyond")
        render_altair(step_map(rows.select(columns), measure, palette()), "Steps of each rank")


def _bandwidth(run: DistributedRun) -> None:
    """Draw the bandwidth of collectives by message size."""
    is_bound = pl.when(C.transfer_is_bound).then(pl.lit("at most this"))
    rows = (
        run.tables["instances"]
        .filter(pl.col(C.bus_gbs) > 0, pl.col(C.bytes) > 0)
        .select(
            *(C.bytes, C.bus_gbs, C.kind, C.comm_id, C.transfer_us),
            is_bound.otherwise(pl.lit(MEASURED)).alias(AT_MOST),
        )
    )
    with st.container(border=True):
        st.markdown("**Bandwidth by message size**")
        if rows.is_empty():
            st.info("The bandwidth is not known: it needs the clocks of the ranks and messages.")
            return
        is_bounded = (rows[AT_MOST] != MEASURED).any()
        links = run.tables["communicators"][C.link_gbs].drop_nulls().unique()
        link = float(links[0]) if len(links) == 1 else None
        render_altair(bandwidths(rows, link, palette()), "Bandwidth of collectives by message size")
        st.caption(
            "Bus bandwidth as nccl-tests counts it, from the last arrival on."
            + (f" The line is the peak of the link, {link:,.0f} GB/s." if link else "")
            + (" Hollow marks are lower bounds, as ranks are missing." if is_bounded else "")
        )


def _ranks(run: DistributedRun) -> None:
    """Draw the table of ranks; a click opens the analysis of a rank."""
    rows = run.tables["ranks"]
    with st.container(border=True):
        st.markdown("**Ranks**")
        small_table(
            rows,
            columns_of(TABLES["ranks"]),
            "Ranks",
            [name for name in _RANKS if rows[name].count()],
            key="ranks_table",
            addresses=[
                navigation.address(navigation.OVERVIEW, str(each)) for each in rows[C.analysis_id]
            ],
            max_rows=16,
        )
        st.caption("A click on a rank opens its own analysis.")


def _communicators(run: DistributedRun) -> None:
    columns = columns_of(TABLES["communicators"])
    with st.container(border=True):
        st.markdown("**Communicators**")
        small_table(run.tables["communicators"], columns, "Communicators", _COMMUNICATORS)
    st.caption(f"Files: {code(str(run.root.name))} in the analyses of this server.")
