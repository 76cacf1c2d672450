"""Worker: claims jobs from the queue and runs each in its own process.

Start any number with ``python -m jarvis.server.jobs.worker [--slots N]``, on any machine
that reaches the database and the home folder. The worker itself uses little memory, so that it
survives the crash of a job.
"""

import argparse
import logging
import os
import secrets
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from math import inf
from threading import Thread
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from jarvis.core.errors import JarvisError
from jarvis.core.staging import clear_staged
from jarvis.server import claims
from jarvis.server.claims import QUICK
from jarvis.server.database import JobState, database
from jarvis.server.errors import DatabaseError, SettingsError
from jarvis.server.jobs.processes.job_child import (
    JobProcess,
    LocalJobProcess,
    memory_limit_bytes,
)
from jarvis.server.jobs.processes.start import MODULE, JobProcesses
from jarvis.server.logs import configure_logs
from jarvis.server.queue import Job, Outcome
from jarvis.server.retention.housekeeping import clean_up
from jarvis.server.settings import settings, use_file
from jarvis.server.storage.storage_keys import path_at

if TYPE_CHECKING:
    from jarvis.server.jobs.dask.jobs import DaskCluster

POLL_S = 0.25
"""Polling interval of the queue and of cancel requests."""

MEASURE_S = 0.05
"""Interval of memory measurements; short, because a job can allocate quickly."""

HEARTBEAT_S = 1.0
"""Heartbeat interval while there is no progress to report."""

REAP_S = 2.0
"""Interval of checks for jobs of dead workers."""

RETENTION_S = 3600.0
"""Retention interval."""

log = logging.getLogger(__name__)


