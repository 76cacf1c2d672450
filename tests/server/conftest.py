"""Each test has its own home with a database."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.server.database import URL_VARIABLE, database

on_both_databases = pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
"""For what depends on the database: the tests run with each of the two kinds."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def engine(
    request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """The database of the test, SQLite where it asks for no other."""
    if getattr(request, "param", "sqlite") == "postgresql":
        monkeypatch.setenv(URL_VARIABLE, request.getfixturevalue("postgres_url"))
    engine = database()
    yield engine
    engine.dispose()
