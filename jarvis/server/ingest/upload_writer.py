"""Writes received bytes to an upload and stores it when it is complete."""

import base64
import errno
import fcntl
import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Self

from jarvis.core.staging import file_sha256
from jarvis.server.errors import (
    BusyUploadError,
    ChecksumError,
    IntakeError,
    NoSpaceError,
    OffsetError,
    TooMuchError,
)
from jarvis.server.ingest.intake import adopt_upload
from jarvis.server.ingest.uploads import MAX_AT_ONCE, Upload, data_file, find, note_content
from jarvis.server.storage.artifacts import publish_file
from jarvis.text.format import byte_size

if TYPE_CHECKING:
    from hashlib import _Hash

CHECKSUMS = ("sha1", "sha256")
"""Supported checksum algorithms of a chunk."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """Expected digest of a chunk, in base64."""

    algorithm: str
    digest: str

    def __post_init__(self) -> None:
        if self.algorithm not in CHECKSUMS:
            raise IntakeError(f"Use one of these checksum algorithms: {', '.join(CHECKSUMS)}.")


class UploadWriter:
    """Context manager that appends to an upload and locks it for other senders."""

    def __init__(self, upload: Upload, file: int, checksum: Checksum | None) -> None:
        self._upload = upload
        self._file = file
        self._begin = self._offset = upload.offset_bytes
        self._digest = _digest_at(upload.id, self._offset)
        self._before = None if self._digest is None else self._digest.copy()
        self._expected = checksum
        self._checked = None if checksum is None else hashlib.new(checksum.algorithm)

    @property
    def offset_bytes(self) -> int:
        """Return the number of received bytes."""
        return self._offset

    def write(self, block: bytes) -> None:
        """Append a block.

        Raises:
            TooMuchError: it exceeds the declared size; nothing is written.
            NoSpaceError: the disk is full; a part may be written.
        """
        if self._offset + len(block) > self._upload.size_bytes:
            raise TooMuchError(self._upload.size_bytes)
        rest = memoryview(block)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._digest = None
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise NoSpaceError(
                    f"The server's disk was full after {byte_size(self._offset)} of "
                    f"{self._upload.name}."
                ) from error
            raise
        self._offset += len(block)
        for digest in (self._digest, self._checked):
            if digest is not None:
                digest.update(block)

    def end(self) -> Upload:
        """Verify the chunk, store the upload if it is complete, and return its state.

        Raises:
            ChecksumError: the checksum does not match; leaving the block truncates the chunk.
            ArtifactError: it cannot be copied to the artifact root, but is stored locally.
        """
        if self._checked is not None and not self._has_checksum(self._checked):
            raise ChecksumError
        self._checked = None
        if self._offset == self._upload.size_bytes and self._upload.trace is None:
            self._store()
        return find(self._upload.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._checked is not None:  # incomplete, or with a wrong checksum
            os.ftruncate(self._file, self._begin)
            self._offset, self._digest = self._begin, self._before
        if self._digest is not None:
            _remember_digest(self._upload.id, self._offset, self._digest)
        os.close(self._file)

    def _has_checksum(self, received: "_Hash") -> bool:
        digest = base64.b64encode(received.digest())
        return self._expected is not None and digest == self._expected.digest.encode()

    def _store(self) -> None:
        upload, written = self._upload, data_file(self._upload.id)
        os.fsync(self._file)
        sha256 = self._digest.hexdigest() if self._digest else file_sha256(written)
        self._digest = None
        note_content(upload.id, sha256)  # before the move, so that it is found after a crash
        stored = adopt_upload(written, upload.name, sha256)
        note_content(upload.id, sha256, is_reused=stored.is_reused)
        publish_file(stored.path)


def resume_upload(
    upload_id: str, offset_bytes: int, checksum: Checksum | None = None
) -> UploadWriter:
    """Open an upload for appending at ``offset_bytes``; use the result as a context manager.

    Raises:
        UnknownUploadError: there is no such upload.
        OffsetError: its current offset differs.
        BusyUploadError: another connection is sending.
    """
    upload = find(upload_id)
    if upload.trace is not None:
        if offset_bytes != upload.size_bytes:
            raise OffsetError(offset_bytes, upload.size_bytes)
        return UploadWriter(upload, os.open(os.devnull, os.O_WRONLY), checksum)
    file = os.open(data_file(upload_id), os.O_WRONLY | os.O_APPEND)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        upload = find(upload_id)
        if offset_bytes != upload.offset_bytes:
            raise OffsetError(offset_bytes, upload.offset_bytes)
    except BlockingIOError as error:
        os.close(file)
        raise BusyUploadError(
            "This upload is being sent over another connection. Wait a moment, then resume."
        ) from error
    except BaseException:
        os.close(file)
        raise
    return UploadWriter(upload, file, checksum)


_digests: "OrderedDict[str, tuple[int, _Hash]]" = OrderedDict()
"""Offset and digest of partial uploads in this process, which save reading the files again."""

_digests_lock = Lock()


def _digest_at(upload_id: str, offset_bytes: int) -> "_Hash | None":
    """Return the digest of the bytes before an offset; None if this process did not receive all."""
    if offset_bytes == 0:
        return hashlib.sha256()
    with _digests_lock:
        digest_offset, digest = _digests.pop(upload_id, (None, None))
    return digest if digest_offset == offset_bytes else None


def _remember_digest(upload_id: str, offset_bytes: int, digest: "_Hash") -> None:
    with _digests_lock:
        _digests[upload_id] = offset_bytes, digest
        while len(_digests) > MAX_AT_ONCE:
            _digests.popitem(last=False)
