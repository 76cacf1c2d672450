"""Shared query fragments for the jobs table."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
    Update,
    and_,
    exists,
    false,
    func,
    not_,
    select,
    true,
    update,
)
from sqlalchemy.engine import Connection

from jarvis.core.errors import JarvisError
from jarvis.server.access.rights import Person, Role, is_visible, may
from jarvis.server.database import (
    ANALYSES,
    JOB_ANALYSES,
    JOBS,
    JobKind,
    JobState,
    reading,
)
from jarvis.server.jobs.rows import Job, JobProgress, of_row

QUEUED_DEFAULTS: dict[str, Any] = {
    "state": JobState.QUEUED,
    **JobProgress().values(),
    "error": None,
    "result": None,
    "analysis_id": None,
    "worker": None,
    "place": None,
    "heartbeat": None,
    "is_cancel_requested": False,
    "started": None,
    "ended": None,
}
"""Column values of a queued job, new or re-queued."""


class UnknownJobError(JarvisError):
    """There is no such job."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id[:40]!r} on this server: it was deleted, or the link is from "
            "another server. The existing jobs are listed below."
        )


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def is_waiting(kinds: Collection[JobKind] = ()) -> ColumnElement[bool]:
    """Return the condition for queued jobs of the given kinds, or of all if empty."""
    is_queued = JOBS.c.state == JobState.QUEUED
    return is_queued & JOBS.c.kind.in_(kinds) if kinds else is_queued


def visible_to(person: Person) -> ColumnElement[bool]:
    """Return the condition for jobs that a person can see.

    Each analysis that the job reads must be visible to them now. For a deleted one, its last
    visibility applies; unknown ones are visible only to admins. Until the job has created its
    analysis, the visibility requested for it applies, too.
    """
    if may(person, Role.ADMIN):
        return true()
    is_stored = and_(
        ANALYSES.c.id == JOB_ANALYSES.c.analysis_id, JOB_ANALYSES.c.visibility.is_(None)
    )
    owner = func.coalesce(JOB_ANALYSES.c.owner, ANALYSES.c.owner)
    visibility = func.coalesce(JOB_ANALYSES.c.visibility, ANALYSES.c.visibility)
    hidden = (
        select(JOB_ANALYSES.c.job_id)
        .select_from(JOB_ANALYSES.outerjoin(ANALYSES, is_stored))
        .where(
            JOB_ANALYSES.c.job_id == JOBS.c.id,
            not_(func.coalesce(is_visible(person, owner, visibility), false())),
        )
    )
    is_own = is_visible(person, JOBS.c.owner, JOBS.c.visibility)
    return and_(JOBS.c.analysis_id.is_not(None) | is_own, ~exists(hidden))


def update_of(job_id: str, *states: JobState) -> Update:
    """Return an update of a job that applies only in the given states."""
    return update(JOBS).where(JOBS.c.id == job_id, JOBS.c.state.in_(states))


def one(engine: Engine, condition: ColumnElement[bool]) -> Job | None:
    """Return any job that meets a condition; None if there is none."""
    with reading(engine) as connection:
        row = connection.execute(select(JOBS).where(condition).limit(1)).mappings().first()
    return None if row is None else of_row(row)


def job_in(connection: Connection, job_id: str) -> Job:
    """Return a job within a transaction; raise UnknownJobError if it does not exist."""
    row = connection.execute(select(JOBS).where(JOBS.c.id == job_id)).mappings().first()
    if row is None:
        raise UnknownJobError(job_id)
    return of_row(row)
