"""A home of its own for each test, with a database in it."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.server.database import database


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def engine(home: Path) -> Engine:
    return database()
