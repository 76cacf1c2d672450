"""The table of jobs: its rows as objects, and the statements that several modules share."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
    Select,
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
from sqlalchemy.engine import Connection, RowMapping

from jarvis.server.access.rights import Person, Role, is_visible, may
from jarvis.server.database import (
    ACTIVE,
    ANALYSES,
    JOB_ANALYSES,
    JOB_WAITS,
    JOBS,
    JobKind,
    JobState,
    Visibility,
    reading,
    utc_now,
)
from jarvis.server.errors import UnknownJobError


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to submit.

    Attributes:
        parameters: JSON values.
        stamp: distinguishes equal requests whose input files differ.
        folders: folders in which the job creates run directories.
        analyses: ids of the analyses that it reads.
        waits_for: ids of the jobs that must end first, in any state.
        is_member: whether it is submitted only for a job that waits for it.
    """

    kind: JobKind
    title: str
    parameters: Mapping[str, Any]
    stamp: str = ""
    folders: tuple[str, ...] = ()
    analyses: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    is_member: bool = False

    @property
    def fingerprint(self) -> str:
        """Return a digest that is equal for equal requests."""
        content = json.dumps([self.kind, self.parameters, self.stamp], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A finished step and its duration."""

    name: str
    elapsed_s: float


@dataclass(slots=True)
class JobProgress:
    """Progress of a running job; ``bytes_*`` refer to the file being read."""

    step: str | None = None
    step_number: int = 0
    step_count: int = 0
    percent: float = 0.0
    bytes_done: int | None = None
    bytes_total: int | None = None
    steps: list[FinishedStep] = field(default_factory=list)
    log: str = ""

    def values(self) -> dict[str, Any]:
        """Return the values by column name."""
        return {**asdict(self), "steps": [[step.name, step.elapsed_s] for step in self.steps]}


@dataclass(frozen=True, slots=True)
class Job:
    """A row of the jobs table; times are in UTC, ``percent`` is 0 to 100.

    Attributes:
        error: why the job failed, and what to do.
        analysis_id: the analysis that it created or used.
        place: machine of the cluster that runs the job for ``worker``.
        visibility: that of the analysis to be created; ``table.visible_to`` defines who can see
            the job.
        role: role of ``owner`` when the job was submitted.
    """

    id: str
    kind: JobKind
    state: JobState
    title: str
    parameters: dict[str, Any]
    folders: tuple[str, ...]
    owner: str | None
    visibility: Visibility
    role: str
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
        """Return whether it is queued or running."""
        return self.state in ACTIVE

    @property
    def label(self) -> str:
        """Return the common prefix of the staging labels of all attempts."""
        return f"job-{self.id}-"

    @property
    def attempt_label(self) -> str:
        """Return the staging label of the current attempt."""
        return f"{self.label}{self.attempts}-"

    @property
    def elapsed_s(self) -> float | None:
        """Return the run time so far, or in total; None before the start."""
        if self.started is None:
            return None
        return ((self.ended or utc_now()) - self.started).total_seconds()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Final state of a job; ``result`` is JSON."""

    state: JobState
    error: str | None = None
    result: Mapping[str, Any] | None = None
    analysis_id: str | None = None


def of_row(row: RowMapping) -> Job:
    """Build a Job from a database row."""
    values = {name: row[name] for name in _FIELDS}
    values["steps"] = tuple(FinishedStep(name, elapsed_s) for name, elapsed_s in row["steps"])
    values["folders"] = tuple(row["folders"])
    values["result"] = row["result"] or {}
    return Job(**values)


_FIELDS = tuple(f.name for f in fields(Job))


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


def is_waiting(kinds: Collection[JobKind] = ()) -> ColumnElement[bool]:
    """Return the condition for queued jobs of the given kinds, or of all if empty."""
    is_queued = JOBS.c.state == JobState.QUEUED
    return is_queued & JOBS.c.kind.in_(kinds) if kinds else is_queued


_OTHERS = JOBS.alias()


def is_ready(kinds: Collection[JobKind] = ()) -> ColumnElement[bool]:
    """Return the condition for queued jobs, as ``is_waiting``, that wait for no other job."""
    unended = (
        select(JOB_WAITS.c.job_id)
        .join(_OTHERS, _OTHERS.c.id == JOB_WAITS.c.waits_for)
        .where(JOB_WAITS.c.job_id == JOBS.c.id, _OTHERS.c.state.in_(ACTIVE))
    )
    return is_waiting(kinds) & ~exists(unended)


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


def first(engine: Engine, query: Select[Any]) -> Job | None:
    """Return the first job of a query of all columns; None if there is none."""
    with reading(engine) as connection:
        row = connection.execute(query.limit(1)).mappings().first()
    return None if row is None else of_row(row)


def one(engine: Engine, condition: ColumnElement[bool]) -> Job | None:
    """Return any job that meets a condition; None if there is none."""
    return first(engine, select(JOBS).where(condition))


def job_in(connection: Connection, job_id: str) -> Job:
    """Return a job within a transaction; raise UnknownJobError if it does not exist."""
    row = connection.execute(select(JOBS).where(JOBS.c.id == job_id)).mappings().first()
    if row is None:
        raise UnknownJobError(job_id)
    return of_row(row)
