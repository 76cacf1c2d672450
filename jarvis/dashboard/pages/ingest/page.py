"""The ingest page: choose a trace, GPU and options, and analyze."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import streamlit as st

from jarvis.core.errors import JarvisError
from jarvis.core.request import AnalysisOptions
from jarvis.dashboard.pages.ingest.options import OPTIONS, choose_gpu, option_inputs
from jarvis.dashboard.pages.ingest.remote_form import choose_gpu_unseen, choose_remote
from jarvis.dashboard.pages.ingest.trace_choice import (
    ADDRESS,
    REMOTE,
    SAMPLE,
    SERVER_PATH,
    STORED,
    UPLOAD,
    choose_trace,
    chosen_source,
    fetched_ranks,
    first_readable,
    trace_info,
)
from jarvis.dashboard.pages.runs.rows import run_rows
from jarvis.dashboard.session import navigation, state
from jarvis.dashboard.session.current_user import (
    VISIBILITY_LABELS,
    actor,
    missing_role,
    request_job,
    visible_catalog,
)
from jarvis.dashboard.session.errors import show_error
from jarvis.dashboard.widgets.controls import keyed_choice, list_choice, text_input, whole_number
from jarvis.dashboard.widgets.job_view import (
    follow,
    open_result,
    remember_job,
    remembered_job,
    took,
)
from jarvis.dashboard.widgets.label_inputs import label_inputs
from jarvis.dashboard.widgets.upload import (
    uploaded_captures,
    uploaded_config,
    uploaded_ranks,
    uploaded_trace,
)
from jarvis.ranks.headers import names_against_headers
from jarvis.ranks.inputs import InputFile
from jarvis.server.actions import submit_ranks
from jarvis.server.database import JobKind, Visibility, database
from jarvis.server.errors import OutdatedJobError
from jarvis.server.ingest.intake import output_folder
from jarvis.server.ingest.remote_runs import RemoteRun
from jarvis.server.jobs.kinds import Analyze, Request, request_of
from jarvis.server.jobs.kinds.analyses import Remote
from jarvis.server.queue import Job
from jarvis.server.settings import settings
from jarvis.server.storage.artifacts import find_file
from jarvis.server.submission import Submission
from jarvis.text.format import byte_size, count, counted, listed, milliseconds
from jarvis.text.markdown import escape, prose
from jarvis.trace import TraceInfo
from jarvis.trace_health import metadata_warnings

NONE = "none"
PAGE = "ingest"
CAPTURES, MODEL = "ingest_captures", "ingest_config"
MAX_PARALLEL = 1024
MAX_NAMED = 4
"""Files of several that are named."""
_SHARED = {
    "tp": "Tensor parallelism: ranks that share the heads and products of the model.",
    "ep": "Expert parallelism: ranks that share its experts.",
}
_AWAITED = "_ingest_awaited"
"""Session key of the job whose analysis is opened when it is done."""

_OPENING = "_ingest_opening"
"""Session key of the job whose overview is opened next."""

_RESULT = "ingest_result"
_FOLLOW_LINK = f"""
export default () => {{
  const link = document.querySelector(".st-key-{_RESULT} a")
  link?.dispatchEvent(new PointerEvent("pointerdown", {{ bubbles: true }})) // its own history entry
  link?.click()
}}
"""
_follow_link = st.components.v2.component("jarvis_follow_link", js=_FOLLOW_LINK)
"""Opens the link to the result as a click does. ``st.switch_page`` would leave an empty page if a
part of this one was being redrawn."""


@dataclass(frozen=True, slots=True)
class _Reference:
    """A second trace to analyze first, or a stored analysis."""

    trace: Path | None = None
    analysis_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Model:
    """The ``config.json`` of a served model, and the ranks that share it."""

    config: Path | None = None
    tensor_parallel: int = 1
    expert_parallel: int = 1


def form() -> None:
    """Draw the form and the job; errors do not clear the form."""
    if (missing := missing_role()) is not None:
        st.info(f"You can only view analyses. {missing}", icon=":material/visibility:")
        st.button("Analyze", icon=":material/play_arrow:", disabled=True, help=missing)
        return
    left, right = st.columns([9, 10])
    with left.container(border=True, height="stretch"):
        st.markdown("**1 · Trace**")
        traces, info = _chosen_traces()
        is_elsewhere = chosen_source(PAGE) == REMOTE
        remote = choose_remote(PAGE) if is_elsewhere else None
    options: AnalysisOptions | None = None
    with right.container(border=True, height="stretch"):
        st.markdown("**2 · GPU**")
        if is_elsewhere:
            options = choose_gpu_unseen(PAGE)
        elif info is None:
            st.caption("Choose a trace first: its GPU is detected and can be changed here.")
        else:
            options = choose_gpu(info)
    with st.container(border=True):
        st.markdown("**3 · Options** (all optional)")
        *places, folder_place = st.columns(len(OPTIONS) + 1)
        values = option_inputs(PAGE, places)
        folder, reference = "", _Reference()
        is_one = not is_elsewhere and len(traces) <= 1
        if is_one:
            with folder_place:
                folder = text_input("ingest_folder", "Output folder", "also write the run here")
        labels = label_inputs(PAGE)
        visibility = _chosen_visibility()
        captures: Path | None = None
        model = _Model()
        if is_one:
            reference = _chosen_reference()
            captures = _chosen_captures()
            model = _chosen_model()
    is_incomplete = options is None or (is_elsewhere and remote is None)
    is_clicked = _analyze_button(is_incomplete=is_incomplete)
    if is_clicked and options is not None:
        options = replace(options, **values, reference=reference.analysis_id)
        if remote is not None:
            asked = RemoteRun.of(options, target=remote.name, path=remote.path)
            _submit(lambda: Remote(asked, labels.read()), visibility)
        elif traces:
            submission = Submission.of(
                options,
                trace=traces[0],
                capture_folder=captures,
                served_model=model.config,
                tensor_parallel=model.tensor_parallel,
                expert_parallel=model.expert_parallel,
            )
            _submit(
                lambda: _of_each(
                    Analyze(_copied(submission, folder), reference.trace, labels=labels.read()),
                    traces,
                ),
                visibility,
            )
    job = remembered_job(PAGE)
    if job is not None:
        follow(job, _outcome)


def _chosen_traces() -> tuple[tuple[Path, ...], TraceInfo | None]:
    """Draw the choice of a trace or of several ranks; return them with the metadata of one.
    Errors are shown."""
    sources = (UPLOAD, SERVER_PATH, ADDRESS, REMOTE, SAMPLE)
    try:
        chosen = choose_trace(PAGE, sources, uploaded_ranks, fetched_ranks)
        traces = (chosen,) if isinstance(chosen, Path) else chosen or ()
        info = trace_info(first_readable(traces)) if traces else None
        if isinstance(info, tuple):
            traces, info = info, trace_info(first_readable(info))
    except JarvisError as error:
        show_error(error)
        return (), None
    if not isinstance(info, TraceInfo):
        return (), None
    if len(traces) > 1:
        files = [InputFile(find_file(trace), trace.name) for trace in traces]
        stats = [file.path.stat() for file in files]
        size = byte_size(sum(each.st_size for each in stats))
        names = listed([escape(trace.name) for trace in traces], MAX_NAMED)
        st.caption(
            f"{counted(len(traces), 'rank')}, each with an analysis of its own: {names} · {size}"
        )
        for differing in _differing_names(files, [each.st_mtime_ns for each in stats]):
            st.warning(escape(differing), icon=":material/warning:")
        return traces, info
    st.caption(f"{escape(info.file_name)} · {byte_size(info.size_bytes)} · {_recorded(info)}")
    for fact in metadata_warnings(info):
        st.warning(
            f"**{prose(fact.summary)}** {prose(fact.affects)}  \n{prose(fact.remedy)}",
            icon=":material/warning:",
        )
    return traces, info


@st.cache_data(max_entries=100, show_spinner=False)
def _differing_names(files: list[InputFile], written_ns: list[int]) -> list[str]:
    """Return names that differ from headers; the second argument only identifies the contents."""
    return names_against_headers(files)


def _recorded(info: TraceInfo) -> str:
    """Return a line about the contents of the file."""
    span = milliseconds(info.span_us / 1000)
    if info.form == "report":
        return f"performance report of {span} on the GPU, with less detail than its trace"
    ranks = "" if info.rank is None else f" · rank {info.rank} of {count(info.world_size)}"
    return (
        f"{counted(sum(info.event_counts.values()), 'event')} over {span} · "
        f"{counted(info.steps, 'profiler step')}{ranks} · {info.origin}"
    )


def _chosen_visibility() -> Visibility:
    """Draw the choice of the visibility; the team without access control."""
    if settings().access == "off":
        return Visibility.TEAM
    chosen = keyed_choice(
        "ingest_visibility",
        "Visible to",
        VISIBILITY_LABELS,
        Visibility.TEAM,
        "Team: all users of this server. Private: only you and admins. You can change it later "
        "under Manage in the sidebar.",
    )
    return Visibility(chosen)


def _analyze_button(*, is_incomplete: bool) -> bool:
    """Draw the button that starts the analysis; return whether it was clicked."""
    icon = ":material/play_arrow:"
    is_clicked = st.button("Analyze", type="primary", icon=icon, disabled=is_incomplete)
    if is_incomplete:
        st.caption("Choose a trace and its GPU first.")
    return is_clicked


def _chosen_reference() -> _Reference:
    """Draw the choice of an optional trace or analysis to compare with."""
    with st.expander("Reference: another trace of the same model to compare with"):
        st.caption(
            "The reference becomes a separate analysis. The overview then lists the operations of "
            "both, and which are slower than the difference between the GPUs explains."
        )
        sources = (NONE, STORED, UPLOAD, SERVER_PATH, ADDRESS)
        try:
            trace = choose_trace("ingest_reference", sources, uploaded_trace)
        except JarvisError as error:
            show_error(error)
            return _Reference()
        if chosen_source("ingest_reference") != STORED:
            return _Reference(trace=trace)
        entries = visible_catalog().entries
        if not entries:
            st.caption("No stored analysis yet.")
            return _Reference()
        ids = [entry.id for entry in entries]
        chosen = list_choice("ingest_reference_id", "Analysis", ids, "An existing analysis.")
        st.caption(escape(next(entry.title for entry in entries if entry.id == chosen)))
        return _Reference(analysis_id=chosen)


def _chosen_captures() -> Path | None:
    """Draw the choice of the captures of replayed graphs."""
    with st.expander("Captures of GPU graphs"):
        st.caption(
            "Kernels that the trace replays from GPU graphs get operators, shapes and modules from "
            "a recording of the capture of these graphs, one file or several."
        )
        try:
            return choose_trace(CAPTURES, (NONE, UPLOAD, SERVER_PATH), uploaded_captures)
        except JarvisError as error:
            show_error(error)
            return None


def _chosen_model() -> _Model:
    """Draw the choice of the model's configuration."""
    with st.expander("Model configuration: config.json of a served model"):
        st.caption(
            "Inference steps whose kernels have no shapes get FLOPs and bytes, and with them MFU "
            "and MBU, from the sizes of the model. They are marked as computed from it."
        )
        try:
            config = choose_trace(MODEL, (NONE, UPLOAD, SERVER_PATH), uploaded_config)
        except JarvisError as error:
            show_error(error)
            return _Model()
        if config is None:
            return _Model()
        with st.container(horizontal=True):
            tensor, expert = (
                whole_number(
                    f"{MODEL}_{name}", f"{name.upper()} ranks", 1, 1, MAX_PARALLEL, meaning
                )
                for name, meaning in _SHARED.items()
            )
        return _Model(config, tensor, expert)


