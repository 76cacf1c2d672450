"""A job process that pauses at a step while a file in the home exists."""

import os
import time
from collections.abc import Callable

from jarvis.core.staging import LABEL_VARIABLE
from jarvis.pipeline import STEPS, Step
from jarvis.server.jobs.processes import job_process
from tests.server.working import EVERY_JOB, held_file, hold_file


def hold(step: Step) -> None:
    """Pause at the step in the file of this job or of all jobs."""
    job_id = os.environ[LABEL_VARIABLE].split("-")[1]
    names = (job_id, EVERY_JOB) if step.total == len(STEPS) else (job_id,)
    files = [file for file in map(hold_file, names) if file.exists()]
    if files and files[0].read_text() == f"{step.number} {step.state}":
        half = held_file(f"{job_id}-half")
        half.write_text(str(os.getpid()))
        half.rename(held_file(job_id))
        while files[0].exists():
            time.sleep(0.05)


def prepare(is_wanted: Callable[[], bool]) -> None:
    """Import what jobs need, but no compiled code: the traces of these tests are small."""
    job_process._IMPORTED_LATE = ("openpyxl",)
    job_process.prepare(is_wanted)


def main() -> None:
    """Run one job."""
    job_process.main(hold)
