"""What goes with age and without being asked: ended jobs with the files that they exported, lines
of the audit log, and rows of analyses whose folders were deleted.

``jarvis prune`` does all of it, a worker a part of it every hour.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Engine, and_, delete, func, select

from jarvis.server.analysis_rows import forget_gone
from jarvis.server.database import ACTIVE, AUDIT, JOBS, reading, writing
from jarvis.server.folders import remove_folder
from jarvis.server.settings import settings
from jarvis.workspace import exports_dir

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
    for job_id in ids:
        with suppress(FileNotFoundError):
            remove_folder(exports_dir() / job_id)
    with writing(engine) as connection:
        for job_id in ids:  # one that was retried meanwhile stays
            connection.execute(delete(JOBS).where(JOBS.c.id == job_id, _is_old(before)))
        connection.execute(delete(AUDIT).where(AUDIT.c.moment < before))
    return len(ids)


def tidy(engine: Engine) -> None:
    """What a worker does every hour; several may do so at once."""
    forget_expired(engine, JOBS_AT_ONCE)
    forget_gone(engine)


def _before() -> datetime:
    return datetime.now(UTC) - timedelta(days=settings().keep_jobs_days)


def _is_old(before: datetime) -> ColumnElement[bool]:
    return and_(JOBS.c.state.not_in(ACTIVE), JOBS.c.ended < before)
