"""Dask task of a job: starts the job's process, reports its progress, and limits its memory.

The process is the same as that of a local Jarvis worker. It is killed when the task is cancelled.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from time import monotonic
from typing import Any

from distributed import Worker, get_worker

from jarvis.core.errors import JarvisError
from jarvis.core.product import product_version
from jarvis.core.staging import clear_staged
from jarvis.core.workspace import home
from jarvis.server import claims
from jarvis.server.database import JobState, database
from jarvis.server.errors import RefusedError, UnknownJobError
from jarvis.server.jobs.processes.job_child import LocalJobProcess, memory_limit_bytes
from jarvis.server.jobs.processes.job_messages import Assignment
from jarvis.server.jobs.processes.start import JobProcesses
from jarvis.server.queue import FinishedStep, JobProgress, Outcome
from jarvis.server.retention.housekeeping import delete_orphans
from jarvis.server.settings import settings
from jarvis.server.storage.storage_keys import path_at

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


LISTEN_S = 0.05
"""Polling interval of the process's messages and memory."""

REPORT_S = 0.2
"""Minimum interval of progress reports."""

HEARTBEAT_S = 1.0
"""Interval of reports without progress (heartbeats)."""

DIED = (
    "The Dask worker that ran this job ended before the job did. Partial results were removed; "
    "retry it."
)


async def run_job(key: str, values: Mapping[str, Any]) -> None:
    """Run the job of an order on this Dask worker, and report its progress as events of TOPIC.

    Args:
        key: key of the Dask task; if it is cancelled, the job's process is killed.
        values: as ``Order.values`` returns.
    """
    worker = get_worker()
    tell = _ProgressReporter(worker, key)
    try:
        check_version(worker.address, values["version"])
        order = Order.of(values)
        await asyncio.to_thread(begin, worker.address, order)
        limit_bytes = order.limit_bytes or _share_bytes(worker)
    except JarvisError as error:
        tell.refusal(Outcome(JobState.FAILED, str(error)))
        return
    child = LocalJobProcess(limit_bytes, _processes(order.module).start())
    try:
        child.assign(order.assignment)
        while child.outcome is None and _is_wanted(worker, key):
            tell(child, is_news=child.listen())
            await asyncio.sleep(LISTEN_S)
    finally:
        child.end(Outcome(JobState.CANCELLED))
        for folder in order.folders:
            clear_staged(path_at(folder), order.assignment.staging)
    tell(child, is_news=True)


@cache
def _processes(module: str) -> JobProcesses:
    return JobProcesses(module)


class _ProgressReporter:
    """Sends progress reports of a job."""

    def __init__(self, worker: Worker, key: str) -> None:
        self._worker = worker
        self._key = key
        self._told_at = 0.0
        self._told_characters = 0
        self._has_news = False

    def __call__(self, child: LocalJobProcess, *, is_news: bool) -> None:
        self._has_news |= is_news
        since_s = monotonic() - self._told_at
        if child.outcome is None and since_s < (REPORT_S if self._has_news else HEARTBEAT_S):
            return
        fresh = child.log_characters - self._told_characters
        self._told_characters = child.log_characters
        self._send(child.progress, child.progress.log[-fresh:] if fresh else "", child.outcome)

    def refusal(self, outcome: Outcome) -> None:
        """Report why a job does not start."""
        self._send(JobProgress(), "", outcome)

    def _send(self, progress: JobProgress, log: str, outcome: Outcome | None) -> None:
        self._told_at, self._has_news = monotonic(), False
        report = Report(self._key, self._worker.address, progress, log, outcome)
        self._worker.log_event(TOPIC, report.values())


def _is_wanted(worker: Worker, key: str) -> bool:
    """Return whether the task is still wanted.

    Dask does not stop running tasks that are cancelled or whose client disconnects.
    """
    return worker.state.tasks[key].state == "executing"


def check_version(place: str, version: str) -> None:
    """Raise RefusedError if the sender has another version of Jarvis."""
    if version != product_version():
        raise RefusedError(
            f"The Dask worker at {place} has Jarvis {product_version()}, this server has "
            f"{version}. Install the same version on both, then retry the job."
        )


def begin(place: str, order: Order) -> None:
    """Record that the job starts here; may raise RefusedError or DatabaseError."""
    if order.storage != storage_mark():
        raise RefusedError(
            f"The Dask worker at {place} stores analyses elsewhere than this server. Start it "
            "with the same JARVIS_ARTIFACT_ROOT, or the same JARVIS_HOME on a shared disk, then "
            "retry the job."
        )
    job_id = order.assignment.job_id
    try:
        is_first = claims.begin_at(database(), job_id, order.attempt, place)
    except UnknownJobError as error:
        raise RefusedError(
            f"The Dask worker at {place} uses another database than this server. Start it with the "
            "same JARVIS_DATABASE_URL, then retry the job."
        ) from error
    if not is_first:  # Dask reruns the task of a dead worker on another one
        raise RefusedError(DIED)
    delete_orphans(database())


def _share_bytes(worker: Worker) -> int:
    """Return the memory limit of one of the concurrent jobs of a Dask worker."""
    limit = worker.memory_manager.memory_limit
    slots = worker.state.nthreads
    return limit // slots if limit else memory_limit_bytes(slots)
