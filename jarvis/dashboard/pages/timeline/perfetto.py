"""The trace of an analysis for Perfetto: made by a job, opened in a window or downloaded."""

from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.file_jobs import file_button, file_job, link_of, offer_file
from jarvis.reports.perfetto import FORMAT
from jarvis.run.timeline import Window
from jarvis.server.jobs.kinds import Export, job_file
from jarvis.server.jobs.kinds.exports import HAS_TRACE, ORIGIN
from jarvis.server.queue import Job
from jarvis.server.settings import settings
from jarvis.server.storage.catalog import name_of

PAGE = "timeline"


def _source(ending: str) -> str:
    return Path(__file__).with_suffix(ending).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "jarvis_perfetto", html=_source(".html"), css=_source(".css"), js=_source(".js")
)


def perfetto_row(now: Opened, window: Window) -> None:
    """Draw the button that makes the trace, then the ways to open it at the window of the page."""
    request = Export(now.id, FORMAT, *now.other_targets)
    has_viewer = bool(settings().perfetto_url)
    with st.container(horizontal=True, vertical_alignment="center"):
        file_button(
            PAGE,
            "Open in Perfetto" if has_viewer else "Download for Perfetto",
            request,
            "The trace for the Perfetto viewer, at this window.",
            ":material/open_in_new:" if has_viewer else ":material/download:",
        )
        st.caption("Every slice of the trace, with the findings and the simulated step as tracks.")
    file_job(PAGE, request, offer=partial(_offer, now, window))


def _offer(now: Opened, window: Window, job: Job) -> None:
    """Draw the button that opens the trace, and its download."""
    st.caption(
        "The file has every slice of the trace."
        if job.result.get(HAS_TRACE)
        else "The trace is not on this server, so the file has the GPU events and host calls of "
        "the analysis."
    )
    file, viewer = job_file(job.result), settings().perfetto_url
    if viewer and file is not None and file.is_file():
        _component(
            key=f"_{PAGE}_perfetto",
            data={
                "viewer": address_at(viewer, window, job.result.get(ORIGIN, 0)),
                "file": link_of(job),
                "file_name": file.name,
                "title": name_of(now.run.manifest),
            },
        )
    offer_file(job)


def address_at(viewer: str, window: Window, origin_ns: int) -> str:
    """Return the address of a Perfetto UI that shows a window of the trace."""
    shown = {"visStart": window.start_ns - origin_ns, "visEnd": window.end_ns - origin_ns}
    return f"{viewer}#!/?{urlencode(shown)}"
