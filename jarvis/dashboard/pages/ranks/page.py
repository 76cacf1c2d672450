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
from jarvis.ranks.manifest import DistributedManifest, superseded_text
from jarvis.ranks.per_step import COLUMNS, basis, ranks_per_step, shown_columns, step_count
from jarvis.ranks.run import DistributedRun
from jarvis.schemas import NUMBER, TABLES, Column
from jarvis.schemas.columns import count, number, text
from jarvis.schemas.names import C
from jarvis.server.storage.catalog import Catalog, DistributedEntry
from jarvis.text.format import counted, microseconds
from jarvis.text.markdown import code, escape

ALL_STEPS = "all"
MIN_CLOCK_US = 0.1
"""Resolution of the shown agreement of clocks."""

MIN_STEPS = 2
"""Steps of which a comparison shows something that the table of ranks does not."""

OWN_MS = "own_ms"
_OWN = Column(
    OWN_MS,
    "Step time without waiting (ms)",
    NUMBER,
    "ms",
    meaning="step time without the time in which the rank waits for others and computes nothing",
)
_MEASURES = (
    *(OWN_MS, C.duration_ms, C.compute_ms, C.idle_ms, C.exposed_comm_ms, C.exposed_wait_ms),
    *(C.exposed_transfer_ms, C.lateness_ms),
)
_RANK_WIDTHS = {
    C.rank: 45,
    C.gain_ms: 105,
    "slower_pct": 120,
    C.caused_exposed_wait_ms: 105,
    C.exposed_wait_ms: 70,
    C.exposed_transfer_ms: 130,
    C.compute_ms: 90,
    C.idle_ms: 65,
    C.times_last: 80,
}
"""Widths in pixels that show these columns in a window of 1280 pixels."""

