"""Atomic creation of folders by a temporary sibling that is renamed; digests of files."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

LABEL_VARIABLE = "JARVIS_STAGING"
"""Label of this process in names of temporary folders, so that another process can remove them."""


@contextmanager
def staged_folder(root: Path, check: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """Yield a temporary folder that replaces ``root`` when the block succeeds.

    If ``root`` is a symlink, its target is replaced. After an error ``root`` is unchanged.

    Args:
        check: Called before and after the block; raises if ``root`` must not be replaced.
    """
    check()
    root = root.resolve()
    root.parent.mkdir(parents=True, exist_ok=True)
    token = _token()
    new, old = (root.with_name(f".{root.name}.{kind}-{token}") for kind in ("new", "old"))
    new.mkdir()
    try:
        yield new
        check()
        _replace(root, new, old)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a hidden folder in ``parent`` and delete it afterwards.

    ``clear_staged`` also finds it.
    """
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / f".{name}.new-{_token()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear_staged(parent: Path, label: str) -> None:
    """Clean up the temporary folders in ``parent`` of a killed process with this label.

    A folder whose replacement was interrupted is restored, all others are deleted.
    """
    for folder in sorted(parent.glob(f".*-{label}*")):
        if is_only_copy(folder):
            folder.rename(_target_of(folder))
        else:
            shutil.rmtree(folder, ignore_errors=True)


def is_only_copy(folder: Path) -> bool:
    """Return whether a hidden folder is the only copy of its target: the process that replaced the
    target was killed between the two renames."""
    return folder.name.rpartition(".")[2].startswith("old-") and not _target_of(folder).exists()


def _token() -> str:
    return f"{os.environ.get(LABEL_VARIABLE, '')}{uuid4().hex[:8]}"


def _target_of(folder: Path) -> Path:
    return folder.with_name(folder.name.removeprefix(".").rpartition(".")[0])


def _replace(root: Path, new: Path, old: Path) -> None:
    with suppress(FileNotFoundError):
        root.rename(old)
    try:
        new.rename(root)
    except OSError:
        if old.exists():
            old.rename(root)
        raise


def file_sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
