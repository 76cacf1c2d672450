"""Size and deletion of folders."""

import shutil
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

REMOVED = "removed-"
"""Infix of the names of folders that are being deleted."""


def folder_bytes(root: Path) -> int:
    """Return the total size of the files in a folder, without links."""
    sizes = 0
    for path in (root, *root.rglob("*")):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                sizes += path.stat().st_size
    return sizes


def remove_folder(root: Path) -> None:
    """Delete a folder or file atomically: rename it, then delete its content."""
    leaving = root.with_name(f".{root.name}.{REMOVED}{uuid4().hex[:8]}")
    root.rename(leaving)
    if leaving.is_dir():
        shutil.rmtree(leaving, ignore_errors=True)
    else:
        leaving.unlink(missing_ok=True)
