"""What can be done with the open analysis as a whole: pin it, take it elsewhere, remove it."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import streamlit as st

from jarvis.dashboard import links, navigation, state
from jarvis.dashboard.state import Opened
from jarvis.errors import JarvisError
from jarvis.reports.markup import escape
from jarvis.reports.quantities import byte_size
from jarvis.server.archive import save_archive
from jarvis.server.catalogue import UnknownAnalysisError, name_of
from jarvis.server.folders import folder_bytes
from jarvis.server.pins import is_pinned, pin, unpin
from jarvis.server.removal import referring_to, remove_analysis
from jarvis.workspace import archive_name

_ASKED, _REMOVED = "_remove_asked", "_removed_analysis"
_KEPT_SIZES = 64
_NAMED = 5
_BODY_PX = 165


def keep_or_remove(now: Opened) -> None:
    """A popover of the sidebar, about the open analysis."""
    # Another analysis has a popover of its own: after a removal none stands open.
    popover = st.popover(
        "Keep or remove",
        icon=":material/inventory_2:",
        width="stretch",
        key=popover_key(now.id),
        on_change="rerun",
    )
    # The browser places it before its body is there.
    with popover, st.container(height=_BODY_PX, border=False):
        if not popover.open:
            return
        if st.session_state.get(_ASKED) == now.id and not is_pinned(now.id):
            _confirm(now)
        else:
            _actions(now)


def _actions(now: Opened) -> None:
    has_pin = is_pinned(now.id)
    st.caption(f"Analysis {now.id}, {byte_size(_size_bytes(now))} on this server.")
    st.button(
        "Unpin" if has_pin else "Pin",
        key="keeping_pin",
        icon=":material/keep_off:" if has_pin else ":material/keep:",
        on_click=_toggle_pin,
        args=(now.id, has_pin),
        width="stretch",
        help="A pinned analysis is not removed, neither here nor when room is made.",
    )
    st.download_button(
        "Archive",
        data=lambda: _archive(now),
        file_name=archive_name(now.id),
        mime="application/zip",
        key="keeping_archive",
        icon=":material/archive:",
        on_click="ignore",
        width="stretch",
        help="One file for another server: `jarvis archive load FILE` there. Links stay valid.",
    )
    st.button(
        "Remove …",
        key="keeping_remove",
        icon=":material/delete:",
        disabled=has_pin,
        on_click=_ask,
        args=(now.id,),
        width="stretch",
        help="It is pinned: unpin it first." if has_pin else "Asks before it does so.",
    )


def popover_key(analysis_id: str) -> str:
    """The key of the popover; what is in it is drawn while it is open."""
    return f"keeping_{analysis_id}"


def say_what_was_removed() -> None:
    """Once, on the page after a removal."""
    if said := st.session_state.pop(_REMOVED, None):
        st.success(said, icon=":material/delete:")


def _toggle_pin(analysis_id: str, has_pin: bool) -> None:
    with suppress(UnknownAnalysisError):  # removed meanwhile: the page says so
        (unpin if has_pin else pin)(analysis_id)


def _ask(analysis_id: str | None) -> None:
    st.session_state[_ASKED] = analysis_id


def _confirm(now: Opened) -> None:
    st.markdown(
        f"Remove **{escape(name_of(now.run.manifest))}** ({now.id}) for everyone and for good? "
        "Links to it will say that it was removed."
    )
    if others := referring_to(now.id):
        st.caption(
            f"Analyses that were compared with it: {', '.join(others[:_NAMED])}"
            f"{' and more' if len(others) > _NAMED else ''}. What they say of it stays."
        )
    with st.container(horizontal=True):
        is_sure = st.button("Remove for good", key="keeping_sure", type="primary")
        st.button("Cancel", key="keeping_cancel", on_click=_ask, args=(None,))
    if is_sure:
        _remove(now)


def _remove(now: Opened) -> None:
    try:
        removed = remove_analysis(now.id)
    except JarvisError as error:
        st.error(escape(str(error)), icon=":material/error:")
        return
    _ask(None)
    st.session_state[_REMOVED] = (
        f"{escape(name_of(now.run.manifest))} ({now.id}) is removed, and "
        f"{byte_size(removed.size_bytes)} are free again."
    )
    state.close()
    st.query_params.pop(links.ANALYSIS, None)
    navigation.leave_to(navigation.INGEST)


@st.cache_data(max_entries=_KEPT_SIZES, show_spinner=False, hash_funcs=state.HASH_OPENED)
def _size_bytes(now: Opened) -> int:
    return folder_bytes(now.root)


def _archive(now: Opened) -> bytes:
    with TemporaryDirectory() as folder:
        out = Path(folder) / archive_name(now.id)
        save_archive(now.root, out)
        return out.read_bytes()
