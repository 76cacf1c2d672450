"""An analysis file of another server comes in, under its id."""

import streamlit as st

from jarvis.dashboard import links, navigation
from jarvis.dashboard.upload import uploaded_file
from jarvis.dashboard.visitor import actor, missing_role
from jarvis.errors import JarvisError
from jarvis.reports.markup import escape
from jarvis.server.actions import load_analysis
from jarvis.server.arrivals.uploads import Upload
from jarvis.server.storage.archive import Loaded
from jarvis.workspace import archive_name

PARAMETER = "archive_upload"
ENDING = archive_name("")
_OUTCOME = "_archive_outcome"
"""The upload that was loaded last, and what came of it."""


def load_form() -> None:
    """Choose an analysis file, and load it; a refusal is the same sentence as the command's."""
    with st.expander(f"Load an analysis file ({ENDING}) of another server"):
        st.caption(
            "As *Keep or remove* in the sidebar there, or `jarvis archive save`, writes it. The "
            "analysis keeps its id, so links to it open the same pages here."
        )
        if (reason := missing_role()) is not None:
            st.info(reason, icon=":material/lock:")
            return
        upload = uploaded_file(PARAMETER, (ENDING,))
        if upload is None:
            return
        st.button(
            "Load the analysis",
            key="archive_load",
            icon=":material/unarchive:",
            on_click=_load,
            args=(upload,),
        )
        upload_id, outcome = st.session_state.get(_OUTCOME, (None, None))
        if upload_id == upload.id:
            _say(outcome)


def _load(upload: Upload) -> None:
    assert upload.trace is not None
    with st.spinner("Checking and unpacking"):
        try:
            st.session_state[_OUTCOME] = upload.id, load_analysis(actor(), upload.trace)
        except JarvisError as error:
            st.session_state[_OUTCOME] = upload.id, str(error)


def _say(outcome: Loaded | str) -> None:
    if isinstance(outcome, str):
        st.error(escape(outcome), icon=":material/error:")
        return
    if outcome.is_reused:
        st.info(
            f"{outcome.id} is kept here already, with the same content.", icon=":material/history:"
        )
    else:
        st.success(f"{outcome.id} is loaded.", icon=":material/check_circle:")
    if outcome.is_pinned:
        st.caption("It was pinned where it comes from, and is pinned here.")
    navigation.link(
        navigation.OVERVIEW,
        "Open the overview",
        icon=":material/dashboard:",
        **{links.ANALYSIS: outcome.id},
    )
