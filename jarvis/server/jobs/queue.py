"""Job queue for its clients: submit, find, list, cancel and retry jobs.

Each function is one short transaction, so any process can call it at any time. Operations of
workers on the same table are in ``claims``.
"""

import logging
import secrets
from collections.abc import Collection

from sqlalchemy import ColumnElement, Engine, case, func, insert, or_, select
from sqlalchemy.exc import IntegrityError

from jarvis.server.access.rights import LOCAL, Person, Role
from jarvis.server.database import (
    ACTIVE,
    JOB_ANALYSES,
    JOBS,
    JobKind,
    JobState,
    Visibility,
    reading,
    writing,
)
from jarvis.server.errors import UnknownJobError
from jarvis.server.jobs.rows import (
    QUEUED_DEFAULTS,
    FinishedStep,
    Job,
    JobProgress,
    NewJob,
    Outcome,
    is_waiting,
    job_in,
    of_row,
    one,
    update_of,
    utc_now,
    visible_to,
)

__all__ = [
    "RETRYABLE",
    "FinishedStep",
    "Job",
    "JobProgress",
    "NewJob",
    "Outcome",
    "UnknownJobError",
    "active",
    "cancel",
    "counts",
    "find",
    "latest",
    "owners",
    "recent",
    "retry",
    "submit",
]

RETRYABLE = (JobState.FAILED, JobState.CANCELLED)

_ID_BYTES = 5

log = logging.getLogger(__name__)


def submit(
    engine: Engine,
    new: NewJob,
    owner: str | None = None,
    visibility: Visibility = Visibility.TEAM,
    role: Role = Role.EDITOR,
) -> Job:
    """Queue a job, or return the queued or running job with the same fingerprint.

    Args:
        visibility: visibility of the analysis that the job creates.
        role: current role of ``owner``.
    """
    row = {
        "id": secrets.token_hex(_ID_BYTES),
        "kind": new.kind,
        "title": new.title,
        "parameters": dict(new.parameters),
        "fingerprint": new.fingerprint,
        "folders": list(new.folders),
        "owner": owner,
        "visibility": visibility,
        "role": role,
        "attempts": 0,
        "created": utc_now(),
        **QUEUED_DEFAULTS,
    }
    while True:
        try:
            with writing(engine) as connection:
                connection.execute(insert(JOBS).values(row))
                for analysis_id in dict.fromkeys(new.analyses):
                    link = {"job_id": row["id"], "analysis_id": analysis_id}
                    connection.execute(insert(JOB_ANALYSES).values(link))
                job = job_in(connection, str(row["id"]))
        except IntegrityError:
            same = one(engine, _is_active() & (JOBS.c.fingerprint == new.fingerprint))
            if same is not None:  # otherwise it ended meanwhile: insert again
                return same
        else:
            log.info("job queued", extra={"job": job.id, "kind": new.kind.value, "person": owner})
            return job


def find(engine: Engine, job_id: str, person: Person = LOCAL) -> Job:
    """Return a job; raise UnknownJobError if the person sees none with this id."""
    job = one(engine, (JOBS.c.id == job_id) & visible_to(person))
    if job is None:
        raise UnknownJobError(job_id)
    return job


def latest(engine: Engine, new: NewJob, person: Person = LOCAL) -> Job | None:
    """Return the newest visible job with the same fingerprint, in any state; None if none."""
    same = select(JOBS).where(JOBS.c.fingerprint == new.fingerprint, visible_to(person))
    with reading(engine) as connection:
        row = connection.execute(same.order_by(JOBS.c.created.desc()).limit(1)).mappings().first()
    return None if row is None else of_row(row)


def recent(
    engine: Engine,
    *,
    states: Collection[JobState] = (),
    kinds: Collection[JobKind] = (),
    owner: str | None = None,
    person: Person = LOCAL,
    limit: int = 100,
    offset: int = 0,
) -> list[Job]:
    """Return visible jobs: running, then queued in submission order, then ended, newest first.

    Finished inspections of traces are left out.

    Args:
        states: states to return; all if empty.
        kinds: kinds to return; all if empty.
        owner: owner of the returned jobs; None for all.
    """
    order = (
        case((JOBS.c.state == JobState.RUNNING, 0), (is_waiting(), 1), else_=2),
        case((is_waiting(), JOBS.c.created)),
        JOBS.c.created.desc(),
        JOBS.c.id,
    )
    query = select(JOBS).where(_is_listed(person, kinds, owner)).order_by(*order)
    if states:
        query = query.where(JOBS.c.state.in_(states))
    with reading(engine) as connection:
        rows = connection.execute(query.limit(limit).offset(offset)).mappings()
        return [of_row(row) for row in rows]


def active(engine: Engine) -> list[Job]:
    """Return the queued and running jobs."""
    with reading(engine) as connection:
        rows = connection.execute(select(JOBS).where(_is_active())).mappings()
        return [of_row(row) for row in rows]


def counts(
    engine: Engine,
    person: Person = LOCAL,
    *,
    kinds: Collection[JobKind] = (),
    owner: str | None = None,
) -> dict[JobState, int]:
    """Return the number of jobs that ``recent`` lists by state, without states that have none."""
    is_counted = _is_listed(person, kinds, owner)
    query = select(JOBS.c.state, func.count()).where(is_counted).group_by(JOBS.c.state)
    with reading(engine) as connection:
        return dict(connection.execute(query).all())


def owners(engine: Engine, person: Person = LOCAL) -> list[str]:
    """Return the owners of the jobs that ``recent`` lists, sorted."""
    query = select(JOBS.c.owner).where(_is_listed(person), JOBS.c.owner.is_not(None)).distinct()
    with reading(engine) as connection:
        return sorted(connection.execute(query).scalars())


def cancel(engine: Engine, job_id: str) -> Job:
    """Cancel a queued job immediately or a running one within a second; ignore ended jobs."""
    with writing(engine) as connection:
        connection.execute(
            update_of(job_id, JobState.QUEUED).values(state=JobState.CANCELLED, ended=utc_now())
        )
        connection.execute(update_of(job_id, JobState.RUNNING).values(is_cancel_requested=True))
        return job_in(connection, job_id)


def retry(engine: Engine, job_id: str) -> Job:
    """Queue a failed or cancelled job again, or return the active job with its fingerprint."""
    try:
        with writing(engine) as connection:
            connection.execute(update_of(job_id, *RETRYABLE).values(QUEUED_DEFAULTS))
            return job_in(connection, job_id)
    except IntegrityError:
        fingerprint = select(JOBS.c.fingerprint).where(JOBS.c.id == job_id).scalar_subquery()
        return one(engine, _is_active() & (JOBS.c.fingerprint == fingerprint)) or find(
            engine, job_id
        )


_IS_LISTED = or_(JOBS.c.kind != JobKind.INSPECT, JOBS.c.state != JobState.DONE)


def _is_active() -> ColumnElement[bool]:
    return JOBS.c.state.in_(ACTIVE)


def _is_listed(
    person: Person, kinds: Collection[JobKind] = (), owner: str | None = None
) -> ColumnElement[bool]:
    is_listed = _IS_LISTED & visible_to(person)
    if kinds:
        is_listed &= JOBS.c.kind.in_(kinds)
    return is_listed if owner is None else is_listed & (JOBS.c.owner == owner)
