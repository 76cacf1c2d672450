"""Analysis jobs of a benchmark, with retries."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jarvis.run import read_manifest
from jarvis.server import queue
from jarvis.server.database import JobState, database
from jarvis.server.errors import DatabaseError
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.queue import Job
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission

SETTLED_S = 600
LOOK_S = 0.2


@dataclass
class Asked:
    """Submitted analyses; failed jobs are retried and counted."""

    ids: list[str]
    retried: int = 0
    reasons: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    """Jobs that did not succeed in time, or whose analysis cannot be read."""

    def running(self) -> int:
        """Return the number of running jobs."""
        return sum(job.state is JobState.RUNNING for job in self._jobs())

    def settle(self) -> list[float]:
        """Wait until all are done, retrying failures; return the seconds of each."""
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            found = self._jobs()
            if found and all(job.state is JobState.DONE for job in found):
                break
            for job in found:
                if job.state is JobState.FAILED:
                    self._retry(job)
            time.sleep(LOOK_S)
        found = self._jobs()
        self.lost = [job.id for job in found if not _is_kept(job)]
        return [job.elapsed_s or 0.0 for job in found]

    def _retry(self, job: Job) -> None:
        try:
            queue.retry(database(), job.id)
        except DatabaseError:
            return  # unavailable; tried again at the next poll
        self.retried += 1
        self.reasons.add(job.error or "without a reason")

    def _jobs(self) -> list[Job]:
        """Return the jobs from the database; an empty list if it is unavailable."""
        try:
            return [queue.find(database(), job_id) for job_id in self.ids]
        except DatabaseError:
            return []


def ask(traces: Sequence[Path]) -> Asked:
    """Queue an analysis of each trace, also of traces with a stored analysis."""
    requests = [Analyze(Submission(trace), is_again=True) for trace in traces]
    return Asked([queue.submit(database(), request.new_job()).id for request in requests])


def _is_kept(job: Job) -> bool:
    """Return whether a job is done and its analysis can be opened."""
    if job.state is not JobState.DONE or job.analysis_id is None:
        return False
    read_manifest(analysis_root(job.analysis_id))
    return True
