"""Process of one job: ``python -m jarvis.server.jobs.processes.job_process``.

It reads the job from stdin, runs it, reports progress on stdout, and ends. It also ends with its
worker. Where a forker forks it, all imports are done.
"""

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import monotonic

from jarvis.analyses import load_analyses, load_registry
from jarvis.analyses.claims import load_patterns
from jarvis.core.errors import JarvisError
from jarvis.core.memory_tuning import raise_thresholds
from jarvis.core.staging import LABEL_VARIABLE
from jarvis.hardware import shipped_hardware
from jarvis.perf_report import communication_names, kernel_blocks
from jarvis.pipeline import Step
from jarvis.pipeline.processes import THREADS_VARIABLE
from jarvis.pipeline.steps import READING_INTERVAL_S
from jarvis.recorded_calls.schema import signatures
from jarvis.reports import load_formats
from jarvis.reports.rendering import load_templates
from jarvis.server.access.rights import Role
from jarvis.server.database import JobKind, Visibility
from jarvis.server.jobs.kinds import Request, request_of
from jarvis.server.jobs.processes.job_messages import (
    Assignment,
    FailedMessage,
    Message,
    OutputMessage,
    StepMessage,
    from_line,
    to_line,
)
from jarvis.server.storage.analysis_rows import person_for, stored_for
from jarvis.server.storage.catalog import named_rows, strictest

NICENESS = 5
"""Pages have priority over jobs."""

_IMPORTED_LATE = (
    "jarvis.trace.compiled",
    "jarvis.trace.streaming",
    "jarvis.simulation.replay",
    "openpyxl",
)
"""Modules that analyses import lazily, so that other commands start fast.

A process of its own imports them while it waits, but not if a job is already assigned; a forker
always does. The first import on a new machine compiles the kernels.
"""

_READ_LATE: tuple[Callable[[], object], ...] = (
    load_formats,
    load_templates,
    lambda: load_patterns(load_analyses().values()),
    shipped_hardware,
    communication_names.rules,
    kernel_blocks.rules,
    signatures,
)
"""What analyses read or compile when they first need it, and then keep."""

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


def prepare(is_wanted: Callable[[], bool]) -> None:
    """Import and read what jobs need; leave what is slow to the jobs as soon as one is wanted."""
    raise_thresholds()
    load_registry()
    for name in _IMPORTED_LATE:
        if not is_wanted():
            import_module(name)
    for read in _READ_LATE:
        if not is_wanted():
            with suppress(JarvisError):  # jobs report it
                read()


def main(on_step: Callable[[Step], None] | None = None) -> None:
    """Run one job.

    An unexpected error ends the process with a traceback, which becomes part of the job's log.

    Args:
        on_step: called after each progress message.
    """
    send = _open_messages()
    os.nice(NICENESS)
    prepare(_has_input)
    with open(_INPUT, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    if not line:
        return  # the worker ended without a job for it
    threading.Thread(target=_end_with_worker, daemon=True).start()
    assignment = from_line(line)
    assert isinstance(assignment, Assignment)
    sys.stderr.write(
        f"{datetime.now(UTC):%H:%M:%S} Job {assignment.job_id}, "
        f"process {os.getpid()} on {socket.gethostname()}\n"
    )
    os.environ.setdefault(THREADS_VARIABLE, str(assignment.threads))
    os.environ[LABEL_VARIABLE] = assignment.staging
    send(outcome_of(assignment, _ProgressReporter(send, on_step)))


def outcome_of(
    assignment: Assignment, progress: Callable[[Step], None]
) -> OutputMessage | FailedMessage:
    """Run a job and return its final message; unexpected errors are raised."""
    inputs: tuple[Path, ...] = ()
    try:
        request = request_of(JobKind(assignment.kind), assignment.parameters)
        inputs = request.inputs
        with _rights_of(assignment, request):
            request.bring_inputs(progress)
            output = request.run(progress, assignment.job_id)
    except JarvisError as error:
        message = str(error)
        for path in inputs:  # hide the server's folders from the user
            message = message.replace(f"{path.parent}{os.sep}", "")
        return FailedMessage(message)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return FailedMessage(
            f"{where}{error.strerror or error}. Check that it exists, is writable and has free "
            "space, then retry the job."
        )
    return OutputMessage(output.analysis_id, output.result)


def _rights_of(assignment: Assignment, request: Request) -> AbstractContextManager[None]:
    """Return a context that stores results with the owner's current permissions.

    Raises:
        UnknownAnalysisError: the owner cannot (or can no longer) see an analysis of the job.
    """
    owner, role = assignment.owner, Role(assignment.role)
    rows = named_rows(person_for(owner, role), request.analyses)
    return stored_for(owner, strictest(Visibility(assignment.visibility), rows), role)


class _ProgressReporter:
    """Sends each step, and at most every READING_INTERVAL_S the progress of reading a trace."""

    def __init__(
        self, send: Callable[[Message], None], on_step: Callable[[Step], None] | None
    ) -> None:
        self._send = send
        self._on_step = on_step
        self._sent_at = 0.0

    def __call__(self, step: Step) -> None:
        now = monotonic()
        if step.state == "running" and now - self._sent_at < READING_INTERVAL_S:
            return
        self._sent_at = now
        read = step.reading
        self._send(
            StepMessage(
                step.name,
                step.number,
                step.total,
                step.state,
                step.elapsed_s,
                None if read is None else read.bytes_done,
                None if read is None else read.bytes_total,
            )
        )
        if self._on_step is not None:
            self._on_step(step)


def _has_input() -> bool:
    """Return whether a job is assigned or stdin is closed."""
    return bool(select.select([_INPUT], [], [], 0)[0])


def _open_messages() -> Callable[[Message], None]:
    """Return a function that sends messages on stdout; redirect other output to stderr."""
    output = os.fdopen(os.dup(_OUTPUT), "wb", buffering=0)
    os.dup2(_ERRORS, _OUTPUT)

    def send(message: Message) -> None:
        output.write(to_line(message))

    return send


def _end_with_worker() -> None:
    """Kill this process group when stdin closes, which means that the worker died."""
    while os.read(_INPUT, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