_COMMUNICATORS = (
    text(C.comm_id, "Communicator", "description or name, and its ranks"),
    count(C.size, "Ranks", "number of ranks"),
    count(C.traced_ranks, "Recorded ranks", "of its ranks, those with a trace"),
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


_NOT_CHOSEN = ""


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
    opened = current_id()
    if opened is None:
        default = stored[0].id
    else:
        of_opened = (opened, *(entry.id for entry in catalog.with_rank(opened)))
        default = next((each for each in of_opened if each in titles), _NOT_CHOSEN)
    choices = titles if default else {_NOT_CHOSEN: "Choose a distributed run", **titles}
    chosen = keyed_choice(
        "ranks_run", "Distributed run", choices, default, "Traces that were analyzed together."
    )
    if chosen == _NOT_CHOSEN:
        traces = (each.manifest.trace for each in catalog.entries if each.id == opened)
        rank = next(
            (
                f"rank {each.rank} of {each.world_size:,}"
                for each in traces
                if each.rank is not None and each.world_size
            ),
            "of one rank",
        )
        st.info(
            f"The open run is {rank} alone. To see which ranks are late, and why, analyze the "
            "traces of all ranks together.",
            icon=":material/lan:",
        )
        navigation.link(navigation.INGEST, "Upload traces", icon=":material/upload:")
        return
    entry = next(entry for entry in stored if entry.id == chosen)
    run = DistributedRun.load(entry.root)
    _facts(entry, catalog)
    figures(run)
    rank_findings(run)
    _arrivals(run)
    late_ranks(run)
    _steps(run)
    _bandwidth(run)
    _ranks(run)
    _communicators(run)


def _facts(entry: DistributedEntry, catalog: Catalog) -> None:
    """Draw what the run consists of, and what is missing."""
    manifest = entry.manifest
    clock = manifest.clock
    members = {rank.analysis_id for rank in manifest.usable}
    origins = {run.manifest.trace.origin for run in catalog.entries if run.id in members}
    if not clock.is_waiting_known or clock.p95_us is None:
        agreement = "the clocks of the ranks are not known"
    elif origins == {"simulated"}:
        agreement = "simulated sample: one clock"
    else:
        within = microseconds(max(clock.p95_us, MIN_CLOCK_US))
        agreement = f"ends of collectives agree within {within}"
    st.caption(
        f"{escape(manifest.title)} · {counted(manifest.matching.instances, 'matched collective')} "
        f"· {agreement}"
    )
    if (newer := catalog.superseded_by(entry)) is not None:
        st.info(superseded_text(manifest, newer.manifest), icon=":material/upgrade:")
        navigation.link(navigation.RANKS, "Open it", icon=":material/lan:", ranks_run=newer.id)
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
        first, last = shown[C.instance_id].min(), shown[C.instance_id].max()
        events = run.scan("instance_ranks").filter(pl.col(C.instance_id).is_between(first, last))
        arrivals = (
            events.select(C.instance_id, C.rank, C.start_ns)
            .collect()
            .join(shown, on=C.instance_id)
            .with_columns((late / 1e6).alias("late_ms"))
        )
        if arrivals.is_empty():
            st.info("No collective is matched.")
            return
        columns = (C.instance_id, C.rank, "late_ms", C.kind, C.step, C.is_edge)
        chart = arrival_map(arrivals.select(columns), palette())
        render_altair(chart, "Heat map of arrivals of ranks at collectives")
        edges, rest = int(shown[C.is_edge].sum()), of_instances.height - shown.height
        faded = (
            f" {counted(edges, 'faded column')} at the edge of the recording: the ranks were not "
            "together before, so waiting there may be from before it, and is not counted. Such a "
            "delay can still be seen at the collectives after them."
        )
        more = f" The first {MAX_INSTANCES} are shown, {rest:,} are not." if rest > 0 else ""
        st.caption(
            "Ranks in warm colors arrive after the median of the ranks, blue ones before."
            f"{faded if edges else ''}{more}"
        )


def _steps(run: DistributedRun) -> None:
    """Draw a measure of each step of each rank."""
    own = pl.col(C.duration_ms) - pl.col(C.exposed_wait_ms)
    steps = run.tables["rank_steps"].with_columns(own.alias(OWN_MS))
    columns = columns_of((_OWN,), TABLES["rank_steps"])
    measures = {name: columns[name] for name in _MEASURES if steps[name].count()}
    if not measures or steps[C.step].n_unique() < MIN_STEPS:
        return
    with st.container(border=True):
        st.markdown("**Steps of each rank**")
        labels = {column.label: name for name, column in measures.items()}
        chosen = labels[
            list_choice("ranks_measure", "Measure", [*labels], "What the colors compare.")
        ]
        value, step_ms = pl.col(chosen), pl.col(C.duration_ms).median().over(C.step)
        beyond = 100 * (value - value.median().over(C.step)) / step_ms
        rows = steps.drop_nulls(chosen).select(C.rank, C.step, chosen, beyond.alias("beyond_pct"))
        measure = Tip(chosen, measures[chosen].label, ",.3f")
        render_altair(step_map(rows, measure, palette()), "Steps of each rank")


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
    rows = ranks_per_step(run.tables)
    with st.container(border=True):
        st.markdown(f"**Ranks** · {basis(run.tables)}")
        small_table(
            rows,
            columns_of(COLUMNS),
            "Ranks",
            [name for name in shown_columns(rows) if name != C.file_name],
            _RANK_WIDTHS,
            key="ranks_table",
            addresses=[
                navigation.address(navigation.OVERVIEW, str(each)) for each in rows[C.analysis_id]
            ],
            max_rows=16,
        )
        st.caption(
            "A click on a rank opens its own analysis. Not means of steps are *Step saved*, the "
            "time by which the median step gets shorter if this rank is as fast as the median of "
            "the ranks; *Kernels slower*, the same kernels against the median of the ranks; and "
            "*Last, in all*, of the whole recording."
        )


def _communicators(run: DistributedRun) -> None:
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
        small_table(rows, columns_of(_COMMUNICATORS), "Communicators")
        if edges := matched.height - inner.height:
            st.caption(
                f"Times are without {edges:,} of {counted(matched.height, 'collective')}, those "
                "at the edge of the recording."
            )
    st.caption(f"{code(f'jarvis ranks {run.root.name} --why')} prints ranks and delays.")
