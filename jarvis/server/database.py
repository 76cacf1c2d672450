"""Server database: SQLite in ``JARVIS_HOME``, or the one of ``JARVIS_DATABASE_URL``.

It holds jobs, workers, the catalog of stored analyses with their owners, notes on their reports,
API tokens (hashed) and the audit log. Results of an analysis are in its folder.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Engine,
    Enum,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    create_engine,
    event,
    false,
    func,
    make_url,
    select,
)
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from jarvis.core.labels import MAX_BRANCH_CHARS, MAX_COMMIT_CHARS, MAX_PROJECT_CHARS
from jarvis.core.notes import MAX_KEY_CHARS, NoteField
from jarvis.core.workspace import close_home, database_file
from jarvis.server.errors import DatabaseError
from jarvis.server.migrations import upgrade
from jarvis.server.settings import settings

BUSY_S = 30
"""Timeout for locks held by other writers."""

CONNECT_S = 5
"""Connection timeout."""

_POSTGRESQL = {
    "connect_timeout": CONNECT_S,
    "tcp_user_timeout": 2 * CONNECT_S * 1000,
    "keepalives_idle": 2 * CONNECT_S,
    "keepalives_interval": CONNECT_S,
    "keepalives_count": 2,
    "options": f"-c statement_timeout={BUSY_S}s -c idle_in_transaction_session_timeout={BUSY_S}s",
    "application_name": "jarvis",
}
"""Connection options that turn an unreachable or locked server into an error; parameters in the
database URL take precedence."""

READ_ONLY = "jarvis_read_only"
"""Execution option of a read-only connection, which does not wait for writers."""


class UtcDateTime(TypeDecorator[datetime]):
    """Column of UTC datetimes, also in databases without time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class TagList(TypeDecorator[tuple[str, ...]]):
    """Column of tags, stored as a JSON list."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> Any:
        return list(value or ())

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[str, ...]:
        return tuple(value or ())


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobKind(StrEnum):
    """Kind of a job."""

    INSPECT = "inspect"
    ANALYZE = "analyze"
    REPROJECT = "reproject"
    EXPORT = "export"
    REPLAY = "replay"
    COMPARE = "compare"
    FETCH = "fetch"
    REMOTE = "remote"
    LOAD = "load"
    JOIN = "join"
    WHAT_IF = "what_if"
    RANKS_EXPORT = "ranks_export"


class Visibility(StrEnum):
    """Who can see an analysis: its owner and admins, or every viewer."""

    PRIVATE = "private"
    TEAM = "team"


ACTIVE = (JobState.QUEUED, JobState.RUNNING)
"""States of a job that has not ended."""


def _enum_type(kind: type[StrEnum]) -> Enum:
    """Return the column type that stores the values of an enumeration as text."""
    return Enum(kind, native_enum=False, length=16, values_callable=list)


METADATA = MetaData()

JOBS = Table(
    "jobs",
    METADATA,
    Column("id", String(16), primary_key=True),
    Column("kind", _enum_type(JobKind), nullable=False),
    Column("state", _enum_type(JobState), nullable=False),
    Column("title", Text, nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("folders", JSON, nullable=False),
    Column("owner", Text),
    Column("visibility", _enum_type(Visibility), nullable=False, server_default=Visibility.TEAM),
    Column("role", String(16), nullable=False, server_default="editor"),
    Column("step", Text),
    Column("step_number", Integer, nullable=False),
    Column("step_count", Integer, nullable=False),
    Column("percent", Float, nullable=False),
    Column("bytes_done", BigInteger),
    Column("bytes_total", BigInteger),
    Column("steps", JSON, nullable=False),
    Column("log", Text, nullable=False),
    Column("error", Text),
    Column("result", JSON),
    Column("analysis_id", String(64)),
    Column("worker", String(64)),
    Column("place", Text),
    Column("heartbeat", UtcDateTime),
    Column("is_cancel_requested", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("started", UtcDateTime),
    Column("ended", UtcDateTime),
    Column("is_member", Boolean, nullable=False, server_default=false()),
    Index("jobs_by_state", "state", "created"),
    Index("jobs_by_request", "fingerprint", "created"),
)
"""One row per job, queued or ended. ``visibility`` is that of the analysis to be created, and
applies until it is stored; ``role`` is the owner's role when the job was submitted. ``is_member``
marks a job that was submitted only for jobs that wait for it."""

_IS_ACTIVE = JOBS.c.state.in_(ACTIVE)
Index(
    "jobs_active_once",
    JOBS.c.fingerprint,
    unique=True,
    sqlite_where=_IS_ACTIVE,
    postgresql_where=_IS_ACTIVE,
)

JOB_ANALYSES = Table(
    "job_analyses",
    METADATA,
    Column("job_id", String(16), primary_key=True),
    Column("analysis_id", String(64), primary_key=True),
    Column("owner", Text),
    Column("visibility", _enum_type(Visibility)),
    Index("job_analyses_by_analysis", "analysis_id"),
)
"""One row per analysis that a job reads or created. ``owner`` and ``visibility`` are NULL while the
analysis is stored, because its own columns apply. They keep the last values of a deleted analysis,
so that a job does not become more visible if the analysis is deleted or created again by another
person."""

JOB_WAITS = Table(
    "job_waits",
    METADATA,
    Column("job_id", String(16), primary_key=True),
    Column("waits_for", String(16), primary_key=True),
    Index("job_waits_by_job", "waits_for"),
)
"""One row per job that another job waits for; it is claimed when all of them have ended."""

WORKERS = Table(
    "workers",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("slots", Integer, nullable=False),
    Column("started", UtcDateTime, nullable=False),
    Column("heartbeat", UtcDateTime, nullable=False),
)
"""One row per registered worker."""

ANALYSES = Table(
    "analyses",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("trace_sha256", String(64), nullable=False),
    Column("owner", Text),
    Column("visibility", _enum_type(Visibility), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("is_pinned", Boolean, nullable=False),
    Column("version", String(32), nullable=False),
    Column("written_ns", BigInteger, nullable=False),
    Column("made_on", String(64)),
    Column("loaded_by", Text),
    Column("project", String(MAX_PROJECT_CHARS)),
    Column("branch", String(MAX_BRANCH_CHARS)),
    Column("commit_id", String(MAX_COMMIT_CHARS), key="commit"),
    Column("tags", TagList, nullable=False, server_default="[]"),
    Column("manifest", Text, nullable=False),
    Index("analyses_by_trace", "trace_sha256"),
)
"""One row per stored analysis. ``version`` changes when the analysis is run again, to detect stale
copies on other machines; ``written_ns`` is the modification time of its manifest in the home of
this server, to detect a changed folder. The manifest is the last column, because SQLite reads a row
up to the last selected column."""

REPORTS = Table(
    "reports",
    METADATA,
    Column("analysis_id", String(64), primary_key=True),
    Column("revision", Integer, nullable=False),
)
"""One row per report with notes; ``revision`` is the number of its last change."""

REPORT_FIELDS = Table(
    "report_fields",
    METADATA,
    Column("analysis_id", String(64), primary_key=True),
    Column("finding", String(MAX_KEY_CHARS), primary_key=True),
    Column("field", _enum_type(NoteField), primary_key=True),
    Column("title", Text, nullable=False),
    Column("value", Text),
    Column("revision", Integer, nullable=False),
    Column("author", Text),
    Column("moment", UtcDateTime, nullable=False),
    Column("imported_by", Text),
)
"""One row per field that was ever written; ``finding`` is empty for fields of the report, ``value``
NULL for the default. ``title`` is that of the finding, which may no longer be reported."""

REPORT_COMMENTS = Table(
    "report_comments",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("analysis_id", String(64), nullable=False),
    Column("finding", String(MAX_KEY_CHARS), nullable=False),
    Column("title", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("author", Text),
    Column("moment", UtcDateTime, nullable=False),
    Column("imported_by", Text),
    Index("report_comments_by_analysis", "analysis_id"),
)
"""Comments on findings."""

HARDWARE_OWNERS = Table(
    "hardware_owners",
    METADATA,
    Column("file", String(255), primary_key=True),
    Column("owner", Text, nullable=False),
)
"""Owner of each GPU description file; only admins can change a file without a row."""

TOKENS = Table(
    "tokens",
    METADATA,
    Column("id", String(16), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("owner", Text),
    Column("role", String(16), nullable=False),
    Column("label", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("expires", UtcDateTime),
    Column("last_used", UtcDateTime),
    Column("revoked", UtcDateTime),
)
"""API tokens; only a digest of the secret is stored."""

AUDIT = Table(
    "audit",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("moment", UtcDateTime, nullable=False),
    Column("person", Text),
    Column("via", String(16), nullable=False),
    Column("action", String(40), nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Index("audit_by_moment", "moment"),
)
"""Audit log; rows are only added, and deleted after the retention period."""


def database_url() -> str:
    """Return ``JARVIS_DATABASE_URL``, or the URL of the SQLite file in ``JARVIS_HOME``."""
    url = settings().database_url
    return url.get_secret_value() if url else f"sqlite:///{database_file().absolute()}"


def database() -> Engine:
    """Return the engine of this process, with the tables created and migrated.

    Raises:
        DatabaseError: it cannot be reached, or was migrated by a newer Jarvis.
    """
    return _database(database_url())


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a read-only connection that does not wait for writers; may raise DatabaseError."""
    with _database_errors(), engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a write transaction; may raise DatabaseError."""
    with _database_errors(), engine.begin() as connection:
        yield connection


def database_now(connection: Connection) -> datetime:
    """Return the current time of the database's clock, which all its clients share.

    For SQLite that is the clock of this machine, since its clients run on one machine.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    now = func.strftime("%Y-%m-%d %H:%M:%f", "now") if is_sqlite else func.clock_timestamp()
    value = connection.execute(select(now)).scalar_one()
    moment = datetime.fromisoformat(f"{value}Z") if is_sqlite else value
    assert isinstance(moment, datetime)
    return moment.astimezone(UTC)


