"""Local cache of the artifact root in ``JARVIS_HOME``, evicted by least recent use.

Each copy has a small note file, whose modification time is the last use of the copy. A note is
invalid if the file, or the manifest of the folder, has changed since.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from jarvis.core.workspace import RunPaths, shared_copies_dir
from jarvis.server.storage.storage_keys import folder_bytes, place_of, remove_folder

MIN_UNUSED_S = 600
"""Minimum time since the last use of an evicted copy: pages and jobs may still read it."""

_LOCKS, _NOTES = "locks", "notes"


@dataclass(frozen=True, slots=True)
class Copy:
    """A local copy; ``version`` is empty for files, which never change under their key.

    ``used`` is the time of its last use in seconds since the epoch.
    """

    key: str
    version: str
    size_bytes: int
    used: float


def local_version(key: str) -> str | None:
    """Return the version of a local copy; None if there is none."""
    try:
        version, stamp, _ = json.loads(_note(key).read_bytes())
        return str(version) if stamp == _stamp(place_of(key)) else None
    except (OSError, ValueError):
        return None


def record(key: str, version: str = "") -> None:
    """Record that the local file or folder of ``key`` is a copy of this version, used now."""
    path, file = place_of(key), _note(key)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{uuid4().hex}")
    content = json.dumps([version, _stamp(path), folder_bytes(path)])
    temporary.write_text(content, encoding="utf-8")
    temporary.replace(file)


def touch(key: str) -> None:
    """Update the last use of a copy."""
    with suppress(FileNotFoundError):
        os.utime(_note(key))


def delete(key: str) -> None:
    """Delete a copy if there is one."""
    if local_version(key) is not None:
        with suppress(FileNotFoundError):
            remove_folder(place_of(key))
        with suppress(OSError):  # not empty
            if key.count("/") > 1:
                place_of(key).parent.rmdir()
    _note(key).unlink(missing_ok=True)


def copies() -> list[Copy]:
    """Return all copies, least recently used first."""
    root = shared_copies_dir() / _NOTES
    listed = []
    for file in root.rglob("[!.]*"):
        with suppress(OSError, ValueError):
            if file.is_file():
                version, _, size_bytes = json.loads(file.read_bytes())
                key = file.relative_to(root).as_posix()
                listed.append(Copy(key, version, size_bytes, file.stat().st_mtime))
    return sorted(listed, key=lambda copy: copy.used)


def evict(limit_bytes: float, is_needed: Callable[[Copy], bool]) -> list[Copy]:
    """Evict copies, least recently used first, to meet the limit; return the evicted ones."""
    candidates = copies()
    total, now, evicted = sum(copy.size_bytes for copy in candidates), time.time(), []
    for copy in candidates:
        if total <= limit_bytes or now - copy.used < MIN_UNUSED_S:
            break
        if not is_needed(copy):
            with locked(copy.key):
                delete(copy.key)
            total -= copy.size_bytes
            evicted.append(copy)
    return evicted


@contextmanager
def locked(key: str) -> Iterator[None]:
    """Lock a copy against other threads and processes of this machine."""
    file = shared_copies_dir() / _LOCKS / key.replace("/", "_")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _note(key: str) -> Path:
    return shared_copies_dir() / _NOTES / key


def _stamp(place: Path) -> int:
    """Return the modification time of a file, or of the manifest of a folder, in ns."""
    return (RunPaths(place).manifest if place.is_dir() else place).stat().st_mtime_ns
