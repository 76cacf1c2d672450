"""Uploads that grow on the disk block by block, and go on where they were broken off.

How far an upload is, is the length of its file: a server that is restarted, or another one on the
same home, goes on from there. What is whole is kept by its content; what is not goes after a day
without a byte. Every function may block on the disk.
"""

import hashlib
import os
import re
import secrets
import shutil
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ValidationError

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import partial_uploads_dir
from jarvis.server.ingest.intake import IntakeError, stored_upload_path, upload_name
from jarvis.server.settings import settings
from jarvis.text.format import byte_size

EXPIRES_AFTER = timedelta(days=1)
"""An upload that gets no byte for so long is removed."""

MAX_AT_ONCE = 1000
"""Uploads that are not whole; more are refused."""

MAX_OF_ONE = 100
"""Of these, those of one person who is logged in, so that nobody takes the places of the others."""

FREE_BYTES = 256 << 20
"""Of the disk that uploads leave for the database and the analyses."""

_GB = 10**9
_ID_BYTES = 16
_ID = re.compile(
    rf"[0-9a-f]{{{2 * _ID_BYTES}}}(?:-(?P<owner>[0-9a-f]{{8}})-(?P<size>[0-9a-f]{{1,12}}))?"
)
"""Random, then a digest of the owner and the size, so that counting uploads reads no file."""

_RECORD, _DATA = "upload.json", "data"


class UnknownUploadError(JarvisError):
    """No upload has this id."""

    def __init__(self) -> None:
        super().__init__(
            "There is no such upload on this server: it was removed, or got no byte for a day. "
            "Upload the file again."
        )


class TooLargeUploadError(JarvisError):
    """A file is larger than the server takes."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(
            f"The file has {byte_size(size_bytes)}; this server takes up to "
            f"{byte_size(most_bytes())}. Compress it, ask an admin to raise JARVIS_MAX_UPLOAD_GB, "
            "or analyze it by its path on the server."
        )


class NoSpaceError(JarvisError):
    """The disk has no room for it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} What has arrived is kept for a day. Ask an admin to make room on the server "
            "(`jarvis prune`), then go on."
        )


class BusyUploadError(JarvisError):
    """Somebody else sends bytes of the same upload just now."""


class TooManyUploadsError(JarvisError):
    """As many uploads are under way as there may be."""


class _Record(BaseModel):
    """What is written down of an upload; ``sha256`` once it is whole."""

    name: str
    size_bytes: int
    owner: str | None
    sha256: str | None = None
    is_reused: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload as it is now; ``name`` is a cleaned one.

    ``trace`` is where it is kept once it is whole, ``sha256`` then its digest; ``is_reused`` where
    the same bytes were here before.
    """

    id: str
    name: str
    size_bytes: int
    offset_bytes: int
    owner: str | None
    expires: datetime
    sha256: str | None
    is_reused: bool
    trace: Path | None


def most_bytes() -> int:
    """The largest file that is taken."""
    return round(settings().max_upload_gb * _GB)


def create(name: str, size_bytes: int, owner: str | None) -> Upload:
    """Begin an upload of so many bytes.

    Raises IntakeError where nothing of that name is read or it is empty, TooLargeUploadError,
    NoSpaceError, and TooManyUploadsError where too many are under way.
    """
    kept_name = upload_name(name)
    if size_bytes == 0:
        raise IntakeError(f"{kept_name} is empty. Choose another file.")
    if size_bytes > most_bytes():
        raise TooLargeUploadError(size_bytes)
    partial_uploads_dir().mkdir(parents=True, exist_ok=True)
    try:
        _check_room(kept_name, size_bytes, owner)
    except (TooManyUploadsError, NoSpaceError):
        sweep()
        _check_room(kept_name, size_bytes, owner)
    upload_id = f"{secrets.token_hex(_ID_BYTES)}-{_mark(owner)}-{size_bytes:x}"
    folder = _folder(upload_id)
    folder.mkdir()
    (folder / _DATA).touch()
    _write(folder, _Record(name=kept_name, size_bytes=size_bytes, owner=owner))
    return find(upload_id)


def find(upload_id: str) -> Upload:
    """An upload; UnknownUploadError where there is none, or no more."""
    folder = _folder(upload_id)
    record = _read(folder)
    trace = stored_upload_path(record.name, record.sha256) if record.sha256 else None
    is_whole = trace is not None and trace.is_file()
    try:
        stat = (folder / (_RECORD if is_whole else _DATA)).stat()
    except FileNotFoundError:
        raise UnknownUploadError from None
    return Upload(
        id=upload_id,
        name=record.name,
        size_bytes=record.size_bytes,
        offset_bytes=record.size_bytes if is_whole else stat.st_size,
        owner=record.owner,
        expires=datetime.fromtimestamp(stat.st_mtime, UTC) + EXPIRES_AFTER,
        sha256=record.sha256,
        is_reused=record.is_reused,
        trace=trace if is_whole else None,
    )


def find_own(upload_id: str, owner: str | None) -> Upload:
    """Return an upload; raise UnknownUploadError where this person has none with this id."""
    upload = find(upload_id)
    if upload.owner != owner:
        raise UnknownUploadError
    return upload


def remove(upload_id: str) -> None:
    """Forget an upload, with what of it is not kept yet; UnknownUploadError where there is none."""
    folder = _folder(upload_id)
    _read(folder)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove the uploads that got no byte for too long."""
    before = time.time() - EXPIRES_AFTER.total_seconds()
    root = partial_uploads_dir()
    for folder in root.iterdir() if root.is_dir() else ():
        try:
            changed = max(path.stat().st_mtime for path in (folder, *folder.glob("*")))
        except FileNotFoundError:
            continue  # somebody is at work on it
        if changed < before:
            shutil.rmtree(folder, ignore_errors=True)


