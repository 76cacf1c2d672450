"""The queue of jobs, and the truth about each: what was asked, how far it is, how it ended.

Every function is one short transaction, so that any process may ask or change at any time.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
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
from sqlalchemy.engine import Connection, RowMapping
from sqlalchemy.exc import IntegrityError

from jarvis.errors import JarvisError
from jarvis.server.access import LOCAL, Person, is_visible
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

ABANDONED_S = 20
"""A running job whose worker has been silent for so long is given up. Longer than a database may be
locked, and short enough that with the time to notice it stays below half a minute."""

RETRYABLE = (JobState.FAILED, JobState.CANCELLED)

_ID_BYTES = 5


class UnknownJobError(JarvisError):
    """No job on this server has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id[:40]!r} on this server: it was removed, or the link comes "
            "from another server. The list below has those there are."
        )


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be done; ``parameters`` are JSON.

    ``stamp`` tells files apart that changed between two equal requests; into ``folders`` it puts
    run directories.
    """

    kind: JobKind
    title: str
    parameters: Mapping[str, Any]
    stamp: str = ""
    folders: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """The same for requests that ask for the same thing."""
        asked = json.dumps([self.kind, self.parameters, self.stamp], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step that has ended, and how long it took."""

    name: str
    elapsed_s: float


@dataclass(slots=True)
class Headway:
    """How far a running job is; bytes are those of the file that is being read."""

    step: str | None = None
    step_number: int = 0
    step_count: int = 0
    percent: float = 0.0
    bytes_done: int | None = None
    bytes_total: int | None = None
    steps: list[FinishedStep] = field(default_factory=list)
    log: str = ""

    def values(self) -> dict[str, Any]:
        """As columns."""
        return {
            "step": self.step,
            "step_number": self.step_number,
            "step_count": self.step_count,
            "percent": self.percent,
            "bytes_done": self.bytes_done,
            "bytes_total": self.bytes_total,
            "steps": [[step.name, step.elapsed_s] for step in self.steps],
            "log": self.log,
        }


