"""The parts of the ingest page: a trace comes in, is described, and is analysed step by step."""

import os
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter
from urllib.parse import urlencode

import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from jarvis.analyses.wording import counted
from jarvis.dashboard import links, navigation, state
from jarvis.dashboard.controls import list_choice, text_input
from jarvis.dashboard.gpu_choice import choose_gpu
from jarvis.dashboard.step_list import finished_steps, step_list
from jarvis.dashboard.trace_choice import (
    SAMPLE,
    SERVER_PATH,
    UPLOAD,
    choose_trace,
    chosen_source,
)
from jarvis.errors import JarvisError
from jarvis.pipeline import read_info
from jarvis.reports.markup import escape
from jarvis.reports.quantities import MISSING, byte_size, count, milliseconds
from jarvis.server.catalogue import read_catalogue
from jarvis.server.intake import output_folder
from jarvis.server.submission import Kept, Submission, submit
from jarvis.trace import TraceInfo

NONE, KEPT = "none", "kept analysis"
_LAST = "_ingest_last"


@dataclass(frozen=True, slots=True)
class _Reference:
    """A second trace to analyse first, or an analysis that is kept already."""

    trace: Path | None = None
    analysis_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Made:
    """The last analysis of this visit: what was asked, what came of it, its steps."""

    submission: Submission
    kept: Kept
    seconds: float
    steps: list[str]


def form() -> None:
    """Choose a trace, the GPU and the names, and analyse; errors leave what was filled in."""
    left, right = st.columns(2)
    with left.container(border=True, height="stretch"):
        st.markdown("**1 · Trace**")
        trace, info = _chosen_trace()
    submission: Submission | None = None
    with right.container(border=True, height="stretch"):
        st.markdown("**2 · GPU**")
        if trace is None or info is None:
            st.caption("Choose a trace first: its GPU is found in it and can be changed here.")
        else:
            gpu = choose_gpu(info)
            submission = Submission(trace, gpu.platform, gpu.preset)
    with st.container(border=True):
        st.markdown("**3 · Names and places** (all optional)")
        model_place, folder_place = st.columns(2)
        with model_place:
            model = text_input("ingest_model", "Model name", "as it should stand in the reports")
        with folder_place:
            folder = text_input("ingest_folder", "Output folder", "also write the run there")
        reference = _chosen_reference()
    is_asked = st.button(
        "Analyse", type="primary", icon=":material/play_arrow:", disabled=submission is None
    )
    outcome, steps = st.container(), st.container()
    with steps:
        if submission is not None and is_asked:
            named = replace(submission, model_name=model or None)
            _analyse(named, folder, reference)
    with outcome:
        _outcome(steps)


def _chosen_trace() -> tuple[Path | None, TraceInfo | None]:
    """The chosen trace and what it says about itself; a refusal is shown as a sentence."""
    trace = None
    try:
        trace = choose_trace("ingest", (UPLOAD, SERVER_PATH, SAMPLE))
        if trace is None:
            return None, None
        stat = trace.stat()
        info = _read_info(str(trace), stat.st_mtime_ns, stat.st_size)
    except JarvisError as error:
        # Where the server keeps an upload means nothing to the one who sent it.
        folder = f"{trace.parent}{os.sep}" if trace else ""
        st.error(str(error).replace(folder, ""), icon=":material/error:")
        return None, None
    st.caption(f"{escape(info.file_name)} · {byte_size(info.size_bytes)} · {_recorded(info)}")
    return trace, info


@st.cache_data(max_entries=16, show_spinner="Reading the trace")
def _read_info(path: str, mtime_ns: int, size: int) -> TraceInfo:
    """``mtime_ns`` and ``size`` tell apart a file that was replaced."""
    return read_info(Path(path))


def _recorded(info: TraceInfo) -> str:
    """What the chosen file holds, in a line."""
    span = milliseconds(info.span_us / 1000)
    if info.form == "report":
        return f"performance report of {span} on the GPU: it tells less than its trace"
    ranks = "" if info.rank is None else f" · rank {info.rank} of {count(info.world_size)}"
    return (
        f"{count(sum(info.event_counts.values()))} events over {span} · "
        f"{counted(info.steps, 'profiler step')}{ranks} · {info.origin}"
    )


