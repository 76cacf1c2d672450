"""Copies that ``JARVIS_HOME`` has of what the artifact root holds: which, how old, and who goes.

For each there is a small note, whose own age is when the copy was used last. A note is void as soon
as the file, or the manifest of the folder, is another one than that it was written for.
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
from jarvis.server.storage.folders import folder_bytes, remove_folder
from jarvis.server.storage.storage_keys import place_of

UNTOUCHED_S = 600
"""What was used less long ago stays: a page, or a job, is reading it."""

_LOCKS, _NOTES = "locks", "notes"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy in the home; ``version`` is empty for files, whose key says all."""

    key: str
    version: str
    size_bytes: int
    used: float


def local_version(key: str) -> str | None:
    """The version of the copy; None where there is none."""
    try:
        version, stamp, _ = json.loads(_note(key).read_bytes())
        return str(version) if stamp == _stamp(place_of(key)) else None
    except (OSError, ValueError):
        return None


def note(key: str, version: str = "") -> None:
    """What stands at the place of ``key`` is a copy of this version, used now."""
    place, file = place_of(key), _note(key)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{uuid4().hex}")
    fresh.write_text(json.dumps([version, _stamp(place), folder_bytes(place)]), encoding="utf-8")
    fresh.replace(file)


def use(key: str) -> None:
    """A copy was used now."""
    with suppress(FileNotFoundError):
        os.utime(_note(key))


def drop(key: str) -> None:
    """Remove a copy; nothing happens where there is none, or it is one no more."""
    if local_version(key) is not None:
        with suppress(FileNotFoundError):
            remove_folder(place_of(key))
        with suppress(OSError):  # it holds other files
            if key.count("/") > 1:
                place_of(key).parent.rmdir()
    _note(key).unlink(missing_ok=True)


def copies() -> list[Copy]:
    """All copies, the one that was used longest ago first."""
    root = shared_copies_dir() / _NOTES
    found = []
    for file in root.rglob("[!.]*"):
        with suppress(OSError, ValueError):
            if file.is_file():
                version, _, size_bytes = json.loads(file.read_bytes())
                key = file.relative_to(root).as_posix()
                found.append(Copy(key, version, size_bytes, file.stat().st_mtime))
    return sorted(found, key=lambda copy: copy.used)


def make_room(limit_bytes: float, is_needed: Callable[[Copy], bool]) -> list[Copy]:
    """Drop copies, longest unused first, until the others are within the limit; gives those."""
    kept = copies()
    total, now, gone = sum(copy.size_bytes for copy in kept), time.time(), []
    for copy in kept:
        if total <= limit_bytes or now - copy.used < UNTOUCHED_S:
            break
        if not is_needed(copy):
            with only_one(copy.key):
                drop(copy.key)
            total -= copy.size_bytes
            gone.append(copy)
    return gone


@contextmanager
def only_one(key: str) -> Iterator[None]:
    """While the block runs, no other thread or process of this machine replaces the copy."""
    file = shared_copies_dir() / _LOCKS / key.replace("/", "_")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _note(key: str) -> Path:
    return shared_copies_dir() / _NOTES / key


def _stamp(place: Path) -> int:
    """When the file, or the manifest of a folder, was written."""
    return (RunPaths(place).manifest if place.is_dir() else place).stat().st_mtime_ns
