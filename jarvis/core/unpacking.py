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
from pathlib import Path
from typing import Any, Protocol, cast

from jarvis.core.errors import JarvisError

SIZE_VARIABLE = "JARVIS_MAX_UNPACKED_GB"
RATIO_VARIABLE = "JARVIS_MAX_UNPACKED_RATIO"
DEFAULT_SIZE_GB = 64.0
DEFAULT_RATIO = 200.0
"""Recorded traces unpack to 10 to 25 times their size; what repeats one byte, to 1,000 times."""

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


class Unpacked(io.RawIOBase):
    """What a packed file gives, until it is more than its size allows; then TooLargeError."""

    def __init__(self, text: Readable, packed_bytes: int) -> None:
        self._text = text
        self._left_by_size = int(number_setting(SIZE_VARIABLE, DEFAULT_SIZE_GB) * 1e9)
        ratio = number_setting(RATIO_VARIABLE, DEFAULT_RATIO)
        self._left_by_ratio = max(ALWAYS_ALLOWED_BYTES, int(ratio * packed_bytes))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._text.readinto(buffer) or 0
        self._left_by_size -= count
        self._left_by_ratio -= count
        if self._left_by_size < 0:
            most = f"{number_setting(SIZE_VARIABLE, DEFAULT_SIZE_GB):g} GB"
            raise TooLargeError(f"it unpacks to more than {most} ({SIZE_VARIABLE} allows more)")
        if self._left_by_ratio < 0:
            most = f"{number_setting(RATIO_VARIABLE, DEFAULT_RATIO):g} times its size"
            raise TooLargeError(
                f"it unpacks to more than {most}, as no recording does ({RATIO_VARIABLE} allows "
                "more)"
            )
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


def check_unpacked_size(unpacked_bytes: int, packed_bytes: int) -> None:
    """Refuse with TooLargeError what says itself that it unpacks to too much."""
    most = number_setting(SIZE_VARIABLE, DEFAULT_SIZE_GB)
    if unpacked_bytes > most * 1e9:
        raise TooLargeError(f"it unpacks to more than {most:g} GB ({SIZE_VARIABLE} allows more)")
    ratio = number_setting(RATIO_VARIABLE, DEFAULT_RATIO)
    if unpacked_bytes > max(ALWAYS_ALLOWED_BYTES, ratio * packed_bytes):
        raise TooLargeError(
            f"it unpacks to more than {ratio:g} times its size ({RATIO_VARIABLE} allows more)"
        )


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
