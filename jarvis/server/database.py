"""The database of a server: SQLite under ``JARVIS_HOME``, another one by ``JARVIS_DATABASE_URL``.

It holds the jobs and who works on them, the list of kept analyses with their owners, API tokens
(hashed) and the audit log. What an analysis says is in its folder.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

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
    func,
    make_url,
    select,
)
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import close_home, database_file
from jarvis.server.migrations import upgrade
from jarvis.server.settings import settings

URL_VARIABLE = "JARVIS_DATABASE_URL"
BUSY_S = 30
"""How long a writer waits for another one."""

CONNECT_S = 5
"""How long a server may take to answer at all."""

_POSTGRESQL = {
    "connect_timeout": CONNECT_S,
    "tcp_user_timeout": 2 * CONNECT_S * 1000,
    "keepalives_idle": 2 * CONNECT_S,
    "keepalives_interval": CONNECT_S,
    "keepalives_count": 2,
    "options": f"-c statement_timeout={BUSY_S}s -c idle_in_transaction_session_timeout={BUSY_S}s",
    "application_name": "jarvis",
}
"""So that a server that has gone, or is locked, is an error and no silence; what the address itself
says of these comes first."""

READ_ONLY = "jarvis_read_only"
"""The execution option of a connection that will not write, so need not wait for those that do."""


class DatabaseError(JarvisError):
    """The database cannot be used."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The database of this server cannot be used: {reason}. Check that it runs and may be "
            f"written ({URL_VARIABLE}, by default a file in JARVIS_HOME), then try again."
        )


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC, also where the database knows no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class JobState(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobKind(StrEnum):
    """What a job does."""

    INSPECT = "inspect"
    ANALYZE = "analyze"
    REPROJECT = "reproject"
    EXPORT = "export"
    REPLAY = "replay"
    COMPARE = "compare"
    FETCH = "fetch"
    REMOTE = "remote"
    LOAD = "load"


class Visibility(StrEnum):
    """Who sees an analysis: its owner and admins, or everyone who may see analyses at all."""

    PRIVATE = "private"
    TEAM = "team"


ACTIVE = (JobState.QUEUED, JobState.RUNNING)
"""The states of a job that will still change by itself."""


def _words(kind: type[StrEnum]) -> Enum:
    """A column of the values of an enumeration, as plain text."""
    return Enum(kind, native_enum=False, length=16, values_callable=list)


METADATA = MetaData()

JOBS = Table(
    "jobs",
    METADATA,
    Column("id", String(16), primary_key=True),
    Column("kind", _words(JobKind), nullable=False),
    Column("state", _words(JobState), nullable=False),
    Column("title", Text, nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("folders", JSON, nullable=False),
    Column("owner", Text),
    Column("visibility", _words(Visibility), nullable=False, server_default=Visibility.TEAM),
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
    Index("jobs_by_state", "state", "created"),
    Index("jobs_by_request", "fingerprint", "created"),
)
"""One row for each job; the queue, and what became of what was in it. ``visibility`` is that of the
analysis that the job makes, and counts until that is kept; ``role`` is that of the owner when the
job was submitted."""

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
    Column("visibility", _words(Visibility)),
    Index("job_analyses_by_analysis", "analysis_id"),
)
"""One row for each analysis that a job reads or has made. ``owner`` and ``visibility`` are NULL
while the analysis is kept, whose own columns count then, and the last ones of a removed analysis:
a job does not become more visible when an analysis is removed, or made again by somebody else."""

WORKERS = Table(
    "workers",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("slots", Integer, nullable=False),
    Column("started", UtcDateTime, nullable=False),
    Column("heartbeat", UtcDateTime, nullable=False),
)
"""One row for each worker that is at work."""

ANALYSES = Table(
    "analyses",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("trace_sha256", String(64), nullable=False),
    Column("owner", Text),
    Column("visibility", _words(Visibility), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("is_pinned", Boolean, nullable=False),
    Column("version", String(32), nullable=False),
    Column("written_ns", BigInteger, nullable=False),
    Column("made_on", String(64)),
    Column("loaded_by", Text),
    Column("manifest", Text, nullable=False),
    Index("analyses_by_trace", "trace_sha256"),
)
"""One row for each stored analysis; ``version`` changes when it is made again, so that a copy of it
elsewhere is known to be old; ``written_ns`` is when its manifest was written in the home of this
server, so that a folder that has changed is known. The manifest is last: SQLite reads a row up to
the last column that is asked for."""

HARDWARE_OWNERS = Table(
    "hardware_owners",
    METADATA,
    Column("file", String(255), primary_key=True),
    Column("owner", Text, nullable=False),
)
"""Who added the GPU description in each file; only admins change one without a row here."""

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
"""API tokens; only a digest of the secret is kept."""

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
"""Who did what; rows are added, and go only with age."""


def database_url() -> str:
    """``JARVIS_DATABASE_URL``, else a file in ``JARVIS_HOME``."""
    given = settings().database_url
    return given.get_secret_value() if given else f"sqlite:///{database_file().resolve()}"


def database() -> Engine:
    """The engine of this process, its tables there and of this version.

    Raises DatabaseError where it cannot be reached, or belongs to a newer Jarvis.
    """
    return _database(database_url())


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection that reads, and waits for no writer; DatabaseError where it does not answer."""
    with _answering(), engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes, whole or not at all; DatabaseError where it does not answer."""
    with _answering(), engine.begin() as connection:
        yield connection


def database_now(connection: Connection) -> datetime:
    """Return the moment by the database's clock, which is one for all that work with it.

    SQLite has the clock of this machine, which all share that may open its file.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    now = func.strftime("%Y-%m-%d %H:%M:%f", "now") if is_sqlite else func.clock_timestamp()
    said = connection.execute(select(now)).scalar_one()
    moment = datetime.fromisoformat(f"{said}Z") if is_sqlite else said
    assert isinstance(moment, datetime)
    return moment.astimezone(UTC)


@contextmanager
def _answering() -> Iterator[None]:
    """A database that does not answer is a sentence; what it refuses stays as it is."""
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
    """What the driver said, without the statement and its values."""
    said = str(getattr(error, "orig", None) or error).strip()
    return said.partition("\n")[0].rstrip(".")


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
    """Readers do not wait for writers; the transactions are ours, not the driver's."""
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes its turn at once: one that has read before cannot wait for it."""
    is_reading = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")
