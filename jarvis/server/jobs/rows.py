"""A job as Python has it: what was asked, the row of the table, how far it is, how it ended."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.engine import RowMapping

from jarvis.server.database import ACTIVE, JobKind, JobState, Visibility


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be done; ``parameters`` are JSON.

    ``stamp`` tells files apart that changed between two equal requests; into ``folders`` it puts
    run directories; ``analyses`` are the ids of the analyses that it reads.
    """

    kind: JobKind
    title: str
    parameters: Mapping[str, Any]
    stamp: str = ""
    folders: tuple[str, ...] = ()
    analyses: tuple[str, ...] = ()

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
    ``place`` is the machine of a cluster that ``worker`` has it done on. ``visibility`` is that of
    the analysis that it makes; who sees the job is ``job_table.visible_to``. ``role`` is that of
    ``owner`` when the job was submitted.
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
        return ((self.ended or datetime.now(UTC)) - self.started).total_seconds()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended; ``result`` is JSON."""

    state: JobState
    error: str | None = None
    result: Mapping[str, Any] | None = None
    analysis_id: str | None = None


def of_row(row: RowMapping) -> Job:
    """The job that a row of the table says."""
    values = {name: row[name] for name in _FIELDS}
    values["steps"] = tuple(FinishedStep(name, elapsed_s) for name, elapsed_s in row["steps"])
    values["folders"] = tuple(row["folders"])
    values["result"] = row["result"] or {}
    return Job(**values)


_FIELDS = tuple(f.name for f in fields(Job))
