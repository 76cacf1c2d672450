"""Job queue for its clients: submit, find, list, cancel and retry jobs.

Each function is one short transaction, so any process can call it at any time. Operations of
workers on the same table are in ``claims``.
"""

import logging
import secrets
from collections.abc import Collection, Mapping

from sqlalchemy import ColumnElement, Engine, Select, case, func, insert, or_, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from jarvis.server.access.rights import LOCAL, Person, Role
from jarvis.server.database import (
    ACTIVE,
    JOB_ANALYSES,
    JOB_WAITS,
    JOBS,
    JobKind,
    JobState,
    Visibility,
    reading,
    utc_now,
    writing,
)
from jarvis.server.errors import UnknownJobError
from jarvis.server.job_rows import (
    QUEUED_DEFAULTS,
    FinishedStep,
    Job,
    JobProgress,
    NewJob,
    Outcome,
    first,
    is_waiting,
    job_in,
    of_row,
    one,
    update_of,
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
    "latest_waiting_for",
    "members",
    "members_text",
    "owners",
    "recent",
    "retry",
    "retryable_members",
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
        "is_member": new.is_member,
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
                for member in dict.fromkeys(new.waits_for):
                    wait = {"job_id": row["id"], "waits_for": member}
                    connection.execute(insert(JOB_WAITS).values(wait))
                job = job_in(connection, str(row["id"]))
        except IntegrityError:
            same = one(engine, _is_active() & (JOBS.c.fingerprint == new.fingerprint))
            if same is not None:  # otherwise it ended meanwhile: insert again
                if not new.is_member:
                    _ask_for(engine, same.id)
                return same
        else:
            log.info("job queued", extra={"job": job.id, "kind": new.kind.value, "person": owner})
            return job


def _ask_for(engine: Engine, job_id: str) -> None:
    """Record that a job is wanted for itself, so that it is not cancelled with one that waits."""
    with writing(engine) as connection:
        connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(is_member=False))


def find(engine: Engine, job_id: str, person: Person = LOCAL) -> Job:
    """Return a job; raise UnknownJobError if the person sees none with this id."""
    job = one(engine, (JOBS.c.id == job_id) & visible_to(person))
    if job is None:
        raise UnknownJobError(job_id)
    return job


def latest(engine: Engine, new: NewJob, person: Person = LOCAL) -> Job | None:
    """Return the newest visible job with the same fingerprint, in any state; None if none."""
    same = select(JOBS).where(JOBS.c.fingerprint == new.fingerprint, visible_to(person))
    return first(engine, same.order_by(JOBS.c.created.desc()))


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
    """Cancel a queued job immediately or a running one within a second; ignore ended jobs.

    With it go the jobs that it waits for, unless they are wanted for themselves or for others.
    """
    with writing(engine) as connection:
        if _cancel(connection, job_id):
            for member in connection.execute(_needed_only_by(job_id)).scalars().all():
                _cancel(connection, member)
        return job_in(connection, job_id)


def _cancel(connection: Connection, job_id: str) -> bool:
    """Cancel one job; return whether it was active."""
    queued = connection.execute(
        update_of(job_id, JobState.QUEUED).values(state=JobState.CANCELLED, ended=utc_now())
    )
    running = connection.execute(
        update_of(job_id, JobState.RUNNING).values(is_cancel_requested=True)
    )
    return bool(queued.rowcount or running.rowcount)


def _needed_only_by(job_id: str) -> Select[str]:
    """Select the active jobs that only this job waits for."""
    others = (
        select(JOB_WAITS.c.waits_for)
        .join(JOBS, JOBS.c.id == JOB_WAITS.c.job_id)
        .where(JOB_WAITS.c.job_id != job_id, _is_active())
    )
    return (
        select(JOBS.c.id)
        .join(JOB_WAITS, JOB_WAITS.c.waits_for == JOBS.c.id)
        .where(JOB_WAITS.c.job_id == job_id, JOBS.c.is_member, _is_active())
        .where(JOBS.c.id.not_in(others))
    )


def members(engine: Engine, job_ids: Collection[str]) -> dict[str, dict[JobState, int]]:
    """Return how many of the jobs that each job waits for are in each state, by its id.

    Jobs that wait for none are left out.
    """
    query = (
        select(JOB_WAITS.c.job_id, JOBS.c.state, func.count())
        .join(JOBS, JOBS.c.id == JOB_WAITS.c.waits_for)
        .where(JOB_WAITS.c.job_id.in_(job_ids))
        .group_by(JOB_WAITS.c.job_id, JOBS.c.state)
    )
    found: dict[str, dict[JobState, int]] = {}
    with reading(engine) as connection:
        for job_id, state, count in connection.execute(query):
            found.setdefault(job_id, {})[state] = count
    return found


def members_text(by_state: Mapping[JobState, int]) -> str:
    """Return how far the jobs of ranks are: ``41 of 64 ranks, 2 running, 1 failed``."""
    total, done = sum(by_state.values()), by_state.get(JobState.DONE, 0)
    others = (JobState.RUNNING, JobState.FAILED, JobState.CANCELLED)
    parts = [f"{by_state[state]:,} {state}" for state in others if by_state.get(state)]
    return ", ".join([f"{done:,} of {total:,} ranks", *parts])


def latest_waiting_for(engine: Engine, job_id: str) -> Job | None:
    """Return the newest job that waits or waited for a job; None if there is none."""
    query = select(JOBS).join(JOB_WAITS, JOB_WAITS.c.job_id == JOBS.c.id)
    newest = query.where(JOB_WAITS.c.waits_for == job_id).order_by(JOBS.c.created.desc())
    return first(engine, newest)


def retryable_members(engine: Engine, job: Job) -> list[str]:
    """Return the failed and cancelled jobs of the same owner that a job waits for."""
    waits = select(JOB_WAITS.c.waits_for).where(JOB_WAITS.c.job_id == job.id)
    is_own = JOBS.c.owner.is_not_distinct_from(job.owner)
    query = select(JOBS.c.id).where(JOBS.c.id.in_(waits), JOBS.c.state.in_(RETRYABLE), is_own)
    with reading(engine) as connection:
        return list(connection.execute(query.order_by(JOBS.c.created, JOBS.c.id)).scalars())


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
