"""Decompression limits for untrusted archives: traces and reports.

A file of a few MB can unpack to terabytes. This module defines the limits, the environment
variables that change them and the error messages.
"""

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, cast

from jarvis.core.errors import JarvisError

SIZE_VARIABLE = "JARVIS_MAX_UNPACKED_GB"
RATIO_VARIABLE = "JARVIS_MAX_UNPACKED_RATIO"
ALWAYS_ALLOWED_BYTES = 64 << 20
"""Minimum limit, for small files."""

MAX_DIRECTORY_BYTES = 4 << 20
"""Maximum size of a zip's central directory: some 50,000 names, all held in memory."""


DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, struct.error)
"""Exceptions from reading a zip that is damaged, encrypted, or uses an unknown compression."""


class TooLargeError(ValueError):
    """A file unpacks to more than the limit; the message is the reason, without the file name."""


class UnpackingLimitError(JarvisError):
    """The environment variable of a limit is not a positive number."""

    def __init__(self, variable: str, given: str, default: float) -> None:
        super().__init__(f"{variable} is {given[:40]!r}. Set a number above 0, like {default:g}.")


class Readable(Protocol):
    """A source of bytes."""

    def readinto(self, buffer: Any, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class UnpackingLimits:
    """Maximum unpacked size of a file: in GB (10^9 bytes), and as a multiple of its packed size.

    Recorded traces unpack to 10 to 25 times their size, a file of one repeated byte to 1,000 times.
    """

    size_gb: float = 64.0
    ratio: float = 200.0

    @classmethod
    def from_environment(cls) -> Self:
        """Return the limits of this process.

        Raises:
            UnpackingLimitError: An environment variable is not a positive number.
        """
        return cls(
            number_setting(SIZE_VARIABLE, cls().size_gb),
            number_setting(RATIO_VARIABLE, cls().ratio),
        )

    def check(self, unpacked_bytes: int, packed_bytes: int) -> None:
        """Raise TooLargeError if a file of ``packed_bytes`` unpacks to more than the limits."""
        if unpacked_bytes > self.size_gb * 1e9:
            limit, variable = f"{self.size_gb:g} GB", SIZE_VARIABLE
        elif unpacked_bytes > max(ALWAYS_ALLOWED_BYTES, self.ratio * packed_bytes):
            limit = f"{self.ratio:g} times its size, more than any recording"
            variable = RATIO_VARIABLE
        else:
            return
        raise TooLargeError(f"it unpacks to more than {limit} ({variable} raises the limit)")


class Unpacked(io.RawIOBase):
    """The unpacked bytes of a file; reading beyond the limits raises TooLargeError."""

    def __init__(self, source: Readable, packed_bytes: int) -> None:
        self._source = source
        self._packed_bytes = packed_bytes
        self._read_bytes = 0
        self._limits = UnpackingLimits.from_environment()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._source.readinto(buffer) or 0
        self._read_bytes += count
        self._limits.check(self._read_bytes, self._packed_bytes)
        return count


def chunks(unpacked: Unpacked) -> Iterator[bytes]:
    """Yield chunks of at most 1 MiB; a single read would allocate the whole limit."""
    while chunk := unpacked.read(1 << 20):
        yield chunk


class _Packed(io.FileIO):
    """A zip file whose central directory is limited while the archive is opened."""

    is_opening = True

    def read(self, size: int | None = -1, /) -> bytes:
        if self.is_opening and size is not None and size > MAX_DIRECTORY_BYTES:
            limit = MAX_DIRECTORY_BYTES >> 20
            raise TooLargeError(f"its list of files is longer than {limit} MB")
        return super().read(-1 if size is None else size) or b""


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip for reading.

    Raises:
        TooLargeError: The archive lists too many files.
        zipfile.BadZipFile: The archive is damaged; see DAMAGE for other errors of ``zipfile``.
    """
    with _Packed(path) as file, zipfile.ZipFile(file) as archive:
        file.is_opening = False
        yield archive


def unpacked_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, packed_bytes: int
) -> Unpacked:
    """Return a file of a zip, read to its real end whatever length the zip declares.

    Args:
        packed_bytes: Packed size for the ratio limit: of the archive, or of the rest of it.
    """
    member.file_size = max(member.file_size, 1 << 62)
    return Unpacked(cast(Readable, archive.open(member)), packed_bytes)


def number_setting(variable: str, default: float) -> float:
    """Return the positive number in an environment variable, or ``default`` if it is not set.

    Raises:
        UnpackingLimitError: The variable is not a positive number.
    """
    given = os.environ.get(variable)
    if not given:
        return default
    try:
        limit = float(given)
    except ValueError:
        raise UnpackingLimitError(variable, given, default) from None
    if not 0 < limit < float("inf"):
        raise UnpackingLimitError(variable, given, default)
    return limit
