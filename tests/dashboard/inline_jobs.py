"""Run jobs synchronously, as page tests have no worker."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, update

from jarvis.pipeline import Step
from jarvis.server import claims, queue
from jarvis.server.database import JOBS, database, writing
from jarvis.server.jobs.processes.job_child import assignment_of, outcome_after
from jarvis.server.jobs.processes.job_process import outcome_of
from jarvis.server.queue import FinishedStep, Job, JobProgress, NewJob

WORKER = "inline"


def work_off(engine: Engine) -> None:
    """Run every queued job in this process."""
    while job := claims.claim(engine, WORKER):
        progress = JobProgress(log=f"{datetime.now(UTC):%H:%M:%S} done inline\n")

        def note(step: Step, far: JobProgress = progress) -> None:
            far.step, far.step_number, far.step_count = step.name, step.number, step.total
            if step.elapsed_s is not None:
                far.steps.append(FinishedStep(step.name, step.elapsed_s))

        outcome = outcome_after(outcome_of(assignment_of(job), note))
        claims.finish(engine, WORKER, job.id, progress, outcome)


def outdated(engine: Engine, job: Job) -> Job:
    """Queue a job with the parameters of another version of Jarvis."""
    with writing(engine) as connection:
        asked = update(JOBS).where(JOBS.c.id == job.id)
        otherwise = {"parameters": {"asked": "otherwise"}, "fingerprint": job.id}
        connection.execute(asked.values(otherwise))
    return queue.find(engine, job.id)


def do_jobs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the queue run each job as soon as it is submitted, and those that earlier tests left."""
    work_off(database())
    submit, retry = queue.submit, queue.retry

    def submit_and_do(engine: Engine, new: NewJob, *asked_by: Any) -> Job:
        job = submit(engine, new, *asked_by)
        work_off(engine)
        return queue.find(engine, job.id)

    def retry_and_do(engine: Engine, job_id: str) -> Job:
        job = retry(engine, job_id)
        work_off(engine)
        return queue.find(engine, job.id)

    monkeypatch.setattr(queue, "submit", submit_and_do)
    monkeypatch.setattr(queue, "retry", retry_and_do)
