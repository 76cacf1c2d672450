"""The worker: takes jobs from the queue and runs each in a process of its own.

``python -m jarvis.server.jobs.workers.worker [--slots N]``, as many as wanted, on any machine that
reaches the database and the home folder. It needs little itself, so that it lives when a job does
not.
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
from jarvis.server.database import DatabaseError, JobState, database
from jarvis.server.jobs import claims
from jarvis.server.jobs.claims import QUICK
from jarvis.server.jobs.queue import Job, Outcome
from jarvis.server.jobs.workers.job_child import COMMAND, JobProcess, LocalJobProcess
from jarvis.server.jobs.workers.job_memory import memory_limit_bytes
from jarvis.server.logs import configure_logs
from jarvis.server.retention.housekeeping import clean_up
from jarvis.server.settings import SettingsError, settings, use_file
from jarvis.server.storage.storage_keys import path_at

if TYPE_CHECKING:
    from jarvis.server.jobs.dask.jobs import DaskCluster

POLL_S = 0.25
"""The queue and what is to be cancelled are looked at this often."""

MEASURE_S = 0.05
"""The memory of running jobs is measured this often: a job that grows fast gets little further."""

BEAT_S = 1.0
"""Without news, a worker says this often that it lives."""

SWEEP_S = 2.0
"""Jobs of workers that died are looked for this often."""

TIDY_S = 3600.0
"""What is old is removed this often."""

NEXT_READY_S = 1.0
"""So long after one process was given a job, or died without one, the next is made ready at the
latest: a small job is done by then, and has the machine for itself."""

log = logging.getLogger(__name__)


class Worker:
    """Runs up to ``slots`` jobs, and a quick one beside them, until it is told to stop.

    ``memory_bytes`` is what one job may hold; ``command`` starts the process of a job. With a
    ``cluster`` jobs run there, as many as it has slots for where ``slots`` is None; a quick one
    that would have to wait for a slot there runs here.
    """

    def __init__(
        self,
        engine: Engine,
        slots: int | None,
        memory_bytes: int,
        command: Sequence[str] = COMMAND,
        cluster: "DaskCluster | None" = None,
    ) -> None:
        self.id = f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(3)}"
        self._engine = engine
        self._slots = slots
        self._memory_bytes = memory_bytes
        self._longest_s = 60 * settings().job_minutes
        self._command = tuple(command)
        self._cluster = cluster
        self._running: list[JobProcess] = []
        self._waiting: JobProcess | None = None
        self._start_after = 0.0
        self._selector = selectors.DefaultSelector()
        self._tidying: Thread | None = None
        self._is_stopping = False
        self._has_news = False
        self._due = dict.fromkeys((self._poll, self._heartbeat, self._reap, self._tidy), -inf)

    def stop(self) -> None:
        """Leave in order: no further job, and what runs goes back into the queue."""
        self._is_stopping = True

    def stop_at_end_of(self, descriptor: int) -> None:
        """Stop when the other end of a pipe is closed, by will or by death."""
        self._selector.register(descriptor, selectors.EVENT_READ, descriptor)

    def run(self) -> None:
        """Work until ``stop``."""
        try:
            while not self._is_stopping:
                self._keep_one_ready()
                wait_s = MEASURE_S if self._running else POLL_S
                for key, _ in self._selector.select(wait_s):
                    if key.data is not None and not os.read(key.data, 1):
                        self.stop()
                for child in self._running:
                    if child.outcome is None:
                        self._attend(child)
                self._do_what_is_due()
        finally:
            self._leave()

    def _keep_one_ready(self) -> None:
        """A process that has imported everything waits for the next job."""
        waiting = self._waiting
        if waiting is not None and not waiting.is_waiting:
            waiting.listen()
            log.error("a process without a job has ended:\n%s", waiting.headway.log)
            self._end(waiting, Outcome(JobState.FAILED))
            self._waiting, self._start_after = None, monotonic() + NEXT_READY_S
        if self._waiting is None and monotonic() >= self._start_after:
            self._waiting = LocalJobProcess(self._memory_bytes, self._command)

    def _attend(self, child: JobProcess) -> None:
        self._has_news |= child.listen()
        if child.outcome is not None:
            self._end(child, child.outcome)
        elif (_job(child).elapsed_s or 0) > self._longest_s:
            self._end(child, Outcome(JobState.FAILED, _too_long(self._longest_s)))

    def _do_what_is_due(self) -> None:
        """What needs the database; while it does not answer, jobs go on and are written later."""
        now = monotonic()
        for task, period_s in (
            (self._poll, POLL_S),
            (self._heartbeat, POLL_S if self._has_news else BEAT_S),
            (self._reap, SWEEP_S),
            (self._tidy, TIDY_S),
        ):
            if now - self._due[task] >= period_s:
                try:
                    task()
                except DatabaseError as error:
                    log.warning("%s", error)
                self._due[task] = now

    def _poll(self) -> None:
        """End what is to be cancelled, write down what has ended, take what waits."""
        if self._running:
            orders = claims.orders(self._engine, self.id)
            for child in list(self._running):
                job = _job(child)
                if child.outcome is None and orders.get(job.id, True):
                    self._end(child, Outcome(JobState.CANCELLED))
                if child.outcome is not None:
                    claims.finish(self._engine, self.id, job.id, child.headway, child.outcome)
                    self._running.remove(child)
        if self._waiting is not None and (taken := self._claim()) is not None:
            child = self._child_for(taken)
            for output in child.outputs:
                self._selector.register(output, selectors.EVENT_READ)
            _clear(taken, taken.label)  # where the worker before us died too
            child.give(taken)
            self._running.append(child)
            self._has_news = True

    def _child_for(self, job: Job) -> JobProcess:
        """What does a job: the cluster, or the process that is ready here."""
        away = sum(not isinstance(child, LocalJobProcess) for child in self._running)
        if self._cluster is not None and (job.kind not in QUICK or away < self._cluster.slots):
            return self._cluster.child()
        assert self._waiting is not None
        child, self._waiting = self._waiting, None
        self._start_after = monotonic() + NEXT_READY_S
        return child

    @property
    def slots(self) -> int:
        """How many jobs it can run now, beside a quick one."""
        if self._cluster is None:
            return self._slots or 0
        there = self._cluster.slots
        return there if self._slots is None else min(self._slots, there)

    def _claim(self) -> Job | None:
        """The next job that there is a slot for; one slot more, so that a quick one can pass."""
        if len(self._running) > self.slots:
            return None
        long = sum(_job(child).kind not in QUICK for child in self._running)
        return claims.claim(self._engine, self.id, () if long < self.slots else QUICK)

    def _heartbeat(self) -> None:
        headway = {_job(child).id: child.headway for child in self._running}
        claims.beat(self._engine, self.id, self.slots, headway)
        self._has_news = False

    def _reap(self) -> None:
        for job in claims.fail_stale_jobs(self._engine):
            log.warning("job %s was given up: its worker %s is silent", job.id, job.worker)
            _clear(job, job.attempt_label)

    def _tidy(self) -> None:
        """In a thread: jobs do not wait for storage that answers slowly."""
        if self._tidying is None or not self._tidying.is_alive():
            self._tidying = Thread(target=_tidied, args=(self._engine,), daemon=True)
            self._tidying.start()

    def _end(self, child: JobProcess, outcome: Outcome) -> None:
        """End a process, and clear away what it had half written."""
        for output in child.outputs:
            if output in self._selector.get_map():
                self._selector.unregister(output)
        child.end(outcome)
        self._start_after = min(self._start_after, monotonic())
        self._due[self._poll] = 0.0  # how it ended is written down at once
        if child.job is not None:
            _clear(child.job, child.job.attempt_label)

    def _leave(self) -> None:
        unfinished = []
        for child in self._running:
            child.listen()
            if child.outcome is None:
                unfinished.append(_job(child).id)
                self._end(child, Outcome(JobState.CANCELLED))
        if self._waiting is not None:
            self._end(self._waiting, Outcome(JobState.CANCELLED))
        if self._cluster is not None:
            self._cluster.close()
        try:
            for child in self._running:
                job, outcome = _job(child), child.outcome
                if outcome is not None and job.id not in unfinished:
                    claims.finish(self._engine, self.id, job.id, child.headway, outcome)
            claims.leave(self._engine, self.id, unfinished)
        except DatabaseError as error:
            log.warning("jobs cannot be put back, and will be given up: %s", error)


def _job(child: JobProcess) -> Job:
    assert child.job is not None
    return child.job


def _too_long(longest_s: float) -> str:
    return (
        f"The job took longer than its {longest_s / 60:g} minutes and was ended. Record fewer "
        "steps, or have the server give jobs more time (JARVIS_JOB_MINUTES)."
    )


def _clear(job: Job, label: str) -> None:
    for folder in job.folders:
        clear_staged(path_at(folder), label)


def set_up_worker(slots: int | None) -> Worker:
    """The worker that the settings ask for. Raises SettingsError, DatabaseError."""
    address = settings().dask_scheduler
    if address is None:
        slots = 1 if slots is None else slots
        return Worker(database(), slots, memory_limit_bytes(slots))
    try:
        from jarvis.server.jobs.dask.jobs import DaskCluster  # an extra
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"JARVIS_DASK_SCHEDULER is set, but {error.name} is not installed: "
            'pip install "jarvis-perf[dask]".'
        ) from error
    return Worker(database(), slots, memory_limit_bytes(1), cluster=DaskCluster(address))


def _tidied(engine: Engine) -> None:
    try:
        clean_up(engine)
    except (JarvisError, OSError) as error:
        log.warning("what is old is not removed now: %s", error)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker until SIGTERM or SIGINT; the exit code."""
    parser = argparse.ArgumentParser(description="Run jobs from the queue until stopped.")
    parser.add_argument(
        "--slots", type=int, help="jobs at the same time (default: 1, or what the Dask cluster can)"
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
