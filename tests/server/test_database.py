"""Migrations: created on first use, also concurrently, with the current version."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, text

from jarvis.core.labels import NO_LABELS
from jarvis.server import migrations, queue
from jarvis.server.database import (
    BUSY_S,
    METADATA,
    JobKind,
    Visibility,
    database,
    database_url,
    reading,
)
from jarvis.server.errors import DatabaseError, NewerDatabaseError
from jarvis.server.migrations import HEAD
from jarvis.server.queue import NewJob
from jarvis.server.storage.analysis_rows import all_rows
from tests.server.conftest import on_both_databases
from tests.services.postgres import PASSWORD, URL_VARIABLE, Postgres


@on_both_databases
def test_the_changes_lead_to_the_tables_that_the_code_uses(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_the_known_version_is_the_newest_change() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_many_may_make_the_database_at_once(
    home: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "postgresql":
        monkeypatch.setenv(URL_VARIABLE, request.getfixturevalue("postgres_url"))
    command = [sys.executable, "-c", "from jarvis.server.database import database; database()"]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    errors = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, errors
    with reading(database()) as connection:
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1


@on_both_databases
def test_readers_do_not_wait_for_a_writer(engine: Engine) -> None:
    with engine.begin() as writer:
        writer.execute(text("DELETE FROM jobs"))
        with reading(engine) as reader:
            assert reader.execute(text("SELECT count(*) FROM jobs")).scalar() == 0


@on_both_databases
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
    with pytest.raises(DatabaseError, match="Check that it is running"):
        database()


def test_another_database_is_named_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "postgresql+psycopg://jarvis@db/jarvis")
    assert database_url() == "postgresql+psycopg://jarvis@db/jarvis"


def test_a_server_that_was_gone_is_used_again(
    postgres: Postgres, postgres_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, postgres_url)
    job = queue.submit(database(), NewJob(JobKind.EXPORT, "Export", {}))
    postgres.stop()
    try:
        for _ in range(2):
            with pytest.raises(DatabaseError, match="Check that it is running") as refused:
                queue.find(database(), job.id)
            assert PASSWORD not in str(refused.value)
    finally:
        postgres.start()
    assert queue.find(database(), job.id) == job


def test_a_server_that_does_not_answer_is_given_up(
    postgres_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client has locked the table: the wait is bounded."""
    monkeypatch.setenv(URL_VARIABLE, postgres_url)
    with database().begin() as other:  # which also made the tables, without a limit
        monkeypatch.setenv(URL_VARIABLE, f"{postgres_url}?options=-c%20statement_timeout%3D2000")
        database()
        other.execute(text("LOCK TABLE jobs"))
        with pytest.raises(DatabaseError, match="statement timeout"):
            queue.submit(database(), NewJob(JobKind.EXPORT, "Export", {}))


def test_connections_to_a_server_have_time_limits(
    postgres_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, postgres_url)
    with reading(database()) as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar() == f"{BUSY_S}s"


def test_a_locked_database_can_be_read_and_says_that_it_is_locked(
    engine: Engine,
) -> None:
    file = engine.url.database
    assert file is not None
    impatient = create_engine(f"sqlite:///{file}", connect_args={"timeout": 0.05})
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert queue.counts(impatient) == {}
        with pytest.raises(DatabaseError, match="database is locked"):
            queue.submit(impatient, NewJob(JobKind.EXPORT, "Export", {}))
        other.rollback()
    assert queue.submit(impatient, NewJob(JobKind.EXPORT, "Export", {})).is_active
    impatient.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def old_url(
    request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of the server's database, which has no tables yet."""
    url = f"sqlite:///{home.parent / 'old.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    monkeypatch.setenv(URL_VARIABLE, url)
    yield url
    database().dispose()


@contextmanager
def at_version(url: str, version: str) -> Iterator[Connection]:
    """Create the tables of an earlier version; yield a connection."""
    old = create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with old.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        yield connection
    old.dispose()


def test_a_database_of_an_earlier_version_retains_its_jobs(old_url: str) -> None:
    with at_version(old_url, "0001") as connection:
        values = {
            "id": "'one'", "kind": "'analyze'", "state": "'done'", "title": "'Analyze a.json'",
            "parameters": "'{}'", "fingerprint": "'f'", "folders": "'[]'", "step_number": "8",
            "step_count": "8", "percent": "100", "steps": "'[]'", "log": "''", "attempts": "1",
            "is_cancel_requested": "false", "created": "'2026-11-01 10:00:00'",
        }  # fmt: skip
        names, row = ", ".join(values), ", ".join(values.values())
        connection.execute(text(f"INSERT INTO jobs ({names}) VALUES ({row})"))
    (job,) = queue.recent(database())
    assert (job.id, job.title, job.visibility) == ("one", "Analyze a.json", Visibility.TEAM)


def test_analyses_of_an_earlier_version_have_no_labels(old_url: str) -> None:
    with at_version(old_url, "0004") as connection:
        connection.execute(
            text(
                "INSERT INTO analyses (id, trace_sha256, owner, visibility, size_bytes, is_pinned, "
                "version, written_ns, loaded_by, manifest) VALUES ('one', '', 'ann', 'private', 7, "
                "true, 'v', 1, 'bob', '{}')"
            )
        )
    row = all_rows(database())["one"]
    assert (row.owner, row.size_bytes, row.is_pinned, row.loaded_by) == ("ann", 7, True, "bob")
    assert row.labels == NO_LABELS
