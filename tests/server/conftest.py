"""Each test has its own home with a database."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import Person, Role
from jarvis.server.actions import Actor
from jarvis.server.database import database
from jarvis.server.storage.analysis_rows import change
from jarvis.server.storage.catalog import read_catalog, stored_row
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.services.postgres import URL_VARIABLE

ADA = Actor(Person("ada", Role.EDITOR), Channel.PAGE)
BOB = Actor(Person("bob", Role.EDITOR), Channel.API)
VIC = Actor(Person("vic", Role.VIEWER), Channel.PAGE)
ROOT = Actor(Person("root", Role.ADMIN), Channel.PAGE)
ANONYMOUS = Actor(Person(None, Role.NONE), Channel.PAGE)

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


@pytest.fixture(scope="module")
def home_with_findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one analysis that has several findings."""
    home = tmp_path_factory.mktemp("made")
    built = trace().op("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm", us=9e3)
    built = built.op("aten::add", [[8192, 8192], [8192, 8192]]).launches("add", us=9e3)
    built = built.op("aten::bmm", [[8, 2048, 2048], [8, 2048, 2048]]).launches("bmm", us=9e3)
    file = built.write(home / "trace.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        submit(Submission(file, model_name="one", platform="MI300X"))
        database().dispose()
    (home / "jarvis.db").unlink()
    return home


@pytest.fixture
def analysis(home_with_findings: Path, engine: Engine, home: Path) -> str:
    """The id of an analysis of Ada."""
    shutil.copytree(home_with_findings / "analyses", home / "analyses")
    (entry,) = read_catalog().entries
    set_owner(entry.id, "ada")
    return entry.id


def set_owner(analysis_id: str, owner: str | None) -> None:
    """Set the owner of a stored analysis."""
    change(database(), stored_row(analysis_id).id, owner=owner)
