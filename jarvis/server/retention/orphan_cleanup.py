"""What jobs had half written on this machine when it, or what ran them, died.

A worker clears away what its own jobs left. Where machines have homes of their own, another worker
may be the one that sees a death, and cannot.
"""

import re

from sqlalchemy import Engine

from jarvis.core.staging import clear_staged
from jarvis.core.workspace import analyses_dir, exports_dir, uploads_dir
from jarvis.server.database import JobState
from jarvis.server.jobs import queue
from jarvis.server.jobs.queue import UnknownJobError

_LABEL = re.compile(r"-(job-([0-9a-f]+)-([0-9]+)-)")
"""``Job.attempt_label`` within the name of a hidden folder: the job, and which attempt."""


def kill_orphans(engine: Engine) -> None:
    """Clear away what attempts left here that run no more."""
    for folder in (analyses_dir(), exports_dir(), uploads_dir()):
        found = (_LABEL.search(entry.name) for entry in folder.glob(".*"))
        for label, job_id, attempt in {match.groups() for match in found if match}:
            if not _runs(engine, job_id, int(attempt)):
                clear_staged(folder, label)


def _runs(engine: Engine, job_id: str, attempt: int) -> bool:
    try:
        job = queue.find(engine, job_id)
    except UnknownJobError:
        return False
    return job.state is JobState.RUNNING and job.attempts == attempt
