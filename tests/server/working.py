"""Workers as processes, and waiting for what they do."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from jarvis.server import queue
from jarvis.server.database import JobState
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.queue import Job, NewJob
from jarvis.server.submission import Submission

REAL, HELD_WORKER = "jarvis.cli worker", "tests.server.held_worker"
HEARTBEAT_TIMEOUT_S = 3.0
"""Heartbeat timeout of workers in these tests: 15 beats, of which a busy machine delays some."""

SECONDS = 120
"""Limit of every wait; only a test that fails takes as long."""

EVERY_JOB = "every-job"
"""Used instead of a job id to pause all jobs."""

HOLDS_VARIABLE = "HOLDS"
"""The folder of these files, for machines that do not share a home."""


def hold_file(job_id: str) -> Path:
    """The file with the step at which a job is paused."""
    return _holds() / f"hold-{job_id}"


def held_file(job_id: str) -> Path:
    """The file with the process that is paused."""
    return _holds() / f"held-{job_id}"


def _holds() -> Path:
    return Path(os.environ.get(HOLDS_VARIABLE) or os.environ["JARVIS_HOME"])


@contextmanager
def worker(module: str = REAL, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker while the block runs."""
    command = [sys.executable, "-m", *module.split()]
    process = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        finally:
            process.kill()


def wait_for(look: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Poll ``look`` until its result is true; return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    raise TimeoutError(f"nothing within {seconds} s")


def ended(engine: Engine, job_id: str, seconds: float = SECONDS) -> Job:
    """A job when it has ended."""

    def look() -> Job | None:
        job = queue.find(engine, job_id)
        return None if job.is_active else job

    return wait_for(look, seconds)


def held_process(job_id: str) -> int:
    """Wait until a job is paused; return its process id."""
    file = held_file(job_id)
    wait_for(file.exists)
    pid = int(file.read_text())
    file.unlink()
    return pid


def hold_at(job_id: str, step: int | None, state: str = "started") -> None:
    """Pause a job at a step that is started, running or done; None to resume."""
    if step is None:
        hold_file(job_id).unlink()
    else:
        hold_file(job_id).write_text(f"{step} {state}")


def is_done(engine: Engine, job_id: str) -> Job:
    """A job when it has ended well."""
    job = ended(engine, job_id)
    assert job.state is JobState.DONE, (job.error, job.log)
    return job


def new_analysis(path: Path, model_name: str | None = None) -> NewJob:
    """To analyze a trace; other names make other analyses."""
    return Analyze(Submission(path, model_name=model_name)).new_job()


def submit_held(engine: Engine, new: NewJob, step: int) -> Job:
    """Submit a job that is paused when this step starts."""
    job = queue.submit(engine, new)
    hold_at(job.id, step)
    return job


def is_alive(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def half_written(*folders: Path) -> list[Path]:
    """The temporary entries of these folders."""
    return [path for folder in folders for path in folder.glob(".*")]
