"""Folders that appear whole or not at all: written beside their place, then moved there."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

LABEL_VARIABLE = "JARVIS_STAGING"
"""A label of this process for what it has half written, so that another can clear it away."""


@contextmanager
def staged_folder(root: Path, check: Callable[[], None]) -> Iterator[Path]:
    """A folder to write into; it takes the place of ``root`` when the block ends well.

    Where ``root`` is a symlink, it stays, and the folder that it points to is replaced.
    ``check`` is called before and after, and raises where ``root`` must not be replaced. After an
    error ``root`` is what it was.
    """
    check()
    root = root.resolve()
    root.parent.mkdir(parents=True, exist_ok=True)
    token = _token()
    fresh, old = (root.with_name(f".{root.name}.{kind}-{token}") for kind in ("new", "old"))
    fresh.mkdir()
    try:
        yield fresh
        check()
        _replace(root, fresh, old)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A hidden folder in ``parent`` that goes with the block; ``clear_staged`` finds it too."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / f".{name}.new-{_token()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear_staged(parent: Path, label: str) -> None:
    """Undo what a process with this label was about to put into ``parent`` when it was killed."""
    for left in sorted(parent.glob(f".*-{label}*")):
        if is_only_copy(left):
            left.rename(_place_of(left))
        else:
            shutil.rmtree(left, ignore_errors=True)


def is_only_copy(left: Path) -> bool:
    """Whether a hidden folder is all that is left of one that was being replaced: its process was
    killed between the two moves."""
    return left.name.rpartition(".")[2].startswith("old-") and not _place_of(left).exists()


def _token() -> str:
    return f"{os.environ.get(LABEL_VARIABLE, '')}{uuid4().hex[:8]}"


def _place_of(left: Path) -> Path:
    return left.with_name(left.name.removeprefix(".").rpartition(".")[0])


def _replace(root: Path, fresh: Path, old: Path) -> None:
    with suppress(FileNotFoundError):
        root.rename(old)
    try:
        fresh.rename(root)
    except OSError:
        if old.exists():
            old.rename(root)
        raise
