"""Process of one job, started by a worker: ``python -m jarvis.server.jobs.workers.job_process``.

It is ready before it is needed: what is slow to import is imported, then it reads one job from its
input, does it, says how far it is, and ends. When its worker is gone, so is it.
"""

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from time import monotonic

from jarvis.analyses import load_registry
from jarvis.core.errors import JarvisError
from jarvis.core.gc_tuning import raise_thresholds
from jarvis.core.staging import LABEL_VARIABLE
from jarvis.pipeline import Step
from jarvis.server.access.rights import Role
from jarvis.server.database import JobKind, Visibility
from jarvis.server.jobs.kinds import Request, request_of
from jarvis.server.jobs.workers.job_messages import (
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
"""Pages are drawn first."""

READING_EVERY_S = 0.2
"""How far a trace has been read is said this often."""

_IMPORTED_LATE = ("jarvis.trace.compiled", "openpyxl")
"""What an analysis imports where it needs it, because commands that do not need it start sooner.

A process imports it while it waits; a job that is there already may do without.
"""

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


def main(on_step: Callable[[Step], None] | None = None) -> None:
    """Do one job; ``on_step`` is called after each step was said.

    An unexpected error ends the process with a traceback, which the worker keeps as the job's log.
    """
    say = _own_output()
    os.nice(NICENESS)
    raise_thresholds()
    load_registry()
    for name in _IMPORTED_LATE:
        if not _is_given():
            import_module(name)
    with open(_INPUT, "rb", buffering=0, closefd=False) as given:
        line = given.readline()
    if not line:
        return  # never needed
    threading.Thread(target=_end_with_worker, daemon=True).start()
    assignment = from_line(line)
    assert isinstance(assignment, Assignment)
    os.environ[LABEL_VARIABLE] = assignment.staging
    say(outcome_of(assignment, _ProgressReporter(say, on_step)))


def outcome_of(
    assignment: Assignment, progress: Callable[[Step], None]
) -> OutputMessage | FailedMessage:
    """Do what a job asks for; what cannot be done is a sentence, and a fault of ours is raised."""
    inputs: tuple[Path, ...] = ()
    try:
        request = request_of(JobKind(assignment.kind), assignment.parameters)
        inputs = request.inputs
        with _rights_of(assignment, request):
            request.bring_inputs(progress)
            made = request.run(progress, assignment.job_id)
    except JarvisError as error:
        sentence = str(error)
        for path in inputs:  # where the server keeps it means nothing to who sent it
            sentence = sentence.replace(f"{path.parent}{os.sep}", "")
        return FailedMessage(sentence)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return FailedMessage(
            f"{where}{error.strerror or error}. Check that it is there, may be written and has "
            "room, then retry the job."
        )
    return OutputMessage(made.analysis_id, made.result)


def _rights_of(assignment: Assignment, request: Request) -> AbstractContextManager[None]:
    """Do a job with the rights of its owner, which may have changed since it was submitted.

    Raises UnknownAnalysisError where the owner may not see an analysis that the job names.
    """
    owner, role = assignment.owner, Role(assignment.role)
    named = named_rows(person_for(owner, role), request.analyses)
    return stored_for(owner, strictest(Visibility(assignment.visibility), named), role)


class _ProgressReporter:
    """Says each step, and now and then how far a trace has been read."""

    def __init__(
        self, say: Callable[[Message], None], on_step: Callable[[Step], None] | None
    ) -> None:
        self._say = say
        self._on_step = on_step
        self._said_at = 0.0

    def __call__(self, step: Step) -> None:
        now = monotonic()
        if step.state == "running" and now - self._said_at < READING_EVERY_S:
            return
        self._said_at = now
        read = step.reading
        self._say(
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


def _is_given() -> bool:
    """Whether a job is there, or the worker has gone."""
    return bool(select.select([_INPUT], [], [], 0)[0])


def _own_output() -> Callable[[Message], None]:
    """What writes to the worker; whatever else is printed goes to the log."""
    output = os.fdopen(os.dup(_OUTPUT), "wb", buffering=0)
    os.dup2(_ERRORS, _OUTPUT)

    def say(message: Message) -> None:
        output.write(to_line(message))

    return say


def _end_with_worker() -> None:
    """A worker that is killed closes our input; nobody would hear of this job any more."""
    while os.read(_INPUT, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
