"""Downloads of traces by http, https, sftp or s3 from allowed hosts, and the traces of a folder."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import IO, NamedTuple
from urllib.parse import quote, unquote

from jarvis.core.staging import file_sha256
from jarvis.core.workspace import TRUTH_NAME
from jarvis.ranks.inputs import MAX_DEPTH, TooManyFilesError, expand_braces, max_ranks
from jarvis.server.errors import AddressError, FetchError, IntakeError, InterruptedFetchError
from jarvis.server.ingest.addresses import S3, SFTP, Address, address_of
from jarvis.server.ingest.fetch.base import (
    ListFolder,
    OpenedDownload,
    RemoteFile,
)
from jarvis.server.ingest.intake import StoredTrace, adopt_upload, upload_name
from jarvis.server.settings import PREFIX, settings
from jarvis.trace import SUFFIXES

__all__ = ["AddressError", "FetchError", "download_trace", "fetch_trace"]

WAITS_S = (1.0, 2.0, 4.0, 8.0)
"""Delays before retries after a lost connection, which resume at the received offset. Progress
resets the retries."""

_CHUNK_BYTES = 1 << 20

OnBytes = Callable[[int, int | None], None]
"""Called with the number of received bytes, and the total or None."""


def fetch_trace(text: str, folder: Path, on_bytes: OnBytes, name: str | None = None) -> StoredTrace:
    """Download the trace at a URL and store it by its content, like an upload.

    Args:
        folder: where the partial file is written; must be on the same disk as the home.
        name: name of the trace in place of that of the file.

    Raises:
        AddressError: the URL is not valid or not allowed.
        FetchError: the file is not sent, or too large.
        IntakeError: its name is not that of a trace.
        OSError: it cannot be written.
    """
    partial, found = _download(text, folder, on_bytes)
    return adopt_upload(partial, upload_name(name) if name else found, file_sha256(partial))


def download_trace(text: str, folder: Path, on_bytes: OnBytes) -> Path:
    """Download the trace at a URL into an existing folder, and return its path.

    Raises:
        AddressError, FetchError, IntakeError, OSError: as ``fetch_trace``.
    """
    partial, name = _download(text, folder, on_bytes)
    return partial.rename(folder / name)


def _download(text: str, folder: Path, on_bytes: OnBytes) -> tuple[Path, str]:
    """Return the downloaded file, and the name to store it under."""
    address = address_of(text)
    if address.is_folder:
        raise FetchError(f"{address.shown} is a folder. Give the URL of a trace.")
    partial = folder / "partial"
    return partial, _fetch(_remote(address), address.shown, partial, on_bytes)


def _remote(address: Address) -> RemoteFile:
    if address.scheme == SFTP:
        from jarvis.server.ingest.fetch.over_sftp import SftpFile

        return SftpFile(address)
    if address.scheme == S3:
        from jarvis.server.ingest.fetch.over_s3 import S3File

        return S3File(address)
    from jarvis.server.ingest.fetch.over_http import HttpFile

    return HttpFile(address)


def _fetch(remote: RemoteFile, shown: str, partial: Path, on_bytes: OnBytes) -> str:
    """Download the file with retries; return the name to store it under."""
    furthest, retries = 0, 0
    with partial.open("wb", buffering=_CHUNK_BYTES) as file:
        while True:
            try:
                with remote.open(file.tell()) as opened:
                    name = _name(opened, shown)
                    _write(opened, shown, file, on_bytes)
                return name
            except InterruptedFetchError as error:
                retries = 0 if file.tell() > furthest else retries + 1
                furthest = max(furthest, file.tell())
                if furthest == 0 or retries >= len(WAITS_S):
                    raise FetchError(str(error)) from error
                time.sleep(WAITS_S[retries])


def _write(opened: OpenedDownload, shown: str, file: IO[bytes], on_bytes: OnBytes) -> None:
    max_bytes = int(settings().max_upload_gb * 1e9)
    _check_size(opened.total_bytes or 0, max_bytes, shown)
    file.seek(opened.start)
    file.truncate()
    done = opened.start
    on_bytes(done, opened.total_bytes)
    for piece in opened.pieces:
        done += len(piece)
        _check_size(done, max_bytes, shown)
        file.write(piece)
        on_bytes(done, opened.total_bytes)


def _check_size(size_bytes: int, max_bytes: int, shown: str) -> None:
    if size_bytes > max_bytes:
        raise FetchError(
            f"{shown} exceeds the limit of {max_bytes / 1e9:g} GB ({PREFIX}MAX_UPLOAD_GB). Record "
            "fewer steps, or ask an admin to raise the limit."
        )


def _name(opened: OpenedDownload, shown: str) -> str:
    """Return the first name that is valid for a trace; raise IntakeError if none is."""
    for name in opened.names:
        try:
            return upload_name(name)
        except IntakeError:
            continue
    return upload_name(shown.rpartition("/")[2])


MAX_ENTRIES = 100_000
"""Files and folders that are looked at below a folder."""

MAX_LISTING_S = 60.0
"""How long a folder is listed."""


class TraceUrl(NamedTuple):
    """The URL of a trace, and its name below the folder that was given."""

    url: str
    name: str


def names_several(text: str) -> bool:
    """Return whether a URL is that of a folder, or has a range in braces.

    Raises:
        AddressError: it is not valid or not allowed.
        TooManyFilesError: the range has more traces than a job may have ranks.
    """
    return address_of(text).is_folder or len(expand_braces(text)) > 1


def trace_urls(text: str) -> list[TraceUrl]:
    """Return the traces that a URL names; a URL of a single one is itself.

    Of a folder, hidden files, links and files of other types are left out.

    Raises:
        AddressError: it is not valid or not allowed.
        FetchError: the folder cannot be listed, or has no trace.
        TooManyFilesError: there are more than a job may have ranks.
    """
    address = address_of(text)
    if not address.is_folder:
        return [TraceUrl(each, address_of(each).file_name) for each in expand_braces(text)]
    found: list[TraceUrl] = []
    with _lister(address) as list_folder:
        for path in _below(list_folder, address):
            found.append(TraceUrl(path.url, unquote(path.path.removeprefix(address.path))))
            if len(found) > (limit := max_ranks()):
                raise TooManyFilesError(len(found), limit)
    if not found:
        raise FetchError(
            f"There is no trace in {address.shown}, a file whose name ends with "
            f"{', '.join(SUFFIXES)}. Check the URL."
        )
    return sorted(found)


@contextmanager
def _lister(address: Address) -> Iterator[ListFolder]:
    if address.scheme == SFTP:
        from jarvis.server.ingest.fetch.over_sftp import sftp_folders

        with sftp_folders(address) as list_folder:
            yield list_folder
    elif address.scheme == S3:
        from jarvis.server.ingest.fetch.over_s3 import list_s3

        yield list_s3
    else:
        from jarvis.server.ingest.fetch.over_http import list_http

        yield list_http


def _below(list_folder: ListFolder, root: Address) -> Iterator[Address]:
    """Yield the traces below a folder."""
    end, seen = monotonic() + MAX_LISTING_S, 0
    folders = [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        entries = set()
        for entry in list_folder(folder):
            entries.add(entry)
            seen += 1
            if seen > MAX_ENTRIES or monotonic() > end:
                raise FetchError(
                    f"{root.shown} has too many files to list. Give the URL of a folder below it."
                )
        for name, is_folder in sorted(entries):
            if not name or name[0] == "." or "/" in name or not name.isprintable():
                continue
            path = f"{folder.path}{quote(name)}"
            if is_folder and depth < MAX_DEPTH:
                folders.append((replace(folder, path=f"{path}/"), depth + 1))
            elif not is_folder and name.endswith(SUFFIXES) and name != TRUTH_NAME:
                yield replace(folder, path=path)
