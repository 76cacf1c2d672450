"""Database migrations: one file in ``versions`` per schema version."""

from pathlib import Path

from sqlalchemy import Engine, inspect, text
from sqlalchemy.engine import Connection

from jarvis.server.errors import NewerDatabaseError

HEAD = "0007"
"""Schema version of this Jarvis: the newest file in ``versions``."""

_VERSION_TABLE = "alembic_version"
_LOCK = 0x6A617276
"""Key of the PostgreSQL advisory lock of migrations."""


def upgrade(engine: Engine) -> None:
    """Migrate the database to ``HEAD``; several processes may call this concurrently.

    Raises:
        NewerDatabaseError: the database has a newer version.
    """
    with engine.connect() as connection:
        if version(connection) == HEAD:
            return
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        current = version(connection)
        if current is not None and current > HEAD:
            raise NewerDatabaseError(current, HEAD)
        _run(connection)


def version(connection: Connection) -> str | None:
    """Return the schema version of a database; None for an empty one."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return None
    current = connection.execute(text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalar()
    return None if current is None else str(current)


def _run(connection: Connection) -> None:
    # Imported lazily: slow, and needed only for a migration.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
