"""Deletes partial results of jobs that died on this machine.

A worker deletes those of its own jobs. If machines have separate homes, the death may be noticed by
a worker on another machine, which cannot delete them.
"""

import re

from sqlalchemy import Engine

from jarvis.core.staging import clear_staged
from jarvis.core.workspace import analyses_dir, exports_dir, uploads_dir
from jarvis.server.database import JobState
from jarvis.server.errors import UnknownJobError
from jarvis.server.jobs import queue

_LABEL = re.compile(r"-(job-([0-9a-f]+)-([0-9]+)-)")
"""``Job.attempt_label`` in the name of a hidden folder: job id and attempt."""


def delete_orphans(engine: Engine) -> None:
    """Delete partial results of attempts that are no longer running."""
    for folder in (analyses_dir(), exports_dir(), uploads_dir()):
        matches = (_LABEL.search(entry.name) for entry in folder.glob(".*"))
        for label, job_id, attempt in {match.groups() for match in matches if match}:
            if not _is_running(engine, job_id, int(attempt)):
                clear_staged(folder, label)


def _is_running(engine: Engine, job_id: str, attempt: int) -> bool:
    try:
        job = queue.find(engine, job_id)
    except UnknownJobError:
        return False
    return job.state is JobState.RUNNING and job.attempts == attempt