def _chosen_reference() -> _Reference:
    """An optional second trace or analysis to compare with."""
    with st.expander("Reference: another trace of the same model to compare with"):
        st.caption(
            "The reference is analysed as an analysis of its own. The overview then lists the "
            "operations that both have, and which are slower than the two GPUs explain."
        )
        sources = (NONE, KEPT, UPLOAD, SERVER_PATH)
        try:
            trace = choose_trace("ingest_reference", sources)
        except JarvisError as error:
            st.error(str(error), icon=":material/error:")
            return _Reference()
        if chosen_source("ingest_reference") != KEPT:
            return _Reference(trace=trace)
        entries = read_catalogue().entries
        if not entries:
            st.caption("No analysis is kept yet.")
            return _Reference()
        ids = [entry.id for entry in entries]
        chosen = list_choice("ingest_reference_id", "Analysis", ids, "An analysis made before.")
        st.caption(escape(next(entry.title for entry in entries if entry.id == chosen)))
        return _Reference(analysis_id=chosen)


def _analyse(submission: Submission, folder: str, reference: _Reference) -> None:
    st.session_state.pop(_LAST, None)
    begin = perf_counter()
    taken: list[str] = []
    try:
        if folder:
            submission = replace(submission, copy_to=output_folder(folder))
        if reference.trace is not None:
            st.markdown("**Reference**")
            kept = submit(Submission(reference.trace), step_list(taken))
            reference = _Reference(analysis_id=kept.id)
            st.markdown("**Trace**")
        submission = replace(submission, reference=reference.analysis_id)
        kept = submit(submission, step_list(taken))
    except JarvisError as error:
        st.error(str(error), icon=":material/error:")
        return
    _made(_Made(submission, kept, perf_counter() - begin, taken))


def _made(made: _Made) -> None:
    """Remember the outcome and draw the page again, so that the sidebar names the new analysis."""
    st.session_state[_LAST] = made
    state.open_next(made.kept.id)
    st.rerun()


def _outcome(steps: DeltaGenerator) -> None:
    """How the last analysis ended, and where to go from here."""
    if _LAST not in st.session_state:
        return
    made: _Made = st.session_state[_LAST]
    submission, kept = made.submission, made.kept
    with steps:
        finished_steps(made.steps)
    if kept.is_reused:
        st.info(
            "This trace was analysed with these options before; the kept analysis is as good.",
            icon=":material/history:",
        )
    else:
        st.success(f"Analysed in {made.seconds:.1f} s.", icon=":material/check_circle:")
    if submission.copy_to is not None:
        st.caption(f"The run also stands in {escape(str(submission.copy_to))}.")
    with st.container(horizontal=True):
        navigation.link(
            navigation.OVERVIEW,
            "Open the overview",
            icon=":material/dashboard:",
            **{links.ANALYSIS: kept.id},
        )
        if kept.is_reused and st.button(
            "Analyse again", icon=":material/refresh:", type="tertiary"
        ):
            with steps:
                _analyse_again(submission)


def _analyse_again(submission: Submission) -> None:
    begin = perf_counter()
    taken: list[str] = []
    kept: Kept = submit(submission, step_list(taken), again=True)
    _made(_Made(submission, kept, perf_counter() - begin, taken))


def recent_analyses() -> None:
    """What is kept on this server, with links."""
    catalogue = read_catalogue()
    st.subheader("Analyses on this server")
    if not catalogue.entries:
        st.caption("None yet: the sample above shows what Jarvis does within seconds.")
    else:
        frame = pl.DataFrame(
            [
                {
                    "open": f"{navigation.OVERVIEW}?{urlencode({links.ANALYSIS: entry.id})}",
                    "model": entry.manifest.model_name,
                    "trace": entry.manifest.trace.file_name,
                    "gpu": entry.gpu,
                    "origin": entry.manifest.trace.origin,
                    "created": datetime.fromisoformat(entry.manifest.created),
                    "id": entry.id,
                }
                for entry in catalogue.entries
            ],
            infer_schema_length=None,
        )
        config = st.column_config
        st.dataframe(
            frame,
            hide_index=True,
            column_config={
                "open": config.LinkColumn(
                    "Open", display_text="open", width=70, help="Its overview, in a new tab"
                ),
                "model": config.TextColumn("Model", help="The name given to it when analysed"),
                "trace": config.TextColumn("Trace", help="The name of the file"),
                "gpu": config.TextColumn("GPU", help="What the trace is judged against"),
                "origin": config.TextColumn("Origin", help="Recorded on a GPU, or simulated"),
                "created": config.DatetimeColumn(
                    "Analysed", format="YYYY-MM-DD HH:mm", help="When the analysis was made"
                ),
                "id": config.TextColumn("Id", help="Stands in every link"),
            },
            placeholder=MISSING,
            alt="Analyses kept on this server",
        )
    if catalogue.broken:
        st.warning(
            f"{count(len(catalogue.broken))} folders cannot be read (another version, or damaged): "
            f"{', '.join(map(escape, catalogue.broken[:5]))}. Analyse their traces again.",
            icon=":material/folder_off:",
        )
