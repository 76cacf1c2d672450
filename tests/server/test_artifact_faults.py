"""Failures of a shared artifact root: nothing is lost, partial or invented."""

import errno
import io
import os
import threading
import time
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from jarvis.core.workspace import analyses_dir
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.errors import (
    ArtifactError,
    DamagedArtifactError,
    FullDiskError,
    MissingArtifactError,
)
from jarvis.server.ingest.intake import store_upload
from jarvis.server.jobs.kinds import Inspect
from jarvis.server.storage import artifacts
from jarvis.server.storage.analysis_rows import stored_rows, version_of
from jarvis.server.storage.artifact_root import ArtifactRoot
from jarvis.server.storage.catalog import analysis_root
from tests.server.machines import (
    Machines,
    analyzed,
    folder_root,
    keep,
    machines,
    note_of,
    tiny,
    worked_off,
)

__all__ = ["analyzed", "folder_root", "machines", "tiny"]


def test_many_fetch_at_once_and_one_transfer_serves_all(
    machines: Machines, folder_root: Path, analyzed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = keep(analyzed, "x")
    machines.use("second")
    fetched: list[str] = []
    get = ArtifactRoot.get

    def counted(self: ArtifactRoot, key: str, *rest: Any) -> None:
        fetched.append(key)
        time.sleep(0.1)
        get(self, key, *rest)

    monkeypatch.setattr(ArtifactRoot, "get", counted)
    seen: list[str] = []
    threads = [threading.Thread(target=lambda: seen.append(note_of(analysis))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["x"] * 6
    assert len(fetched) == 1


def test_what_cannot_be_published_leaves_everything_as_it_was(
    machines: Machines, folder_root: Path, analyzed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = keep(analyzed, "first")
    version = version_of(database(), analysis)

    def refuse(*_: object) -> None:
        raise ArtifactError("s3://bucket", "Access Denied")

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactRoot, "put", refuse)
        with pytest.raises(ArtifactError, match="Access Denied"):
            keep(analyzed, "second")
    assert version_of(database(), analysis) == version
    assert note_of(analysis) == "first"
    assert not list(analyses_dir().glob(".*"))


def test_an_old_version_that_cannot_be_removed_is_no_failure(
    machines: Machines, folder_root: Path, analyzed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = keep(analyzed, "first")

    def refuse(*_: object) -> None:
        raise ArtifactError("s3://bucket", "Access Denied")

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactRoot, "remove", refuse)
        keep(analyzed, "second")
    assert note_of(analysis) == "second"
    assert len(list(folder_root.rglob("*.zip"))) == 2


def test_a_machine_that_died_before_the_row_has_changed_nothing(
    machines: Machines, folder_root: Path, analyzed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = keep(analyzed, "first")

    class DiedError(Exception):
        pass

    def die(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "record", die)
        with pytest.raises(DiedError):
            keep(analyzed, "second")
    assert note_of(analysis) == "first"
    rows = {row.id: row.version for row in stored_rows(database()).values()}
    (unlisted,) = {file for file in folder_root.rglob("*.zip") if file.stem != rows[analysis]}
    artifacts.clean_up(rows)
    assert unlisted.exists()  # it may be about to come on the list
    half = folder_root / "traces" / "3f2a" / ".a.json.1234"
    half.parent.mkdir(parents=True)
    half.touch()
    for file in (unlisted, half):
        os.utime(file, (0, 0))
    artifacts.clean_up(rows)
    assert sorted(file.name for file in folder_root.rglob("*") if file.is_file()) == [
        f"{rows[analysis]}.zip"
    ]


def test_a_version_that_is_gone_is_reported_and_its_copy_is_not_taken_for_it(
    machines: Machines, folder_root: Path, analyzed: Path
) -> None:
    analysis = keep(analyzed, "first")
    machines.use("second")
    keep(analyzed, "second")
    for file in folder_root.rglob("*.zip"):
        file.unlink()
    machines.use("first")
    with pytest.raises(MissingArtifactError, match=f"no longer has the analysis {analysis}"):
        analysis_root(analysis)
    machines.use("third")
    with pytest.raises(MissingArtifactError):
        analysis_root(analysis)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half"])
def test_a_damaged_analysis_is_refused_whole(
    machines: Machines, folder_root: Path, analyzed: Path, damage: bytes
) -> None:
    analysis = keep(analyzed)
    (stored,) = folder_root.rglob("*.zip")
    stored.write_bytes(damage)
    home = machines.use("second")
    with pytest.raises(DamagedArtifactError):
        analysis_root(analysis)
    assert not list((home / "analyses").iterdir())


def test_a_trace_with_other_bytes_than_its_name_says_is_refused(
    machines: Machines, folder_root: Path
) -> None:
    upload = store_upload("a.json", io.BytesIO(b"{}"))
    artifacts.publish_file(upload)
    (stored,) = folder_root.rglob("a.json")
    stored.write_bytes(b"{ }")
    home = machines.use("second")
    with pytest.raises(DamagedArtifactError):
        artifacts.local_file(home / upload.relative_to(machines.folder / "first"))


def test_a_trace_that_does_not_exist_fails_the_job_which_can_be_retried(
    machines: Machines, folder_root: Path, tiny: Path
) -> None:
    engine = database()
    job = queue.submit(
        engine, Inspect(store_upload("tiny.json", io.BytesIO(tiny.read_bytes()))).new_job()
    )
    (stored,) = folder_root.rglob("tiny.json")
    away = stored.rename(folder_root / "away")
    machines.use("second")
    failed = worked_off(engine, job)
    assert failed.error is not None
    assert f"The artifact root {folder_root} no longer has tiny.json" in failed.error
    away.rename(stored)
    assert worked_off(engine, queue.retry(engine, job.id)).error is None


def test_two_machines_that_make_the_same_at_once_lose_nothing(
    machines: Machines, folder_root: Path, analyzed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(analyzed, "before")
    put, made = ArtifactRoot.put, threading.Barrier(6)

    def all_at_once(self: ArtifactRoot, source: Path, key: str) -> None:
        put(self, source, key)
        made.wait(120)

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactRoot, "put", all_at_once)
        threads = [threading.Thread(target=keep, args=(analyzed, str(n))) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (stored,) = folder_root.rglob("*.zip")
    assert stored.stem == version_of(database(), analyzed.name)
    machines.use("second")
    assert note_of(analyzed.name) in set("012345")


def test_a_version_that_is_replaced_while_it_is_fetched_is_asked_for_again(
    machines: Machines, folder_root: Path, analyzed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = keep(analyzed, "first")
    get = ArtifactRoot.get
    machines.use("second")

    def replaced_before(self: ArtifactRoot, key: str, *rest: Any) -> None:
        monkeypatch.setattr(ArtifactRoot, "get", get)
        machines.use("first")
        keep(analyzed, "second")
        machines.use("second")
        get(self, key, *rest)

    monkeypatch.setattr(ArtifactRoot, "get", replaced_before)
    assert note_of(analysis) == "second"


def test_a_disk_that_is_full_here_is_a_sentence_and_nothing_is_half(
    machines: Machines, folder_root: Path, analyzed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = keep(analyzed)
    home = machines.use("second")

    def full(packed: ZipFile, folder: Path) -> None:
        (folder / "manifest.json").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(ZipFile, "extractall", full)
        with pytest.raises(FullDiskError, match=f"the analysis {analysis} cannot be downloaded"):
            analysis_root(analysis)
    assert not list((home / "analyses").iterdir())
    assert analysis_root(analysis).is_dir()
