"""Queue operations of workers: claim jobs, report progress, finish them.

Each function is one short transaction, so any number of workers can share a queue.
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
    utc_now,
    writing,
)
from jarvis.server.job_rows import (
    QUEUED_DEFAULTS,
    Job,
    JobProgress,
    Outcome,
    is_ready,
    job_in,
    of_row,
    one,
    update_of,
)

HEARTBEAT_TIMEOUT_S = 20
"""Running jobs of a worker without a heartbeat for this time fail. Longer than usual database
locks, and short enough to be noticed within half a minute."""

QUICK = (
    JobKind.INSPECT,
    JobKind.EXPORT,
    JobKind.REPLAY,
    JobKind.COMPARE,
    JobKind.LOAD,
    JobKind.JOIN,
    JobKind.WHAT_IF,
    JobKind.RANKS_EXPORT,
)
"""Kinds that take seconds while a user waits: each worker has an extra slot for them, and they do
not count in fair scheduling."""

log = logging.getLogger(__name__)


def claim(engine: Engine, worker: str, kinds: Collection[JobKind] = ()) -> Job | None:
    """Claim the next queued job exclusively; None if there is none that is ready.

    Scheduling is round-robin over owners, and first-in-first-out for the jobs of one owner.

    Args:
        kinds: kinds to claim; all if empty.
    """
    if one(engine, is_ready(kinds)) is None:  # polling must not block writers
        return None
    first = _in_turn(kinds).limit(1).with_for_update(skip_locked=True, of=JOBS).scalar_subquery()
    claimed = (
        update(JOBS)
        .where(JOBS.c.id == first, JOBS.c.state == JobState.QUEUED)
        .values(
            state=JobState.RUNNING, worker=worker, started=utc_now(), attempts=JOBS.c.attempts + 1
        )
        .returning(*JOBS.c)
    )
    with writing(engine) as connection:
        heartbeat = database_now(connection)
        row = connection.execute(claimed.values(heartbeat=heartbeat)).mappings().first()
    if row is None:
        return None
    job = of_row(row)
    log.info("job started", extra={"job": job.id, "kind": job.kind.value, "person": job.owner})
    return job


def waiting(engine: Engine) -> list[str]:
    """Return the ids of queued jobs that can be claimed, in the order in which they will be."""
    with reading(engine) as connection:
        return list(connection.execute(_in_turn()).scalars())


def begin_at(engine: Engine, job_id: str, attempt: int, place: str) -> bool:
    """Record on which machine of a cluster an attempt starts.

    Returns:
        False if the attempt must not start there, because it already started or the job ended.

    Raises:
        UnknownJobError: there is no such job.
    """
    start = update_of(job_id, JobState.RUNNING).where(
        JOBS.c.attempts == attempt, JOBS.c.place.is_(None)
    )
    with writing(engine) as connection:
        if connection.execute(start.values(place=place)).rowcount:
            return True
        job_in(connection, job_id)
        return False


def record_heartbeat(
    engine: Engine, worker: str, slots: int, progress: Mapping[str, JobProgress]
) -> None:
    """Update the heartbeat of a worker and the progress of its jobs."""
    with writing(engine) as connection:
        now = database_now(connection)
        alive = update(WORKERS).where(WORKERS.c.id == worker).values(heartbeat=now, slots=slots)
        if connection.execute(alive).rowcount == 0:
            row = {"id": worker, "slots": slots, "started": now, "heartbeat": now}
            connection.execute(insert(WORKERS).values(row))
        for job_id, job_progress in progress.items():
            values = {"heartbeat": now, **job_progress.values()}
            connection.execute(_update_own(job_id, worker).values(values))


def cancel_requests(engine: Engine, worker: str) -> dict[str, bool]:
    """Return the running jobs of a worker, and whether each is to be cancelled."""
    own = select(JOBS.c.id, JOBS.c.is_cancel_requested).where(
        JOBS.c.worker == worker, JOBS.c.state == JobState.RUNNING
    )
    with reading(engine) as connection:
        return {job_id: bool(is_cancelled) for job_id, is_cancelled in connection.execute(own)}


def finish(
    engine: Engine, worker: str, job_id: str, progress: JobProgress, outcome: Outcome
) -> None:
    """Store the outcome of a job; does nothing if the job no longer belongs to the worker."""
    with writing(engine) as connection:
        ended = connection.execute(
            _update_own(job_id, worker).values(
                **progress.values(),
                state=outcome.state,
                error=outcome.error,
                result=None if outcome.result is None else dict(outcome.result),
                analysis_id=outcome.analysis_id,
                ended=utc_now(),
            )
        )
        if ended.rowcount and outcome.analysis_id is not None:
            _link_analysis(connection, job_id, outcome.analysis_id)
    if ended.rowcount:
        fields = {"job": job_id, "state": outcome.state.value, "error": outcome.error}
        log.info("job ended", extra=fields)


def _link_analysis(connection: Connection, job_id: str, analysis_id: str) -> None:
    """Add a job's result to ``JOB_ANALYSES`` unless the job also reads that analysis."""
    row = {"job_id": job_id, "analysis_id": analysis_id}
    columns = [JOB_ANALYSES.c[name] for name in row]
    same = select(*columns).where(*(column == row[column.name] for column in columns))
    if connection.execute(same).first() is None:
        connection.execute(insert(JOB_ANALYSES).values(row))


