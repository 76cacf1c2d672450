"""Trace metadata, read by a job, as a page must not wait for reading gigabytes."""

from pathlib import Path

import streamlit as st
from pydantic import ValidationError

from jarvis.dashboard.session.current_user import request_job
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
    """Return the metadata of a trace, or None while it is read or if reading failed.

    Draws the progress or the error. Each file is read once.
    """
    request = Inspect(trace)
    job = _inspect_job(request)
    if job.is_active:
        _live(job.id)
    elif job.state is JobState.DONE:
        return TraceInfo.model_validate(job.result["info"])
    else:
        reason = job.error or "Reading the trace was cancelled."
        st.error(escape(reason), icon=":material/error:")
        st.button(
            "Read it again",
            key=f"_read_{job.id}",
            icon=":material/refresh:",
            on_click=_read_again,
            args=(request,),
        )
    return None


def _inspect_job(request: Inspect) -> Job:
    """Return the job that reads or has read the trace; a new one if there is no compatible one."""
    engine = database()
    job = queue.latest(engine, request.new_job())
    if job is not None and job.state is JobState.DONE:
        try:
            TraceInfo.model_validate(job.result.get("info"))
        except ValidationError:
            job = None
    return job or request_job(request)


def _read_again(request: Inspect) -> None:
    with toast_errors():
        request_job(request)


@polled(POLL_S)
def _live(job_id: str) -> None:
    job = queue.find(database(), job_id)
    if not job.is_active:
        st.rerun()
    if job.state is JobState.QUEUED:
        st.caption(":material/hourglass_top: Waiting in the queue.")
        return
    progress = ""
    if job.bytes_total:
        progress = f" · {byte_size(job.bytes_done or 0)} of {byte_size(job.bytes_total)}"
    st.progress(job.percent / 100, f"Reading the trace{progress}")
