"""The jobs page: list of jobs, and details of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import polars as pl
import streamlit as st

from jarvis.dashboard.pages.ingest.trace_choice import SOURCE
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.current_user import current_user
from jarvis.dashboard.session.links import note_control, notice
from jarvis.dashboard.session.polling import polled
from jarvis.dashboard.widgets.controls import choice, keyed_choice
from jarvis.dashboard.widgets.file_jobs import offer_file
from jarvis.dashboard.widgets.job_view import JOB, POLL_S, draw, open_result
from jarvis.dashboard.widgets.row_order import PAGE_ROWS, page_number
from jarvis.dashboard.widgets.table import height_of, moment_column, without_pale_texts
from jarvis.schemas.names import C
from jarvis.server import claims
from jarvis.server import queue as job_queue
from jarvis.server.actions import get_visible_job
from jarvis.server.database import ACTIVE, JobKind, JobState, database
from jarvis.server.errors import UnknownJobError
from jarvis.server.queue import Job
from jarvis.text.format import MISSING, counted
from jarvis.text.markdown import escape

PAGE = "jobs"
_ALL = "all"
_STATES: dict[str, tuple[JobState, ...]] = {
    _ALL: (),
    "active": ACTIVE,
    "done": (JobState.DONE,),
    "failed": (JobState.FAILED,),
    "cancelled": (JobState.CANCELLED,),
}
_KINDS = {
    _ALL: "All kinds",
    JobKind.ANALYZE: "Analyze",
    JobKind.REPROJECT: "Re-project onto another GPU",
    JobKind.COMPARE: "Compare",
    JobKind.EXPORT: "Export",
    JobKind.REPLAY: "Replay package",
    JobKind.FETCH: "Fetch a trace",
    JobKind.REMOTE: "Run on another machine",
    JobKind.LOAD: "Load an analysis file",
    JobKind.JOIN: "Join ranks",
    JobKind.WHAT_IF: "Simulate ranks",
    JobKind.RANKS_EXPORT: "Export ranks",
    JobKind.INSPECT: "Read a trace",
}
_FILTER_JOBS = 10
"""With more jobs than this, the filters by kind and owner are shown."""

_MARKS = {
    JobState.QUEUED: "◷ waiting",
    JobState.RUNNING: "▶ running",
    JobState.DONE: "✓ done",
    JobState.FAILED: "✕ failed",
    JobState.CANCELLED: "⊘ cancelled",
}
_TABLE, _SHOWN, _CHOSEN, _IS_CLICK = "jobs_table", "_jobs_shown", "_jobs_chosen", "_jobs_click"
_TABLE_ROWS = 12


@dataclass(frozen=True, slots=True)
class _JobFilter:
    """Filters of the list; empty fields match all jobs."""

    states: tuple[JobState, ...] = ()
    kinds: tuple[JobKind, ...] = ()
    owner: str | None = None


def render() -> None:
    """Draw the page; refresh it while jobs are active."""
    engine = database()
    by_state = job_queue.counts(engine, current_user())
    if not by_state:
        st.info(
            "No jobs on this server. Analyses made with `jarvis analyze` are not jobs; see "
            "*Runs*. Analyze a trace here to start a job.",
            icon=":material/inbox:",
        )
        navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")
        return
    st.caption(_summary(by_state))
    job_filter = _filters(sum(by_state.values()))
    matching = job_queue.counts(
        engine, current_user(), kinds=job_filter.kinds, owner=job_filter.owner
    )
    states = job_filter.states or matching
    count = sum(matching.get(state, 0) for state in states)
    number = page_number(PAGE, count, str(job_filter), None)
    _update_chosen()
    if any(by_state.get(state) for state in ACTIVE):
        _live(job_filter, number)
    else:
        _list_and_job(job_filter, number)


def _filters(count: int) -> _JobFilter:
    """Draw the filters; those by kind and owner only if there are many jobs."""
    by_state, by_kind, by_owner = st.columns([3.4, 2, 2])
    with by_state:
        state = choice("jobs_state", "Show", list(_STATES), "Only jobs in this state.")
    if count <= _FILTER_JOBS:
        return _JobFilter(_STATES[state])
    with by_kind:
        kind = keyed_choice("jobs_kind", "Kind", _KINDS, _ALL, "Only jobs of this kind.")
    kinds = () if kind == _ALL else (JobKind(kind),)
    names = job_queue.owners(database(), current_user())
    if len(names) < 2:
        return _JobFilter(_STATES[state], kinds)
    people = {_ALL: "All owners", **{name: name for name in names}}
    with by_owner:
        owner = keyed_choice("jobs_owner", "Owner", people, _ALL, "Only jobs of this user.")
    return _JobFilter(_STATES[state], kinds, None if owner == _ALL else owner)


@polled(2 * POLL_S)
def _live(job_filter: _JobFilter, number: int) -> None:
    if not any(job_queue.counts(database(), current_user()).get(state) for state in ACTIVE):
        st.rerun()
    _list_and_job(job_filter, number)


def _list_and_job(job_filter: _JobFilter, number: int) -> None:
    engine = database()
    chosen: str | None = st.session_state.get(_CHOSEN)
    if st.session_state.pop(_IS_CLICK, False):
        _choose(chosen)  # setting the URL in the callback would not reach the browser
    offset = (number - 1) * PAGE_ROWS
    listed = job_queue.recent(
        engine,
        states=job_filter.states,
        kinds=job_filter.kinds,
        owner=job_filter.owner,
        person=current_user(),
        limit=PAGE_ROWS,
        offset=offset,
    )
    if listed:
        _table(listed, chosen, claims.waiting(engine))
    else:
        st.caption("No job matches the filters.")
    if chosen is None:
        if listed:
            st.caption("Select a job to see its steps and log, or to cancel or retry it.")
        return
    job = get_visible_job(engine, current_user(), chosen)
    with st.container(border=True):
        st.markdown(f"**{escape(job.title)}** · {_MARKS[job.state]}")
        st.caption(_about(job))
        draw(job, _ended)


def _summary(by_state: dict[JobState, int]) -> str:
    active = {state: by_state[state] for state in ACTIVE if by_state.get(state)}
    if not active:
        return "No active jobs."
    parts = [f"{count} {_MARKS[state].split()[1]}" for state, count in active.items()]
    return f"{' · '.join(parts)}. This page refreshes automatically."


def _update_chosen() -> None:
    """Choose the job of the selected row or of the link."""
    selected = st.session_state.get(_CHOSEN)
    is_click = st.session_state.get(_IS_CLICK, False)
    job_id = selected if is_click else st.query_params.get(JOB) or selected
    if job_id is None:
        return
    try:
        get_visible_job(database(), current_user(), job_id)
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


def _table(listed: list[Job], chosen: str | None, queue: list[str]) -> None:
    members = job_queue.members(database(), [job.id for job in listed if job.is_active])
    ids = [job.id for job in listed]
    st.session_state[_SHOWN] = ids
    places = [ids.index(chosen)] if chosen in ids else []
    # Rows move as jobs are added and end, so select the job's current row.
    st.session_state[_TABLE] = {"selection": {"rows": places, "columns": [], "cells": []}}
    config = st.column_config
    st.dataframe(
        without_pale_texts(
            pl.DataFrame(
                [_row(job, _step(job, queue, members.get(job.id, {}))) for job in listed],
                schema=_SCHEMA,
                orient="row",
            )
        ),
        key=_TABLE,
        on_select=_row_selected,
        selection_mode="single-row",
        hide_index=True,
        height=height_of(len(listed), _TABLE_ROWS),
        column_config={
            "state": config.TextColumn("State", width=95, help="State of the job"),
            "title": config.TextColumn("Job", help="Task of the job"),
            "percent": config.ProgressColumn(
                "Progress (%)",
                min_value=0,
                max_value=100,
                format="%d",
                width=105,
                help="Completed steps and share of the file read",
            ),
            "step": config.TextColumn(
                "Step", help="Current or last step; position in the queue if waiting"
            ),
            "created": moment_column("Requested", "Time when it was queued"),
            "elapsed_s": config.NumberColumn(
                "Took (s)", format="%.1f", width=70, help="Run time so far, or in total"
            ),
            "owner": config.TextColumn("Owner", help="User who requested it, if known"),
            "id": config.TextColumn("Id", help="Part of its link"),
        },
        placeholder=MISSING,
        alt="Jobs of this server with state, progress, times and owner",
    )


_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "state": pl.String,
    C.title: pl.String,
    C.percent: pl.Int64,
    "step": pl.String,
    "created": pl.Datetime("us", "UTC"),
    "elapsed_s": pl.Float64,
    "owner": pl.String,
    "id": pl.String,
}


def _row(job: Job, step: str | None) -> tuple[str | float | datetime | None, ...]:
    return (
        _MARKS[job.state],
        job.title,
        int(job.percent),
        step,
        job.created,
        job.elapsed_s,
        job.owner,
        job.id,
    )


def _step(job: Job, queue: list[str], members: Mapping[JobState, int]) -> str | None:
    """Return the current or last step, the position in the queue, or how far the ranks are."""
    if job.state is JobState.DONE:
        return None
    if job.id in queue:
        return f"place {queue.index(job.id) + 1} in the queue"
    if job.state is JobState.QUEUED and members:
        return job_queue.members_text(members)
    return job.step


def _row_selected() -> None:
    """Choose the job of the clicked row, or none if the row was deselected."""
    rows = st.session_state[_TABLE]["selection"]["rows"]
    st.session_state[_CHOSEN] = st.session_state[_SHOWN][rows[0]] if rows else None
    st.session_state[_IS_CLICK] = True


def _about(job: Job) -> str:
    parts = [f"requested {job.created:%Y-%m-%d %H:%M:%S} UTC"]
    if job.owner:
        parts.append(f"by {escape(job.owner)}")
    if job.attempts:
        parts.append(counted(job.attempts, "start"))
    return " · ".join([*parts, f"id {job.id}"])


def _ended(job: Job) -> None:
    """Draw the file and links of a job that is done."""
    if job.result.get("is_reused"):
        st.info("Already done: showing the existing analysis.", icon=":material/history:")
    offer_file(job)
    if {"trace", "traces"} & job.result.keys() and job.kind is JobKind.FETCH:
        navigation.link(
            navigation.INGEST,
            "Analyze the trace",
            icon=":material/upload_file:",
            ingest_source=SOURCE,
            ingest_fetch_job=job.id,
        )
    open_result(job)
