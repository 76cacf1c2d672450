"""The ranks page: a distributed run, with who is late and why."""

import polars as pl
import streamlit as st

from jarvis.charts import columns_of
from jarvis.charts.arrivals import step_map
from jarvis.charts.marks import Tip
from jarvis.dashboard.pages.ranks.arrivals import arrivals, collective, timeline
from jarvis.dashboard.pages.ranks.downloads import downloads
from jarvis.dashboard.pages.ranks.figures import figures
from jarvis.dashboard.pages.ranks.filters import Chosen, filters
from jarvis.dashboard.pages.ranks.findings import rank_findings
from jarvis.dashboard.pages.ranks.lateness import late_ranks
from jarvis.dashboard.pages.ranks.traffic import bandwidth, communicators, pair_bytes
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.state import current_id, palette
from jarvis.dashboard.widgets.controls import keyed_choice, list_choice
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.table import small_table
from jarvis.ranks.categories import COLUMNS as CATEGORY_COLUMNS
from jarvis.ranks.categories import SHOWN as CATEGORIES_SHOWN
from jarvis.ranks.categories import outliers
from jarvis.ranks.identity import missing_text
from jarvis.ranks.manifest import DistributedManifest, left_out_texts, superseded_text
from jarvis.ranks.per_step import COLUMNS, PLACE, basis, ranks_per_step, shown_columns, step_count
from jarvis.ranks.rows import ROW
from jarvis.ranks.run import DistributedRun
from jarvis.schemas import NUMBER, TABLES, Column
from jarvis.schemas.names import C
from jarvis.server.storage.catalog import Catalog, DistributedEntry
from jarvis.text.format import counted, microseconds
from jarvis.text.markdown import code, escape

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
    *(C.exposed_transfer_ms, C.lateness_ms, C.bubble_ms, C.launch_lead_us),
)
_RANK_WIDTHS = {
    C.rank: 45,
    C.gain_ms: 105,
    C.gain_low_ms: 125,
    C.gain_high_ms: 125,
    "slower_pct": 70,
    C.caused_exposed_wait_ms: 105,
    C.exposed_wait_ms: 70,
    C.exposed_transfer_ms: 90,
    PLACE: 110,
    C.compute_ms: 90,
    C.idle_ms: 65,
    C.times_last: 55,
}
"""Widths in pixels that show these columns in a window of 1280 pixels."""


_MAX_OUTLIERS = 200
_NOT_CHOSEN = ""
_TITLE_PX = 420


def render() -> None:
    """Draw the page for the chosen distributed run, by default that of the open analysis."""
    catalog = visible_catalog()
    stored = catalog.distributed
    if not stored:
        st.info(
            "No distributed run is stored yet. Upload the traces of all ranks of a job together, "
            "or an archive of them; or analyze them on this machine by the command below.",
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
        "ranks_run",
        "Distributed run",
        choices,
        default,
        "Traces that were analyzed together.",
        _TITLE_PX,
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
    _facts(entry, run, catalog)
    figures(run)
    rank_findings(run)
    part = filters(run)
    arrivals(part)
    collective(part)
    late_ranks(part)
    _steps(part)
    bandwidth(part)
    _ranks(run)
    _categories(run)
    pair_bytes(part)
    communicators(run)
    timeline(part)
    downloads(run)
    st.caption(f"{code(f'jarvis ranks {run.root.name} --why')} prints ranks and delays.")


def _facts(entry: DistributedEntry, run: DistributedRun, catalog: Catalog) -> None:
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
    steps, groups = step_count(run.tables), run.tables["communicators"].height
    devices = sorted({rank.device_name for rank in manifest.usable if rank.device_name})
    parts = [
        manifest.title,
        counted(steps, "step") if steps else "no marked steps",
        f"{counted(manifest.matching.instances, 'matched collective')} in "
        f"{counted(groups, 'process group')}",
        agreement,
        *devices,
    ]
    st.caption(escape(" · ".join(parts)))
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
    lines += left_out_texts(manifest)
    if unmatched := manifest.matching.unmatched_kernels:
        lines.append(f"{counted(unmatched, 'communication kernel')} could not be matched.")
    return lines


def _steps(chosen: Chosen) -> None:
    """Draw a measure of each step of each rank."""
    own = pl.col(C.duration_ms) - pl.col(C.exposed_wait_ms)
    steps = chosen.run.tables["rank_steps"].with_columns(own.alias(OWN_MS))
    columns = columns_of((_OWN,), TABLES["rank_steps"])
    measures = {name: columns[name] for name in _MEASURES if steps[name].count()}
    if not measures or steps[C.step].n_unique() < MIN_STEPS:
        return
    with st.container(border=True):
        st.markdown("**Steps of each rank**")
        labels = {column.label: name for name, column in measures.items()}
        measure = labels[
            list_choice("ranks_measure", "Measure", [*labels], "What the colors compare.")
        ]
        unit_ms = 1e-3 if measures[measure].unit == "µs" else 1.0
        value, step_ms = pl.col(measure) * unit_ms, pl.col(C.duration_ms).median().over(C.step)
        beyond = 100 * (value - value.median().over(C.step)) / step_ms
        rows = (
            steps.drop_nulls(measure)
            .select(C.rank, C.step, measure, beyond.alias("beyond_pct"))
            .join(chosen.rows, on=C.rank)
            .group_by(ROW, C.step, maintain_order=True)
            .agg(pl.col(measure, "beyond_pct").mean())
        )
        tip = Tip(measure, measures[measure].label, ",.3f")
        render_chart(step_map(rows, tip, chosen.labels, palette()), "Steps of each rank")


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
            "A click on a rank opens its own analysis. Times are means of steps, except *Step "
            "saved*: the time by which the median step gets shorter if this rank is as fast as the "
            "median of the ranks. *Slower* compares the same kernels with the median of the ranks, "
            "*Last* is of the whole recording."
        )


def _categories(run: DistributedRun) -> None:
    """Draw which ranks compute longer, or less, than the others in which category."""
    if (
        "rank_categories" not in run.tables
        or not run.tables["rank_categories"][C.median_ms].count()
    ):
        return
    rows = outliers(run.tables["rank_categories"])
    with st.container(border=True):
        st.markdown("**Compute by category**")
        if rows.is_empty():
            st.caption("No rank computes longer or shorter than the others in any category.")
            return
        columns = columns_of(CATEGORY_COLUMNS)
        small_table(rows.head(_MAX_OUTLIERS), columns, "Categories", CATEGORIES_SHOWN, max_rows=10)
        more = (
            f" The first {_MAX_OUTLIERS} of {rows.height:,}." if rows.height > _MAX_OUTLIERS else ""
        )
        st.caption(
            "Ranks whose kernels of a category take another time than those of the ranks with the "
            "same GPU in the same pipeline stage. Times are those of the window, divided by the "
            f"marked steps, if any.{more}"
        )
