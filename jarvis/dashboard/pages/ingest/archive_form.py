"""Form to load an analysis file from another server."""

import streamlit as st

from jarvis.core.workspace import archive_name
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.session.current_user import missing_role, request_job
from jarvis.dashboard.session.errors import toast_errors
from jarvis.dashboard.widgets.job_view import follow, remember_job, remembered_job
from jarvis.dashboard.widgets.upload import uploaded_file
from jarvis.server.errors import OutdatedJobError
from jarvis.server.ingest.uploads import Upload
from jarvis.server.jobs.kinds import request_of
from jarvis.server.jobs.kinds.analyses import Load
from jarvis.server.queue import Job
from jarvis.text.markdown import escape

PARAMETER = "archive_upload"
ENDING = archive_name("")
_PAGE = "archive"
"""Prefix of the URL parameter of this form's job."""


def load_form() -> None:
    """Draw the upload of an analysis file, and the job that loads it."""
    with st.expander(f"Load an analysis file ({ENDING}) from another server"):
        st.caption(
            "Create it with *Manage* in that server's sidebar, or `jarvis archive save`. "
            "The analysis keeps its id, so links to it work on this server."
        )
        if (reason := missing_role()) is not None:
            st.info(reason, icon=":material/lock:")
            return
        upload = uploaded_file(PARAMETER, (ENDING,))
        if upload is None:
            return
        job = _job_of(upload)
        st.button(
            "Load the analysis",
            key="archive_load",
            icon=":material/unarchive:",
            on_click=_load,
            args=(upload,),
            disabled=job is not None and job.is_active,
        )
        if job is not None:
            follow(job, _outcome)


def _load(upload: Upload) -> None:
    assert upload.trace is not None
    with toast_errors():
        remember_job(_PAGE, request_job(Load(upload.trace)).id)


def _job_of(upload: Upload) -> Job | None:
    """Return the job that loads this upload, or None."""
    job = remembered_job(_PAGE)
    if job is None or upload.trace is None:
        return None
    try:
        request = request_of(job.kind, job.parameters)
    except OutdatedJobError:
        request = None
    if request == Load(upload.trace):
        return job
    remember_job(_PAGE, None)
    return None


def _outcome(job: Job) -> None:
    """Draw what was loaded, with a link."""
    if job.analysis_id is None:
        return
    if job.result.get("is_reused"):
        st.info(
            f"{escape(job.analysis_id)} is already on this server, with the same content.",
            icon=":material/history:",
        )
    else:
        st.success(f"{escape(job.analysis_id)} was loaded.", icon=":material/check_circle:")
        if job.result.get("was_pinned"):
            st.caption(
                "It was pinned on the other server. To protect it from removal, pin it here with "
                "*Manage* in the sidebar."
            )
    navigation.link(
        navigation.OVERVIEW,
        "Open the overview",
        icon=":material/dashboard:",
        **{links.ANALYSIS: job.analysis_id},
    )