def data_file(upload_id: str) -> Path:
    """The file that grows; UnknownUploadError where there can be none."""
    return _folder(upload_id) / _DATA


def note_content(upload_id: str, sha256: str, *, is_reused: bool = False) -> None:
    """Write down what the bytes of a whole upload are, and whether they were here before."""
    folder = _folder(upload_id)
    _write(folder, _read(folder).model_copy(update={"sha256": sha256, "is_reused": is_reused}))


def _folder(upload_id: str) -> Path:
    if not _ID.fullmatch(upload_id):
        raise UnknownUploadError
    return partial_uploads_dir() / upload_id


def _read(folder: Path) -> _Record:
    try:
        return _Record.model_validate_json((folder / _RECORD).read_bytes())
    except (OSError, ValidationError):
        raise UnknownUploadError from None


def _write(folder: Path, record: _Record) -> None:
    """Whole or not at all."""
    half = folder / f".{_RECORD}"
    half.write_text(record.model_dump_json(), encoding="utf-8")
    half.replace(folder / _RECORD)


def _check_room(name: str, size_bytes: int, owner: str | None) -> None:
    """Raise TooManyUploadsError or NoSpaceError where there is no room for another upload."""
    awaited = _awaited_bytes()
    if owner is not None and len(awaited[_mark(owner)]) >= MAX_OF_ONE:
        raise TooManyUploadsError(
            f"{MAX_OF_ONE} of your uploads are under way, and more are not taken. Finish them, "
            "remove some, or wait until they are removed, a day after their last byte."
        )
    if sum(map(len, awaited.values())) >= MAX_AT_ONCE:
        raise TooManyUploadsError("Too many uploads are under way on this server. Try again later.")
    reserved = sum(map(sum, awaited.values()))
    free = shutil.disk_usage(partial_uploads_dir()).free - reserved - FREE_BYTES
    if size_bytes > free:
        raise NoSpaceError(
            f"The server's disk has room for {byte_size(max(free, 0))} more, and "
            f"{name} has {byte_size(size_bytes)}."
        )


def _awaited_bytes() -> dict[str, list[int]]:
    """Return what each upload that is not whole still needs of the disk, by ``_mark`` of its owner.

    No file is read for that, and one that is whole has none that grows.
    """
    awaited = defaultdict(list)
    with os.scandir(partial_uploads_dir()) as folders:
        for folder in folders:
            named = _ID.fullmatch(folder.name)
            if named is not None and named["size"] is not None:
                with suppress(FileNotFoundError):
                    arrived = os.stat(os.path.join(folder.path, _DATA)).st_size
                    awaited[named["owner"]].append(int(named["size"], 16) - arrived)
    return awaited


def _mark(owner: str | None) -> str:
    """Return what tells the uploads of one person from those of others in their ids."""
    return hashlib.sha256((owner or "").encode()).hexdigest()[:8]
