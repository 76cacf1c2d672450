"""What the ways to fetch a file have in common."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from jarvis.core.errors import JarvisError

CONNECT_S = 10.0
"""A machine that does not answer for so long is taken to be away."""

SILENCE_S = 60.0
"""A machine that sends nothing for so long is taken to be gone."""


class FetchError(JarvisError):
    """A trace cannot be fetched."""


class InterruptedFetchError(FetchError):
    """The connection was lost; asked again, the machine may send the rest."""


@dataclass(frozen=True, slots=True)
class OpenedDownload:
    """What is being sent: the bytes from ``start`` on, of ``total_bytes`` where that is known.

    ``names`` are what the file may be called, best first. ``pieces`` raises InterruptedFetchError
    where the connection is lost.
    """

    start: int
    total_bytes: int | None
    names: tuple[str, ...]
    pieces: Iterator[bytes]


class RemoteFile(Protocol):
    """A file on another machine."""

    def open(self, offset: int) -> AbstractContextManager[OpenedDownload]:
        """Ask for the bytes from ``offset`` on; where that cannot be had, all come again.

        Raises FetchError, AddressError, and InterruptedFetchError where another try may help.
        """
