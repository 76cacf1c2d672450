"""Files of ``JARVIS_HOME`` that other machines may need, named so that each finds its own copy."""

from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from jarvis.core.workspace import analyses_dir, exports_dir, home, uploads_dir

_PREFIX = "home:"
_DEPTH = 3
"""Parts of a key: the kind, a folder that is never written twice, and the file."""


def key_of(path: Path) -> str | None:
    """The key of an upload or an export, like ``traces/3f2a/step.json.gz``; None of other files."""
    for root in (uploads_dir(), exports_dir()):
        for parent in (root, root.resolve()):
            if path.is_relative_to(parent):
                key = PurePosixPath(root.name, *path.relative_to(parent).parts)
                return str(key) if _is_key(key) else None
    return None


def place_of(key: str) -> Path:
    """Where this machine keeps the file, or the folder, with a key."""
    return home() / key


def address(path: Path) -> str:
    """What a job calls a file: by its key where it has one, else by its path.

    Likewise the folders of all analyses, uploads or exports, and what stands in them.
    """
    key = path.relative_to(home()).as_posix() if _is_near(path) else key_of(path)
    return str(path) if key is None else f"{_PREFIX}{key}"


def path_at(text: str | Path) -> Path:
    """The file that an address names; ValueError where it names none."""
    if isinstance(text, Path) or not text.startswith(_PREFIX):
        return Path(text)
    key = text.removeprefix(_PREFIX)
    if not _is_near(place_of(key)) and key_of(place_of(key)) != key:
        raise ValueError(f"{text[:80]!r} names no file of a home")
    return place_of(key)


FilePath = Annotated[
    Path, BeforeValidator(path_at), PlainSerializer(address, return_type=str, when_used="json")
]
"""A file among the parameters of a job."""


def _is_near(path: Path) -> bool:
    """Whether it is one of these folders, or stands in one."""
    folders = (analyses_dir(), uploads_dir(), exports_dir())
    return path in folders or (path.parent in folders and not path.name.startswith("."))


def _is_key(key: PurePosixPath) -> bool:
    return len(key.parts) == _DEPTH and not any(part.startswith(".") for part in key.parts)
