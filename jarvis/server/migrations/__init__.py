"""The tables of the database, version by version: one file in ``versions`` for each change."""

from pathlib import Path

from sqlalchemy import Engine, inspect, text
from sqlalchemy.engine import Connection

from jarvis.core.errors import JarvisError

HEAD = "0004"
"""The version that this Jarvis works with: the newest file in ``versions``."""

_VERSION_TABLE = "alembic_version"
_LOCK = 0x6A617276
"""Where a database can be locked by a number, this one is for its changes."""


class NewerDatabaseError(JarvisError):
    """A newer Jarvis has changed the database."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"The database of this server has version {found}, this Jarvis knows version {HEAD}: "
            "a newer Jarvis made it. Use that one, or another database."
        )


def upgrade(engine: Engine) -> None:
    """Bring the database to ``HEAD``; nothing happens where it is there.

    Several processes may do so at once. Raises NewerDatabaseError.
    """
    with engine.connect() as connection:
        if version(connection) == HEAD:
            return
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        found = version(connection)
        if found is not None and found > HEAD:
            raise NewerDatabaseError(found)
        _run(connection)


def version(connection: Connection) -> str | None:
    """The version that a database has; None for an empty one."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalar()
    return None if found is None else str(found)


def _run(connection: Connection) -> None:
    # Slow to import, and needed once in the life of a version.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
