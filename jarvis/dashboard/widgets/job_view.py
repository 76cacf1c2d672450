"""A job on a page: progress, result, and cancel and retry buttons."""

from collections.abc import Callable

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.session.current_user import actor, current_user
from jarvis.dashboard.session.errors import toast_errors
from jarvis.dashboard.session.links import note_control, notice
from jarvis.dashboard.session.polling import polled
from jarvis.server import claims, queue
from jarvis.server.access.rights import may_change
from jarvis.server.actions import cancel_job, get_visible_job, retry_job
from jarvis.server.database import ACTIVE, JobState, database
from jarvis.server.errors import UnknownJobError
from jarvis.server.page_links import OF_RANKS
from jarvis.server.queue import RETRYABLE, Job
from jarvis.text.format import byte_size, counted
from jarvis.text.markdown import escape

CHIP_POLL_S = 5.0


def job_chip() -> None:
    """Draw a link to the jobs page while jobs wait or run; nothing if the database fails."""
    try:
        if _active_jobs():
            _live_chip()
    except JarvisError:
        return


@polled(CHIP_POLL_S)
def _live_chip() -> None:
    count = _active_jobs()
    if count:
        label = f"{counted(count, 'job')} in progress"
        navigation.link(navigation.JOBS, label, icon=":material/progress_activity:")


def _active_jobs() -> int:
    by_state = queue.counts(database(), current_user())
    return sum(by_state.get(state, 0) for state in ACTIVE)


POLL_S = 0.5
"""Interval in seconds for refreshing an active job."""

JOB = "job"
"""The URL parameter that names a job on the jobs page."""

_PRECISE_S = 10
"""Times from this number of seconds on are shown without decimals."""


def remember_job(page: str, job_id: str | None) -> None:
    """Store the id of a page's job in the session and the URL, so that it survives a refresh."""
    parameter = f"{page}_job"
    st.session_state[f"_{parameter}"] = job_id
    if job_id is None:
        st.query_params.pop(parameter, None)
    else:
        st.query_params[parameter] = job_id


def remembered_job(page: str) -> Job | None:
    """Return the job of ``remember_job`` or of a link; an unknown one is cleared with a notice."""
    parameter = f"{page}_job"
    job_id = st.query_params.get(parameter) or st.session_state.get(f"_{parameter}")
    if job_id is None:
        return None
    try:
        job = get_visible_job(database(), current_user(), job_id)
    except UnknownJobError as error:
        notice(str(error))
        remember_job(page, None)
        return None
    remember_job(page, job_id)
    note_control(parameter, job_id)
    return job


def follow(job: Job, ended: Callable[[Job], None]) -> None:
    """Draw a job and refresh it while it is active; rerun the page when it ends.

    ``ended`` draws the result of a job that is done.
    """
    if job.is_active:
        _live(job.id, ended)
    else:
        draw(job, ended)


@polled(POLL_S)
def _live(job_id: str, ended: Callable[[Job], None]) -> None:
    job = get_visible_job(database(), current_user(), job_id)
    if not job.is_active:
        st.rerun()
    draw(job, ended)


def draw(job: Job, ended: Callable[[Job], None]) -> None:
    """Draw the current state of a job; ``ended`` draws the result of a job that is done."""
    if job.state is JobState.DONE:
        ended(job)
    elif job.state is JobState.FAILED:
        where = f" (step: {escape(job.step)})" if job.step else ""
        st.error(f"{escape(job.error or 'The job failed.')}{where}", icon=":material/error:")
    elif job.state is JobState.CANCELLED:
        st.warning("Job cancelled; partial results were removed.", icon=":material/cancel:")
    elif job.state is JobState.QUEUED:
        _waiting(job)
    for step in job.steps:
        label = f"{escape(step.name)} · {step.elapsed_s:.2f} s"
        st.status(label, type="step", state="complete")
    if job.state is JobState.RUNNING:
        st.status(_where(job), type="step", state="running")
        st.progress(job.percent / 100, f"{int(job.percent)}% · {took(job)}")
    _buttons(job)
    if job.log:
        with st.expander("Log", icon=":material/terminal:"):
            st.code(job.log, language=None, height=260)


def open_result(job: Job) -> None:
    """Draw the link to the analysis or the distributed run of a job that is done, if any."""
    if job.analysis_id is None:
        return
    if job.kind in OF_RANKS:
        others = job.result.get("others", ())
        for number, run in enumerate((job.analysis_id, *others), start=1):
            label = f"Open the ranks of job {number}" if others else "Open the ranks"
            navigation.link(navigation.RANKS, label, icon=":material/lan:", ranks_run=run)
        return
    navigation.link(
        navigation.OVERVIEW,
        "Open the overview",
        icon=":material/dashboard:",
        **{links.ANALYSIS: job.analysis_id},
    )


def took(job: Job) -> str:
    """Return the run time of a job as text."""
    seconds = job.elapsed_s
    if seconds is None:
        return ""
    if seconds < _PRECISE_S:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _waiting(job: Job) -> None:
    engine = database()
    if not claims.has_worker(engine):
        st.warning(
            "Waiting: no worker is running. The job starts when one does; `jarvis serve` starts "
            "one unless `--job-slots 0` is set.",
            icon=":material/hourglass_disabled:",
        )
        return
    if claims.slots(engine) == 0:
        st.warning(
            "Waiting: the Dask cluster cannot be reached or has no workers. The job starts when a "
            "worker joins.",
            icon=":material/hourglass_disabled:",
        )
        return
    order = claims.waiting(engine)
    if job.id not in order and (by_state := queue.members(engine, [job.id]).get(job.id)):
        ended = sum(count for state, count in by_state.items() if state not in ACTIVE)
        st.progress(ended / sum(by_state.values()), f"Analyzing: {queue.members_text(by_state)}")
        return
    place = order.index(job.id) + 1 if job.id in order else 1
    running = queue.counts(engine).get(JobState.RUNNING, 0)
    if place > 1:
        reason = f"place {place} of {len(order)} in the queue (fair scheduling)"
    elif running:
        reason = f"next in the queue; {counted(running, 'job')} running"
    else:
        reason = "starting soon"
    st.caption(f":material/hourglass_top: Waiting: {reason}.")


def _where(job: Job) -> str:
    if job.step is None:
        return "Starting"
    parts = [f"{escape(job.step)} ({job.step_number} of {job.step_count})"]
    if job.bytes_total:
        parts.append(f"{byte_size(job.bytes_done or 0)} of {byte_size(job.bytes_total)}")
    elif job.bytes_done:
        parts.append(byte_size(job.bytes_done))
    return " · ".join(parts)


def _buttons(job: Job) -> None:
    foreign = None if may_change(current_user(), job) else "Only the owner or an admin can do this."
    if job.is_active:
        st.button(
            "Cancelling" if job.is_cancel_requested else "Cancel",
            key=f"_cancel_{job.id}",
            icon=":material/cancel:",
            disabled=job.is_cancel_requested or foreign is not None,
            on_click=_cancel,
            args=(job.id,),
            help=foreign or "Stop the job within a second and remove partial results.",
        )
    elif job.state in RETRYABLE:
        st.button(
            "Retry",
            key=f"_retry_{job.id}",
            icon=":material/refresh:",
            on_click=_retry,
            args=(job.id,),
            disabled=foreign is not None,
            help=foreign or "Re-queue this job with the same options.",
        )


def _cancel(job_id: str) -> None:
    with toast_errors():
        cancel_job(database(), actor(), job_id)


def _retry(job_id: str) -> None:
    with toast_errors():
        retry_job(database(), actor(), job_id)
