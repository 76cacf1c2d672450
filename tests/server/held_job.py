"""The process of a job that stops where a file in the home folder says, until it is killed."""

import os
import time

from jarvis.pipeline import STEPS, Step
from jarvis.server import job_process
from jarvis.staging import LABEL_VARIABLE
from tests.server.working import EVERY_JOB, held_file, hold_file


def hold(step: Step) -> None:
    """Wait for ever at the step whose number the file of this job holds."""
    job_id = os.environ[LABEL_VARIABLE].split("-")[1]
    files = [file for file in (hold_file(job_id), hold_file(EVERY_JOB)) if file.exists()]
    if step.state != "started" or step.total != len(STEPS) or not files:
        return
    if int(files[0].read_text()) == step.number:
        half = held_file(f"{job_id}-half")
        half.write_text(str(os.getpid()))
        half.rename(held_file(job_id))
        while True:
            time.sleep(60)


if __name__ == "__main__":
    job_process.main(hold)
