"""The queue of jobs, and the truth about each: what was asked, how far it is, how it ended.

Every function is one short transaction, so that any process may ask or change at any time.
"""

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
    Select,
    Text,
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
from sqlalchemy.exc import IntegrityError

from jarvis.errors import JarvisError
from jarvis.server.access.rights import LOCAL, Person, is_visible
from jarvis.server.database import (
    ACTIVE,
    JOBS,
    WORKERS,
    JobKind,
    JobState,
    Visibility,
    reading,
    writing,
)
from jarvis.server.job_rows import FinishedStep, Headway, Job, NewJob, Outcome, of_row

__all__ = [
    "ABANDONED_S",
    "QUICK",
    "RETRYABLE",
    "FinishedStep",
    "Headway",
    "Job",
    "NewJob",
    "Outcome",
    "UnknownJobError",
    "beat",
    "cancel",
    "claim",
    "counts",
    "find",
    "finish",
    "give_up_abandoned",
    "has_worker",
    "latest",
    "leave",
    "orders",
    "owners",
    "recent",
    "retry",
    "slots",
    "submit",
    "waiting",
]

ABANDONED_S = 20
"""A running job whose worker has been silent for so long is given up. Longer than a database may be
locked, and short enough that with the time to notice it stays below half a minute."""

QUICK = (JobKind.INSPECT, JobKind.EXPORT, JobKind.REPLAY, JobKind.COMPARE)
"""What a visitor waits for and is done in seconds: a worker has a slot for it beside the others,
and it costs its owner no turn."""

RETRYABLE = (JobState.FAILED, JobState.CANCELLED)

_ID_BYTES = 5

log = logging.getLogger(__name__)
"""Each change of a job is a line with its id."""


