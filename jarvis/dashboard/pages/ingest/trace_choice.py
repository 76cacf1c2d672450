"""The trace to analyze: uploaded, fetched from a URL or a path, and what is known of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import streamlit as st
from pydantic import ValidationError

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import home
from jarvis.dashboard.session.current_user import request_job
from jarvis.dashboard.session.errors import show_error, toast_errors
from jarvis.dashboard.session.links import note_control
from jarvis.dashboard.session.polling import polled
from jarvis.dashboard.widgets.controls import keyed_segments, text_input
from jarvis.dashboard.widgets.job_view import POLL_S, follow, remember_job, remembered_job
from jarvis.server import queue
from jarvis.server.database import JobState, Visibility, database
from jarvis.server.errors import IntakeError
from jarvis.server.ingest.addresses import HOSTS_VARIABLE, without_secrets
from jarvis.server.ingest.fetch import names_several
from jarvis.server.ingest.intake import sample_trace, server_trace, trace_roots
from jarvis.server.ingest.remote_runs import TARGETS_VARIABLE
from jarvis.server.jobs.kinds import Inspect
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.queue import RETRYABLE, Job
from jarvis.server.settings import settings
from jarvis.server.storage.artifacts import find_file
from jarvis.server.storage.storage_keys import path_at
from jarvis.text.format import byte_size
from jarvis.text.markdown import escape
from jarvis.trace import TraceInfo

Uploaded = TypeVar("Uploaded")

SOURCE = "address"
"""Value of this source in links to the ingest page."""

URL = "URL"
"""Label of this source."""

_FOLDERS = (
    " A URL that ends with / is that of a folder, and `{0..63}` in one a range: the traces of the "
    "ranks of a job."
)


def fetched_trace(prefix: str) -> Path | None:
    """Draw the URL and the job, and return the trace fetched last or None."""
    return next(iter(_fetched_traces(prefix, takes_several=False)), None)


def fetched_ranks(prefix: str) -> tuple[Path, ...] | None:
    """Draw the URL and the job, and return the traces fetched last or None."""
    return _fetched_traces(prefix, takes_several=True) or None


def _fetched_traces(prefix: str, *, takes_several: bool) -> tuple[Path, ...]:
    address = _address(prefix, takes_several=takes_several)
    st.caption(f"Allowed hosts: {escape(', '.join(settings().ingest_hosts))}.")
    if st.button("Fetch", key=f"_{prefix}_fetch", icon=":material/download:", disabled=not address):
        _fetch(prefix, address, takes_several=takes_several)
    job = remembered_job(_job_of(prefix))
    if job is None:
        return ()
    if job.state is not JobState.DONE or not {"trace", "traces"} & job.result.keys():
        st.caption(escape(job.title))
        follow(job, lambda _: None)
        return ()
    return _fetched(job)


def _fetch(prefix: str, address: str, *, takes_several: bool) -> None:
    """Queue the job; it is private, so that other users do not see the URL."""
    try:
        if not takes_several and names_several(address):
            raise IntakeError("Give the URL of one trace.")
        remember_job(_job_of(prefix), request_job(Fetch(address), Visibility.PRIVATE).id)
    except JarvisError as error:
        remember_job(_job_of(prefix), None)
        show_error(error)


def _fetched(job: Job) -> tuple[Path, ...]:
    """Draw and return the traces of a job that is done."""
    for failed in job.result.get("failed", ()):
        st.warning(escape(failed), icon=":material/warning:")
    again = " The same file was already stored." if job.result.get("was_here") else ""
    st.caption(f":material/check_circle: {escape(job.title)}: done.{again}")
    return _traces(job)


def _job_of(prefix: str) -> str:
    return f"{prefix}_fetch"


def _address(prefix: str, *, takes_several: bool) -> str:
    """Draw and return the URL; the page's link has it without parts that may be secret."""
    key = f"{prefix}_url"
    if key not in st.session_state and key in st.query_params:
        st.session_state[key] = st.query_params[key]
    typed = st.text_input(
        URL,
        key=key,
        placeholder="https://host/trace.json.gz or sftp://host/path/trace.json.gz",
        help="http, https, sftp or s3."
        + (_FOLDERS if takes_several else "")
        + " The query string, such as a signature, is not included in links "
        "to this page or in the list of jobs.",
        persist_state="session",
    ).strip()
    if shown := without_secrets(typed):
        st.query_params[key] = shown
        note_control(key, shown)
    else:
        st.query_params.pop(key, None)
    return typed


