"""What statements about the table of jobs share: a job's row, a condition, a job as it begins."""

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
from jarvis.server.jobs.rows import Headway, Job, of_row

QUEUED_DEFAULTS: dict[str, Any] = {
    "state": JobState.QUEUED,
    **Headway().values(),
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
"""What a job in the queue is like, also one that has been there before."""


class UnknownJobError(JarvisError):
    """No job on this server has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id[:40]!r} on this server: it was removed, or the link comes "
            "from another server. The list below has those there are."
        )


def utc_now() -> datetime:
    """The moment as the table has it."""
    return datetime.now(UTC)


def is_waiting(kinds: Collection[JobKind] = ()) -> ColumnElement[bool]:
    """The condition of the jobs that wait, of some kinds only where given."""
    is_queued = JOBS.c.state == JobState.QUEUED
    return is_queued & JOBS.c.kind.in_(kinds) if kinds else is_queued


def visible_to(person: Person) -> ColumnElement[bool]:
    """The condition of the jobs that a person may see.

    Every analysis that the job names must be visible to them now. A removed one counts as it was
    last, and one that is not known at all is for admins. Until the job has made its analysis, the
    visibility that was requested for that counts too.
    """
    if may(person, Role.ADMIN):
        return true()
    kept = and_(ANALYSES.c.id == JOB_ANALYSES.c.analysis_id, JOB_ANALYSES.c.visibility.is_(None))
    owner = func.coalesce(JOB_ANALYSES.c.owner, ANALYSES.c.owner)
    visibility = func.coalesce(JOB_ANALYSES.c.visibility, ANALYSES.c.visibility)
    hidden = (
        select(JOB_ANALYSES.c.job_id)
        .select_from(JOB_ANALYSES.outerjoin(ANALYSES, kept))
        .where(
            JOB_ANALYSES.c.job_id == JOBS.c.id,
            not_(func.coalesce(is_visible(person, owner, visibility), false())),
        )
    )
    is_own = is_visible(person, JOBS.c.owner, JOBS.c.visibility)
    return and_(JOBS.c.analysis_id.is_not(None) | is_own, ~exists(hidden))


def update_of(job_id: str, *states: JobState) -> Update:
    """An update of a job that is in one of these states, and of none otherwise."""
    return update(JOBS).where(JOBS.c.id == job_id, JOBS.c.state.in_(states))


def one(engine: Engine, condition: ColumnElement[bool]) -> Job | None:
    """A job with which a condition holds."""
    with reading(engine) as connection:
        row = connection.execute(select(JOBS).where(condition).limit(1)).mappings().first()
    return None if row is None else of_row(row)


def job_in(connection: Connection, job_id: str) -> Job:
    """A job, as a transaction sees it; UnknownJobError where there is none."""
    row = connection.execute(select(JOBS).where(JOBS.c.id == job_id)).mappings().first()
    if row is None:
        raise UnknownJobError(job_id)
    return of_row(row)
