"""Tests that use something optional are recorded, also through shared fixtures."""

from pathlib import Path

import pytest

from tests import optional


@pytest.fixture(scope="module")
def shared() -> Path | None:
    return optional.reference_root()


@pytest.fixture(scope="module")
def above(request: pytest.FixtureRequest) -> Path | None:
    found: Path | None = request.getfixturevalue("shared")
    return found


def names() -> set[str]:
    """Return the recorded tests of this file."""
    here = (test for test in optional.asking_tests if "/test_optional.py::" in test)
    return {test.rpartition("::")[2] for test in here}


def test_first(above: Path | None) -> None:
    """Sets up both fixtures."""


def test_second(shared: Path | None) -> None:
    """Gets what was set up for another test."""


def test_third(above: Path | None) -> None:
    """Gets it through another fixture."""


def test_fourth(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("above")


def test_in_the_test_itself() -> None:
    optional.program("haproxy")
    assert "test_in_the_test_itself" in names()


def test_tests_that_use_optional_programs_are_recorded() -> None:
    assert names() >= {"test_first", "test_second", "test_third", "test_fourth"}
    assert "test_tests_that_use_optional_programs_are_recorded" not in names()


def test_nothing_optional_is_found_if_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(optional.WITHOUT, "1")
    assert [optional.program(name) for name in optional.PROGRAMS] == [None] * len(optional.PROGRAMS)
    assert optional.postgres_programs() == []
    assert optional.reference_root() is None
    assert optional.torch_python() is None


def test_the_tests_of_a_run_are_written_into_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(optional.ASKED, str(tmp_path))
    optional.program("sshd")
    optional.program("chromium")
    (file,) = tmp_path.iterdir()
    (test,) = file.read_text(encoding="utf-8").splitlines()
    assert test.endswith("::test_the_tests_of_a_run_are_written_into_a_folder")


def test_a_look_up_on_import_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(optional.ASKED, str(tmp_path))
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with pytest.raises(RuntimeError, match="not on import"):
        optional.reference_root()
