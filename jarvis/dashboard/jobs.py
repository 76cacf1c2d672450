"""The jobs page: what waits, runs and has ended, and one job in full."""

from datetime import datetime
from urllib.parse import urlencode

import polars as pl
import streamlit as st

from jarvis.dashboard import links, navigation
from jarvis.dashboard.controls import choice
from jarvis.dashboard.file_jobs import offer_file
from jarvis.dashboard.job_view import JOB, POLL_S, draw
from jarvis.dashboard.links import note_control, notice
from jarvis.dashboard.polling import polled
from jarvis.dashboard.row_order import PAGE_ROWS, page_number
from jarvis.reports.markup import escape
from jarvis.reports.quantities import MISSING
from jarvis.server import jobs
from jarvis.server.database import ACTIVE, JobState, database
from jarvis.server.jobs import Job, UnknownJobError
from jarvis.wording import counted

PAGE = "jobs"
_ALL = "all"
_FILTERS: dict[str, tuple[JobState, ...]] = {
    _ALL: (),
    "active": ACTIVE,
    "done": (JobState.DONE,),
    "failed": (JobState.FAILED,),
    "cancelled": (JobState.CANCELLED,),
}
_MARKS = {
    JobState.QUEUED: "◷ waiting",
    JobState.RUNNING: "▶ running",
    JobState.DONE: "✓ done",
    JobState.FAILED: "✕ failed",
    JobState.CANCELLED: "⊘ cancelled",
}
_TABLE, _SHOWN, _CHOSEN, _IS_CLICK = "jobs_table", "_jobs_shown", "_jobs_chosen", "_jobs_click"
_TABLE_ROWS, _TABLE_PX = 10, 400


def render() -> None:
    """Draw the page; while something waits or runs, again and again."""
    engine = database()
    by_state = jobs.counts(engine)
    if not by_state:
        st.info("No job yet. Analyse a trace, and its job stands here.", icon=":material/inbox:")
        navigation.link(navigation.INGEST, "Analyse a trace", icon=":material/upload_file:")
        return
    st.caption(_summary(by_state))
    shown = choice("jobs_state", "Show", list(_FILTERS), "Jobs in this state only.")
    states = _FILTERS[shown]
    wanted = sum(count for state, count in by_state.items() if not states or state in states)
    number = page_number(PAGE, wanted, shown, None)
    _settle_chosen()
    if any(by_state.get(state) for state in ACTIVE):
        _live(shown, number)
    else:
        _list_and_job(shown, number)


@polled(2 * POLL_S)
def _live(shown: str, number: int) -> None:
    if not any(jobs.counts(database()).get(state) for state in ACTIVE):
        st.rerun()
    _list_and_job(shown, number)


def _list_and_job(shown: str, number: int) -> None:
    engine = database()
    chosen: str | None = st.session_state.get(_CHOSEN)
    if st.session_state.pop(_IS_CLICK, False):
        _choose(chosen)  # the browser hears of it here, not from a callback
    offset = (number - 1) * PAGE_ROWS
    listed = jobs.recent(engine, states=_FILTERS[shown], limit=PAGE_ROWS, offset=offset)
    if listed:
        _table(listed, chosen)
    else:
        st.caption("No job is in this state.")
    if chosen is None:
        if listed:
            st.caption("Select a row to see its steps and log, to cancel or to retry it.")
        return
    job = jobs.find(engine, chosen)
    with st.container(border=True):
        st.markdown(f"**{escape(job.title)}** · {_MARKS[job.state]}")
        st.caption(_about(job))
        draw(job, _ended)


def _summary(by_state: dict[JobState, int]) -> str:
    active = {state: by_state[state] for state in ACTIVE if by_state.get(state)}
    if not active:
        return "Nothing runs and nothing waits."
    parts = [f"{count} {_MARKS[state].split()[1]}" for state, count in active.items()]
    return f"{' · '.join(parts)}. This page follows them by itself."


