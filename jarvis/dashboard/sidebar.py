"""The sidebar: choice of the analysis, its hardware, and the link of the page."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import streamlit as st

from jarvis.analyses import load_registry
from jarvis.core.errors import JarvisError
from jarvis.core.workspace import archive_name
from jarvis.dashboard.page_links import PageMark, page_marks
from jarvis.dashboard.session import links, navigation, state
from jarvis.dashboard.session.current_user import (
    VISIBILITY_LABELS,
    actor,
    current_user,
    missing_role,
)
from jarvis.dashboard.session.errors import show_error, toast_errors
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.copy_button import copy_button
from jarvis.dashboard.widgets.targets import at_chosen_targets
from jarvis.hardware import load_hardware, peak_label
from jarvis.impact import MOSTLY_PCT, share_pct
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.server.access.rights import may_change
from jarvis.server.actions import (
    get_visible_analysis,
    pin_analysis,
    referring_to,
    remove_analysis,
    save_analysis,
    share_analysis,
)
from jarvis.server.database import Visibility
from jarvis.server.settings import settings
from jarvis.server.storage.analysis_rows import AnalysisRow
from jarvis.server.storage.catalog import Catalog, name_of
from jarvis.text.format import byte_size, listed, tb_per_s, tflops_per_s
from jarvis.text.markdown import escape

_CONFIRMING, _REMOVED = "_remove_asked", "_removed_analysis"
_MAX_LISTED = 5
_BODY_PX, _SHARED_BODY_PX = 165, 290
_FOREIGN = "Only the owner or an admin can do this."


def show_analysis_menu(now: Opened) -> None:
    """Draw the popover of the open analysis in the sidebar."""
    # The key differs by analysis, so that the popover is closed after a removal.
    popover = st.popover(
        "Manage",
        icon=":material/inventory_2:",
        width="stretch",
        key=popover_key(now.id),
        on_change="rerun",
    )
    # The browser positions the popover before its body has arrived, so the height is fixed.
    height = _BODY_PX if settings().access == "off" else _SHARED_BODY_PX
    with popover, st.container(height=height, border=False):
        if not popover.open:
            return
        row = get_visible_analysis(current_user(), now.id)
        if st.session_state.get(_CONFIRMING) == now.id and not row.is_pinned:
            _confirm(now)
        else:
            _actions(now, row)


def _actions(now: Opened, row: AnalysisRow) -> None:
    has_pin = row.is_pinned
    foreign = None if may_change(current_user(), row) else _FOREIGN
    st.caption(f"Analysis {now.id}, {byte_size(row.size_bytes)} on this server.")
    if settings().access != "off":
        _sharing(now.id, row, foreign)
    st.button(
        "Unpin" if has_pin else "Pin",
        key="keeping_pin",
        icon=":material/keep_off:" if has_pin else ":material/keep:",
        on_click=_toggle_pin,
        args=(now.id, has_pin),
        width="stretch",
        disabled=foreign is not None,
        help=foreign or "Pinned analyses are never deleted.",
    )
    missing = missing_role()
    st.download_button(
        "Archive",
        data=lambda: _archive(now),
        file_name=archive_name(now.id),
        mime="application/zip",
        key="keeping_archive",
        icon=":material/archive:",
        on_click="ignore",
        width="stretch",
        disabled=missing is not None,
        help=missing
        or "One file for another server: run `jarvis archive load FILE` there. Links stay valid.",
    )
    st.button(
        "Remove …",
        key="keeping_remove",
        icon=":material/delete:",
        disabled=has_pin or foreign is not None,
        on_click=_ask_confirmation,
        args=(now.id,),
        width="stretch",
        help=foreign or ("Pinned: unpin it first." if has_pin else "Asks for confirmation."),
    )


def _sharing(analysis_id: str, row: AnalysisRow, foreign: str | None) -> None:
    """Draw the owner and the visibility control."""
    st.text(f"Owner: {row.owner or 'none'}")
    key = f"_keeping_visibility_{analysis_id}"
    st.session_state[key] = row.visibility
    st.segmented_control(
        "Visible to",
        list(VISIBILITY_LABELS),
        format_func=VISIBILITY_LABELS.__getitem__,
        key=key,
        required=True,
        on_change=_share,
        args=(analysis_id, key),
        disabled=foreign is not None,
        help=foreign or "Team: all users of this server. Private: only you and admins.",
    )


def _share(analysis_id: str, key: str) -> None:
    with toast_errors():
        share_analysis(actor(), analysis_id, Visibility(st.session_state[key]))


def popover_key(analysis_id: str) -> str:
    """Return the widget key of the popover; its body is drawn only while it is open."""
    return f"keeping_{analysis_id}"


def show_removal_notice() -> None:
    """Show a notice once, on the page after a removal."""
    if notice := st.session_state.pop(_REMOVED, None):
        st.success(notice, icon=":material/delete:")


def _toggle_pin(analysis_id: str, has_pin: bool) -> None:
    with toast_errors():
        pin_analysis(actor(), analysis_id, is_pinned=not has_pin)


def _ask_confirmation(analysis_id: str | None) -> None:
    st.session_state[_CONFIRMING] = analysis_id


def _confirm(now: Opened) -> None:
    st.markdown(
        f"Remove **{escape(name_of(now.stored.manifest))}** ({now.id}) permanently for everyone? "
        "Links to it then show that it was removed."
    )
    if others := referring_to(current_user(), now.id):
        st.caption(
            f"Analyses compared with it: {', '.join(others[:_MAX_LISTED])}"
            f"{' and more' if len(others) > _MAX_LISTED else ''}. Their comparisons stay available."
        )
    with st.container(horizontal=True):
        is_confirmed = st.button("Remove permanently", key="keeping_sure", type="primary")
        st.button("Cancel", key="keeping_cancel", on_click=_ask_confirmation, args=(None,))
    if is_confirmed:
        _remove(now)


def _remove(now: Opened) -> None:
    try:
        removed = remove_analysis(actor(), now.id)
    except JarvisError as error:
        show_error(error)
        return
    _ask_confirmation(None)
    st.session_state[_REMOVED] = (
        f"Removed {escape(name_of(now.stored.manifest))} ({now.id}): "
        f"{byte_size(removed.size_bytes)} freed."
    )
    state.close()
    st.query_params.pop(links.ANALYSIS, None)
    navigation.leave_to(navigation.INGEST)


def _archive(now: Opened) -> bytes:
    with TemporaryDirectory() as folder:
        out = Path(folder) / archive_name(now.id)
        save_analysis(actor(), now.id, out)
        return out.read_bytes()


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
    titles = _picker_labels(catalog)
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
            label_visibility="collapsed",  # so that the last page is in view at 900 pixels
            persist_state="session",
        )
        if chosen is not None:
            st.session_state[state.CURRENT] = chosen
    current = state.current_id()
    if current is not None and st.query_params.get(links.ANALYSIS) != current:
        st.query_params[links.ANALYSIS] = current
        st.session_state[_SEEN] = current


def _picker_labels(catalog: Catalog) -> dict[str, str]:
    """Return the label of each analysis, with its id where the name and GPU are not unique: the
    browser returns a label, not an index."""
    counts = Counter(entry.title for entry in catalog.entries)
    return {
        entry.id: entry.title if counts[entry.title] == 1 else f"{entry.title} · {entry.id}"
        for entry in catalog.entries
    }


def describe_analysis(catalog: Catalog) -> None:
    """Draw the name, hardware peaks and origin of the open analysis, and plugin load failures."""
    entry = next((each for each in catalog.entries if each.id == state.current_id()), None)
    if entry is not None:
        now = state.opened()
        manifest = now.stored.manifest
        is_simulated = manifest.trace.origin == "simulated"
        badges = (
            f":gray-badge[{now.id}]",
            ":violet-badge[:material/science: simulated sample]"
            if is_simulated
            else ":gray-badge[:material/fiber_manual_record: recorded trace]",
            *(
                [f":orange-badge[:material/input: from {escape(entry.source)}]"]
                if entry.source
                else []
            ),
        )
        st.caption(_hardware_line(now))
        st.markdown(" ".join(badges))  # a caption is too pale for the colors of badges
        if manifest.hardware is None:
            label = "Choose the GPU"
            navigation.link(navigation.HARDWARE, label, icon=":material/memory:")
    for name, reason in load_registry().failures.items():
        st.warning(escape(f"The plugin analysis {name} could not be loaded: {reason}"))


_SAME_FOR_RANKS = (navigation.RANKS, navigation.RUNS, navigation.INGEST, navigation.JOBS)


def rank_links(catalog: Catalog, url_path: str) -> None:
    """Draw which rank of a distributed run the open analysis is, with links to the page of the
    ranks beside it, or to their overview if the page is the same for all, and to all."""
    page = navigation.OVERVIEW if url_path in _SAME_FOR_RANKS else url_path
    current = str(state.current_id())
    for entry in catalog.with_rank(current)[:1]:
        ranks = [(member.rank, member.analysis_id) for member in entry.manifest.usable]
        place = [own for _, own in ranks].index(current)
        with navigation.rank_links("beside"):
            for label, beside in (("◀", place - 1), ("▶", place + 1)):
                if 0 <= beside < len(ranks):
                    rank, analysis_id = ranks[beside]
                    of_rank = {links.ANALYSIS: str(analysis_id)}
                    navigation.link(page, f"{label} rank {rank}", **of_rank)
            world_size = entry.manifest.world_size.value
            label = f"Rank {ranks[place][0]} · all {world_size:,} ranks"
            navigation.link(navigation.RANKS, label, icon=":material/lan:", ranks_run=entry.id)


def manage_analysis(catalog: Catalog) -> None:
    """Draw the menu of the open analysis."""
    if state.current_id() in {entry.id for entry in catalog.entries}:
        show_analysis_menu(state.opened())


def copy_link(url_path: str) -> None:
    """Draw the button that copies the page's link, including all controls."""
    copy_button(links.page_link_url(url_path, state.current_id()))


