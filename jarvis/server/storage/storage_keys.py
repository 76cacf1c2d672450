"""Machine-independent keys of files in ``JARVIS_HOME``."""

import shutil
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated
from uuid import uuid4

from pydantic import BeforeValidator, PlainSerializer

from jarvis.core.workspace import analyses_dir, exports_dir, home, uploads_dir

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
    removed = root.with_name(f".{root.name}.{REMOVED}{uuid4().hex[:8]}")
    root.rename(removed)
    if removed.is_dir():
        shutil.rmtree(removed, ignore_errors=True)
    else:
        removed.unlink(missing_ok=True)


_PREFIX = "home:"
_DEPTH = 3
"""Number of parts of a key: the kind, a unique folder, and the file."""


def key_of(path: Path) -> str | None:
    """Return the key of an upload or export, like ``traces/3f2a/step.json.gz``, else None."""
    for root in (uploads_dir(), exports_dir()):
        for parent in (root, root.resolve()):
            if path.is_relative_to(parent):
                key = PurePosixPath(root.name, *path.relative_to(parent).parts)
                return str(key) if _is_key(key) else None
    return None


def place_of(key: str) -> Path:
    """Return the local path of a key."""
    return home() / key


def address(path: Path) -> str:
    """Return the form of a path in job parameters: ``home:`` and its key, or the path itself.

    The folders of analyses, uploads and exports, and their direct children, have keys, too.
    """
    key = path.relative_to(home()).as_posix() if _is_near(path) else key_of(path)
    return str(path) if key is None else f"{_PREFIX}{key}"


def path_at(text: str | Path) -> Path:
    """Return the local path of an address; raise ValueError if it is not valid."""
    if isinstance(text, Path) or not text.startswith(_PREFIX):
        return Path(text)
    key = text.removeprefix(_PREFIX)
    if not _is_near(place_of(key)) and key_of(place_of(key)) != key:
        raise ValueError(f"{text[:80]!r} is not the address of a file")
    return place_of(key)


FilePath = Annotated[
    Path, BeforeValidator(path_at), PlainSerializer(address, return_type=str, when_used="json")
]
"""A file in job parameters, serialized as its address."""


def _is_near(path: Path) -> bool:
    """Return whether a path is one of these folders or a direct child."""
    folders = (analyses_dir(), uploads_dir(), exports_dir())
    return path in folders or (path.parent in folders and not path.name.startswith("."))


def _is_key(key: PurePosixPath) -> bool:
    return len(key.parts) == _DEPTH and not any(part.startswith(".") for part in key.parts)
