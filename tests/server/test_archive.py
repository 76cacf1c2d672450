"""Archives: an import is complete under its id, or fails with a message."""

import json
import shutil
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jarvis.core.unpacking import RATIO_VARIABLE, SIZE_VARIABLE
from jarvis.core.workspace import analyses_dir
from jarvis.run import Run
from jarvis.server.errors import ArchiveError
from jarvis.server.storage.archive import FORMAT_VERSION, load_archive, save_archive
from jarvis.server.storage.catalog import (
    analysis_root,
    pinned,
    read_catalog,
    set_pinned,
    stored_row,
)
from jarvis.server.submission import StoredAnalysis, Submission, submit
from tests.builders import trace

LIST = "jarvis-archive.json"
Move = Callable[[str], Path]


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory) -> StoredAnalysis:
    folder = tmp_path_factory.mktemp("analyzed")
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(folder))
        return submit(Submission(built.write(folder / "tiny.json"), model_name="Tiny"))


@pytest.fixture
def stored(analyzed: StoredAnalysis, home: Path) -> StoredAnalysis:
    """An analysis that a test may change."""
    root = shutil.copytree(analyzed.root, analyses_dir() / analyzed.id)
    return StoredAnalysis(analyzed.id, root, False)


@pytest.fixture
def saved(stored: StoredAnalysis, tmp_path: Path) -> Path:
    out = tmp_path / "tiny.jarvis.zip"
    save_archive(stored.root, out)
    return out


@pytest.fixture
def elsewhere(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another server's home, and nothing in it."""
    root = tmp_path / "elsewhere"
    monkeypatch.setenv("JARVIS_HOME", str(root))
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def members(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def rewritten(archive: Path, changed: Mapping[str, bytes | None]) -> Path:
    """The archive with other members: ``None`` drops one."""
    every = members(archive) | changed
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in every.items():
            if content is not None:
                opened.writestr(name, content)
    return archive


def relisted(archive: Path, **values: Any) -> Path:
    """The archive with another list of its files."""
    listed = json.loads(members(archive)[LIST])
    return rewritten(archive, {LIST: json.dumps(listed | values).encode()})


def refused(archive: Path, words: str) -> None:
    """Check that importing fails with this message and leaves nothing."""
    before = sorted(analyses_dir().rglob("*")) if analyses_dir().exists() else []
    with pytest.raises(ArchiveError, match=words) as refusal:
        load_archive(archive)
    assert len(str(refusal.value)) < 400
    assert (sorted(analyses_dir().rglob("*")) if analyses_dir().exists() else []) == before


def test_an_analysis_arrives_as_it_was_under_the_same_id(
    stored: StoredAnalysis, saved: Path, elsewhere: Path
) -> None:
    loaded = load_archive(saved)
    assert (loaded.id, loaded.is_reused, loaded.was_pinned) == (stored.id, False, False)
    assert loaded.root == analysis_root(stored.id)
    assert loaded.root.is_relative_to(elsewhere)
    assert contents(loaded.root) == contents(stored.root)
    assert [entry.id for entry in read_catalog().entries] == [stored.id]
    assert Run.load(loaded.root).table("operations").height == 1


def test_the_same_analysis_gives_the_same_file(
    stored: StoredAnalysis, saved: Path, tmp_path: Path
) -> None:
    save_archive(stored.root, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == saved.read_bytes()


def test_what_is_stored_already_is_reused_and_stays_untouched(
    stored: StoredAnalysis, saved: Path, elsewhere: Path
) -> None:
    first = load_archive(saved)
    stamp = (first.root / "manifest.json").stat().st_mtime_ns
    again = load_archive(saved)
    assert again.is_reused
    assert (again.root / "manifest.json").stat().st_mtime_ns == stamp


def test_the_same_id_with_other_content_is_refused_with_what_to_do(
    stored: StoredAnalysis, saved: Path, elsewhere: Path
) -> None:
    report = load_archive(saved).root / "standalone_analysis_fair.md"
    report.write_text("edited here")
    refused(saved, f"other content.*jarvis remove {stored.id}")
    assert report.read_text() == "edited here"


def test_an_archive_does_not_pin_itself(
    stored: StoredAnalysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_pinned(stored.id, is_pinned=True)
    out = tmp_path / "pinned.zip"
    save_archive(stored.root, out)
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "elsewhere"))
    assert load_archive(out).was_pinned
    assert not stored_row(stored.id).is_pinned


def test_a_run_directory_that_is_not_stored_can_be_saved_too(
    stored: StoredAnalysis, tmp_path: Path, elsewhere: Path
) -> None:
    shutil.copytree(stored.root, tmp_path / "out")
    save_archive(tmp_path / "out", tmp_path / "out.zip")
    assert load_archive(tmp_path / "out.zip").id == stored.id
    assert pinned() == frozenset()


def test_links_and_hidden_files_of_a_run_directory_are_left_behind(
    stored: StoredAnalysis, tmp_path: Path
) -> None:
    (stored.root / "outside").symlink_to("/etc/passwd")
    (stored.root / ".hidden").write_text("x")
    out = tmp_path / "linked.zip"
    listed = save_archive(stored.root, out)
    assert not {"outside", ".hidden"} & listed.files.keys()


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "damaged"), (b"no zip at all", "damaged"), (b"PK\x03\x04" + b"x" * 40, "damaged")],
)
def test_what_is_no_zip_is_refused(
    saved: Path, elsewhere: Path, content: bytes, words: str
) -> None:
    saved.write_bytes(content)
    refused(saved, words)


