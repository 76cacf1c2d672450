"""What the protocols of downloads share."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from jarvis.server.ingest.addresses import Address
from jarvis.text.markdown import short_line

CONNECT_S = 10.0
"""Connection timeout."""

SILENCE_S = 60.0
"""Read timeout."""


@dataclass(frozen=True, slots=True)
class OpenedDownload:
    """An open download.

    Attributes:
        start: offset of the first byte in ``pieces``.
        total_bytes: size of the whole file, or None if it is unknown.
        names: candidates for the file name, best first.
        pieces: content from ``start``; raises InterruptedFetchError if the connection is lost.
    """

    start: int
    total_bytes: int | None
    names: tuple[str, ...]
    pieces: Iterator[bytes]


def error_text(error: BaseException | None) -> str:
    """Return what a connection or library reports, on one line; it may be untrusted."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return short_line(str(text)).rstrip(".")


class Entry(NamedTuple):
    """A file or folder in a folder, by its decoded name."""

    name: str
    is_folder: bool


ListFolder = Callable[[Address], Iterable[Entry]]
"""Lists a folder; raises FetchError if it cannot be listed."""


class RemoteFile(Protocol):
    """A file on another machine."""

    def open(self, offset: int) -> AbstractContextManager[OpenedDownload]:
        """Request the bytes from ``offset``, or the whole file if it cannot be resumed.

        Raises:
            FetchError: the request was rejected.
            AddressError: a redirect leads to a URL that is not allowed.
            InterruptedFetchError: a retry may succeed.
        """
