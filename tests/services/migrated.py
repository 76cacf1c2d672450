"""New SQLite databases with the tables of the first one, which alone is migrated by Alembic."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.engine import Connection

from jarvis.server import migrations


@contextmanager
def migrated_once() -> Iterator[None]:
    """Copy the tables into each database that has none yet: 2 ms of CPU time instead of 30."""
    statements: list[str] = []
    migrate = migrations._run

    def copy_tables(connection: Connection) -> None:
        is_sqlite = connection.dialect.name == "sqlite"
        if not is_sqlite or migrations.version(connection) is not None:
            migrate(connection)
        elif statements:
            for statement in statements:
                connection.exec_driver_sql(statement)
        else:
            migrate(connection)
            driver = connection.connection.driver_connection
            assert driver is not None
            statements.extend(list(driver.iterdump())[1:-1])  # without BEGIN and COMMIT

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "_run", copy_tables)
        yield
