"""The worker's handle of a job's process: assign the job, read messages, limit memory, kill."""

import logging
import os
import select
import signal
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import uuid4

from jarvis.core.staging import clear_staged
from jarvis.server.database import JobState
from jarvis.server.errors import SingleJobError
from jarvis.server.jobs.processes.job_messages import (
    Assignment,
    FailedMessage,
    Lines,
    Message,
    OutputMessage,
    StepMessage,
    from_line,
    to_line,
)
from jarvis.server.jobs.processes.start import Process, own_process
from jarvis.server.queue import FinishedStep, Job, JobProgress, Outcome
from jarvis.server.settings import settings

if TYPE_CHECKING:  # a worker stays small without what its jobs import
    from jarvis.server.jobs.kinds import JobOutput, Request

MEMORY_VARIABLE = "JARVIS_JOB_MEMORY_GB"

SHARE = 0.75
"""Default share of the machine's memory for all jobs together."""


def memory_limit_bytes(slots: int) -> int:
    """Return ``JARVIS_JOB_MEMORY_GB`` in bytes, or the share of one of ``slots`` jobs."""
    memory_gb = settings().job_memory_gb
    if memory_gb is not None:
        return int(memory_gb * 1e9)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(SHARE * machine / max(1, slots))


log = logging.getLogger(__name__)

MAX_LOG_CHARACTERS = 40_000
"""Maximum length of a job's log; the beginning is dropped."""

_OWN_MEMORY = ("RssAnon:", "RssShmem:", "VmSwap:")
"""Lines of ``/proc/PID/status`` that count towards the memory limit; pages of mapped files do not,
because the system can drop them at any time."""


def assignment_of(job: Job, threads: int = 1) -> Assignment:
    """Return the assignment message of a job."""
    return Assignment(
        job.id,
        job.kind,
        job.parameters,
        job.attempt_label,
        job.owner,
        job.visibility,
        job.role,
        threads,
    )


def outcome_after(message: OutputMessage | FailedMessage) -> Outcome:
    """Return the outcome for the final message of a job's process."""
    if isinstance(message, FailedMessage):
        return Outcome(JobState.FAILED, message.error)
    return Outcome(JobState.DONE, result=message.result, analysis_id=message.analysis_id)


def appended(log: str, more: str) -> str:
    """Return a log with text appended, truncated at its beginning."""
    return f"{log}{more}"[-MAX_LOG_CHARACTERS:]


