"""Contract tests for all kinds of artifact roots, and their error messages."""

import errno
import os
import time
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from jarvis.server.errors import ArtifactError, FullDiskError, MissingArtifactError
from jarvis.server.storage.artifact_root import ArtifactRoot
from tests.services.ports import free_port
from tests.services.s3 import S3
from tests.services.sshd import Sshd, make_key

KEY = "traces/abc/a trace+ü.json"


@pytest.fixture(params=["folder", "file", "memory", "s3", "sftp"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactRoot:
    folder = tmp_path / "shared root"
    match request.param:
        case "folder":
            folder.mkdir()
            return ArtifactRoot.at(str(folder))
        case "file":
            (tmp_path / "plain").mkdir()
            return ArtifactRoot.at(f"file://{tmp_path / 'plain'}")
        case "memory":
            return ArtifactRoot.at(f"memory://{tmp_path.name}")
        case "s3":
            return ArtifactRoot.at(request.getfixturevalue("s3_root"))
        case _:
            (tmp_path / "plain").mkdir()
            return sftp_root(request.getfixturevalue("node"), tmp_path / "plain")


def sftp_root(node: Sshd, folder: Path) -> ArtifactRoot:
    return ArtifactRoot.at(
        f"sftp://{node.user}@127.0.0.1:{node.port}{folder}"
        f"?key_filename={node.key}&known_hosts={node.known_hosts}&allow_agent=false"
        "&look_for_keys=false"
    )


def written(folder: Path, content: bytes) -> Path:
    file = folder / "source"
    file.write_bytes(content)
    return file


def test_what_is_put_comes_back(root: ArtifactRoot, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    assert not root.holds(KEY)
    before = time.time()
    root.put(written(tmp_path, content), KEY)
    assert root.holds(KEY)
    root.get(KEY, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == content
    (found,) = root.below("traces")
    assert (found.key, found.size_bytes) == (KEY, len(content))
    assert found.written is not None
    assert abs(found.written - before) < 60


def test_a_file_is_replaced_and_removed(root: ArtifactRoot, tmp_path: Path) -> None:
    for content in (b"first", b"second one"):
        root.put(written(tmp_path, content), KEY)
    root.put(written(tmp_path, b"other"), "traces/b/other")
    root.get(KEY, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"second one"
    root.remove(KEY, "traces/gone/never-there")
    assert [artifact.key for artifact in root.below("traces")] == ["traces/b/other"]
    assert root.below("analyses") == []
    with pytest.raises(MissingArtifactError, match="a trace"):
        root.get(KEY, tmp_path / "target")


def test_a_root_that_works_is_left_as_it_was(root: ArtifactRoot, tmp_path: Path) -> None:
    root.put(written(tmp_path, b"x"), KEY)
    root.check()
    assert [artifact.key for artifact in root.below("traces")] == [KEY]
    root.remove(KEY)


def refuses_everything(root: ArtifactRoot, tmp_path: Path, why: str) -> None:
    for attempt in (
        root.check,
        lambda: root.put(written(tmp_path, b"x"), KEY),
        lambda: root.holds(KEY),
        lambda: root.get(KEY, tmp_path / "target"),
    ):
        with pytest.raises(ArtifactError, match=why):
            attempt()


def test_a_folder_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    root = ArtifactRoot.at(str(tmp_path / "mnt"))
    refuses_everything(root, tmp_path, "there is no folder")
    assert not (tmp_path / "mnt").exists()


def test_a_bucket_that_is_gone_is_named(s3_root: str, s3: S3, tmp_path: Path) -> None:
    s3.files.rmdir(s3_root.split("/")[2])
    root = ArtifactRoot.at(s3_root)
    refuses_everything(root, tmp_path, "bucket")


def test_a_root_that_does_not_answer_is_a_sentence_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    port = free_port()
    s3 = f"s3://bucket/x?endpoint_url=http://127.0.0.1:{port}&key=my-key&secret=very-secret"
    sftp = f"sftp://ann:very-secret@127.0.0.1:{port}/x"
    for url in (s3, sftp, "nonsense://very-secret@bucket/x"):
        with pytest.raises(ArtifactError) as caught:
            ArtifactRoot.at(url).put(written(tmp_path, b"x"), KEY)
        assert "very-secret" not in str(caught.value)
        assert "my-key" not in str(caught.value)
        assert url.split("?")[0].replace("ann:", "").replace("very-secret@", "") in str(
            caught.value
        )


def test_a_reason_does_not_repeat_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no login with pa55word and token-1")

    monkeypatch.setattr(MemoryFileSystem, "put_file", refuse)
    with pytest.raises(ArtifactError, match="no login with") as caught:
        ArtifactRoot.at("memory://ann:pa55word@x?token=token-1").put(written(tmp_path, b"x"), KEY)
    assert "pa55word" not in str(caught.value)
    assert "token-1" not in str(caught.value)


def test_a_machine_with_another_key_is_refused(node: Sshd, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    other = (tmp_path / "other.pub").read_text()
    known = tmp_path / "known_hosts"
    for line, output in ((f"[127.0.0.1]:{node.port} {other}", "another key"), ("", "no key")):
        known.write_text(line)
        root = ArtifactRoot.at(
            f"sftp://{node.user}@127.0.0.1:{node.port}{tmp_path}"
            f"?key_filename={node.key}&known_hosts={known}&allow_agent=false&look_for_keys=false"
        )
        with pytest.raises(ArtifactError, match=output):
            root.check()


def test_half_a_file_is_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root").mkdir()
    root = ArtifactRoot.at(str(tmp_path / "root"))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LocalFileSystem, "mv", full)
    with pytest.raises(ArtifactError, match="No space left"):
        root.put(written(tmp_path, b"x"), KEY)
    assert root.below("traces") == []


def test_a_full_disk_of_this_machine_has_its_own_error(tmp_path: Path) -> None:
    root = ArtifactRoot.at(f"memory://{tmp_path.name}")
    root.put(written(tmp_path, b"x"), KEY)
    with pytest.raises(FullDiskError, match="JARVIS_ARTIFACT_CACHE_GB"):
        root.get(KEY, Path("/dev/full"))