def _settle_chosen() -> None:
    """Choose the job of the link, or the one of the selected row."""
    selected = st.session_state.get(_CHOSEN)
    is_click = st.session_state.get(_IS_CLICK, False)
    job_id = selected if is_click else st.query_params.get(JOB) or selected
    if job_id is None:
        return
    try:
        jobs.find(database(), job_id)
    except UnknownJobError as error:
        notice(str(error))
        _choose(None)
        return
    _choose(job_id)
    note_control(JOB, job_id)


def _choose(job_id: str | None) -> None:
    st.session_state[_CHOSEN] = job_id
    if job_id is None:
        st.query_params.pop(JOB, None)
    else:
        st.query_params[JOB] = job_id


def _table(listed: list[Job], chosen: str | None) -> None:
    ids = [job.id for job in listed]
    st.session_state[_SHOWN] = ids
    places = [ids.index(chosen)] if chosen in ids else []
    # The rows move as jobs come and end; the selection stays with its job.
    st.session_state[_TABLE] = {"selection": {"rows": places, "columns": [], "cells": []}}
    config = st.column_config
    st.dataframe(
        pl.DataFrame([_row(job) for job in listed], schema=_SCHEMA, orient="row"),
        key=_TABLE,
        on_select=_row_selected,
        selection_mode="single-row",
        hide_index=True,
        height=_TABLE_PX if len(listed) > _TABLE_ROWS else "auto",
        column_config={
            "state": config.TextColumn("State", width=95),
            "title": config.TextColumn("Job", help="What it does"),
            "percent": config.ProgressColumn(
                "Progress (%)",
                min_value=0,
                max_value=100,
                format="%d",
                width=105,
                help="Steps that are done, and the part of the file that is read",
            ),
            "step": config.TextColumn("Step", help="What it does now, or did last"),
            "open": config.LinkColumn(
                "Analysis", display_text="open", width=70, help="What it made, in a new tab"
            ),
            "created": config.DatetimeColumn(
                "Asked for", format="YYYY-MM-DD HH:mm", help="When it came into the queue"
            ),
            "elapsed_s": config.NumberColumn(
                "Took (s)", format="%.1f", width=70, help="From its start to its end, or until now"
            ),
            "owner": config.TextColumn("Owner", help="Who asked for it, where that is known"),
            "id": config.TextColumn("Id", help="Stands in its link"),
        },
        placeholder=MISSING,
        alt="Jobs of this server with state, progress, times and owner",
    )


_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "state": pl.String,
    "title": pl.String,
    "percent": pl.Int64,
    "step": pl.String,
    "open": pl.String,
    "created": pl.Datetime("us", "UTC"),
    "elapsed_s": pl.Float64,
    "owner": pl.String,
    "id": pl.String,
}


def _row(job: Job) -> tuple[str | float | datetime | None, ...]:
    overview = None
    if job.analysis_id is not None:
        overview = f"{navigation.OVERVIEW}?{urlencode({links.ANALYSIS: job.analysis_id})}"
    return (
        _MARKS[job.state],
        job.title,
        int(job.percent),
        None if job.state is JobState.DONE else job.step,
        overview,
        job.created,
        job.elapsed_s,
        job.owner,
        job.id,
    )


def _row_selected() -> None:
    """A click on a row of the table: another row, or the same one to let go of it."""
    rows = st.session_state[_TABLE]["selection"]["rows"]
    st.session_state[_CHOSEN] = st.session_state[_SHOWN][rows[0]] if rows else None
    st.session_state[_IS_CLICK] = True


def _about(job: Job) -> str:
    parts = [f"asked for {job.created:%Y-%m-%d %H:%M:%S} UTC"]
    if job.owner:
        parts.append(f"by {escape(job.owner)}")
    if job.attempts:
        parts.append(counted(job.attempts, "start"))
    return " · ".join([*parts, f"id {job.id}"])


def _ended(job: Job) -> None:
    """Where a job that is done leads."""
    if job.result.get("is_reused"):
        st.info("This was made before; the kept analysis is as good.", icon=":material/history:")
    offer_file(job)
    if job.analysis_id is not None:
        navigation.link(
            navigation.OVERVIEW,
            "Open the overview",
            icon=":material/dashboard:",
            **{links.ANALYSIS: job.analysis_id},
        )
