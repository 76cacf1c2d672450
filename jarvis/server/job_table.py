"""What statements about the table of jobs share: a job's row, a condition, a job as it begins."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, Update, select, update
from sqlalchemy.engine import Connection

from jarvis.errors import JarvisError
from jarvis.server.database import JOBS, JobKind, JobState, reading
from jarvis.server.job_rows import Headway, Job, of_row

ANEW: dict[str, Any] = {
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
