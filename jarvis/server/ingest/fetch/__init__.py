"""A trace comes in from another machine: by http, https or sftp, from hosts that are allowed."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from jarvis.server.ingest.addresses import SFTP, Address, AddressError, address_of
from jarvis.server.ingest.fetch.base import (
    FetchError,
    InterruptedFetchError,
    OpenedDownload,
    RemoteFile,
)
from jarvis.server.ingest.intake import IntakeError, StoredTrace, adopt_upload, upload_name
from jarvis.server.settings import PREFIX, settings

__all__ = ["AddressError", "FetchError", "fetch_trace"]

WAITS_S = (1.0, 2.0, 4.0, 8.0)
"""After a lost connection it is tried again after these times; what has come is not asked for
again. Where something came in between, counting begins anew."""

_CHUNK_BYTES = 1 << 20

OnBytes = Callable[[int, int | None], None]
"""Called with how many bytes have come, and of how many where that is known."""


def fetch_trace(text: str, folder: Path, on_bytes: OnBytes) -> StoredTrace:
    """Fetch the trace at an address and keep it under its content, as an upload is kept.

    It grows in ``folder``, which is on the disk of the home. Raises AddressError, FetchError where
    it is not sent or too large, IntakeError where its name is that of no trace, and OSError where
    it cannot be written.
    """
    address = address_of(text)
    growing = folder / "growing"
    name = _fetch(_remote(address), address.shown, growing, on_bytes)
    with growing.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return adopt_upload(growing, name, sha256)


def _remote(address: Address) -> RemoteFile:
    if address.scheme == SFTP:
        from jarvis.server.ingest.fetch.over_sftp import SftpFile

        return SftpFile(address)
    from jarvis.server.ingest.fetch.over_http import HttpFile

    return HttpFile(address)


def _fetch(remote: RemoteFile, shown: str, growing: Path, on_bytes: OnBytes) -> str:
    """Write the file, in as many tries as it takes; the name to keep it under."""
    furthest, lost = 0, 0
    with growing.open("wb", buffering=_CHUNK_BYTES) as file:
        while True:
            try:
                with remote.open(file.tell()) as opened:
                    name = _name(opened, shown)
                    _write(opened, shown, file, on_bytes)
                return name
            except InterruptedFetchError as error:
                lost = 0 if file.tell() > furthest else lost + 1
                furthest = max(furthest, file.tell())
                if furthest == 0 or lost >= len(WAITS_S):
                    raise FetchError(str(error)) from error
                time.sleep(WAITS_S[lost])


def _write(opened: OpenedDownload, shown: str, file: IO[bytes], on_bytes: OnBytes) -> None:
    most = int(settings().max_upload_gb * 1e9)
    _check_size(opened.total_bytes or 0, most, shown)
    file.seek(opened.start)
    file.truncate()
    done = opened.start
    on_bytes(done, opened.total_bytes)
    for piece in opened.pieces:
        done += len(piece)
        _check_size(done, most, shown)
        file.write(piece)
        on_bytes(done, opened.total_bytes)


def _check_size(size_bytes: int, most: int, shown: str) -> None:
    if size_bytes > most:
        raise FetchError(
            f"{shown} is larger than the {most / 1e9:g} GB that this server takes in "
            f"({PREFIX}MAX_UPLOAD_GB). Record fewer steps, or have the limit raised."
        )


def _name(opened: OpenedDownload, shown: str) -> str:
    """The first of the names that is one of a trace; IntakeError where none is."""
    for name in opened.names:
        try:
            return upload_name(name)
        except IntakeError:
            continue
    return upload_name(shown.rpartition("/")[2])
