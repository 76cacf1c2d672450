"""The home is accessible to its owner only."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.core.workspace import HOME_VARIABLE, close_home
from jarvis.server.database import database
from tests.builders import trace


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable_by_others(home: Path) -> list[Path]:
    """Return the files that another user can read: all folders above must be accessible."""
    found: list[Path] = []
    for folder, folders, files in os.walk(home):
        place = Path(folder)
        folders[:] = [name for name in folders if mode(place / name) & stat.S_IXOTH]
        found += [place / name for name in files if mode(place / name) & stat.S_IROTH]
    return found if mode(home) & stat.S_IXOTH else []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o755)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "below" / "home"))
    return tmp_path / "below" / "home"


def test_a_new_home_is_accessible_to_its_owner_only(home: Path, tmp_path: Path) -> None:
    built = trace().op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=50)
    assert main(["analyze", str(built.write(tmp_path / "t.json")), "--id"]) == 0
    assert mode(home) == 0o700
    assert not readable_by_others(home)


@pytest.mark.parametrize("before", [0o755, 0o777, 0o750, 0o700])
def test_an_existing_home_is_closed_but_keeps_its_group_permissions(
    home: Path, before: int
) -> None:
    (home / "analyses" / "a").mkdir(parents=True)
    (home / "jarvis.db").touch()
    (home / "jarvis.db-wal").touch()
    home.chmod(before)
    assert main(["list"]) == 0
    assert mode(home) == before & 0o770
    assert not readable_by_others(home)


def test_a_folder_with_other_files_stays_open_and_files_of_jarvis_are_closed(home: Path) -> None:
    (home / "analyses").mkdir(parents=True)
    (home / "secret-santa.txt").touch()
    (home / "public").mkdir()
    home.chmod(0o755)
    close_home()
    assert mode(home) == 0o755
    assert mode(home / "public") == 0o755
    assert mode(home / "secret-santa.txt") == 0o644
    assert mode(home / "analyses") == 0o750


def test_a_sticky_folder_is_never_closed(home: Path) -> None:
    home.mkdir(parents=True)
    home.chmod(0o1777)
    close_home()
    assert mode(home) == 0o1777


def test_a_server_closes_its_home(home: Path) -> None:
    (home / "traces").mkdir(parents=True)
    home.chmod(0o755)
    database()
    assert not readable_by_others(home)


def test_a_folder_that_cannot_be_created_ends_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "file" / "home"))
    built = trace().op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=50)
    words = [str(built.write(tmp_path / "t.json")), "--output-dir", str(tmp_path / "run")]
    assert main(["analyze", *words]) == 0