def deregister(engine: Engine, worker: str, unfinished: Sequence[str]) -> None:
    """Deregister the worker and re-queue its unfinished jobs."""
    with writing(engine) as connection:
        for job_id in unfinished:
            connection.execute(_update_own(job_id, worker).values(QUEUED_DEFAULTS))
        connection.execute(delete(WORKERS).where(WORKERS.c.id == worker))


def fail_stale_jobs(engine: Engine) -> list[Job]:
    """Fail the running jobs of dead workers, or cancel them if requested; return these jobs."""
    with reading(engine) as connection:
        before = silent_since(connection)
    is_stale = and_(
        JOBS.c.state == JobState.RUNNING, or_(JOBS.c.heartbeat.is_(None), JOBS.c.heartbeat < before)
    )
    if one(engine, is_stale) is None:
        return []
    ended = (
        update(JOBS)
        .where(is_stale)
        .values(
            state=case(
                (JOBS.c.is_cancel_requested, literal(JobState.CANCELLED, JOBS.c.state.type)),
                else_=literal(JobState.FAILED, JOBS.c.state.type),
            ),
            error=case(
                (JOBS.c.is_cancel_requested, None),
                else_="The worker that ran this job died. Partial results were removed; retry it.",
            ),
            ended=utc_now(),
        )
        .returning(*JOBS.c)
    )
    with writing(engine) as connection:
        connection.execute(delete(WORKERS).where(WORKERS.c.heartbeat < before))
        return [of_row(row) for row in connection.execute(ended).mappings()]


def silent_since(connection: Connection) -> datetime:
    """Return the time such that workers whose last heartbeat is older are dead.

    Heartbeats use the database's clock, so the clocks of workers may differ.
    """
    return database_now(connection) - timedelta(seconds=HEARTBEAT_TIMEOUT_S)


def has_worker(engine: Engine) -> bool:
    """Return whether any worker has a recent heartbeat."""
    return slots(engine) is not None


def slots(engine: Engine) -> int | None:
    """Return the number of concurrent jobs of live workers; None without a worker.

    It is 0 while workers are not connected to their cluster.
    """
    query = select(func.sum(WORKERS.c.slots))
    with reading(engine) as connection:
        alive = query.where(WORKERS.c.heartbeat >= silent_since(connection))
        total: int | None = connection.execute(alive).scalar()
    return total


def _in_turn(kinds: Collection[JobKind] = ()) -> Select[str]:
    """Select the ids of queued jobs in round-robin order: the first job of each owner, starting
    with the owner whose last job started earliest, then the second of each, and so on."""
    place = func.row_number().over(partition_by=JOBS.c.owner, order_by=(JOBS.c.created, JOBS.c.id))
    own = select(JOBS.c.id, place.label("place")).where(is_ready(kinds)).subquery()
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


def _update_own(job_id: str, worker: str) -> Update:
    return update_of(job_id, JobState.RUNNING).where(JOBS.c.worker == worker)
