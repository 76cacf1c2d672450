"""How much of what strangers packed is unpacked: traces and reports are hostile input.

A file of some MB can unpack to terabytes. Whoever reads one asks here: the limits, the variables
that change them and the words for a file beyond them stand nowhere else.
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
"""So much may come out of any file, however small."""

MAX_DIRECTORY_BYTES = 4 << 20
"""The list of files of a zip; some 50,000 names, each of which takes memory before any is read."""


DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, struct.error)
"""What reading a zip raises that is damaged, encrypted, or packed in a way that is not known."""


class TooLargeError(ValueError):
    """A file unpacks to more than is allowed; the message is the reason, without the file."""


class UnpackingLimitError(JarvisError):
    """A limit is no number."""

    def __init__(self, variable: str, given: str, default: float) -> None:
        super().__init__(f"{variable} is {given[:40]!r}. Give a number above 0, like {default:g}.")


class Readable(Protocol):
    """What bytes are read from."""

    def readinto(self, buffer: Any, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class UnpackingLimits:
    """How much a file may unpack to: ``ratio`` is a multiple of its packed size.

    Recorded traces unpack to 10 to 25 times their size; what repeats one byte, to 1,000 times.
    """

    size_gb: float = 64.0
    ratio: float = 200.0

    @classmethod
    def from_environment(cls) -> Self:
        """Return the limits of this process; raise UnpackingLimitError."""
        return cls(
            number_setting(SIZE_VARIABLE, cls().size_gb),
            number_setting(RATIO_VARIABLE, cls().ratio),
        )

    def check(self, unpacked_bytes: int, packed_bytes: int) -> None:
        """Raise TooLargeError where a file of ``packed_bytes`` unpacks to too much."""
        if unpacked_bytes > self.size_gb * 1e9:
            most, variable = f"{self.size_gb:g} GB", SIZE_VARIABLE
        elif unpacked_bytes > max(ALWAYS_ALLOWED_BYTES, self.ratio * packed_bytes):
            most, variable = f"{self.ratio:g} times its size, as no recording does", RATIO_VARIABLE
        else:
            return
        raise TooLargeError(f"it unpacks to more than {most} ({variable} allows more)")


class Unpacked(io.RawIOBase):
    """What a packed file gives, until it is more than its size allows; then TooLargeError."""

    def __init__(self, text: Readable, packed_bytes: int) -> None:
        self._text = text
        self._packed_bytes = packed_bytes
        self._read_bytes = 0
        self._limits = UnpackingLimits.from_environment()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._text.readinto(buffer) or 0
        self._read_bytes += count
        self._limits.check(self._read_bytes, self._packed_bytes)
        return count


def pieces(text: Unpacked) -> Iterator[bytes]:
    """The text in pieces of at most a MB: reading it at once would make room for its limit."""
    while piece := text.read(1 << 20):
        yield piece


class _Packed(io.FileIO):
    """A zip whose list of files is read, which takes one piece of it, or a file of it."""

    is_opening = True

    def read(self, size: int | None = -1, /) -> bytes:
        if self.is_opening and size is not None and size > MAX_DIRECTORY_BYTES:
            most = MAX_DIRECTORY_BYTES >> 20
            raise TooLargeError(f"the list of its files is longer than {most} MB")
        return super().read(-1 if size is None else size) or b""


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip to read from. Raises TooLargeError where it lists too many files, and what ``zipfile``
    raises."""
    with _Packed(path) as file, zipfile.ZipFile(file) as archive:
        file.is_opening = False
        yield archive


def unpacked_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, packed_bytes: int
) -> Unpacked:
    """A file of a zip, to its real end whatever length the zip claims for it.

    ``packed_bytes`` is what its size is measured by: that of the archive, or of what is left of it.
    """
    member.file_size = max(member.file_size, 1 << 62)
    return Unpacked(cast(Readable, archive.open(member)), packed_bytes)


def number_setting(variable: str, default: float) -> float:
    """Return the number above 0 that an environment variable holds; UnpackingLimitError."""
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
