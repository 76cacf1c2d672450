"""Resumable uploads on disk.

The offset of an upload is the size of its file, so that a restarted server, or another one with the
same home, can resume it. Complete uploads are stored by content; incomplete ones are deleted after
a day without new bytes. All functions may block on the disk.
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

from jarvis.core.workspace import partial_uploads_dir
from jarvis.server.errors import (
    IntakeError,
    NoSpaceError,
    TooLargeUploadError,
    TooManyUploadsError,
    UnknownUploadError,
)
from jarvis.server.settings import settings
from jarvis.text.format import byte_size

EXPIRES_AFTER = timedelta(days=1)
"""An upload without new bytes for this time is deleted."""

MAX_AT_ONCE = 1000
"""Maximum number of incomplete uploads."""

MAX_PER_PERSON = 100
"""Maximum number of incomplete uploads of one logged-in person."""

FREE_BYTES = 256 << 20
"""Disk space reserved for the database and the analyses."""

_GB = 10**9
_ID_BYTES = 16
_ID = re.compile(
    rf"[0-9a-f]{{{2 * _ID_BYTES}}}(?:-(?P<owner>[0-9a-f]{{8}})-(?P<size>[0-9a-f]{{1,12}}))?"
)
"""A random part, a digest of the owner, and the size, so that counting uploads reads no files."""

_RECORD, _DATA = "upload.json", "data"


class _Record(BaseModel):
    """Stored metadata of an upload; ``sha256`` is set when it is complete."""

    name: str
    size_bytes: int
    owner: str | None
    sha256: str | None = None
    is_reused: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """Current state of an upload.

    Attributes:
        name: sanitized file name.
        sha256: digest of a complete upload.
        is_reused: whether the same content was already stored.
        trace: path of a complete upload.
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


def upload_limit() -> int:
    """Return the size limit of a file."""
    return round(settings().max_upload_gb * _GB)


def create(name: str, size_bytes: int, owner: str | None) -> Upload:
    """Create an upload of ``size_bytes`` bytes.

    Raises:
        IntakeError: the file type is not supported, or the file is empty.
        TooLargeUploadError: it exceeds the size limit.
        NoSpaceError: the disk has not enough free space.
        TooManyUploadsError: there are too many incomplete uploads.
    """
    from jarvis.server.ingest.intake import upload_name

    stored_name = upload_name(name)
    if size_bytes == 0:
        raise IntakeError(f"{stored_name} is empty. Choose another file.")
    if size_bytes > upload_limit():
        raise TooLargeUploadError(size_bytes, upload_limit())
    partial_uploads_dir().mkdir(parents=True, exist_ok=True)
    try:
        _check_room(stored_name, size_bytes, owner)
    except (TooManyUploadsError, NoSpaceError):
        sweep()
        _check_room(stored_name, size_bytes, owner)
    upload_id = f"{secrets.token_hex(_ID_BYTES)}-{_mark(owner)}-{size_bytes:x}"
    folder = _folder(upload_id)
    folder.mkdir()
    (folder / _DATA).touch()
    _write(folder, _Record(name=stored_name, size_bytes=size_bytes, owner=owner))
    return find(upload_id)


def find(upload_id: str) -> Upload:
    """Return an upload; raise UnknownUploadError if it does not exist or expired."""
    from jarvis.server.ingest.intake import stored_upload_path

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
    """Return an upload of a person; raise UnknownUploadError if they have none with this id."""
    upload = find(upload_id)
    if upload.owner != owner:
        raise UnknownUploadError
    return upload


def remove(upload_id: str) -> None:
    """Delete an upload, but not a complete trace; raise UnknownUploadError if there is none."""
    folder = _folder(upload_id)
    _read(folder)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Delete expired uploads."""
    before = time.time() - EXPIRES_AFTER.total_seconds()
    root = partial_uploads_dir()
    for folder in root.iterdir() if root.is_dir() else ():
        try:
            changed = max(path.stat().st_mtime for path in (folder, *folder.glob("*")))
        except FileNotFoundError:
            continue  # another process uses or deletes it
        if changed < before:
            shutil.rmtree(folder, ignore_errors=True)


def data_file(upload_id: str) -> Path:
    """Return the partial file of an upload; raise UnknownUploadError for an invalid id."""
    return _folder(upload_id) / _DATA


def note_content(upload_id: str, sha256: str, *, is_reused: bool = False) -> None:
    """Store the digest of a complete upload, and whether its content was already stored."""
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
    """Write the record atomically."""
    temporary = folder / f".{_RECORD}"
    temporary.write_text(record.model_dump_json(), encoding="utf-8")
    temporary.replace(folder / _RECORD)


def _check_room(name: str, size_bytes: int, owner: str | None) -> None:
    """Raise TooManyUploadsError or NoSpaceError if another upload cannot be created."""
    pending = _pending_bytes()
    if owner is not None and len(pending[_mark(owner)]) >= MAX_PER_PERSON:
        raise TooManyUploadsError(
            f"You have {MAX_PER_PERSON} incomplete uploads, which is the limit. Finish or delete "
            "some, or wait until they expire, a day after their last byte."
        )
    if sum(map(len, pending.values())) >= MAX_AT_ONCE:
        raise TooManyUploadsError("Too many uploads are in progress on this server. Try later.")
    reserved = sum(map(sum, pending.values()))
    free = shutil.disk_usage(partial_uploads_dir()).free - reserved - FREE_BYTES
    if size_bytes > free:
        raise NoSpaceError(
            f"The server's disk has {byte_size(max(free, 0))} free for uploads, and "
            f"{name} has {byte_size(size_bytes)}."
        )


def _pending_bytes() -> dict[str, list[int]]:
    """Return the missing bytes of each incomplete upload, by ``_mark`` of its owner."""
    pending = defaultdict(list)
    with os.scandir(partial_uploads_dir()) as folders:
        for folder in folders:
            parts = _ID.fullmatch(folder.name)
            if parts is not None and parts["size"] is not None:
                with suppress(FileNotFoundError):  # a complete upload has no partial file
                    received = os.stat(os.path.join(folder.path, _DATA)).st_size
                    pending[parts["owner"]].append(int(parts["size"], 16) - received)
    return pending


def _mark(owner: str | None) -> str:
    """Return the part of upload ids that identifies the owner."""
    return hashlib.sha256((owner or "").encode()).hexdigest()[:8]