def marks_of_opened(catalog: Catalog) -> Mapping[str, PageMark]:
    """Return the marks of the pages for the open analysis; none if it cannot be read."""
    if state.current_id() not in {entry.id for entry in catalog.entries}:
        return {}
    try:
        return page_marks(at_chosen_targets(state.opened()))
    except (JarvisError, OSError):  # the page says so
        return {}


@state.cached(_MAX_CACHED_LINES, state.of_stored)
def _hardware_line(now: state.Opened) -> str:
    """Return the GPU and its peaks as Markdown."""
    hardware = now.stored.manifest.hardware
    if hardware is None:
        names = [spec.name for spec in load_hardware().candidates(now.stored.manifest.trace)]
        likely = f" It may be {listed(names)}." if names else ""
        return f"GPU unknown: no peaks, so no efficiencies.{likely}"
    memory = f"{tb_per_s(hardware.tb_per_s)} memory"
    compute = _main_precision(now.stored)
    peak = None if compute is None else hardware.peak_tflops(compute)
    peaks = (
        f"Peaks: {memory}"
        if compute is None or peak is None
        else "Peaks for this run's main operations: "
        f"{memory}, {tflops_per_s(peak)} {peak_label(compute)}"
    )
    return f"**{hardware.title}**  \n{peaks}"


def _main_precision(run: Run) -> str | None:
    """Return the compute unit and precision with the most kernel time; None if they are known of
    less than half of it."""
    operations = run.table("operations")
    by_time = operations.group_by(C.compute).agg(pl.col(C.kernel_time_us).sum())
    ordered = by_time.drop_nulls(C.compute).sort(
        C.kernel_time_us, C.compute, descending=[True, False]
    )
    known_us, all_us = (float(each[C.kernel_time_us].sum()) for each in (ordered, operations))
    return str(ordered[C.compute][0]) if share_pct(known_us, all_us) >= MOSTLY_PCT else None
