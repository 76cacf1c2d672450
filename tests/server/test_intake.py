import gzip
import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest

from jarvis.core.workspace import uploads_dir
from jarvis.server.errors import IntakeError
from jarvis.server.ingest.intake import (
    ROOTS_VARIABLE,
    adopt_upload,
    joined_uploads,
    output_folder,
    sample_trace,
    server_trace,
    store_upload,
    stored_upload_path,
    trace_roots,
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "traces"
    root.mkdir()
    (root / "a.json").write_text("{}")
    monkeypatch.setenv(ROOTS_VARIABLE, str(root))
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    return root


def test_a_relative_and_an_absolute_path_name_the_same_trace(root: Path) -> None:
    assert server_trace(" a.json ") == server_trace(str(root / "a.json")) == root / "a.json"


def test_several_roots_are_searched_in_turn(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.json.gz").write_bytes(b"")
    monkeypatch.setenv(ROOTS_VARIABLE, f"{root}:{other}")
    assert server_trace("b.json.gz") == other / "b.json.gz"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret.json", "~root/x.json", "a/../../s.json"]
)
def test_a_path_outside_the_roots_is_refused_without_looking(
    root: Path, tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret.json").write_text("{}")
    with pytest.raises(IntakeError, match="outside the folders"):
        server_trace(path)


def test_a_link_that_leaves_the_roots_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (root / "innocent.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(IntakeError, match="outside the folders"):
        server_trace("innocent.json")


def test_a_missing_file_an_empty_path_and_another_kind_of_file_are_named(root: Path) -> None:
    (root / "notes.txt").write_text("x")
    with pytest.raises(IntakeError, match=r"no file gone\.json"):
        server_trace("gone.json")
    with pytest.raises(IntakeError, match="Type the path"):
        server_trace("  ")
    with pytest.raises(IntakeError, match="not a supported trace"):
        server_trace("notes.txt")


def test_without_the_variable_the_current_folder_and_the_home_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ROOTS_VARIABLE, raising=False)
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert trace_roots() == (tmp_path.resolve(), (tmp_path / "home").resolve())


def test_the_output_folder_is_neither_a_root_nor_inside_the_home(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert output_folder("runs/one") == root / "runs" / "one"
    with pytest.raises(IntakeError, match="is already in use"):
        output_folder(str(root))
    with pytest.raises(IntakeError, match="outside the folders"):
        output_folder("/somewhere/else")
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path))
    with pytest.raises(IntakeError, match="is already in use"):
        output_folder("home/analyses/x")


def test_an_upload_is_stored_once_per_content_under_a_cleaned_name(root: Path) -> None:
    first = store_upload("../../my trace.json", io.BytesIO(b'{"a": 1}'))
    again = store_upload("../../my trace.json", io.BytesIO(b'{"a": 1}'))
    other = store_upload("my trace.json", io.BytesIO(b'{"a": 2}'))
    assert first == again != other
    assert first.name == other.name == "my_trace.json"
    assert first.read_bytes() == b'{"a": 1}'
    home = root.parent / "home"
    assert first.is_relative_to(home)
    assert not [p for p in home.rglob("*") if p.name.startswith(".")]


def test_the_same_bytes_under_another_name_take_no_room(root: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"bytes").hexdigest()
    stored = []
    for name in ("one.json", "two.json", "two.json"):
        written = tmp_path / "home" / "written"
        written.parent.mkdir(exist_ok=True)
        written.write_bytes(b"bytes")
        stored.append(adopt_upload(written, name, digest))
        assert not written.exists()
    assert [one.is_reused for one in stored] == [False, True, True]
    assert [one.path.name for one in stored] == ["one.json", "two.json", "two.json"]
    assert stored[0].path.samefile(stored[1].path)


def test_a_stored_file_that_lost_bytes_is_replaced(root: Path, tmp_path: Path) -> None:
    stored = stored_upload_path("one.json", "0" * 64)
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"byt")
    written = tmp_path / "home" / "written"
    written.write_bytes(b"bytes")
    assert not adopt_upload(written, "one.json", "0" * 64).is_reused
    assert stored.read_bytes() == b"bytes"


def test_an_upload_of_another_kind_is_refused(root: Path) -> None:
    with pytest.raises(IntakeError, match=r"model\.pt is not a supported trace"):
        store_upload("model.pt", io.BytesIO(b"x"))


def test_the_sample_says_that_it_is_simulated(root: Path) -> None:
    document = json.loads(gzip.decompress(sample_trace().read_bytes()))
    assert document["metadata"]["jarvis_sample"] == "simulated"
    assert sample_trace() == sample_trace()


def test_uploads_are_joined_to_one_archive_once(tmp_path: Path) -> None:
    traces = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "bs_8.json"
        path.parent.mkdir()
        path.write_text(folder, encoding="utf-8")
        traces.append(path)
    archive = joined_uploads(traces)
    assert archive.is_relative_to(uploads_dir())
    with zipfile.ZipFile(archive) as opened:
        assert {name: opened.read(name) for name in opened.namelist()} == {
            "bs_8.json": b"a",
            "1_bs_8.json": b"b",
        }
    written_ns = archive.stat().st_mtime_ns
    assert joined_uploads(traces) == archive
    assert archive.stat().st_mtime_ns == written_ns
