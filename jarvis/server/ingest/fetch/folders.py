"""The traces that a URL of several names: those below a folder, and those of a range."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import NamedTuple
from urllib.parse import quote, unquote

from jarvis.core.workspace import TRUTH_NAME
from jarvis.ranks.inputs import MAX_DEPTH, TooManyFilesError, expanded, max_ranks
from jarvis.server.errors import FetchError
from jarvis.server.ingest.addresses import S3, SFTP, Address, address_of
from jarvis.server.ingest.fetch import ListFolder
from jarvis.trace import SUFFIXES

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
    return address_of(text).is_folder or len(expanded(text)) > 1


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
        return [TraceUrl(each, address_of(each).file_name) for each in expanded(text)]
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
