"""Runs one job in its own process without a queue, within the memory limit of jobs."""

import select
from uuid import uuid4

from jarvis.core.errors import JarvisError
from jarvis.core.staging import clear_staged
from jarvis.server.database import JobState
from jarvis.server.jobs.kinds import JobOutput, Request
from jarvis.server.jobs.queue import Outcome
from jarvis.server.jobs.workers.job_child import LocalJobProcess
from jarvis.server.jobs.workers.job_memory import memory_limit_bytes
from jarvis.server.jobs.workers.job_messages import Assignment

_POLL_S = 0.1


class SingleJobError(JarvisError):
    """The job failed; the message is the job's."""


def run_single_job(request: Request, owner: str | None) -> JobOutput:
    """Run a job for ``owner`` and wait for it.

    Raises:
        SingleJobError: the job failed; partial results were removed.
        JarvisError: as ``Request.new_job`` raises.
    """
    job_id = uuid4().hex[:10]
    label = f"job-{job_id}-"
    child = LocalJobProcess(memory_limit_bytes(1))
    try:
        child.assign(
            Assignment(job_id, request.kind, dict(request.new_job().parameters), label, owner)
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
