"""Files that a job makes: asked for by a button, followed, and taken home.

What takes long or grows with the trace is made beside the web server; a file that is still there
is not made again.
"""

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.dashboard.session.current_user import missing_role, request_job_file, visitor
from jarvis.dashboard.widgets.job_view import follow, remember_job, remembered_job
from jarvis.server.database import JobState
from jarvis.server.ingest.tickets import file_purpose, ticket_of
from jarvis.server.jobs.kinds import FileRequest, OutdatedJobError, job_file, request_of
from jarvis.server.jobs.queue import Job
from jarvis.server.page_links import file_link
from jarvis.text.format import byte_size
from jarvis.text.markdown import escape

_REFUSED = "_file_refused"


def file_button(
    page: str, label: str, request: FileRequest, meaning: str, icon: str = ":material/download:"
) -> None:
    """A button that has a job make a file, which ``file_job`` of the same page shows."""
    st.button(
        f"{label} …",
        key=f"{page}_make_{label}",
        icon=icon,
        on_click=_ask,
        args=(page, request),
        disabled=(missing := missing_role()) is not None,
        help=missing
        or f"{meaning} It is made by a job first; then a button to take it home stands below.",
    )


def file_job(page: str, *offered: FileRequest) -> None:
    """The job that a button of the page asked for last: how far it is, and in the end its file.

    ``offered`` are the requests of the buttons as they are now; a job for another is let go of.
    """
    if refusal := st.session_state.pop(_REFUSED, None):
        st.error(escape(refusal), icon=":material/error:")
    job = remembered_job(page)
    if job is None:
        return
    try:
        asked = request_of(job.kind, job.parameters)
    except OutdatedJobError as error:
        said = f"{job.title}: {error} The button above makes the file again."
        st.warning(escape(said), icon=":material/history:")
        return
    if asked not in offered:
        remember_job(page, None)
        return
    with st.container(border=True):
        st.markdown(f"**{escape(job.title)}**")
        if job.state is JobState.DONE:
            offer_file(job)
        else:
            follow(job, offer_file)


def offer_file(job: Job) -> None:
    """The file that a job has made, to be taken home; a word where it has made none, or it is gone.

    The browser gets it block by block, so that the server holds none of it.
    """
    file = job_file(job.result)
    if file is None:
        return
    if not file.is_file():
        st.warning("The file was removed since; ask for it again.", icon=":material/delete:")
        return
    st.link_button(
        f"{file.name} ({byte_size(file.stat().st_size)})",
        file_link(job.id, ticket_of(visitor(), file_purpose(job.id))),
        type="primary",
        icon=":material/download:",
    )


def _ask(page: str, request: FileRequest) -> None:
    try:
        remember_job(page, request_job_file(request).id)
    except JarvisError as error:
        st.session_state[_REFUSED] = str(error)
