"""Files that jobs make: request buttons, progress and downloads.

Files that take long or grow with the trace are made outside the web server; an existing file is
not made again.
"""

from collections.abc import Callable

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.dashboard.session.current_user import current_user, missing_role, request_job_file
from jarvis.dashboard.widgets.job_view import follow, remember_job, remembered_job
from jarvis.server.database import JobState
from jarvis.server.errors import OutdatedJobError
from jarvis.server.ingest.tickets import file_purpose, ticket_of
from jarvis.server.jobs.kinds import FileRequest, job_file, request_of
from jarvis.server.page_links import file_link
from jarvis.server.queue import Job
from jarvis.text.format import byte_size
from jarvis.text.markdown import escape

_ERROR = "_file_refused"


def file_button(
    page: str, label: str, request: FileRequest, meaning: str, icon: str = ":material/download:"
) -> None:
    """Draw a button that starts a job to make a file; ``file_job`` of the same page shows it."""
    st.button(
        f"{label} …",
        key=f"{page}_make_{label}",
        icon=icon,
        on_click=_request,
        args=(page, request),
        disabled=(missing := missing_role()) is not None,
        help=missing or f"{meaning} A job makes the file; then a download button appears below.",
    )


def file_job(page: str, *offered: FileRequest, offer: Callable[[Job], None] | None = None) -> None:
    """Draw the page's last requested job: its progress, then its file.

    Args:
        page: The page.
        offered: The current requests of its buttons; a job of another request is forgotten.
        offer: Draws the file of a job that is done; by default ``offer_file``.
    """
    if error_message := st.session_state.pop(_ERROR, None):
        st.error(escape(error_message), icon=":material/error:")
    job = remembered_job(page)
    if job is None:
        return
    try:
        request = request_of(job.kind, job.parameters)
    except OutdatedJobError as error:
        message = f"{job.title}: {error} Use the button above to make the file again."
        st.warning(escape(message), icon=":material/history:")
        return
    if request not in offered:
        remember_job(page, None)
        return
    with st.container(border=True):
        st.markdown(f"**{escape(job.title)}**")
        draw = offer or offer_file
        if job.state is JobState.DONE:
            draw(job)
        else:
            follow(job, draw)


def offer_file(job: Job) -> None:
    """Draw the download of a job's file; a warning if it was removed, nothing if it made none.

    The file is streamed, not held in the server's memory.
    """
    file = job_file(job.result)
    if file is None:
        return
    if not file.is_file():
        st.warning("The file was removed; request it again.", icon=":material/delete:")
        return
    st.link_button(
        f"{file.name} ({byte_size(file.stat().st_size)})",
        link_of(job),
        type="primary",
        icon=":material/download:",
    )


def link_of(job: Job) -> str:
    """Return the link to a job's file for the user of the page."""
    return file_link(job.id, ticket_of(current_user(), file_purpose(job.id)))


def _request(page: str, request: FileRequest) -> None:
    try:
        remember_job(page, request_job_file(request).id)
    except JarvisError as error:
        st.session_state[_ERROR] = str(error)
