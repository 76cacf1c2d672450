"""The tables: made at first use, by many at once, and of the version that the code knows."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, text

from jarvis.server import jobs, migrations
from jarvis.server.database import (
    METADATA,
    URL_VARIABLE,
    DatabaseError,
    JobKind,
    database,
    database_url,
    reading,
)
from jarvis.server.jobs import NewJob
from jarvis.server.migrations import HEAD, NewerDatabaseError


def test_the_changes_lead_to_the_tables_that_the_code_uses(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_the_known_version_is_the_newest_change() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_many_may_make_the_database_at_once(home: Path) -> None:
    command = [sys.executable, "-c", "from jarvis.server.database import database; database()"]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    errors = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, errors
    with reading(database()) as connection:
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1


def test_readers_do_not_wait_for_a_writer(engine: Engine) -> None:
    with engine.begin() as writer:
        writer.execute(text("DELETE FROM jobs"))
        with reading(engine) as reader:
            assert reader.execute(text("SELECT count(*) FROM jobs")).scalar() == 0


def test_a_database_of_a_newer_version_is_left_alone(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerDatabaseError, match="9999"):
        migrations.upgrade(engine)


@pytest.mark.parametrize(
    "url", ["sqlite:////proc/nothing/jarvis.db", "nonsense", "postgresql+nodriver://host/db"]
)
def test_a_database_that_cannot_be_used_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)
    with pytest.raises(DatabaseError, match="Check that it runs"):
        database()


def test_another_database_is_named_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "postgresql+psycopg://jarvis@db/jarvis")
    assert database_url() == "postgresql+psycopg://jarvis@db/jarvis"


def test_a_locked_database_can_be_read_and_says_that_it_is_locked(
    engine: Engine,
) -> None:
    file = engine.url.database
    assert file is not None
    impatient = create_engine(f"sqlite:///{file}", connect_args={"timeout": 0.05})
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert jobs.counts(impatient) == {}
        with pytest.raises(DatabaseError, match="database is locked"):
            jobs.submit(impatient, NewJob(JobKind.EXPORT, "Export", {}))
        other.rollback()
    assert jobs.submit(impatient, NewJob(JobKind.EXPORT, "Export", {})).is_active
    impatient.dispose()
