"""Pages of analyses in shared storage that are not in the local home yet."""

import shutil
from pathlib import Path

import pytest

from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE
from jarvis.server.database import database
from jarvis.server.storage import artifacts
from tests.dashboard.conftest import Draw
from tests.services.postgres import URL_VARIABLE


@pytest.fixture
def shared_id(sample_id: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of an analysis that another machine stored in the shared folder."""
    made = home / "analyses" / sample_id
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv(ARTIFACT_ROOT_VARIABLE, str(tmp_path / "shared"))
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path / 'shared.db'}")
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "first"))
    artifacts.store_analysis(
        sample_id, lambda folder: shutil.copytree(made, folder, dirs_exist_ok=True)
    )
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "second"))
    return sample_id


def test_an_analysis_of_another_machine_opens(shared_id: str, filed: Draw, tmp_path: Path) -> None:
    page = filed("overview", analysis=shared_id)
    assert not page.exception
    assert page.metric
    assert (tmp_path / "second" / "analyses" / shared_id).is_dir()
    database().dispose()


def test_a_root_that_is_gone_is_a_sentence_on_the_page(
    shared_id: str, filed: Draw, tmp_path: Path
) -> None:
    (tmp_path / "shared").rename(tmp_path / "unmounted")
    page = filed("overview", analysis=shared_id)
    assert not page.exception
    (output,) = [error.value for error in page.error]
    assert "there is no folder" in output
    (tmp_path / "unmounted").rename(tmp_path / "shared")
    assert not page.run().error
    database().dispose()
