"""Retention and sharing on machines with separate homes."""

import os
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE, analyses_dir
from jarvis.server import claims, queue
from jarvis.server.database import JobKind, JobState, database
from jarvis.server.errors import MissingArtifactError, UnknownAnalysisError
from jarvis.server.ingest.intake import store_upload
from jarvis.server.jobs.kinds import Inspect
from jarvis.server.queue import JobProgress, NewJob, Outcome
from jarvis.server.retention.housekeeping import clean_up, delete_orphans
from jarvis.server.retention.plan import Kind, Limits, plan, prune
from jarvis.server.retention.removal import remove_analysis
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.server.conftest import set_owner
from tests.services.postgres import URL_VARIABLE


class Machines:
    """A database for all; each machine has its home, and the ``root`` once it is set."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = folder / "shared"
        self._folder = folder
        self._patch = patch
        patch.setenv(URL_VARIABLE, f"sqlite:///{folder / 'jarvis.db'}")
        self.use("first")

    def use(self, name: str) -> None:
        """Be on this machine from now on."""
        self._patch.setenv("JARVIS_HOME", str(self._folder / name))

    def share(self) -> None:
        """Set the artifact root."""
        self.root.mkdir()
        self._patch.setenv(ARTIFACT_ROOT_VARIABLE, str(self.root))


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, monkeypatch)


@pytest.fixture
def upload(machines: Machines, tmp_path: Path) -> Path:
    """A trace on the first machine."""
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    with built.write(tmp_path / "tiny.json").open("rb") as content:
        return store_upload("tiny.json", content)


def test_what_was_stored_before_it_was_shared_is_shared_by_its_machine(
    machines: Machines, upload: Path
) -> None:
    kept = submit(Submission(upload)).id
    set_owner(kept, "ann")
    machines.share()
    machines.use("second")
    with pytest.raises(MissingArtifactError):
        analysis_root(kept)
    clean_up(database())
    machines.use("first")
    clean_up(database())
    machines.use("second")
    assert analysis_root(kept).is_dir()
    assert [entry.owner for entry in read_catalog().entries] == ["ann"]


def test_a_folder_that_is_copied_in_is_shared_and_no_copy_of_what_was_removed(
    machines: Machines, upload: Path
) -> None:
    machines.share()
    kept = submit(Submission(upload)).id
    machines.use("second")
    analysis_root(kept).rename(analyses_dir().parent / "aside")
    machines.use("first")
    remove_analysis(kept)
    machines.use("third")
    assert read_catalog().entries == ()
    analyses_dir().mkdir(parents=True)
    (analyses_dir().parents[1] / "second" / "aside").rename(analyses_dir() / kept)
    assert [entry.id for entry in read_catalog().entries] == [kept]
    clean_up(database())
    machines.use("first")
    assert analysis_root(kept).is_dir()
    machines.use("third")
    remove_analysis(kept)
    machines.use("first")
    assert read_catalog().entries == (), "the copy here is no new analysis"
    clean_up(database())
    assert not (analyses_dir() / kept).exists()
    with pytest.raises(UnknownAnalysisError):
        analysis_root(kept)


def test_uploads_that_another_machine_took_are_pruned(machines: Machines, upload: Path) -> None:
    machines.share()
    job = queue.submit(database(), Inspect(upload).new_job())
    (shared,) = (path for path in (machines.root / "traces").rglob("*") if path.is_file())
    machines.use("second")
    assert plan(Limits()).to_delete == []
    then = time.time() - 2 * 86_400
    os.utime(shared, (then, then))
    assert plan(Limits()).to_delete == []
    queue.cancel(database(), job.id)
    planned = plan(Limits())
    assert [(one.stored.kind, one.stored.name) for one in planned.to_delete] == [
        (Kind.UPLOAD, "tiny.json")
    ]
    assert planned.freed_bytes == upload.stat().st_size
    assert len(prune(planned)) == 1
    assert not shared.exists()
    assert plan(Limits()).is_empty


def staged(name: str, label: str, kind: str = "new") -> Path:
    folder = analyses_dir() / f".{name}.{kind}-{label}0123abcd"
    folder.mkdir(parents=True)
    return folder


def test_only_attempts_that_run_no_more_are_cleared_away(engine: Engine) -> None:
    running, ended = (
        queue.submit(engine, NewJob(JobKind.ANALYZE, name, {"trace": name})) for name in "ab"
    )
    for _ in range(2):
        claims.claim(engine, "w")
    claims.finish(engine, "w", ended.id, JobProgress(), Outcome(JobState.FAILED, "It failed."))
    kept = staged("a", f"job-{running.id}-1-"), staged("other", "")
    gone = (
        staged("a", f"job-{running.id}-0-"),
        staged("b", f"job-{ended.id}-1-"),
        staged("c", "job-0123456789-1-"),
    )
    replaced = staged("d", f"job-{ended.id}-1-", "old")
    delete_orphans(engine)
    assert all(folder.is_dir() for folder in kept)
    assert not any(folder.exists() for folder in gone)
    assert not replaced.exists()
    assert (analyses_dir() / "d").is_dir(), "the only copy of what was being replaced"
