"""Loading an analysis file on the ingest page."""

import io
import shutil
import zipfile
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.dashboard.pages.ingest.archive_form import PARAMETER
from jarvis.dashboard.pages.runs.rows import SOURCE
from jarvis.server.errors import ArchiveError
from jarvis.server.retention.removal import remove_analysis
from jarvis.server.storage.archive import load_archive, save_archive
from jarvis.server.storage.catalog import analysis_root, read_catalog, set_pinned, stored_row
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import do_jobs_at_once
from tests.dashboard.uploading import uploaded


@pytest.fixture
def archive(sample_id: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return the file of an analysis pinned on another server; the home is empty."""
    there = tmp_path / "there"
    shutil.copytree(home / "analyses" / sample_id, there / "analyses" / sample_id)
    monkeypatch.setenv("JARVIS_HOME", str(there))
    set_pinned(sample_id, is_pinned=True)
    save_archive(analysis_root(sample_id), tmp_path / "a.zip")
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "here"))
    do_jobs_at_once(monkeypatch)
    return (tmp_path / "a.zip").read_bytes()


def loaded(filed: Draw, content: bytes) -> AppTest:
    """Return the page after uploading the file and clicking the button."""
    page = filed("ingest", **{PARAMETER: uploaded("a.jarvis.zip", content)})
    return page.button(key="archive_load").click().run()


def words(page: AppTest) -> str:
    shown = [*page.success, *page.error, *page.info, *page.caption]
    return "\n".join(str(element.value) for element in shown)


def test_an_analysis_is_loaded_once_under_its_id(
    filed: Draw, archive: bytes, sample_id: str
) -> None:
    page = loaded(filed, archive)
    assert not page.exception
    assert f"{sample_id} was loaded." in words(page)
    assert "It was pinned on the other server." in words(page)
    (entry,) = read_catalog().entries
    assert (entry.id, entry.loaded_by) == (sample_id, "")
    assert not stored_row(sample_id).is_pinned
    assert filed("runs").dataframe[0].value[SOURCE].to_list() == ["file"]
    page.button(key="archive_load").click().run()
    assert f"{sample_id} is already on this server, with the same content." in words(page)


def test_a_page_says_that_its_analysis_was_loaded(
    filed: Draw, archive: bytes, sample_id: str
) -> None:
    loaded(filed, archive)
    page = filed("overview", analysis=sample_id)
    assert not page.exception
    assert any("from file" in badges.value for badges in page.sidebar.markdown)


def test_a_job_for_another_upload_is_not_shown(filed: Draw, archive: bytes) -> None:
    job = loaded(filed, archive).query_params["archive_job"][0]
    other = uploaded("b.jarvis.zip", archive + b"\0")
    page = filed("ingest", archive_upload=other, archive_job=job)
    assert not page.exception
    assert "is loaded" not in words(page)
    assert "archive_job" not in page.query_params


def changed(archive: bytes, member: str, mode: int = 0o100644) -> bytes:
    """Return the archive with another member added."""
    info = zipfile.ZipInfo(member)
    info.external_attr = mode << 16
    out = io.BytesIO(archive)
    with zipfile.ZipFile(out, "a") as packed:
        packed.writestr(info, "/etc/passwd")
    return out.getvalue()


@pytest.mark.parametrize("kind", ["no zip", "cut", "outside", "link"])
def test_a_refusal_is_the_sentence_of_the_command(
    filed: Draw, archive: bytes, kind: str, tmp_path: Path
) -> None:
    content = {
        "no zip": b'{"traceEvents": []}',
        "cut": archive[: len(archive) // 2],
        "outside": changed(archive, "../../evil.sh"),
        "link": changed(archive, "link", 0o120777),
    }[kind]
    file = tmp_path / "a.jarvis.zip"
    file.write_bytes(content)
    with pytest.raises(ArchiveError) as refused:
        load_archive(file)
    page = loaded(filed, content)
    assert not page.exception
    (error,) = page.error
    assert error.value.replace("\\", "").startswith(str(refused.value))
    assert read_catalog().entries == ()


def test_without_an_upload_there_is_nothing_to_load(filed: Draw, archive: bytes) -> None:
    page = filed("ingest")
    assert not page.exception
    assert "archive_load" not in {button.key for button in page.button}


def test_an_analysis_that_was_removed_can_be_loaded_again(
    filed: Draw, archive: bytes, sample_id: str
) -> None:
    page = loaded(filed, archive)
    remove_analysis(sample_id)
    page.button(key="archive_load").click().run()
    assert f"{sample_id} was loaded." in words(page)
