"""A job's process as its worker sees it: given a job, listened to, measured, and killed."""

import logging
import os
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from jarvis.server.database import JobState
from jarvis.server.jobs.queue import FinishedStep, Headway, Job, Outcome
from jarvis.server.jobs.workers.job_memory import MEMORY_VARIABLE
from jarvis.server.jobs.workers.job_messages import (
    Assignment,
    FailedMessage,
    Message,
    OutputMessage,
    StepMessage,
    from_line,
    to_line,
)

COMMAND = (sys.executable, "-m", "jarvis.server.jobs.workers.job_process")

log = logging.getLogger(__name__)

LOG_CHARACTERS = 40_000
"""The last so many of a log are kept."""

_CHUNK_BYTES = 1 << 16
_OWN_MEMORY = ("RssAnon:", "RssShmem:", "VmSwap:")
"""Lines of ``/proc/PID/status``: what a process holds itself; files that it has mapped can be
dropped by the system at any time."""


def assignment_of(job: Job) -> Assignment:
    """What a process is told of its job."""
    return Assignment(
        job.id, job.kind, job.parameters, job.attempt_label, job.owner, job.visibility, job.role
    )


def outcome_after(message: OutputMessage | FailedMessage) -> Outcome:
    """How a job ended, by the last word of its process."""
    if isinstance(message, FailedMessage):
        return Outcome(JobState.FAILED, message.error)
    return Outcome(JobState.DONE, result=message.result, analysis_id=message.analysis_id)


def appended(log: str, more: str) -> str:
    """A log with more behind it; too long a one loses its beginning."""
    return f"{log}{more}"[-LOG_CHARACTERS:]


class JobProcess(ABC):
    """One process for one job, wherever it runs; it waits for the job, ready, until ``give``."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.headway = Headway()
        self.outcome: Outcome | None = None
        """How the job ended; None while it runs."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """Descriptors that become readable when the process says something or ends."""
        return ()

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether it lives and has no job yet."""

    @abstractmethod
    def give(self, job: Job) -> None:
        """Let it do a job; a process that has died meanwhile is noticed by ``listen``."""

    @abstractmethod
    def listen(self) -> bool:
        """Take in what it has said; whether that is something new."""

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """End it, and all that it started, if it still runs; how its job ended if that is open."""


class LocalJobProcess(JobProcess):
    """A process on this machine, ended when it holds more than ``limit_bytes`` of memory."""

    def __init__(self, limit_bytes: int, command: Sequence[str] = COMMAND) -> None:
        super().__init__()
        self.log_characters = 0
        """The length of the log with what was dropped from its beginning."""
        self._limit_bytes = limit_bytes
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._messages, self._errors = _Lines(self._process.stdout), _Lines(self._process.stderr)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The ends of its pipes."""
        return self._messages.descriptor, self._errors.descriptor

    def give(self, job: Job) -> None:
        """Let it do a job; a process that has died meanwhile is noticed by ``listen``."""
        self.job = job
        self.assign(assignment_of(job))

    def assign(self, assignment: Assignment) -> None:
        """Let it do what ``give`` would give it."""
        where = f"process {self._process.pid} on {socket.gethostname()}"
        self._log(f"{datetime.now(UTC):%H:%M:%S} Job {assignment.job_id}, {where}")
        with suppress(BrokenPipeError):
            self._input.write(to_line(assignment))
            self._input.flush()

    def listen(self) -> bool:
        """Take in what it has said; whether that is something new."""
        news = False
        for line in self._messages.read():
            news = True
            self._take(from_line(line))
        for line in self._errors.read():
            news = True
            self._log(line.decode(errors="replace"))
        if self.outcome is None and self._process.poll() is not None and not self._is_speaking:
            self.outcome = Outcome(JobState.FAILED, self._why())
        if self.outcome is None and self._memory_bytes() > self._limit_bytes:
            self.outcome = Outcome(JobState.FAILED, _too_much(self._limit_bytes))
        return news

    def end(self, outcome: Outcome) -> None:
        """End it, and all that it started, if it still runs; how its job ended if that is open."""
        self.listen()
        self.outcome = self.outcome or outcome
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._messages.is_closed = self._errors.is_closed = True
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    @property
    def is_waiting(self) -> bool:
        """Whether it lives and has no job yet."""
        return self.job is None and self._process.poll() is None

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _is_speaking(self) -> bool:
        return not (self._messages.is_closed and self._errors.is_closed)

    def _take(self, message: Message) -> None:
        if isinstance(message, StepMessage):
            self._step(message)
        elif isinstance(message, OutputMessage | FailedMessage):
            self.outcome = outcome_after(message)
            if self.outcome.state is JobState.DONE:
                self.headway.percent = 100.0

    def _step(self, message: StepMessage) -> None:
        far = self.headway
        far.step, far.step_number, far.step_count = message.name, message.number, message.total
        far.bytes_done, far.bytes_total = message.bytes_done, message.bytes_total
        share = 1.0 if message.event == "done" else 0.0
        if message.bytes_done is not None and message.bytes_total:
            share = message.bytes_done / message.bytes_total
        far.percent = 100 * (message.number - 1 + share) / message.total
        place = f"{message.name} ({message.number} of {message.total})"
        if message.event == "started":
            self._log(f"{datetime.now(UTC):%H:%M:%S} {place}")
        elif message.elapsed_s is not None:
            far.steps.append(FinishedStep(message.name, message.elapsed_s))

    def _log(self, line: str) -> None:
        self.log_characters += len(line) + 1
        self.headway.log = appended(self.headway.log, f"{line}\n")
        log.debug("%s", line, extra={"job": None if self.job is None else self.job.id})

    def _memory_bytes(self) -> int:
        """What it holds in memory or swap, without files that it has mapped; 0 where unknown."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0
        lines = [line.split() for line in status.splitlines() if line.startswith(_OWN_MEMORY)]
        return sum(int(kilobytes) for _, kilobytes, _ in lines) * 1024

    def _why(self) -> str:
        code = self._process.returncode
        if code < 0:
            name = signal.Signals(-code).name
            return (
                f"The process of this job was killed ({name}), perhaps because the machine ran out "
                "of memory. Nothing half-written was kept; retry it."
            )
        last = self.headway.log.strip().rpartition("\n")[2]
        return (
            f"The job ended with an unexpected error ({last[:300]}). Its log has the details; "
            "please report them."
        )


def _too_much(limit_bytes: int) -> str:
    return (
        f"The job needed more than its {limit_bytes / 1e9:.3g} GB of memory and was ended. "
        f"Record fewer steps, or have the server give jobs more ({MEMORY_VARIABLE})."
    )


class _Lines:
    """The lines of a pipe, as far as they have come."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None
        self.descriptor = stream.fileno()
        os.set_blocking(self.descriptor, False)
        self.is_closed = False
        self._rest = b""

    def read(self) -> list[bytes]:
        """What has come since; at the end also a last line without an end."""
        while not self.is_closed:
            try:
                chunk = os.read(self.descriptor, _CHUNK_BYTES)
            except BlockingIOError:
                break
            self.is_closed = not chunk
            self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        if self.is_closed and self._rest:
            lines.append(self._rest)
            self._rest = b""
        return lines