class Worker:
    """Runs up to ``slots`` jobs and one extra quick job until it is stopped.

    Args:
        slots: concurrent jobs; None for the slots of the cluster.
        memory_bytes: memory limit of one job.
        module: module that runs a job.
        cluster: where jobs run; a quick job that would have to wait there runs locally.
    """

    def __init__(
        self,
        engine: Engine,
        slots: int | None,
        memory_bytes: int,
        module: str = MODULE,
        cluster: "DaskCluster | None" = None,
    ) -> None:
        self.id = f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(3)}"
        self._engine = engine
        self._slots = slots
        self._memory_bytes = memory_bytes
        self._max_job_s = 60 * settings().job_minutes
        self._processes = JobProcesses(module)
        self._cluster = cluster
        self._running: list[JobProcess] = []
        self._selector = selectors.DefaultSelector()
        self._cleanup: Thread | None = None
        self._is_stopping = False
        self._has_news = False
        self._due = dict.fromkeys((self._poll, self._heartbeat, self._reap, self._clean_up), -inf)

    def stop(self) -> None:
        """Stop after the current iteration; running jobs are re-queued."""
        self._is_stopping = True

    def stop_at_end_of(self, descriptor: int) -> None:
        """Stop when the other end of a pipe is closed, also by the death of its process."""
        self._selector.register(descriptor, selectors.EVENT_READ, descriptor)

    def run(self) -> None:
        """Run jobs until ``stop`` is called."""
        try:
            while not self._is_stopping:
                wait_s = MEASURE_S if self._running else POLL_S
                for key, _ in self._selector.select(wait_s):
                    if key.data is not None and not os.read(key.data, 1):
                        self.stop()
                for child in self._running:
                    if child.outcome is None:
                        self._update(child)
                self._run_due_tasks()
        finally:
            self._shut_down()

    def _update(self, child: JobProcess) -> None:
        self._has_news |= child.listen()
        if child.outcome is not None:
            self._end(child, child.outcome)
        elif (_job(child).elapsed_s or 0) > self._max_job_s:
            self._end(child, Outcome(JobState.FAILED, _too_long(self._max_job_s)))

    def _run_due_tasks(self) -> None:
        """Run the periodic database tasks; jobs keep running while the database is down."""
        now = monotonic()
        for task, period_s in (
            (self._poll, POLL_S),
            (self._heartbeat, POLL_S if self._has_news else HEARTBEAT_S),
            (self._reap, REAP_S),
            (self._clean_up, RETENTION_S),
        ):
            if now - self._due[task] >= period_s:
                try:
                    task()
                except DatabaseError as error:
                    log.warning("%s", error)
                self._due[task] = now

    def _poll(self) -> None:
        """Cancel jobs on request, store the outcome of ended jobs, and claim a queued job."""
        if self._running:
            is_cancelled = claims.cancel_requests(self._engine, self.id)
            for child in list(self._running):
                job = _job(child)
                if child.outcome is None and is_cancelled.get(job.id, True):
                    self._end(child, Outcome(JobState.CANCELLED))
                if child.outcome is not None:
                    claims.finish(self._engine, self.id, job.id, child.progress, child.outcome)
                    self._running.remove(child)
        if self._processes.is_ready and (claimed := self._claim()) is not None:
            child = self._process_for(claimed)
            for output in child.outputs:
                self._selector.register(output, selectors.EVENT_READ)
            _clear(claimed, claimed.label)  # partial results of attempts whose workers died
            child.give(claimed)
            self._running.append(child)
            self._has_news = True

    def _process_for(self, job: Job) -> JobProcess:
        """Return a process for a job, in the cluster or local; local ones share the cores."""
        submitted = sum(not isinstance(child, LocalJobProcess) for child in self._running)
        if self._cluster is not None and (job.kind not in QUICK or submitted < self._cluster.slots):
            return self._cluster.child()
        threads = max(1, (os.cpu_count() or 1) // (1 + len(self._running)))
        return LocalJobProcess(self._memory_bytes, self._processes.start(), threads)

    @property
    def slots(self) -> int:
        """Return the number of concurrent jobs now, without the extra quick job."""
        if self._cluster is None:
            return self._slots or 0
        available = self._cluster.slots
        return available if self._slots is None else min(self._slots, available)

    def _claim(self) -> Job | None:
        """Claim the next job for a free slot; quick jobs have one extra slot."""
        if len(self._running) > self.slots:
            return None
        long = sum(_job(child).kind not in QUICK for child in self._running)
        return claims.claim(self._engine, self.id, () if long < self.slots else QUICK)

    def _heartbeat(self) -> None:
        progress = {_job(child).id: child.progress for child in self._running}
        claims.record_heartbeat(self._engine, self.id, self.slots, progress)
        self._has_news = False

    def _reap(self) -> None:
        for job in claims.fail_stale_jobs(self._engine):
            log.warning("job %s failed: its worker %s has no heartbeat", job.id, job.worker)
            _clear(job, job.attempt_label)

    def _clean_up(self) -> None:
        """Apply retention in a thread, so that slow storage does not delay jobs."""
        if self._cleanup is None or not self._cleanup.is_alive():
            self._cleanup = Thread(target=_apply_retention, args=(self._engine,), daemon=True)
            self._cleanup.start()

    def _end(self, child: JobProcess, outcome: Outcome) -> None:
        """End a process and delete its partial results."""
        for output in child.outputs:
            if output in self._selector.get_map():
                self._selector.unregister(output)
        child.end(outcome)
        self._due[self._poll] = 0.0  # store the outcome immediately
        if child.job is not None:
            _clear(child.job, child.job.attempt_label)

    def _shut_down(self) -> None:
        unfinished = []
        for child in self._running:
            child.listen()
            if child.outcome is None:
                unfinished.append(_job(child).id)
                self._end(child, Outcome(JobState.CANCELLED))
        self._processes.close()
        if self._cluster is not None:
            self._cluster.close()
        try:
            for child in self._running:
                job, outcome = _job(child), child.outcome
                if outcome is not None and job.id not in unfinished:
                    claims.finish(self._engine, self.id, job.id, child.progress, outcome)
            claims.deregister(self._engine, self.id, unfinished)
        except DatabaseError as error:
            log.warning("jobs cannot be re-queued and will fail: %s", error)


def _job(child: JobProcess) -> Job:
    assert child.job is not None
    return child.job


def _too_long(max_s: float) -> str:
    return (
        f"The job exceeded its time limit of {max_s / 60:g} minutes and was stopped. Record fewer "
        "steps, or ask an admin to raise the limit (JARVIS_JOB_MINUTES)."
    )


def _clear(job: Job, label: str) -> None:
    for folder in job.folders:
        clear_staged(path_at(folder), label)


def set_up_worker(slots: int | None) -> Worker:
    """Create the worker of the settings; may raise SettingsError or DatabaseError."""
    address = settings().dask_scheduler
    if address is None:
        slots = 1 if slots is None else slots
        return Worker(database(), slots, memory_limit_bytes(slots))
    try:
        from jarvis.server.jobs.dask.jobs import DaskCluster  # optional dependency
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"JARVIS_DASK_SCHEDULER is set, but {error.name} is not installed: "
            'pip install "jarvis-perf[dask]".'
        ) from error
    return Worker(database(), slots, memory_limit_bytes(1), cluster=DaskCluster(address))


def _apply_retention(engine: Engine) -> None:
    try:
        clean_up(engine)
    except (JarvisError, OSError) as error:
        log.warning("retention cleanup failed: %s", error)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker until SIGTERM or SIGINT; return the exit code."""
    parser = argparse.ArgumentParser(description="Run jobs from the queue until stopped.")
    parser.add_argument(
        "--slots", type=int, help="concurrent jobs (default: 1, or the slots of the Dask cluster)"
    )
    parser.add_argument(
        "--tied-to-input", action="store_true", help="stop when the standard input is closed"
    )
    arguments = parser.parse_args(argv)
    try:
        use_file()
        configure_logs("worker")
        worker = set_up_worker(arguments.slots)
    except JarvisError as error:
        log.error("%s", error)
        return 1

    def stop(_: int, __: FrameType | None) -> None:
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if arguments.tied_to_input:
        worker.stop_at_end_of(sys.stdin.fileno())
    worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
