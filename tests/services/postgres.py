"""A PostgreSQL server for tests: started once, with a new database per test."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import event
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from tests import optional
from tests.conftest import skip_or_fail
from tests.services.ports import free_port

URL_VARIABLE = "JARVIS_DATABASE_URL"
USER, PASSWORD = "jarvis", "not so secret"
_OS_USER = "postgres"
_SECONDS = 120
_FAST = ("-c", "fsync=off", "-c", "full_page_writes=off")


class Postgres:
    """A server on loopback that can be stopped and started again, with what is in it.

    It ends with the process that started it, also when that is killed.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.port = free_port()
        self._data = folder / "data"
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        password = folder / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        if os.getuid() == 0:
            for path in (folder, password):
                shutil.chown(path, _OS_USER, _OS_USER)
        made = subprocess.run(
            self._as_somebody(
                "initdb", "--pgdata", self._data, "--username", USER, "--pwfile", password,
                "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync",
            ),
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr

    def url(self, name: str) -> str:
        """The address of one of its databases, as ``JARVIS_DATABASE_URL`` takes it."""
        quoted = PASSWORD.replace(" ", "%20")
        return f"postgresql+psycopg://{USER}:{quoted}@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._as_somebody(
                    "postgres", "-D", self._data, "-p", str(self.port), *_FAST,
                    "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
                ),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                self._administer().close()
                return
            except psycopg.OperationalError:
                is_hopeless = time.monotonic() > deadline or self._process.poll() is not None
                assert not is_hopeless, self._log.read_text("utf-8")
                time.sleep(0.02)

    def stop(self) -> None:
        """Stop it immediately, like a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_SECONDS)
            self._process = None

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """The address of an empty database, which is dropped after the block."""
        name = f"test_{secrets.token_hex(6)}"
        with self._administer() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield self.url(name)
        finally:
            dropping = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            with self._administer() as connection:
                connection.execute(dropping)

    def _administer(self) -> "psycopg.Connection[tuple[object, ...]]":
        plain = self.url("postgres").replace("+psycopg", "")
        return psycopg.connect(plain, autocommit=True, connect_timeout=_SECONDS)

    def _as_somebody(self, program: str, *arguments: object) -> list[str]:
        """A command that dies with us, by a user who is not root: PostgreSQL refuses that one."""
        other = ("--reuid", _OS_USER, "--regid", _OS_USER, "--clear-groups")
        changed = other if os.getuid() == 0 else ()
        command = (*optional.tied("QUIT"), *changed, self.programs / program)
        return [str(part) for part in (*command, *arguments)]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server; a test that stops it starts it again."""
    programs = optional.postgres_programs()
    if not programs:
        skip_or_fail("PostgreSQL is not installed")
    # Not in a folder of pytest: the other user may not look into those.
    with tempfile.TemporaryDirectory(prefix="jarvis-postgres-") as folder:
        server = Postgres(programs[-1], Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """An empty database of the test's own; connections that this process still has are closed."""
    opened: list[object] = []

    def remember(connection: object, _: ConnectionPoolEntry) -> None:
        opened.append(connection)

    event.listen(Pool, "connect", remember)
    try:
        with postgres.fresh_database() as url:
            yield url
    finally:
        event.remove(Pool, "connect", remember)
        for connection in opened:
            if isinstance(connection, psycopg.Connection):
                connection.close()
