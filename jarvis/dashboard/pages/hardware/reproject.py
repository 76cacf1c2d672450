"""Re-project the open analysis onto other hardware, from its stored data."""

from functools import partial

import streamlit as st

from jarvis.dashboard.pages.hardware.page import open_analysis
from jarvis.dashboard.session import links, navigation
from jarvis.dashboard.session.current_user import missing_role, request_job
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.job_view import follow, remember_job, remembered_job, took
from jarvis.hardware import Hardware, HardwareSpec
from jarvis.server.jobs.kinds import Reproject
from jarvis.server.jobs.queue import Job
from jarvis.server.storage.catalog import name_of
from jarvis.text.markdown import escape

_PAGE = "hardware"


def render(spec: HardwareSpec, hardware: Hardware) -> None:
    """Draw the button for the chosen preset, and the result."""
    now = open_analysis()
    if now is None:
        st.caption("Open an analysis to re-project it onto one of these GPUs.")
        return
    manifest = now.run.manifest
    name = f"{escape(name_of(manifest))} ({now.id})"
    if manifest.hardware == spec:
        st.caption(
            f"The open analysis, {name}, uses {escape(spec.title)}. Choose another preset above to "
            "re-project it."
        )
        return
    with st.container(border=True):
        st.markdown(
            f"**Re-project {name} onto {escape(spec.title)}.** Measured times stay the same; "
            "rooflines, efficiencies, findings and reports are computed with these peaks, without "
            "reading the trace. The result is a new analysis."
        )
        if st.button(
            f"Re-project onto {escape(spec.title)}",
            type="primary",
            icon=":material/speed:",
            disabled=(missing := missing_role()) is not None,
            help=missing,
        ):
            _submit(now, spec, hardware)
        job = remembered_job(_PAGE)
        if job is not None and job.parameters == _request(now, spec, hardware).new_job().parameters:
            follow(job, partial(_outcome, spec.title))


def _request(now: Opened, spec: HardwareSpec, hardware: Hardware) -> Reproject:
    device = now.run.manifest.trace.device_name
    return Reproject(now.id, *hardware.choice(spec, device))


def _submit(now: Opened, spec: HardwareSpec, hardware: Hardware) -> None:
    remember_job(_PAGE, request_job(_request(now, spec, hardware)).id)


def _outcome(title: str, job: Job) -> None:
    """Draw the result, with a link to the new analysis."""
    if job.analysis_id is None:
        return
    if job.result.get("is_reused"):
        st.info("Already done: showing the existing analysis.", icon=":material/history:")
    else:
        st.success(f"Re-projected in {took(job)}.", icon=":material/check_circle:")
    navigation.link(
        navigation.OVERVIEW,
        f"Open the analysis for {escape(title)}",
        icon=":material/dashboard:",
        **{links.ANALYSIS: job.analysis_id},
    )
