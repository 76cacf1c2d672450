"""Folders appear whole or not at all, also when the process that writes one is killed."""

from pathlib import Path

import pytest

from jarvis.core.staging import LABEL_VARIABLE, clear_staged, staged_folder


def no_objection() -> None:
    """Accept any folder."""


def test_partial_output_of_a_killed_process_is_deleted_by_its_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    killed = []
    for label in ("job-a-1-", "job-a-12-"):
        monkeypatch.setenv(LABEL_VARIABLE, label)
        context = staged_folder(root, no_objection)
        (context.__enter__() / "half").write_text("x")
        killed.append(context)
    clear_staged(tmp_path, "job-a-1-")
    (left,) = tmp_path.iterdir()
    assert "job-a-12-" in left.name


@pytest.mark.parametrize("is_new_there", [True, False])
def test_a_process_killed_between_the_two_moves_leaves_the_old_folder(
    tmp_path: Path, is_new_there: bool
) -> None:
    root = tmp_path / "run"
    (tmp_path / ".run.old-job-a-1-0abc").mkdir()
    (tmp_path / ".run.old-job-a-1-0abc" / "old").write_text("x")
    if is_new_there:
        root.mkdir()
        (root / "new").write_text("x")
    else:
        (tmp_path / ".run.new-job-a-1-0abc").mkdir()
    clear_staged(tmp_path, "job-a-1-")
    assert [entry.name for entry in root.iterdir()] == ["new" if is_new_there else "old"]
    assert list(tmp_path.iterdir()) == [root]
