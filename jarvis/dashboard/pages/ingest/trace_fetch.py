"""A trace from an address: a job fetches it, and the page goes on as after an upload."""

from pathlib import Path

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.dashboard.session.current_user import ask_for_job
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
"""The choice of the ingest page that this is, in its links."""

URL = "URL"
"""What people read of it."""


def fetched_trace(prefix: str) -> Path | None:
    """The trace that was fetched last on this page, or None while there is none."""
    hosts = settings().ingest_hosts
    if not hosts:
        st.info(
            "This server fetches no traces: no host is allowed. Whoever runs it names hosts in "
            f"`{HOSTS_VARIABLE}`, like `traces.example.org,node-7`, and those of its own network "
            f"in `{PRIVATE_HOSTS_VARIABLE}` too.",
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
    return _kept(job)


def _fetch(prefix: str, address: str) -> None:
    """Queue the job; who else may look here need not see what one fetches."""
    try:
        remember_job(_job_of(prefix), ask_for_job(Fetch(address), Visibility.PRIVATE).id)
    except JarvisError as error:
        remember_job(_job_of(prefix), None)
        show_error(error)


def _kept(job: Job) -> Path:
    """The trace of a job that is done."""
    again = " The same bytes were here before." if job.result.get("was_here") else ""
    st.caption(f":material/check_circle: {escape(job.title)}: done.{again}")
    return path_at(job.result["trace"])


def _job_of(prefix: str) -> str:
    return f"{prefix}_fetch"


def _address(prefix: str) -> str:
    """What was typed; the link of the page holds it without what may be a secret."""
    key = f"{prefix}_url"
    if key not in st.session_state and key in st.query_params:
        st.session_state[key] = st.query_params[key]
    typed = st.text_input(
        URL,
        key=key,
        placeholder="https://host/trace.json.gz or sftp://host/path/trace.json.gz",
        help="http, https or sftp. What follows a question mark, like a signature, is left out of "
        "links to this page and of the list of jobs.",
        persist_state="session",
    ).strip()
    if shown := without_secrets(typed):
        st.query_params[key] = shown
        note_control(key, shown)
    else:
        st.query_params.pop(key, None)
    return typed
