"""Messages between a Jarvis worker and Dask workers, as JSON-compatible values."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jarvis.core.workspace import home
from jarvis.server.database import JobState
from jarvis.server.jobs.queue import FinishedStep, JobProgress, Outcome
from jarvis.server.jobs.workers.job_messages import Assignment
from jarvis.server.settings import settings

TOPIC = "jarvis-jobs"
"""Topic of all jobs, because a scheduler never forgets a topic."""


@dataclass(frozen=True, slots=True)
class Order:
    """A job that is sent to a cluster.

    Attributes:
        version: Jarvis version of the sender.
        storage: ``storage_mark`` of the sender.
        folders: folders in which the job creates run directories.
        attempt: number of the attempt, from 1.
        module: module that runs the job.
        limit_bytes: memory limit; None for a share of the Dask worker's memory.
    """

    version: str
    storage: str
    assignment: Assignment
    folders: tuple[str, ...]
    attempt: int
    module: str
    limit_bytes: int | None

    def values(self) -> dict[str, Any]:
        """Return plain values, which other versions can read, too."""
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Order":
        """Return the order of these values."""
        return cls(**{**values, "assignment": Assignment(**values["assignment"])})


@dataclass(frozen=True, slots=True)
class Report:
    """Progress of a job.

    Attributes:
        key: key of the Dask task.
        place: address of the Dask worker.
        log: text added to the log since the previous report.
        outcome: None while the job is running.
    """

    key: str
    place: str
    progress: JobProgress
    log: str
    outcome: Outcome | None = None

    def values(self) -> dict[str, Any]:
        """Return the plain values of an event."""
        outcome = self.outcome and {**asdict(self.outcome), "state": self.outcome.state.value}
        progress = {**self.progress.values(), "log": ""}
        return {**asdict(self), "progress": progress, "outcome": outcome}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Report":
        """Return the report of an event."""
        progress, outcome = dict(values["progress"]), values["outcome"]
        progress["steps"] = [FinishedStep(*step) for step in progress["steps"]]
        if outcome is not None:
            outcome = Outcome(**{**outcome, "state": JobState(outcome["state"])})
        return cls(values["key"], values["place"], JobProgress(**progress), values["log"], outcome)


def storage_mark() -> str:
    """Return a digest that is equal for machines with the same storage location."""
    root = settings().artifact_root
    place = root.get_secret_value() if root else f"home {home().resolve()}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]
