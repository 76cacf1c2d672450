"""What a trace says about itself, read by a job: a page must not wait for gigabytes."""

from pathlib import Path

import streamlit as st
from pydantic import ValidationError

from jarvis.dashboard.session.current_user import ask_for_job
from jarvis.dashboard.session.errors import toast_errors
from jarvis.dashboard.session.polling import polled
from jarvis.dashboard.widgets.job_view import POLL_S
from jarvis.server.database import JobState, database
from jarvis.server.jobs import queue
from jarvis.server.jobs.kinds import Inspect
from jarvis.server.jobs.queue import Job
from jarvis.text.format import byte_size
from jarvis.text.markdown import escape
from jarvis.trace import TraceInfo


def trace_info(trace: Path) -> TraceInfo | None:
    """What is known about a trace; None while it is read, and where it cannot be.

    The same file is read once. Draws how far that is, or why it failed.
    """
    request = Inspect(trace)
    job = _reading(request)
    if job.is_active:
        _live(job.id)
    elif job.state is JobState.DONE:
        return TraceInfo.model_validate(job.result["info"])
    else:
        reason = job.error or "The reading of the trace was cancelled."
        st.error(escape(reason), icon=":material/error:")
        st.button(
            "Read it again",
            key=f"_read_{job.id}",
            icon=":material/refresh:",
            on_click=_read_again,
            args=(request,),
        )
    return None


def _reading(request: Inspect) -> Job:
    """The job that reads or has read it; a new one where there is none, or an old release's."""
    engine = database()
    job = queue.latest(engine, request.new_job())
    if job is not None and job.state is JobState.DONE:
        try:
            TraceInfo.model_validate(job.result.get("info"))
        except ValidationError:
            job = None
    return job or ask_for_job(request)


def _read_again(request: Inspect) -> None:
    with toast_errors():
        ask_for_job(request)


@polled(POLL_S)
def _live(job_id: str) -> None:
    job = queue.find(database(), job_id)
    if not job.is_active:
        st.rerun()
    if job.state is JobState.QUEUED:
        st.caption(":material/hourglass_top: Waiting to be read.")
        return
    so_far = ""
    if job.bytes_total:
        so_far = f" · {byte_size(job.bytes_done or 0)} of {byte_size(job.bytes_total)}"
    st.progress(job.percent / 100, f"Reading the trace{so_far}")