class JobProcess(ABC):
    """A process, local or in a cluster, that runs one job after ``give``."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.progress = JobProgress()
        self.outcome: Outcome | None = None
        """None while the job is running."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """Return file descriptors that become readable on messages or the end of the process."""
        return ()

    @abstractmethod
    def give(self, job: Job) -> None:
        """Assign a job; if the process has died meanwhile, ``listen`` reports it."""

    @abstractmethod
    def listen(self) -> bool:
        """Process its messages; return whether there were any."""

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """Kill its process group; ``outcome`` applies if the job has none yet."""


class LocalJobProcess(JobProcess):
    """A process on this machine that is killed if it uses more than ``limit_bytes`` of memory.

    Args:
        threads: number of threads with which a job that is given computes.
    """

    def __init__(self, limit_bytes: int, process: Process, threads: int = 1) -> None:
        super().__init__()
        self.log_characters = 0
        """Length of the log including its dropped beginning."""
        self._limit_bytes = limit_bytes
        self._process = process
        self._threads = threads
        assert process.stdout is not None
        assert process.stderr is not None
        self._messages, self._errors = (
            Lines(process.stdout.fileno()),
            Lines(process.stderr.fileno()),
        )

    @property
    def outputs(self) -> tuple[int, ...]:
        """Return the descriptors of stdout and stderr."""
        return self._messages.descriptor, self._errors.descriptor

    def give(self, job: Job) -> None:
        """Assign a job; if the process has died meanwhile, ``listen`` reports it."""
        self.job = job
        self.assign(assignment_of(job, self._threads))

    def assign(self, assignment: Assignment) -> None:
        """Assign a job by its message."""
        with suppress(BrokenPipeError):
            self._input.write(to_line(assignment))
            self._input.flush()

    def listen(self) -> bool:
        """Process its messages; return whether there were any."""
        news = False
        for line in self._messages.read():
            news = True
            self._take(from_line(line))
        for line in self._errors.read():
            news = True
            self._log(line.decode(errors="replace"))
        code = self._process.poll()
        if self.outcome is None and code is not None and not self._is_output_open:
            self.outcome = Outcome(JobState.FAILED, self._why(code))
        if self.outcome is None and self._memory_bytes() > self._limit_bytes:
            self.outcome = Outcome(JobState.FAILED, _too_much(self._limit_bytes))
        return news

    def end(self, outcome: Outcome) -> None:
        """Kill its process group; ``outcome`` applies if the job has none yet."""
        self.listen()
        self.outcome = self.outcome or outcome
        if self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._messages.is_closed = self._errors.is_closed = True
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _is_output_open(self) -> bool:
        return not (self._messages.is_closed and self._errors.is_closed)

    def _take(self, message: Message) -> None:
        if isinstance(message, StepMessage):
            self._step(message)
        elif isinstance(message, OutputMessage | FailedMessage):
            self.outcome = outcome_after(message)
            if self.outcome.state is JobState.DONE:
                self.progress.percent = 100.0

    def _step(self, message: StepMessage) -> None:
        progress = self.progress
        progress.step = message.name
        progress.step_number, progress.step_count = message.number, message.total
        progress.bytes_done, progress.bytes_total = message.bytes_done, message.bytes_total
        share = 1.0 if message.event == "done" else 0.0
        if message.bytes_done is not None and message.bytes_total:
            share = message.bytes_done / message.bytes_total
        progress.percent = 100 * (message.number - 1 + share) / message.total
        step = f"{message.name} ({message.number} of {message.total})"
        if message.event == "started":
            self._log(f"{datetime.now(UTC):%H:%M:%S} {step}")
        elif message.elapsed_s is not None:
            progress.steps.append(FinishedStep(message.name, message.elapsed_s))

    def _log(self, line: str) -> None:
        self.log_characters += len(line) + 1
        self.progress.log = appended(self.progress.log, f"{line}\n")
        log.debug("%s", line, extra={"job": None if self.job is None else self.job.id})

    def _memory_bytes(self) -> int:
        """Return its memory and swap usage without mapped files; 0 if unknown."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0
        lines = [line.split() for line in status.splitlines() if line.startswith(_OWN_MEMORY)]
        return sum(int(kilobytes) for _, kilobytes, _ in lines) * 1024

    def _why(self, code: int) -> str:
        if code < 0:
            name = signal.Signals(-code).name
            return (
                f"The process of this job was killed ({name}), perhaps because the machine ran out "
                "of memory. Partial results were removed; retry it."
            )
        last = self.progress.log.strip().rpartition("\n")[2]
        return (
            f"The job failed with an unexpected error ({last[:300]}). See its log for details, and "
            "report them."
        )


def _too_much(limit_bytes: int) -> str:
    return (
        f"The job exceeded its memory limit of {limit_bytes / 1e9:.3g} GB and was stopped. "
        f"Record fewer steps, or ask an admin to raise the limit ({MEMORY_VARIABLE})."
    )


_POLL_S = 0.1


def run_single_job(request: "Request", owner: str | None) -> "JobOutput":
    """Run a job for ``owner`` and wait for it.

    Raises:
        SingleJobError: the job failed; partial results were removed.
        JarvisError: as ``Request.new_job`` raises.
    """
    from jarvis.server.jobs.kinds import JobOutput

    job_id = uuid4().hex[:10]
    label = f"job-{job_id}-"
    child = LocalJobProcess(memory_limit_bytes(1), own_process())
    try:
        child.assign(
            Assignment(
                job_id,
                request.kind,
                dict(request.new_job().parameters),
                label,
                owner,
                threads=os.cpu_count() or 1,
            )
        )
        while child.outcome is None:
            select.select(child.outputs, [], [], _POLL_S)
            child.listen()
        outcome = child.outcome
    finally:
        child.end(Outcome(JobState.CANCELLED))
        for folder in request.folders:
            clear_staged(folder, label)
    if outcome.state is not JobState.DONE:
        raise SingleJobError(outcome.error or "The job failed.")
    return JobOutput(outcome.analysis_id, dict(outcome.result or {}))
