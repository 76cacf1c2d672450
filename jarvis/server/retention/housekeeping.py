"""Retention of ended jobs, their files, audit log entries, and rows without folders.

``jarvis prune`` applies all of it at once; a worker applies a limited part every hour.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import ColumnElement, Engine, and_, delete, func, select

from jarvis.core.staging import clear_staged
from jarvis.core.workspace import analyses_dir, exports_dir, sweep_pushes, uploads_dir
from jarvis.server import queue
from jarvis.server.database import (
    ACTIVE,
    AUDIT,
    JOB_ANALYSES,
    JOB_WAITS,
    JOBS,
    JobState,
    reading,
    writing,
)
from jarvis.server.errors import UnknownJobError
from jarvis.server.ingest import uploads
from jarvis.server.settings import settings
from jarvis.server.storage import artifacts
from jarvis.server.storage.analysis_rows import all_rows, folders_here, forget, is_copy, stored_rows
from jarvis.server.storage.storage_keys import remove_folder

JOBS_AT_ONCE = 200
"""Maximum number of jobs that a worker deletes at once."""

_LABEL = re.compile(r"-(job-([0-9a-f]+)-([0-9]+)-)")
"""``Job.attempt_label`` in the name of a hidden folder: job id and attempt."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Data beyond the retention of ``keep_jobs_days``.

    Attributes:
        jobs: ids of expired jobs.
        other_jobs: ids of all other jobs.
        audit_lines: number of expired audit log entries.
    """

    jobs: frozenset[str]
    other_jobs: frozenset[str]
    audit_lines: int


def expired(engine: Engine) -> Expired:
    """Return the currently expired jobs and audit log entries."""
    before = _before()
    with reading(engine) as connection:
        all_jobs = frozenset(connection.execute(select(JOBS.c.id)).scalars())
        old = frozenset(connection.execute(select(JOBS.c.id).where(_is_old(before))).scalars())
        lines = select(func.count()).select_from(AUDIT).where(AUDIT.c.moment < before)
        return Expired(old, all_jobs - old, connection.execute(lines).scalar() or 0)


def forget_expired(engine: Engine, max_jobs: int | None = None) -> int:
    """Delete expired jobs, oldest first, and audit log entries; return the number of jobs.

    The files of a job are deleted before its row, so that none are orphaned.
    """
    before = _before()
    oldest = select(JOBS.c.id).where(_is_old(before)).order_by(JOBS.c.ended).limit(max_jobs)
    with reading(engine) as connection:
        ids = connection.execute(oldest).scalars().all()
    remove_files([exports_dir() / job_id for job_id in ids])
    with writing(engine) as connection:
        for job_id in ids:  # except those retried meanwhile
            deleted = connection.execute(delete(JOBS).where(JOBS.c.id == job_id, _is_old(before)))
            if deleted.rowcount:
                for links in (JOB_ANALYSES, JOB_WAITS):
                    connection.execute(delete(links).where(links.c.job_id == job_id))
        connection.execute(delete(AUDIT).where(AUDIT.c.moment < before))
    return len(ids)


def remove_files(folders: Collection[Path]) -> None:
    """Delete folders of uploads or exports, locally and in the artifact root."""
    artifacts.remove_files(folders)
    for folder in folders:
        with suppress(FileNotFoundError):
            remove_folder(folder)


def drop_missing(engine: Engine) -> None:
    """Delete the rows of analyses whose folders were deleted by hand.

    Does nothing if all folders are missing, because the disk may not be mounted, or if analyses
    are shared, because other machines may have them. Rows without a manifest are of analyses that
    are being created.
    """
    root = analyses_dir()
    if artifacts.is_shared() or not root.is_dir() or not any(root.iterdir()):
        return
    written = {row.id for row in all_rows(engine).values() if row.written_ns}
    being_replaced = {path.name.split(".")[1] for path in root.glob(".*.*")}
    if missing := written - folders_here().keys() - being_replaced:
        forget(engine, missing)


def delete_orphans(engine: Engine) -> None:
    """Delete partial results of attempts that died on this machine.

    A worker deletes those of its own jobs. If machines have separate homes, the death may be
    noticed by a worker on another machine, which cannot delete them.
    """
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


def publish_local_analyses(engine: Engine) -> None:
    """Upload local analyses to the artifact root that were stored before it was configured."""
    rows = stored_rows(engine)
    for name in folders_here().keys() & rows.keys():
        if not is_copy(name):
            artifacts.local_analysis(name, rows[name].version)


def clean_up(engine: Engine) -> None:
    """Apply the hourly retention of a worker; several may do so concurrently."""
    uploads.sweep()
    sweep_pushes()
    delete_orphans(engine)
    forget_expired(engine, JOBS_AT_ONCE)
    drop_missing(engine)
    if artifacts.is_shared():
        publish_local_analyses(engine)
        artifacts.clean_up({row.id: row.version for row in all_rows(engine).values()})


def _before() -> datetime:
    return datetime.now(UTC) - timedelta(days=settings().keep_jobs_days)


def _is_old(before: datetime) -> ColumnElement[bool]:
    return and_(JOBS.c.state.not_in(ACTIVE), JOBS.c.ended < before)