def utc_now() -> datetime:
    """Return the current time in UTC by the clock of this machine."""
    return datetime.now(UTC)


@contextmanager
def _database_errors() -> Iterator[None]:
    """Convert SQLAlchemy errors, except violated constraints, to DatabaseError."""
    try:
        yield
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        raise DatabaseError(_reason(error)) from error


@lru_cache(maxsize=4)
def _database(url: str) -> Engine:
    try:
        engine = _engine(url)
        upgrade(engine)
    except (SQLAlchemyError, ImportError, OSError) as error:
        raise DatabaseError(_reason(error)) from error
    return engine


def _reason(error: Exception) -> str:
    """Return the driver's message without the statement and its values."""
    message = str(getattr(error, "orig", None) or error).strip()
    return message.partition("\n")[0].rstrip(".")


def _engine(url: str) -> Engine:
    close_home()
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        limits = {name: value for name, value in _POSTGRESQL.items() if name not in parsed.query}
        return create_engine(parsed, connect_args=limits, pool_pre_ping=True, pool_timeout=BUSY_S)
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    """Enable WAL, so that readers do not wait, and disable the driver's own transactions."""
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: Connection) -> None:
    """Lock at BEGIN for writers: SQLite cannot wait for a lock after a read in a transaction."""
    is_reading = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")