@dataclass(frozen=True, slots=True)
class Job:
    """A row of the table; times are UTC, ``percent`` 0 to 100.

    ``error`` says why a job failed and what to do; ``analysis_id`` is what it made or was about.
    ``place`` is the machine of a cluster that ``worker`` has it done on.
    """

    id: str
    kind: JobKind
    state: JobState
    title: str
    parameters: dict[str, Any]
    folders: tuple[str, ...]
    owner: str | None
    visibility: Visibility
    step: str | None
    step_number: int
    step_count: int
    percent: float
    bytes_done: int | None
    bytes_total: int | None
    steps: tuple[FinishedStep, ...]
    log: str
    error: str | None
    result: dict[str, Any]
    analysis_id: str | None
    worker: str | None
    place: str | None
    is_cancel_requested: bool
    attempts: int
    created: datetime
    started: datetime | None
    ended: datetime | None

    @property
    def is_active(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ACTIVE

    @property
    def label(self) -> str:
        """What any attempt half writes has a label that begins like this."""
        return f"job-{self.id}-"

    @property
    def attempt_label(self) -> str:
        """The label of what this attempt half writes."""
        return f"{self.label}{self.attempts}-"

    @property
    def elapsed_s(self) -> float | None:
        """How long it has run, or ran; None before it has begun."""
        if self.started is None:
            return None
        return ((self.ended or _now()) - self.started).total_seconds()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended; ``result`` is JSON."""

    state: JobState
    error: str | None = None
    result: Mapping[str, Any] | None = None
    analysis_id: str | None = None


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
                return _job(connection, str(row["id"]))
        except IntegrityError:
            same = _one(engine, _is_active() & (JOBS.c.fingerprint == new.fingerprint))
            if same is not None:  # else it has ended just now
                return same


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
    return None if row is None else _of_row(row)


def recent(
    engine: Engine,
    *,
    states: Collection[JobState] = (),
    person: Person = LOCAL,
    limit: int = 100,
    offset: int = 0,
) -> list[Job]:
    """Jobs that a person may see, those that wait or run first, then the newest.

    Of some states only where given.

    That a trace was read is no news: such jobs are left out when they are done.
    """
    order = case((_is_active(), 0), else_=1), JOBS.c.created.desc(), JOBS.c.id
    wanted = select(JOBS).where(_IS_NEWS, is_visible(person, JOBS)).order_by(*order)
    if states:
        wanted = wanted.where(JOBS.c.state.in_(states))
    with reading(engine) as connection:
        rows = connection.execute(wanted.limit(limit).offset(offset)).mappings()
        return [_of_row(row) for row in rows]


def counts(engine: Engine, person: Person = LOCAL) -> dict[JobState, int]:
    """How many jobs of those that ``recent`` lists are in each state; none where there are none."""
    is_counted = _IS_NEWS & is_visible(person, JOBS)
    counted = select(JOBS.c.state, func.count()).where(is_counted).group_by(JOBS.c.state)
    with reading(engine) as connection:
        return dict(connection.execute(counted).all())


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
    """Take the job, of some kinds only where given, that has waited longest; no other worker can
    take it too."""
    is_wanted = JOBS.c.state == JobState.QUEUED
    if kinds:
        is_wanted &= JOBS.c.kind.in_(kinds)
    if _one(engine, is_wanted) is None:  # asking often must not keep writers waiting
        return None
    oldest = (
        select(JOBS.c.id)
        .where(is_wanted)
        .order_by(JOBS.c.created, JOBS.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    now = _now()
    taken = (
        update(JOBS)
        .where(JOBS.c.id == oldest, JOBS.c.state == JobState.QUEUED)
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
    return None if row is None else _of_row(row)


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
        alive = update(WORKERS).where(WORKERS.c.id == worker).values(heartbeat=now)
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
        connection.execute(
            _mine(job_id, worker).values(
                **headway.values(),
                state=outcome.state,
                error=outcome.error,
                result=None if outcome.result is None else dict(outcome.result),
                analysis_id=outcome.analysis_id,
                ended=_now(),
            )
        )


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
        return [_of_row(row) for row in connection.execute(ended).mappings()]


def has_worker(engine: Engine) -> bool:
    """Whether a worker has been heard of lately."""
    since = _now() - timedelta(seconds=ABANDONED_S)
    alive = select(func.count()).where(WORKERS.c.heartbeat >= since)
    with reading(engine) as connection:
        return bool(connection.execute(alive).scalar())


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

_FIELDS = tuple(f.name for f in fields(Job))


def _now() -> datetime:
    return datetime.now(UTC)


def _is_active() -> ColumnElement[bool]:
    return JOBS.c.state.in_(ACTIVE)


def _update(job_id: str, *states: JobState) -> Any:
    return update(JOBS).where(JOBS.c.id == job_id, JOBS.c.state.in_(states))


def _mine(job_id: str, worker: str) -> Any:
    return _update(job_id, JobState.RUNNING).where(JOBS.c.worker == worker)


def _one(engine: Engine, condition: ColumnElement[bool]) -> Job | None:
    with reading(engine) as connection:
        row = connection.execute(select(JOBS).where(condition).limit(1)).mappings().first()
    return None if row is None else _of_row(row)


def _job(connection: Connection, job_id: str) -> Job:
    row = connection.execute(select(JOBS).where(JOBS.c.id == job_id)).mappings().first()
    if row is None:
        raise UnknownJobError(job_id)
    return _of_row(row)


def _of_row(row: RowMapping) -> Job:
    values = {name: row[name] for name in _FIELDS}
    values["steps"] = tuple(FinishedStep(name, elapsed_s) for name, elapsed_s in row["steps"])
    values["folders"] = tuple(row["folders"])
    values["result"] = row["result"] or {}
    return Job(**values)