class UnknownJobError(JarvisError):
    """No job on this server has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id[:40]!r} on this server: it was removed, or the link comes "
            "from another server. The list below has those there are."
        )


def submit(
    engine: Engine,
    new: NewJob,
    owner: str | None = None,
    visibility: Visibility = Visibility.TEAM,
) -> Job:
    """Put a job into the queue; while one that asks for the same waits or runs, that one."""
    row = {
        "id": secrets.token_hex(_ID_BYTES),
        "kind": new.kind,
        "title": new.title,
        "parameters": dict(new.parameters),
        "fingerprint": new.fingerprint,
        "folders": list(new.folders),
        "owner": owner,
        "visibility": visibility,
        "attempts": 0,
        "created": _now(),
        **_ANEW,
    }
    while True:
        try:
            with writing(engine) as connection:
                connection.execute(insert(JOBS).values(row))
                job = _job(connection, str(row["id"]))
        except IntegrityError:
            same = _one(engine, _is_active() & (JOBS.c.fingerprint == new.fingerprint))
            if same is not None:  # else it has ended just now
                return same
        else:
            log.info("job queued", extra={"job": job.id, "kind": new.kind.value, "person": owner})
            return job


def find(engine: Engine, job_id: str) -> Job:
    """A job; UnknownJobError where there is none."""
    job = _one(engine, JOBS.c.id == job_id)
    if job is None:
        raise UnknownJobError(job_id)
    return job


def latest(engine: Engine, new: NewJob) -> Job | None:
    """The newest job that asked for the same, however it ended."""
    same = select(JOBS).where(JOBS.c.fingerprint == new.fingerprint)
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
    """Jobs that a person may see: those that run, those that wait as they came, then the newest.

    Of some states, kinds or one owner only where given. That a trace was read is no news: such jobs
    are left out when they are done.
    """
    order = (
        case((JOBS.c.state == JobState.RUNNING, 0), (_is_waiting(), 1), else_=2),
        case((_is_waiting(), JOBS.c.created)),
        JOBS.c.created.desc(),
        JOBS.c.id,
    )
    wanted = select(JOBS).where(_is_listed(person, kinds, owner)).order_by(*order)
    if states:
        wanted = wanted.where(JOBS.c.state.in_(states))
    with reading(engine) as connection:
        rows = connection.execute(wanted.limit(limit).offset(offset)).mappings()
        return [of_row(row) for row in rows]


def counts(
    engine: Engine,
    person: Person = LOCAL,
    *,
    kinds: Collection[JobKind] = (),
    owner: str | None = None,
) -> dict[JobState, int]:
    """How many jobs of those that ``recent`` lists are in each state; none where there are none."""
    is_counted = _is_listed(person, kinds, owner)
    counted = select(JOBS.c.state, func.count()).where(is_counted).group_by(JOBS.c.state)
    with reading(engine) as connection:
        return dict(connection.execute(counted).all())


def owners(engine: Engine, person: Person = LOCAL) -> list[str]:
    """Whose jobs ``recent`` lists, as far as that is known."""
    named = select(JOBS.c.owner).where(_is_listed(person), JOBS.c.owner.is_not(None)).distinct()
    with reading(engine) as connection:
        return sorted(connection.execute(named).scalars())


def set_visibility(engine: Engine, analysis_id: str, visibility: Visibility) -> None:
    """Say who sees the jobs that made an analysis, or are about it."""
    named = JOBS.c.parameters.cast(Text).contains(f'"{analysis_id}"', autoescape=True)
    about = update(JOBS).where(or_(JOBS.c.analysis_id == analysis_id, named))
    with writing(engine) as connection:
        connection.execute(about.values(visibility=visibility))


def cancel(engine: Engine, job_id: str) -> Job:
    """End a job: at once where it waits, within a second where it runs; else nothing happens."""
    with writing(engine) as connection:
        connection.execute(
            _update(job_id, JobState.QUEUED).values(state=JobState.CANCELLED, ended=_now())
        )
        connection.execute(_update(job_id, JobState.RUNNING).values(is_cancel_requested=True))
        return _job(connection, job_id)


def retry(engine: Engine, job_id: str) -> Job:
    """Queue a failed or cancelled job again, or give the one that does the same meanwhile."""
    try:
        with writing(engine) as connection:
            connection.execute(_update(job_id, *RETRYABLE).values(_ANEW))
            return _job(connection, job_id)
    except IntegrityError:
        fingerprint = select(JOBS.c.fingerprint).where(JOBS.c.id == job_id).scalar_subquery()
        return _one(engine, _is_active() & (JOBS.c.fingerprint == fingerprint)) or find(
            engine, job_id
        )


def claim(engine: Engine, worker: str, kinds: Collection[JobKind] = ()) -> Job | None:
    """Take the job whose turn it is, of some kinds only where given; no other worker can take it
    too.

    People take turns, so that one's many jobs do not hold up another's one; each one's own jobs are
    taken in the order they came.
    """
    if _one(engine, _is_waiting(kinds)) is None:  # asking often must not keep writers waiting
        return None
    first = _in_turn(kinds).limit(1).with_for_update(skip_locked=True, of=JOBS).scalar_subquery()
    now = _now()
    taken = (
        update(JOBS)
        .where(JOBS.c.id == first, JOBS.c.state == JobState.QUEUED)
        .values(
            state=JobState.RUNNING,
            worker=worker,
            heartbeat=now,
            started=now,
            attempts=JOBS.c.attempts + 1,
        )
        .returning(*JOBS.c)
    )
    with writing(engine) as connection:
        row = connection.execute(taken).mappings().first()
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
    begun = _update(job_id, JobState.RUNNING).where(
        JOBS.c.attempts == attempt, JOBS.c.place.is_(None)
    )
    with writing(engine) as connection:
        if connection.execute(begun.values(place=place)).rowcount:
            return True
        _job(connection, job_id)
        return False


def beat(engine: Engine, worker: str, slots: int, headway: Mapping[str, Headway]) -> None:
    """Say that a worker lives, and how far its jobs are."""
    now = _now()
    with writing(engine) as connection:
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
                ended=_now(),
            )
        )
    if ended.rowcount:
        said = {"job": job_id, "state": outcome.state.value, "error": outcome.error}
        log.info("job ended", extra=said)


def leave(engine: Engine, worker: str, unfinished: Sequence[str]) -> None:
    """A worker goes in order: what it has not finished waits for the next one."""
    with writing(engine) as connection:
        for job_id in unfinished:
            connection.execute(_mine(job_id, worker).values(_ANEW))
        connection.execute(delete(WORKERS).where(WORKERS.c.id == worker))


def give_up_abandoned(engine: Engine) -> list[Job]:
    """End the running jobs whose worker has gone without a word; those jobs."""
    before = _now() - timedelta(seconds=ABANDONED_S)
    is_abandoned = and_(
        JOBS.c.state == JobState.RUNNING, or_(JOBS.c.heartbeat.is_(None), JOBS.c.heartbeat < before)
    )
    if _one(engine, is_abandoned) is None:
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
            ended=_now(),
        )
        .returning(*JOBS.c)
    )
    with writing(engine) as connection:
        connection.execute(delete(WORKERS).where(WORKERS.c.heartbeat < before))
        return [of_row(row) for row in connection.execute(ended).mappings()]


def has_worker(engine: Engine) -> bool:
    """Whether a worker has been heard of lately."""
    return slots(engine) is not None


def slots(engine: Engine) -> int | None:
    """How many jobs the workers run at once that have been heard of lately; None without one.

    0 where they have no cluster to run them on for now.
    """
    since = _now() - timedelta(seconds=ABANDONED_S)
    alive = select(func.sum(WORKERS.c.slots)).where(WORKERS.c.heartbeat >= since)
    with reading(engine) as connection:
        found: int | None = connection.execute(alive).scalar()
    return found


_ANEW: dict[str, Any] = {
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

_IS_NEWS = or_(JOBS.c.kind != JobKind.INSPECT, JOBS.c.state != JobState.DONE)


def _now() -> datetime:
    return datetime.now(UTC)


def _is_active() -> ColumnElement[bool]:
    return JOBS.c.state.in_(ACTIVE)


def _is_listed(
    person: Person, kinds: Collection[JobKind] = (), owner: str | None = None
) -> ColumnElement[bool]:
    is_listed = _IS_NEWS & is_visible(person, JOBS)
    if kinds:
        is_listed &= JOBS.c.kind.in_(kinds)
    return is_listed if owner is None else is_listed & (JOBS.c.owner == owner)


def _is_waiting(kinds: Collection[JobKind] = ()) -> ColumnElement[bool]:
    is_waiting = JOBS.c.state == JobState.QUEUED
    return is_waiting & JOBS.c.kind.in_(kinds) if kinds else is_waiting


def _in_turn(kinds: Collection[JobKind] = ()) -> Select[str]:
    """The ids of the jobs that wait: first one of each person, whoever had no turn for longest
    first, then a second of each, and so on."""
    place = func.row_number().over(partition_by=JOBS.c.owner, order_by=(JOBS.c.created, JOBS.c.id))
    own = select(JOBS.c.id, place.label("place")).where(_is_waiting(kinds)).subquery()
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


def _update(job_id: str, *states: JobState) -> Any:
    return update(JOBS).where(JOBS.c.id == job_id, JOBS.c.state.in_(states))


def _mine(job_id: str, worker: str) -> Any:
    return _update(job_id, JobState.RUNNING).where(JOBS.c.worker == worker)


def _one(engine: Engine, condition: ColumnElement[bool]) -> Job | None:
    with reading(engine) as connection:
        row = connection.execute(select(JOBS).where(condition).limit(1)).mappings().first()
    return None if row is None else of_row(row)


def _job(connection: Connection, job_id: str) -> Job:
    row = connection.execute(select(JOBS).where(JOBS.c.id == job_id)).mappings().first()
    if row is None:
        raise UnknownJobError(job_id)
    return of_row(row)
