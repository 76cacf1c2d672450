"""The sidebar: which analysis, on which hardware, and its link."""

import polars as pl
import streamlit as st

from jarvis.analyses import load_registry
from jarvis.charts import peak_words
from jarvis.dashboard.analysis_menu import show_analysis_menu
from jarvis.dashboard.session import links, state
from jarvis.run import Run
from jarvis.server.storage.catalog import Catalog, name_of
from jarvis.text.format import tb_per_s, tflops_per_s
from jarvis.text.markdown import escape

_CHOICE = "analysis_choice"
_SEEN = "_analysis_parameter"
_KEPT_LINES = 256


def named_now(catalog: Catalog) -> str | None:
    """The id that ``choose_analysis`` will settle on, asked for before it."""
    requested = st.query_params.get(links.ANALYSIS)
    if requested is not None and requested != st.session_state.get(_SEEN):
        return requested
    chosen: str | None = st.session_state.get(_CHOICE) or state.current_id()
    return chosen or next((entry.id for entry in catalog.entries), None)


def choose_analysis(catalog: Catalog) -> None:
    """Settle which analysis is open: the URL's where it changed, else the one chosen here.

    Without either it is the newest. A click in the menu drops the URL's parameters, so the
    choice is kept in the session and written back.
    """
    # Labels must differ: the browser answers with a label, not with a position. The id comes first
    # because the box is narrow and cuts what does not fit.
    titles = {entry.id: f"{entry.id} · {entry.title}" for entry in catalog.entries}
    requested = st.query_params.get(links.ANALYSIS)
    is_elsewhere = requested is not None and requested != st.session_state.get(_SEEN)
    made = state.take_next()
    if made in titles and not is_elsewhere:
        st.query_params[links.ANALYSIS] = requested = made
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
    """The peaks that efficiencies stand against, where the trace comes from, what did not load."""
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
        st.warning(escape(f"The analysis {name} of another package cannot be used: {reason}"))


def manage_analysis(catalog: Catalog) -> None:
    """What can be done with the open analysis as a whole."""
    if state.current_id() in {entry.id for entry in catalog.entries}:
        show_analysis_menu(state.opened())


def copy_link(url_path: str) -> None:
    """The page's address with every control in it, to be copied."""
    with st.popover("Copy link", icon=":material/link:", width="stretch"):
        st.caption("This page with its analysis and every setting, also the default ones.")
        st.code(links.page_link_url(url_path, state.current_id()), language=None, wrap_lines=True)


@st.cache_data(max_entries=_KEPT_LINES, show_spinner=False, hash_funcs=state.HASH_OPENED)
def _hardware_line(now: state.Opened) -> str:
    """The GPU and its peaks."""
    hardware = now.run.manifest.hardware
    if hardware is None:
        return "GPU not known: no peaks, so no efficiencies"
    parts = [f"**{hardware.name}** · {hardware.preset}", f"{tb_per_s(hardware.tb_per_s)} memory"]
    compute = _main_precision(now.run)
    if compute is not None and (peak := hardware.peak_tflops(compute)):
        parts.append(f"{tflops_per_s(peak)} {peak_words(compute)}")
    return " · ".join(parts)


def _main_precision(run: Run) -> str | None:
    """The compute peak under which most kernel time stands."""
    operations = run.table("operations").drop_nulls("compute")
    by_time = operations.group_by("compute").agg(pl.col("kernel_time_us").sum())
    ordered = by_time.sort("kernel_time_us", "compute", descending=[True, False])
    return None if ordered.is_empty() else str(ordered["compute"][0])
