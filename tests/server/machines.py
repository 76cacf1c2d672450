"""Machines with separate homes and a shared database, and an analysis to store."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.queue import Job
from jarvis.server.storage import artifacts
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.dashboard.inline_jobs import work_off
from tests.services.postgres import URL_VARIABLE


@dataclass(frozen=True, slots=True)
class Machines:
    """``use`` switches this process to the home of a machine."""

    folder: Path
    patch: pytest.MonkeyPatch

    def use(self, name: str) -> Path:
        """The home of the machine."""
        home = self.folder / name
        self.patch.setenv("JARVIS_HOME", str(home))
        return home


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """One SQLite database for all; the first machine is in use, and nothing is shared yet."""
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path / 'shared.db'}")
    machines = Machines(tmp_path / "machines", monkeypatch)
    machines.use("first")
    yield machines
    database().dispose()


@pytest.fixture
def folder_root(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared folder as the artifact root."""
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setenv(ARTIFACT_ROOT_VARIABLE, str(folder))
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace."""
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path_factory.mktemp("trace") / "tiny.json")


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """The folder of an analysis that is not stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(tmp_path_factory.mktemp("home")))
        root = submit(Submission(tiny)).root
        database().dispose()
    return root


def keep(analyzed: Path, note: str = "") -> str:
    """Store a copy under its id, like a new analysis; ``note`` distinguishes two copies."""

    def make(folder: Path) -> None:
        shutil.copytree(analyzed, folder, dirs_exist_ok=True)
        (folder / "priority_data.json").write_text(note)

    artifacts.store_analysis(analyzed.name, make)
    return analyzed.name


def note_of(analysis: str) -> str:
    return (analysis_root(analysis) / "priority_data.json").read_text()


def worked_off(engine: Engine, job: Job) -> Job:
    """A job when it was done by the machine that is in use."""
    work_off(engine)
    return queue.find(engine, job.id)
