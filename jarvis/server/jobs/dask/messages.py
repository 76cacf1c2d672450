"""What a Jarvis worker and the Dask workers say to each other about a job, as plain values."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jarvis.core.workspace import home
from jarvis.server.database import JobState
from jarvis.server.jobs.queue import FinishedStep, Headway, Outcome
from jarvis.server.jobs.workers.job_messages import Assignment
from jarvis.server.settings import settings

TOPIC = "jarvis-jobs"
"""All jobs share it, because a scheduler keeps each topic for ever."""


@dataclass(frozen=True, slots=True)
class Order:
    """A job as it is sent to a cluster.

    ``version`` is that of the sender; ``storage`` is the same where things are kept in the same
    place; into ``folders`` the job puts run directories; ``attempt`` counts from 1; ``module`` is
    what the process runs; ``limit_bytes`` is its memory, None for a share of the Dask worker's.
    """

    version: str
    storage: str
    assignment: Assignment
    folders: tuple[str, ...]
    attempt: int
    module: str
    limit_bytes: int | None

    def values(self) -> dict[str, Any]:
        """Plain values, so that another version can look at them too."""
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Order":
        """The order that was sent."""
        return cls(**{**values, "assignment": Assignment(**values["assignment"])})


@dataclass(frozen=True, slots=True)
class Report:
    """How far a job is: ``log`` is what its log has got since the report before.

    ``key`` is that of the Dask task, ``place`` the address of the Dask worker; ``outcome`` is None
    while the job runs.
    """

    key: str
    place: str
    headway: Headway
    log: str
    outcome: Outcome | None = None

    def values(self) -> dict[str, Any]:
        """As an event carries it."""
        outcome = self.outcome and {**asdict(self.outcome), "state": self.outcome.state.value}
        headway = {**self.headway.values(), "log": ""}
        return {**asdict(self), "headway": headway, "outcome": outcome}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Report":
        """The report that an event carries."""
        far, outcome = dict(values["headway"]), values["outcome"]
        far["steps"] = [FinishedStep(*step) for step in far["steps"]]
        if outcome is not None:
            outcome = Outcome(**{**outcome, "state": JobState(outcome["state"])})
        return cls(values["key"], values["place"], Headway(**far), values["log"], outcome)


def storage_mark() -> str:
    """The same where analyses are kept in the same place; it does not tell which place that is."""
    root = settings().artifact_root
    place = root.get_secret_value() if root else f"home {home().resolve()}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]
