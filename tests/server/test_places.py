"""Machine-independent addresses of files in job parameters."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from jarvis.core.workspace import exports_dir, uploads_dir
from jarvis.server.storage.storage_keys import FilePath, address, key_of, path_at


def test_uploads_and_exports_are_named_from_the_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = uploads_dir() / "3f2a" / "step one.json.gz"
    assert key_of(upload) == "traces/3f2a/step one.json.gz"
    assert key_of(exports_dir() / "job1" / "a.xlsx") == "exports/job1/a.xlsx"
    message = address(upload)
    assert str(home) not in message
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "elsewhere"))
    assert path_at(message) == tmp_path / "elsewhere" / "traces" / "3f2a" / "step one.json.gz"


def test_a_home_behind_a_link_is_the_same_home(home: Path, tmp_path: Path) -> None:
    (tmp_path / "disk" / "traces").mkdir(parents=True)
    home.symlink_to(tmp_path / "disk")
    assert key_of(tmp_path / "disk" / "traces" / "3f2a" / "a.json") == "traces/3f2a/a.json"


@pytest.mark.parametrize("path", ["/data/a.json", "traces/a/b.json", "home/analyses/x/y"])
def test_other_files_keep_their_path(home: Path, tmp_path: Path, path: str) -> None:
    given = Path(path) if path.startswith("/") else tmp_path / path
    assert key_of(given) is None
    assert path_at(address(given)) == given


def test_folders_and_their_content_are_named_from_the_home(home: Path) -> None:
    for path in (exports_dir(), uploads_dir() / "sample.json"):
        assert str(home) not in address(path)
        assert path_at(address(path)) == path
        assert key_of(path) is None


def test_files_at_other_depths_have_no_key(home: Path) -> None:
    for path in ("sample.json", "a/b/c.json", ".half/a.json", "a/.half"):
        assert key_of(uploads_dir() / path) is None


@pytest.mark.parametrize(
    "message",
    [
        "home:../../etc/passwd",
        "home:traces/../x",
        "home:/etc/passwd",
        "home:traces/..",
        "home:traces/.half",
        "home:cache/a/b",
        "home:traces/../../secret",
        "home:",
    ],
)
def test_an_address_leads_nowhere_else(home: Path, message: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a file"):
        path_at(message)
    with pytest.raises(ValidationError):
        TypeAdapter(FilePath).validate_python(message)


def test_a_parameter_is_written_as_an_address(home: Path) -> None:
    files = TypeAdapter(FilePath | None)
    upload = uploads_dir() / "3f2a" / "a.json"
    assert files.dump_python(upload, mode="json") == "home:traces/3f2a/a.json"
    assert files.validate_python("home:traces/3f2a/a.json") == upload
    assert files.dump_python(Path("/data/a.json"), mode="json") == "/data/a.json"
    assert files.validate_python(None) is None