def trace_info(trace: Path) -> TraceInfo | tuple[Path, ...] | None:
    """Return the metadata of a trace, or the traces of an archive of several.

    Draws the progress or the error, and returns None, while it is read or if reading failed. Each
    file is read once.
    """
    request = Inspect(trace)
    job = _inspect_job(request)
    if job.is_active:
        _live(job.id)
    elif job.state is JobState.DONE and "traces" in job.result:
        return _traces(job)
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


def first_readable(traces: Sequence[Path]) -> Path:
    """Return the first trace whose reading has not failed, or the first of all."""
    return next(
        (each for each in traces if _inspect_job(Inspect(each)).state not in RETRYABLE), traces[0]
    )


def _inspect_job(request: Inspect) -> Job:
    """Return the job that reads or has read the trace; a new one if there is no compatible one."""
    engine = database()
    job = queue.latest(engine, request.new_job())
    if job is not None and job.state is JobState.DONE:
        if "traces" in job.result:
            is_usable = all(find_file(path).is_file() for path in _traces(job))
        else:
            is_usable = _is_info(job.result.get("info"))
        job = job if is_usable else None
    return job or request_job(request)


def _is_info(values: object) -> bool:
    """Return whether this version reads the stored metadata of a trace."""
    try:
        TraceInfo.model_validate(values)
    except ValidationError:
        return False
    return True


def _traces(job: Job) -> tuple[Path, ...]:
    """Return the traces of a job that read or fetched one or several."""
    result = job.result
    return tuple(map(path_at, result["traces"] if "traces" in result else [result["trace"]]))


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


UPLOAD, SERVER_PATH, ADDRESS, SAMPLE = "upload", "server path", SOURCE, "sample"
REMOTE = "remote"
"""Source of traces that are analyzed on another machine, without copying them."""

STORED = "kept analysis"
"""Value of a stored analysis as the source of a reference, handled by the caller."""

_LABELS = {ADDRESS: URL, STORED: "stored analysis"}
"""Labels that differ from the value in links."""


_HELP = (
    f"Source of the trace. An admin of this server can add URLs (`{HOSTS_VARIABLE}`) and other "
    f"machines (`{TARGETS_VARIABLE}`)."
)


def _is_configured(source: str) -> bool:
    if source == ADDRESS:
        return bool(settings().ingest_hosts)
    return source != REMOTE or bool(settings().targets)


def choose_trace(
    prefix: str,
    sources: Sequence[str],
    upload: Callable[[str], Uploaded | None],
    fetch: Callable[[str], Path | Uploaded | None] = fetched_trace,
) -> Path | Uploaded | None:
    """Draw the choice of the source, and return its trace, what was uploaded, or None.

    Args:
        prefix: Prefix of the URL parameters.
        sources: Values to choose from, shown if they are configured; for values that are not
            handled here, the caller draws the controls.
        upload: Draws the upload of this prefix, and returns the files.
        fetch: Draws the download of this prefix, and returns what was fetched.

    Raises:
        IntakeError: The path is not allowed.
    """
    labels = {source: _LABELS.get(source, source) for source in sources if _is_configured(source)}
    source = keyed_segments(f"{prefix}_source", "From", labels, _HELP)
    if source == UPLOAD:
        return upload(prefix)
    if source == SERVER_PATH:
        roots = ", ".join(str(root) for root in trace_roots())
        path = text_input(f"{prefix}_path", "Path on the server", "trace.json.gz")
        st.caption(f"Allowed folders: {roots}. Relative paths are resolved in them.")
        return server_trace(path) if path else None
    if source == ADDRESS:
        return fetch(prefix)
    if source == SAMPLE:
        st.caption(
            "A simulated training step (transformer and convolution blocks on eight ranks), "
            "labeled as simulated on every page."
        )
        return _sample(str(home()))
    return None


@st.cache_resource(max_entries=8, show_spinner="Computing the sample")
def _sample(home_folder: str) -> Path:
    """Return the sample in the home folder, computed once for all users.

    ``home_folder`` is part of the cache key, so its name must not start with an underscore.
    """
    return sample_trace()


def chosen_source(prefix: str) -> str | None:
    """Return the source chosen in ``choose_trace``."""
    chosen: str | None = st.session_state.get(f"{prefix}_source")
    return chosen
