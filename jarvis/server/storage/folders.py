"""Folders of the home: how large they are, and how they go."""

import shutil
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

REMOVED = "removed-"
"""Follows the name of a folder that is on its way out."""


def folder_bytes(root: Path) -> int:
    """How much the files of a folder hold; links count as nothing."""
    sizes = 0
    for path in (root, *root.rglob("*")):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                sizes += path.stat().st_size
    return sizes


def remove_folder(root: Path) -> None:
    """Delete a folder, or a file: gone in one move, and its content after that."""
    leaving = root.with_name(f".{root.name}.{REMOVED}{uuid4().hex[:8]}")
    root.rename(leaving)
    if leaving.is_dir():
        shutil.rmtree(leaving, ignore_errors=True)
    else:
        leaving.unlink(missing_ok=True)
