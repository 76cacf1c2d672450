"""The parts of the ingest page: a trace comes in, is described, and is analyzed step by step."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode

import polars as pl
import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.core.request import AnalysisOptions
from jarvis.dashboard.pages.ingest.gpu_choice import choose_gpu
from jarvis.dashboard.pages.ingest.option_inputs import OPTIONS, option_inputs
from jarvis.dashboard.pages.ingest.remote_form import choose_gpu_unseen, choose_remote
from jarvis.dashboard.pages.ingest.trace_choice import (
    ADDRESS,
    SAMPLE,
    SERVER_PATH,
    UPLOAD,
    choose_trace,
    chosen_source,
)
from jarvis.dashboard.pages.ingest.trace_info import trace_info
from jarvis.dashboard.session import links, navigation, state
from jarvis.dashboard.session.current_user import (
    VISIBILITY_LABELS,
    ask_for_job,
    missing_role,
    visible_catalog,
)
from jarvis.dashboard.session.errors import show_error
from jarvis.dashboard.widgets.controls import keyed_choice, list_choice, text_input
from jarvis.dashboard.widgets.job_view import follow, remember_job, remembered_job, took
from jarvis.dashboard.widgets.table import moment_column
from jarvis.server.database import Visibility
from jarvis.server.ingest.intake import output_folder
from jarvis.server.ingest.remote_runs import RemoteRun
from jarvis.server.jobs.kinds import Analyze, OutdatedJobError, Request, request_of
from jarvis.server.jobs.kinds.remotes import Remote
from jarvis.server.jobs.queue import Job
from jarvis.server.settings import settings
from jarvis.server.submission import Submission
from jarvis.text.format import MISSING, byte_size, count, counted, milliseconds
from jarvis.text.markdown import escape
from jarvis.trace import TraceInfo

NONE, KEPT = "none", "kept analysis"
REMOTE = "remote"
"""The trace is analyzed there and never comes here."""

PAGE = "ingest"
_AWAITED = "_ingest_awaited"
"""The job whose analysis is opened when it is there: one that was asked for in this visit."""


@dataclass(frozen=True, slots=True)
class _Reference:
    """A second trace to analyze first, or an analysis that is kept already."""

    trace: Path | None = None
    analysis_id: str | None = None


def form() -> None:
    """Choose a trace, the GPU and the names, and analyze; errors leave what was filled in."""
    if (missing := missing_role()) is not None:
        st.info(f"You can look at what is analyzed here. {missing}", icon=":material/visibility:")
        st.button("Analyze", icon=":material/play_arrow:", disabled=True, help=missing)
        return
    left, right = st.columns([9, 10])
    with left.container(border=True, height="stretch"):
        st.markdown("**1 · Trace**")
        trace, info = _chosen_trace()
        is_elsewhere = chosen_source(PAGE) == REMOTE
        remote = choose_remote(PAGE) if is_elsewhere else None
    options: AnalysisOptions | None = None
    with right.container(border=True, height="stretch"):
        st.markdown("**2 · GPU**")
        if is_elsewhere:
            options = choose_gpu_unseen(PAGE)
        elif trace is None or info is None:
            st.caption("Choose a trace first: its GPU is found in it and can be changed here.")
        else:
            options = choose_gpu(info)
    with st.container(border=True):
        st.markdown("**3 · Options** (all optional)")
        *places, folder_place = st.columns(len(OPTIONS) + 1)
        values = option_inputs(PAGE, places)
        folder, reference = "", _Reference()
        if not is_elsewhere:
            with folder_place:
                folder = text_input("ingest_folder", "Output folder", "also write the run there")
        visibility = _chosen_visibility()
        if not is_elsewhere:
            reference = _chosen_reference()
    is_asked = st.button(
        "Analyze",
        type="primary",
        icon=":material/play_arrow:",
        disabled=options is None or (is_elsewhere and remote is None),
    )
    if is_asked and options is not None:
        options = replace(options, **values, reference=reference.analysis_id)
        if remote is not None:
            _ask_remote(RemoteRun.of(options, target=remote.name, path=remote.path), visibility)
        elif trace is not None:
            _ask(Submission.of(options, trace=trace), folder, reference.trace, visibility)
    job = remembered_job(PAGE)
    if job is not None:
        follow(job, _outcome)


def _chosen_trace() -> tuple[Path | None, TraceInfo | None]:
    """The chosen trace and what it says about itself; a refusal is shown as a sentence."""
    try:
        trace = choose_trace(PAGE, (UPLOAD, SERVER_PATH, ADDRESS, REMOTE, SAMPLE))
        info = None if trace is None else trace_info(trace)
    except JarvisError as error:
        show_error(error)
        return None, None
    if info is None:
        return None, None
    st.caption(f"{escape(info.file_name)} · {byte_size(info.size_bytes)} · {_recorded(info)}")
    return trace, info


def _recorded(info: TraceInfo) -> str:
    """What the chosen file holds, in a line."""
    span = milliseconds(info.span_us / 1000)
    if info.form == "report":
        return f"performance report of {span} on the GPU: it tells less than its trace"
    ranks = "" if info.rank is None else f" · rank {info.rank} of {count(info.world_size)}"
    return (
        f"{counted(sum(info.event_counts.values()), 'event')} over {span} · "
        f"{counted(info.steps, 'profiler step')}{ranks} · {info.origin}"
    )


def _chosen_visibility() -> Visibility:
    """Who will see the analysis; everyone where nobody is asked who they are."""
    if settings().access == "off":
        return Visibility.TEAM
    chosen = keyed_choice(
        "ingest_visibility",
        "Who sees it",
        VISIBILITY_LABELS,
        Visibility.TEAM,
        "Everyone who may look at this server, or only you and its admins. It can be changed later "
        "under Manage analysis.",
    )
    return Visibility(chosen)


def _chosen_reference() -> _Reference:
    """An optional second trace or analysis to compare with."""
    with st.expander("Reference: another trace of the same model to compare with"):
        st.caption(
            "The reference is analyzed as an analysis of its own. The overview then lists the "
            "operations that both have, and which are slower than the two GPUs explain."
        )
        sources = (NONE, KEPT, UPLOAD, SERVER_PATH, ADDRESS)
        try:
            trace = choose_trace("ingest_reference", sources)
        except JarvisError as error:
            show_error(error)
            return _Reference()
        if chosen_source("ingest_reference") != KEPT:
            return _Reference(trace=trace)
        entries = visible_catalog().entries
        if not entries:
            st.caption("No stored analysis yet.")
            return _Reference()
        ids = [entry.id for entry in entries]
        chosen = list_choice("ingest_reference_id", "Analysis", ids, "An analysis made before.")
        st.caption(escape(next(entry.title for entry in entries if entry.id == chosen)))
        return _Reference(analysis_id=chosen)


def _ask(
    submission: Submission, folder: str, reference: Path | None, visibility: Visibility
) -> None:
    """Queue the analysis, and show its job from now on."""
    try:
        if folder:
            submission = replace(submission, copy_to=output_folder(folder))
        _queue(Analyze(submission, reference), visibility)
    except JarvisError as error:
        show_error(error)


def _ask_remote(remote: RemoteRun, visibility: Visibility) -> None:
    try:
        _queue(Remote(remote), visibility)
    except JarvisError as error:
        show_error(error)


def _queue(request: Request, visibility: Visibility = Visibility.TEAM) -> None:
    job = ask_for_job(request, visibility)
    remember_job(PAGE, job.id)
    st.session_state[_AWAITED] = job.id


def _outcome(job: Job) -> None:
    """What came of an analysis, and where to go from here."""
    if job.analysis_id is None:
        return
    if st.session_state.get(_AWAITED) == job.id:
        del st.session_state[_AWAITED]
        state.open_next(job.analysis_id)
        st.rerun()  # so that the sidebar names the new analysis
    request = _request(job)
    is_reused = job.result.get("is_reused", False)
    if is_reused:
        st.info(
            "Already analyzed with these options: showing the existing analysis.",
            icon=":material/history:",
        )
    else:
        where = f" on {escape(job.result['made_on'])}" if "made_on" in job.result else ""
        st.success(f"Analyzed in {took(job)}{where}.", icon=":material/check_circle:")
    if isinstance(request, Analyze) and request.submission.copy_to is not None:
        st.caption(f"The run also stands in {escape(str(request.submission.copy_to))}.")
    with st.container(horizontal=True):
        navigation.link(
            navigation.OVERVIEW,
            "Open the overview",
            icon=":material/dashboard:",
            **{links.ANALYSIS: job.analysis_id},
        )
        if is_reused and isinstance(request, Analyze):
            st.button(
                "Analyze again",
                icon=":material/refresh:",
                type="tertiary",
                on_click=_queue,
                args=(replace(request, is_again=True),),
            )


def _request(job: Job) -> Request | None:
    """What was asked for, None where another version of Jarvis was asked."""
    try:
        return request_of(job.kind, job.parameters)
    except OutdatedJobError:
        return None


def recent_analyses() -> None:
    """What is kept on this server, with links."""
    catalog = visible_catalog()
    st.subheader("Analyses on this server")
    if not catalog.entries:
        st.caption("No analyses yet. Try the sample above.")
    else:
        frame = pl.DataFrame(
            [
                {
                    "open": f"{navigation.OVERVIEW}?{urlencode({links.ANALYSIS: entry.id})}",
                    "model": entry.manifest.model_name,
                    "trace": entry.manifest.trace.file_name,
                    "gpu": entry.gpu,
                    "origin": entry.manifest.trace.origin,
                    "made_on": entry.source,
                    "created": datetime.fromisoformat(entry.manifest.created),
                    "id": entry.id,
                }
                for entry in catalog.entries
            ],
            infer_schema_length=None,
        )
        if frame["made_on"].is_null().all():
            frame = frame.drop("made_on")
        config = st.column_config
        st.dataframe(
            frame,
            hide_index=True,
            column_config={
                "open": config.LinkColumn(
                    "Open", display_text="open", width=70, help="Its overview, in a new tab"
                ),
                "model": config.TextColumn("Model", help="Model name given for the analysis"),
                "trace": config.TextColumn("Trace", help="The name of the file"),
                "gpu": config.TextColumn("GPU", help="GPU and preset of the rooflines"),
                "origin": config.TextColumn("Origin", help="Recorded on a GPU, or simulated"),
                "made_on": config.TextColumn(
                    "Comes from",
                    help="The machine that analyzed it, or who loaded it from a file; empty where "
                    "this server made it",
                ),
                "created": moment_column("Analyzed", "When the analysis was made"),
                "id": config.TextColumn("Id", help="Part of every link"),
            },
            placeholder=MISSING,
            alt="Stored analyses",
        )
    if catalog.broken:
        st.warning(
            f"{count(len(catalog.broken))} folders cannot be read (another version, or damaged): "
            f"{', '.join(map(escape, catalog.broken[:5]))}. Analyze their traces again.",
            icon=":material/folder_off:",
        )
