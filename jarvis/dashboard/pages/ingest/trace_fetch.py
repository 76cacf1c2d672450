"""Trace from a URL, fetched by a job."""

from pathlib import Path

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.dashboard.session.current_user import request_job
from jarvis.dashboard.session.errors import show_error
from jarvis.dashboard.session.links import note_control
from jarvis.dashboard.widgets.job_view import follow, remember_job, remembered_job
from jarvis.server.database import JobState, Visibility
from jarvis.server.ingest.addresses import HOSTS_VARIABLE, PRIVATE_HOSTS_VARIABLE, without_secrets
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.jobs.queue import Job
from jarvis.server.settings import settings
from jarvis.server.storage.storage_keys import path_at
from jarvis.text.markdown import escape

SOURCE = "address"
"""Value of this source in links to the ingest page."""

URL = "URL"
"""Label of this source."""


def fetched_trace(prefix: str) -> Path | None:
    """Draw the URL and the job, and return the trace fetched last or None."""
    hosts = settings().ingest_hosts
    if not hosts:
        st.info(
            "Fetching traces is disabled: no host is allowed. An admin can allow hosts in "
            f"`{HOSTS_VARIABLE}`, such as `traces.example.org,node-7`; hosts of a private network "
            f"must also be in `{PRIVATE_HOSTS_VARIABLE}`.",
            icon=":material/link_off:",
        )
        return None
    address = _address(prefix)
    st.caption(f"Allowed hosts: {escape(', '.join(hosts))}.")
    if st.button("Fetch", key=f"_{prefix}_fetch", icon=":material/download:", disabled=not address):
        _fetch(prefix, address)
    job = remembered_job(_job_of(prefix))
    if job is None:
        return None
    if job.state is not JobState.DONE or "trace" not in job.result:
        st.caption(escape(job.title))
        follow(job, lambda _: None)
        return None
    return _fetched(job)


def _fetch(prefix: str, address: str) -> None:
    """Queue the job; it is private, so that other users do not see the URL."""
    try:
        remember_job(_job_of(prefix), request_job(Fetch(address), Visibility.PRIVATE).id)
    except JarvisError as error:
        remember_job(_job_of(prefix), None)
        show_error(error)


def _fetched(job: Job) -> Path:
    """Draw and return the trace of a job that is done."""
    again = " The same file was already stored." if job.result.get("was_here") else ""
    st.caption(f":material/check_circle: {escape(job.title)}: done.{again}")
    return path_at(job.result["trace"])


def _job_of(prefix: str) -> str:
    return f"{prefix}_fetch"


def _address(prefix: str) -> str:
    """Draw and return the URL; the page's link has it without parts that may be secret."""
    key = f"{prefix}_url"
    if key not in st.session_state and key in st.query_params:
        st.session_state[key] = st.query_params[key]
    typed = st.text_input(
        URL,
        key=key,
        placeholder="https://host/trace.json.gz or sftp://host/path/trace.json.gz",
        help="http, https or sftp. The query string, such as a signature, is not included in links "
        "to this page or in the list of jobs.",
        persist_state="session",
    ).strip()
    if shown := without_secrets(typed):
        st.query_params[key] = shown
        note_control(key, shown)
    else:
        st.query_params.pop(key, None)
    return typed
