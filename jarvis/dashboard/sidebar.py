"""The sidebar: choice of the analysis, its hardware, and the link of the page."""

import polars as pl
import streamlit as st

from jarvis.analyses import load_registry
from jarvis.charts import peak_label
from jarvis.dashboard.analysis_menu import show_analysis_menu
from jarvis.dashboard.session import links, state
from jarvis.run import Run
from jarvis.server.storage.catalog import Catalog, name_of
from jarvis.text.format import tb_per_s, tflops_per_s
from jarvis.text.markdown import escape

_CHOICE = "analysis_choice"
_SEEN = "_analysis_parameter"
_MAX_CACHED_LINES = 256


def requested_id(catalog: Catalog) -> str | None:
    """Return the id that ``choose_analysis`` will open."""
    requested = st.query_params.get(links.ANALYSIS)
    if requested is not None and requested != st.session_state.get(_SEEN):
        return requested
    chosen: str | None = st.session_state.get(_CHOICE) or state.current_id()
    return chosen or next((entry.id for entry in catalog.entries), None)


def choose_analysis(catalog: Catalog) -> None:
    """Open the analysis of the URL if it changed, else the one chosen here, else the newest.

    A click in the menu drops the URL's parameters, so the choice is also stored in the session and
    written back to the URL.
    """
    # Labels must be unique: the browser returns a label, not an index. The id comes first because
    # the narrow box truncates long labels.
    titles = {entry.id: f"{entry.id} · {entry.title}" for entry in catalog.entries}
    requested = st.query_params.get(links.ANALYSIS)
    is_elsewhere = requested is not None and requested != st.session_state.get(_SEEN)
    next_id = state.pop_next()
    if next_id in titles and not is_elsewhere:
        st.query_params[links.ANALYSIS] = requested = next_id
    if requested is not None and requested != st.session_state.get(_SEEN):
        st.session_state[_SEEN] = requested
        st.session_state[_CHOICE] = requested if requested in titles else None
        st.session_state[state.CURRENT] = requested
    elif state.current_id() is None and titles:
        st.session_state[_CHOICE] = next(iter(titles))
    if titles:
        chosen = st.selectbox(
            "Analysis",
            list(titles),
            format_func=lambda key: titles.get(key, key),
            key=_CHOICE,
            index=0 if requested is None or requested in titles else None,
            placeholder="Choose an analysis",
            persist_state="session",
        )
        if chosen is not None:
            st.session_state[state.CURRENT] = chosen
    current = state.current_id()
    if current is not None and st.query_params.get(links.ANALYSIS) != current:
        st.query_params[links.ANALYSIS] = current
        st.session_state[_SEEN] = current


def describe_analysis(catalog: Catalog) -> None:
    """Draw the name, hardware peaks and origin of the open analysis, and plugin load failures."""
    entry = next((each for each in catalog.entries if each.id == state.current_id()), None)
    if entry is not None:
        now = state.opened()
        run = now.run
        is_simulated = run.manifest.trace.origin == "simulated"
        lines = (
            f"{escape(name_of(run.manifest))} · {now.id}",
            _hardware_line(now),
            ":violet-badge[:material/science: simulated sample]"
            if is_simulated
            else ":gray-badge[:material/fiber_manual_record: recorded trace]",
            *(
                [f":orange-badge[:material/input: from {escape(entry.source)}]"]
                if entry.source
                else []
            ),
        )
        st.caption("\n\n".join(lines))
    for name, reason in load_registry().failures.items():
        st.warning(escape(f"The plugin analysis {name} could not be loaded: {reason}"))


def manage_analysis(catalog: Catalog) -> None:
    """Draw the menu of the open analysis."""
    if state.current_id() in {entry.id for entry in catalog.entries}:
        show_analysis_menu(state.opened())


def copy_link(url_path: str) -> None:
    """Draw the popover with the page's link, including all controls."""
    with st.popover("Copy link", icon=":material/link:", width="stretch"):
        st.caption("Link to this page with its analysis and all settings.")
        st.code(links.page_link_url(url_path, state.current_id()), language=None, wrap_lines=True)


@st.cache_data(max_entries=_MAX_CACHED_LINES, show_spinner=False, hash_funcs=state.HASH_OPENED)
def _hardware_line(now: state.Opened) -> str:
    """Return the GPU and its peaks as Markdown."""
    hardware = now.run.manifest.hardware
    if hardware is None:
        return "GPU unknown: no peaks, so no efficiencies"
    parts = [f"**{hardware.name}** · {hardware.preset}", f"{tb_per_s(hardware.tb_per_s)} memory"]
    compute = _main_precision(now.run)
    if compute is not None and (peak := hardware.peak_tflops(compute)):
        parts.append(f"{tflops_per_s(peak)} {peak_label(compute)}")
    return " · ".join(parts)


def _main_precision(run: Run) -> str | None:
    """Return the compute unit and precision with the most kernel time."""
    operations = run.table("operations").drop_nulls("compute")
    by_time = operations.group_by("compute").agg(pl.col("kernel_time_us").sum())
    ordered = by_time.sort("kernel_time_us", "compute", descending=[True, False])
    return None if ordered.is_empty() else str(ordered["compute"][0])
