"""Bytes that arrive at the end of an upload, and what makes it whole."""

import base64
import errno
import fcntl
import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Self

from jarvis.core.errors import JarvisError
from jarvis.server.ingest.intake import IntakeError, adopt_upload
from jarvis.server.ingest.uploads import (
    MAX_AT_ONCE,
    BusyUploadError,
    NoSpaceError,
    Upload,
    data_file,
    find,
    note_content,
)
from jarvis.server.storage.artifacts import publish_file
from jarvis.text.format import byte_size

if TYPE_CHECKING:
    from hashlib import _Hash

CHECKSUMS = ("sha1", "sha256")
"""The algorithms of a checksum of what is sent at once."""

_READ_BYTES = 1 << 20


class OffsetError(JarvisError):
    """Bytes are sent for another place than the end of what has arrived."""

    def __init__(self, sent: int, has: int) -> None:
        super().__init__(f"The upload goes on at byte {has}, not at {sent}. Ask where, and go on.")


class TooMuchError(JarvisError):
    """More bytes are sent than the upload was said to have."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(
            f"More is sent than the {size_bytes} bytes that the upload was to have. Begin it again."
        )


class ChecksumError(JarvisError):
    """What has arrived is not what was sent."""

    def __init__(self) -> None:
        super().__init__("What arrived does not have the checksum that was sent. Send it again.")


@dataclass(frozen=True, slots=True)
class Checksum:
    """What some bytes must come to, in base64."""

    algorithm: str
    digest: str

    def __post_init__(self) -> None:
        if self.algorithm not in CHECKSUMS:
            raise IntakeError(f"A checksum is one of {', '.join(CHECKSUMS)}. Choose one of them.")


class UploadWriter:
    """Bytes that arrive at the end of an upload, from one sender at a time; others can go on when
    its block is left."""

    def __init__(self, upload: Upload, file: int, checksum: Checksum | None) -> None:
        self._upload = upload
        self._file = file
        self._begin = self._offset = upload.offset_bytes
        self._digest = _digest_at(upload.id, self._offset)
        self._before = None if self._digest is None else self._digest.copy()
        self._wanted = checksum
        self._checked = None if checksum is None else hashlib.new(checksum.algorithm)

    @property
    def offset_bytes(self) -> int:
        """How far the upload is."""
        return self._offset

    def write(self, block: bytes) -> None:
        """Put a block at the end.

        Raises TooMuchError, of which nothing is taken, and NoSpaceError, of which the upload may
        have the beginning.
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
        """What was sent has arrived: the upload as it is now, kept where that makes it whole.

        Raises ChecksumError where it is not what was to arrive; the block then takes it back.
        Raises ArtifactError where it cannot be shared; it is whole then nevertheless.
        """
        if self._checked is not None and not self._has_checksum(self._checked):
            raise ChecksumError
        self._checked = None
        if self._offset == self._upload.size_bytes and self._upload.trace is None:
            self._keep()
        return find(self._upload.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._checked is not None:  # not what it was to be, or not all of it
            os.ftruncate(self._file, self._begin)
            self._offset, self._digest = self._begin, self._before
        if self._digest is not None:
            _remember_digest(self._upload.id, self._offset, self._digest)
        os.close(self._file)

    def _has_checksum(self, arrived: "_Hash") -> bool:
        found = base64.b64encode(arrived.digest())
        return self._wanted is not None and found == self._wanted.digest.encode()

    def _keep(self) -> None:
        upload, written = self._upload, data_file(self._upload.id)
        os.fsync(self._file)
        digest = self._digest or _digest_of(written)
        self._digest = None
        sha256 = digest.hexdigest()
        note_content(upload.id, sha256)  # before the move: one who is killed between finds it
        kept = adopt_upload(written, upload.name, sha256)
        note_content(upload.id, sha256, is_reused=kept.is_reused)
        publish_file(kept.path)


def arriving(upload_id: str, offset_bytes: int, checksum: Checksum | None = None) -> UploadWriter:
    """Go on with an upload where it is, in a block.

    Raises UnknownUploadError, OffsetError, and BusyUploadError while another one sends.
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
            "Bytes of this upload are arriving over another connection. Wait a moment, then go on."
        ) from error
    except BaseException:
        os.close(file)
        raise
    return UploadWriter(upload, file, checksum)


_digests: "OrderedDict[str, tuple[int, _Hash]]" = OrderedDict()
"""How far the digest of an upload is known in this process, so that it need not be read again."""

_digests_lock = Lock()


def _digest_at(upload_id: str, offset_bytes: int) -> "_Hash | None":
    """The digest of the beginning of an upload; None where this process has not seen all of it."""
    if offset_bytes == 0:
        return hashlib.sha256()
    with _digests_lock:
        known, digest = _digests.pop(upload_id, (None, None))
    return digest if known == offset_bytes else None


def _remember_digest(upload_id: str, offset_bytes: int, digest: "_Hash") -> None:
    with _digests_lock:
        _digests[upload_id] = offset_bytes, digest
        while len(_digests) > MAX_AT_ONCE:
            _digests.popitem(last=False)


def _digest_of(path: Path) -> "_Hash":
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest
