"""What goes with age and without being asked: ended jobs with the files that they exported, lines
of the audit log, and rows of analyses whose folders were deleted.

``jarvis prune`` does all of it, a worker a part of it every hour.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import ColumnElement, Engine, and_, delete, func, select

from jarvis.core.workspace import analyses_dir, exports_dir
from jarvis.server.database import ACTIVE, AUDIT, JOB_ANALYSES, JOBS, reading, writing
from jarvis.server.ingest import uploads
from jarvis.server.retention.orphan_cleanup import kill_orphans
from jarvis.server.settings import settings
from jarvis.server.storage import artifacts
from jarvis.server.storage.analysis_rows import all_rows, folders_here, forget, is_copy, stored_rows
from jarvis.server.storage.folders import remove_folder

JOBS_AT_ONCE = 200
"""A worker that tidies up has jobs to look after: so many go each time."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The ids of jobs that ended more than ``keep_jobs_days`` ago, those of all other jobs, and how
    many lines of the audit log are as old."""

    jobs: frozenset[str]
    other_jobs: frozenset[str]
    audit_lines: int


def expired(engine: Engine) -> Expired:
    """What is old enough to go now."""
    before = _before()
    with reading(engine) as connection:
        everyone = frozenset(connection.execute(select(JOBS.c.id)).scalars())
        old = frozenset(connection.execute(select(JOBS.c.id).where(_is_old(before))).scalars())
        lines = select(func.count()).select_from(AUDIT).where(AUDIT.c.moment < before)
        return Expired(old, everyone - old, connection.execute(lines).scalar() or 0)


def forget_expired(engine: Engine, most_jobs: int | None = None) -> int:
    """Remove it, of jobs the oldest first; how many jobs went.

    The files go before the row of their job, so that none is left that nobody knows of.
    """
    before = _before()
    oldest = select(JOBS.c.id).where(_is_old(before)).order_by(JOBS.c.ended).limit(most_jobs)
    with reading(engine) as connection:
        ids = connection.execute(oldest).scalars().all()
    remove_files([exports_dir() / job_id for job_id in ids])
    with writing(engine) as connection:
        for job_id in ids:  # one that was retried meanwhile stays
            gone = connection.execute(delete(JOBS).where(JOBS.c.id == job_id, _is_old(before)))
            if gone.rowcount:
                connection.execute(delete(JOB_ANALYSES).where(JOB_ANALYSES.c.job_id == job_id))
        connection.execute(delete(AUDIT).where(AUDIT.c.moment < before))
    return len(ids)


def remove_files(folders: Collection[Path]) -> None:
    """Remove folders of uploads or exports, here and where they are shared."""
    artifacts.remove_files(folders)
    for folder in folders:
        with suppress(FileNotFoundError):
            remove_folder(folder)


def drop_missing(engine: Engine) -> None:
    """Forget the analyses whose folders were deleted by hand.

    Not where all of them are gone: rather a disk is missing. Nor what has no manifest yet: somebody
    is making it. Shared ones stay listed until they are removed: another machine may have them.
    """
    root = analyses_dir()
    if artifacts.is_shared() or not root.is_dir() or not any(root.iterdir()):
        return
    written = {row.id for row in all_rows(engine).values() if row.written_ns}
    being_replaced = {path.name.split(".")[1] for path in root.glob(".*.*")}
    if gone := written - folders_here().keys() - being_replaced:
        forget(engine, gone)


def publish_local_analyses(engine: Engine) -> None:
    """Put analyses into the artifact root that were kept before there was one, or copied in."""
    rows = stored_rows(engine)
    for name in folders_here().keys() & rows.keys():
        if not is_copy(name):
            artifacts.local_analysis(name, rows[name].version)


def clean_up(engine: Engine) -> None:
    """What a worker does every hour; several may do so at once."""
    uploads.sweep()
    kill_orphans(engine)
    forget_expired(engine, JOBS_AT_ONCE)
    drop_missing(engine)
    if artifacts.is_shared():
        publish_local_analyses(engine)
        artifacts.clean_up({row.id: row.version for row in all_rows(engine).values()})


def _before() -> datetime:
    return datetime.now(UTC) - timedelta(days=settings().keep_jobs_days)


def _is_old(before: datetime) -> ColumnElement[bool]:
    return and_(JOBS.c.state.not_in(ACTIVE), JOBS.c.ended < before)