def _submit(make: Callable[[], Request | list[Analyze]], visibility: Visibility) -> None:
    """Queue the job of a request, or those of several ranks; show it, or why it is not valid."""
    try:
        request = make()
        if isinstance(request, list):
            _follow_next(submit_ranks(database(), actor(), request, visibility=visibility))
        else:
            _queue(request, visibility)
    except JarvisError as error:
        show_error(error)


def _of_each(request: Analyze, traces: Sequence[Path]) -> Analyze | list[Analyze]:
    """Return a request like this one for each rank, or the request itself for a single trace."""
    if len(traces) == 1:
        return request
    return [replace(request, submission=replace(request.submission, trace=each)) for each in traces]


def _copied(submission: Submission, folder: str) -> Submission:
    return replace(submission, copy_to=output_folder(folder)) if folder else submission


def _queue(request: Request, visibility: Visibility = Visibility.TEAM) -> None:
    _follow_next(request_job(request, visibility))


def _follow_next(job: Job) -> None:
    """Show a job, and open its result when it is done."""
    remember_job(PAGE, job.id)
    st.session_state[_AWAITED] = job.id


def _outcome(job: Job) -> None:
    """Open the page of the result that was asked for; later, draw it with links."""
    if job.analysis_id is None:
        return
    request, is_reused = _request(job), job.result.get("is_reused", False)
    if st.session_state.get(_AWAITED) == job.id:
        del st.session_state[_AWAITED]
        if job.kind is not JobKind.JOIN:
            state.open_next(job.analysis_id)
        if not is_reused:
            st.session_state[_OPENING] = job.id
        st.rerun()  # update the sidebar, which is already drawn
    if is_reused:
        st.info(
            "Already analyzed with these options: showing the existing analysis.",
            icon=":material/history:",
        )
    else:
        st.success(_finished(job), icon=":material/check_circle:")
    with st.container(horizontal=True, key=_RESULT):
        open_result(job)
        if is_reused and isinstance(request, Analyze):
            st.button(
                "Analyze again",
                icon=":material/refresh:",
                type="tertiary",
                on_click=_queue,
                args=(replace(request, is_again=True),),
            )
    if st.session_state.pop(_OPENING, None) == job.id:
        _follow_link(key="_ingest_follow", height=0, data={"job": job.id})


def _finished(job: Job) -> str:
    """Return what an analysis took, and where it was written; of ranks, how many are missing."""
    if job.kind is JobKind.JOIN:
        failed = job.result.get("failed", 0)
        missing = f" {counted(failed, 'file')} could not be used." if failed else ""
        return f"The ranks are joined.{missing}"
    request = _request(job)
    where = f" on {escape(job.result['made_on'])}" if "made_on" in job.result else ""
    line = f"Analyzed in {took(job)}{where}."
    if isinstance(request, Analyze) and request.submission.copy_to is not None:
        line += f" The run was also written to {escape(str(request.submission.copy_to))}."
    return line


def _request(job: Job) -> Request | None:
    """Return the request of a job, or None if it is from an incompatible version."""
    try:
        return request_of(job.kind, job.parameters)
    except OutdatedJobError:
        return None


def stored_analyses() -> None:
    """Draw how many analyses are stored, with a link to them."""
    catalog = visible_catalog()
    st.subheader("Analyses on this server")
    if not catalog.entries:
        st.caption("No analyses yet. Try the sample above.")
        return
    runs = sum(row.rank is None for row in run_rows(catalog))  # a distributed run is one
    navigation.link(navigation.RUNS, counted(runs, "run"), icon=":material/list_alt:")