def test_a_file_that_was_cut_is_refused(saved: Path, elsewhere: Path) -> None:
    whole = saved.read_bytes()
    for length in range(0, len(whole), len(whole) // 20):
        saved.write_bytes(whole[:length])
        refused(saved, "not a complete archive|is damaged")


def test_no_changed_byte_gets_in(stored: StoredAnalysis, saved: Path, elsewhere: Path) -> None:
    whole, expected = saved.read_bytes(), contents(stored.root)
    for place in range(7, len(whole), len(whole) // 60):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        saved.write_bytes(changed)
        try:
            root = load_archive(saved).root
        except ArchiveError:
            assert not analyses_dir().exists() or not list(analyses_dir().iterdir())
        else:  # a date or another thing that says nothing about the analysis
            assert contents(root) == expected
            shutil.rmtree(root)


def test_another_zip_is_refused(saved: Path, elsewhere: Path) -> None:
    refused(rewritten(saved, {LIST: None}), "not a complete archive|is damaged of an analysis")


@pytest.mark.parametrize("listed", [b"", b"[]", b"{", b'{"archive_version": "x"}', b"null"])
def test_a_list_that_cannot_be_read_is_refused(saved: Path, elsewhere: Path, listed: bytes) -> None:
    refused(rewritten(saved, {LIST: listed}), "list of files cannot be read")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"archive_version": FORMAT_VERSION + 1}, "newer Jarvis.*Update"),
        ({"schema_version": 999}, "newer Jarvis.*Update"),
        ({"archive_version": FORMAT_VERSION + 1, "new_key": {}}, "newer Jarvis.*Update"),
        ({"schema_version": 1}, "older Jarvis.*Analyze the trace again"),
        ({"analysis_id": "../../evil"}, "id of its analysis"),
        ({"analysis_id": "x" * 65}, "id of its analysis"),
        ({"analysis_id": ".hidden"}, "id of its analysis"),
        ({"analysis_id": "another"}, "do not match its list"),
        ({"files": {}}, "do not match its list"),
    ],
)
def test_a_list_that_cannot_be_followed_is_refused(
    saved: Path, elsewhere: Path, values: dict[str, Any], words: str
) -> None:
    refused(relisted(saved, **values), words)


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "a/../../evil",
        "/etc/evil",
        "a//b",
        ".hidden",
        "a\\..\\b",
        "C:evil",
        "a\x00b",
        "a/",
    ],
)
def test_a_name_that_leads_out_of_the_folder_is_refused(
    stored: StoredAnalysis, saved: Path, elsewhere: Path, tmp_path: Path, name: str
) -> None:
    listed = json.loads(members(saved)[LIST])
    listed["files"][name] = {"sha256": "0" * 64, "size_bytes": 1}
    rewritten(saved, {LIST: json.dumps(listed).encode(), f"{stored.id}/{name}": b"x"})
    refused(saved, "the file name|is not a regular file")
    assert not list(tmp_path.rglob("evil"))


def test_a_link_is_refused(stored: StoredAnalysis, saved: Path, elsewhere: Path) -> None:
    every = members(saved)
    with zipfile.ZipFile(saved, "w") as archive:
        for name, content in every.items():
            member = zipfile.ZipInfo(name)
            if name.endswith("results.json"):
                member.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(member, content)
    refused(saved, "is not a regular file")


def test_a_file_that_is_not_listed_is_refused(
    stored: StoredAnalysis, saved: Path, elsewhere: Path
) -> None:
    refused(rewritten(saved, {f"{stored.id}/extra.txt": b"x"}), "do not match its list")


def test_a_file_twice_is_refused(stored: StoredAnalysis, saved: Path, elsewhere: Path) -> None:
    with zipfile.ZipFile(saved, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(f"{stored.id}/manifest.json", b"{}")
    refused(saved, "do not match its list")


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    saved: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SIZE_VARIABLE, "0.00001")
    refused(saved, "unpacks to more than 1e-05 GB")
    monkeypatch.delenv(SIZE_VARIABLE)
    monkeypatch.setattr("jarvis.core.unpacking.ALWAYS_ALLOWED_BYTES", 1000)
    monkeypatch.setenv(RATIO_VARIABLE, "1")
    refused(saved, "times its size")


def test_a_file_longer_than_it_says_is_refused(
    stored: StoredAnalysis, saved: Path, elsewhere: Path
) -> None:
    refused(rewritten(saved, {f"{stored.id}/results.json": b"0" * 5_000_000}), "is damaged")


def test_listed_files_that_are_no_analysis_are_refused(
    stored: StoredAnalysis, saved: Path, elsewhere: Path
) -> None:
    shutil.rmtree(stored.root / "tables")
    save_archive(stored.root, saved)
    refused(saved, "the table .* cannot be read")


def test_an_analysis_under_another_id_is_refused(
    stored: StoredAnalysis, saved: Path, elsewhere: Path
) -> None:
    every = {
        name.replace(stored.id, "another1"): content for name, content in members(saved).items()
    }
    every[LIST] = every[LIST].replace(stored.id.encode(), b"another1")
    saved.unlink()
    with zipfile.ZipFile(saved, "w") as archive:
        for name, content in every.items():
            archive.writestr(name, content)
    refused(saved, "does not have the listed id")
