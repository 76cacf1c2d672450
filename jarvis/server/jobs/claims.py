"""The queue as workers use it: they take jobs, say how far those are, and how they ended.

Every function is one short transaction, so that any number of workers may take from one queue.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import (
    Engine,
    Select,
    Update,
    and_,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.engine import Connection

from jarvis.server.database import (
    JOB_ANALYSES,
    JOBS,
    WORKERS,
    JobKind,
    JobState,
    database_now,
    reading,
    writing,
)
from jarvis.server.jobs.rows import Headway, Job, Outcome, of_row
from jarvis.server.jobs.table import QUEUED_DEFAULTS, is_waiting, job_in, one, update_of, utc_now

HEARTBEAT_TIMEOUT_S = 20
"""A running job whose worker has been silent for so long is given up. Longer than a database may be
locked, and short enough that with the time to notice it stays below half a minute."""

QUICK = (JobKind.INSPECT, JobKind.EXPORT, JobKind.REPLAY, JobKind.COMPARE, JobKind.LOAD)
"""What a visitor waits for and is done in seconds: a worker has a slot for it beside the others,
and it costs its owner no turn."""

log = logging.getLogger(__name__)
"""Each change of a job is a line with its id."""


def claim(engine: Engine, worker: str, kinds: Collection[JobKind] = ()) -> Job | None:
    """Take the job whose turn it is, of some kinds only where given; no other worker can take it
    too.

    People take turns, so that one's many jobs do not hold up another's one; each one's own jobs are
    taken in the order they came.
    """
    if one(engine, is_waiting(kinds)) is None:  # asking often must not keep writers waiting
        return None
    first = _in_turn(kinds).limit(1).with_for_update(skip_locked=True, of=JOBS).scalar_subquery()
    taken = (
        update(JOBS)
        .where(JOBS.c.id == first, JOBS.c.state == JobState.QUEUED)
        .values(
            state=JobState.RUNNING, worker=worker, started=utc_now(), attempts=JOBS.c.attempts + 1
        )
        .returning(*JOBS.c)
    )
    with writing(engine) as connection:
        heartbeat = database_now(connection)
        row = connection.execute(taken.values(heartbeat=heartbeat)).mappings().first()
    if row is None:
        return None
    job = of_row(row)
    log.info("job begins", extra={"job": job.id, "kind": job.kind.value, "person": job.owner})
    return job


def waiting(engine: Engine) -> list[str]:
    """The ids of the jobs that wait, in the order in which they will be taken."""
    with reading(engine) as connection:
        return list(connection.execute(_in_turn()).scalars())


def begin_at(engine: Engine, job_id: str, attempt: int, place: str) -> bool:
    """Say on which machine of a cluster an attempt begins; False where it must not begin there,
    since it has begun before, or was ended meanwhile. UnknownJobError where there is no such job.
    """
    begun = update_of(job_id, JobState.RUNNING).where(
        JOBS.c.attempts == attempt, JOBS.c.place.is_(None)
    )
    with writing(engine) as connection:
        if connection.execute(begun.values(place=place)).rowcount:
            return True
        job_in(connection, job_id)
        return False


def beat(engine: Engine, worker: str, slots: int, headway: Mapping[str, Headway]) -> None:
    """Say that a worker lives, and how far its jobs are."""
    with writing(engine) as connection:
        now = database_now(connection)
        alive = update(WORKERS).where(WORKERS.c.id == worker).values(heartbeat=now, slots=slots)
        if connection.execute(alive).rowcount == 0:
            row = {"id": worker, "slots": slots, "started": now, "heartbeat": now}
            connection.execute(insert(WORKERS).values(row))
        for job_id, far in headway.items():
            connection.execute(_mine(job_id, worker).values(heartbeat=now, **far.values()))


def orders(engine: Engine, worker: str) -> dict[str, bool]:
    """The jobs that a worker is to go on with, and whether each is to be cancelled."""
    mine = select(JOBS.c.id, JOBS.c.is_cancel_requested).where(
        JOBS.c.worker == worker, JOBS.c.state == JobState.RUNNING
    )
    with reading(engine) as connection:
        return {job_id: bool(is_asked) for job_id, is_asked in connection.execute(mine)}


def finish(engine: Engine, worker: str, job_id: str, headway: Headway, outcome: Outcome) -> None:
    """Write down how a job ended; without effect where it was taken from the worker."""
    with writing(engine) as connection:
        ended = connection.execute(
            _mine(job_id, worker).values(
                **headway.values(),
                state=outcome.state,
                error=outcome.error,
                result=None if outcome.result is None else dict(outcome.result),
                analysis_id=outcome.analysis_id,
                ended=utc_now(),
            )
        )
        if ended.rowcount and outcome.analysis_id is not None:
            _name_made(connection, job_id, outcome.analysis_id)
    if ended.rowcount:
        said = {"job": job_id, "state": outcome.state.value, "error": outcome.error}
        log.info("job ended", extra=said)


def _name_made(connection: Connection, job_id: str, analysis_id: str) -> None:
    """Note that a job names the analysis that it has made, unless it reads that one anyway."""
    row = {"job_id": job_id, "analysis_id": analysis_id}
    columns = [JOB_ANALYSES.c[name] for name in row]
    same = select(*columns).where(*(column == row[column.name] for column in columns))
    if connection.execute(same).first() is None:
        connection.execute(insert(JOB_ANALYSES).values(row))


def leave(engine: Engine, worker: str, unfinished: Sequence[str]) -> None:
    """A worker goes in order: what it has not finished waits for the next one."""
    with writing(engine) as connection:
        for job_id in unfinished:
            connection.execute(_mine(job_id, worker).values(QUEUED_DEFAULTS))
        connection.execute(delete(WORKERS).where(WORKERS.c.id == worker))


def fail_stale_jobs(engine: Engine) -> list[Job]:
    """End the running jobs whose worker has gone without a word; those jobs."""
    with reading(engine) as connection:
        before = silent_since(connection)
    is_abandoned = and_(
        JOBS.c.state == JobState.RUNNING, or_(JOBS.c.heartbeat.is_(None), JOBS.c.heartbeat < before)
    )
    if one(engine, is_abandoned) is None:
        return []
    ended = (
        update(JOBS)
        .where(is_abandoned)
        .values(
            state=case(
                (JOBS.c.is_cancel_requested, literal(JobState.CANCELLED, JOBS.c.state.type)),
                else_=literal(JobState.FAILED, JOBS.c.state.type),
            ),
            error=case(
                (JOBS.c.is_cancel_requested, None),
                else_="The worker that ran this job died. Nothing half-written was kept; retry it.",
            ),
            ended=utc_now(),
        )
        .returning(*JOBS.c)
    )
    with writing(engine) as connection:
        connection.execute(delete(WORKERS).where(WORKERS.c.heartbeat < before))
        return [of_row(row) for row in connection.execute(ended).mappings()]


def silent_since(connection: Connection) -> datetime:
    """Return the moment before which the last heartbeat is that of a worker that has died.

    Heartbeats are by the database's clock, so that the clocks of workers need not agree.
    """
    return database_now(connection) - timedelta(seconds=HEARTBEAT_TIMEOUT_S)


def has_worker(engine: Engine) -> bool:
    """Whether a worker has been heard of lately."""
    return slots(engine) is not None


def slots(engine: Engine) -> int | None:
    """How many jobs the workers run at once that have been heard of lately; None without one.

    0 where they have no cluster to run them on for now.
    """
    slots = select(func.sum(WORKERS.c.slots))
    with reading(engine) as connection:
        alive = slots.where(WORKERS.c.heartbeat >= silent_since(connection))
        found: int | None = connection.execute(alive).scalar()
    return found


def _in_turn(kinds: Collection[JobKind] = ()) -> Select[str]:
    """The ids of the jobs that wait: first one of each person, whoever had no turn for longest
    first, then a second of each, and so on."""
    place = func.row_number().over(partition_by=JOBS.c.owner, order_by=(JOBS.c.created, JOBS.c.id))
    own = select(JOBS.c.id, place.label("place")).where(is_waiting(kinds)).subquery()
    turns = (
        select(JOBS.c.owner, func.max(JOBS.c.started).label("last"))
        .where(JOBS.c.kind.not_in(QUICK))
        .group_by(JOBS.c.owner)
        .subquery()
    )
    return (
        select(JOBS.c.id)
        .join(own, own.c.id == JOBS.c.id)
        .outerjoin(turns, turns.c.owner.is_not_distinct_from(JOBS.c.owner))
        .order_by(own.c.place, turns.c.last.asc().nulls_first(), JOBS.c.created, JOBS.c.id)
    )


def _mine(job_id: str, worker: str) -> Update:
    return update_of(job_id, JobState.RUNNING).where(JOBS.c.worker == worker)
