"""Archives with the traces of several ranks: ``.zip`` and ``.tar.gz``."""

import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Self, cast

from isal import igzip

from jarvis.core.errors import UnreadableTraceError
from jarvis.core.unpacking import (
    DAMAGE,
    MAX_DIRECTORY_BYTES,
    Readable,
    TooLargeError,
    Unpacked,
    UnpackingLimits,
    chunks,
    open_archive,
    unpacked_member,
)
from jarvis.core.workspace import TRUTH_NAME, safe_name
from jarvis.ranks.inputs import MAX_DEPTH, max_ranks
from jarvis.text.markdown import short_line

TAR_SUFFIXES = (".tar.gz", ".tgz")
SEVERAL = 2
"""Traces from which an archive is one of several ranks; one of a single trace is a trace."""

MAX_FILES = 50_000
"""Files of a ``.tar.gz``, whose headers are all held in memory."""

_MAX_SHOWN_CHARS = 100
_MAX_NAME_CHARS = 100
"""Maximum length of a part of a name; its end is used because of the suffix."""

_TRACES = (".json", ".json.gz")
ARCHIVES = (*TAR_SUFFIXES, ".zip", ".tar")
_MACOS_METADATA = "__MACOSX"
_DAMAGE = (*DAMAGE, tarfile.TarError, igzip.BadGzipFile)
_LONG_NAMES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_Packed = tuple[str, Callable[[], Unpacked]]
"""A file of an archive: its name, and how to open it."""


@contextmanager
def unpacked_archives(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the paths with a temporary folder in place of each archive of several traces.

    Raises:
        UnreadableTraceError: An archive cannot be unpacked.
    """
    with TemporaryDirectory(prefix="jarvis-ranks-") as scratch:
        found = []
        for number, path in enumerate(paths):
            folder = Path(scratch) / str(number)
            found.append(folder if holds_several(path) and unpack(path, folder) else path)
        yield found


def holds_several(path: Path) -> bool:
    """Return whether a file is an archive with several traces, by the names in it.

    A ``.tar.gz`` counts as one without reading it, since it cannot be a trace.
    """
    if path.name.endswith(TAR_SUFFIXES):
        return path.is_file()
    with suppress(OSError, *_DAMAGE), open_archive(path) as archive:
        return sum(map(_is_trace, archive.namelist())) >= SEVERAL
    return False


def unpack(path: Path, folder: Path) -> list[Path]:
    """Write the traces of an archive below a new folder; return their paths in the order of names.

    Names are sanitized, so that none leaves the folder; other files are left out.

    Raises:
        UnreadableTraceError: The archive is damaged, contains an archive or no trace, unpacks to
            more than the limits, as a whole or one of its files, or has more traces than a job may
            have ranks.
    """
    found: list[Path] = []
    size = path.stat().st_size
    limits, total_bytes = UnpackingLimits.from_environment(), 0
    try:
        for name, text in _in_tar(path) if path.name.endswith(TAR_SUFFIXES) else _in_zip(path):
            if name.lower().endswith(ARCHIVES):
                shown = short_line(name, _MAX_SHOWN_CHARS)
                raise UnreadableTraceError(path, f"{shown} in it is an archive, too; unpack it")
            if not _is_trace(name):
                continue
            if len(found) >= (most := max_ranks()):
                raise UnreadableTraceError(path, f"it contains more than {most:,} traces")
            place = _place(folder, name, len(found))
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file, text() as unpacked:
                for piece in chunks(unpacked):
                    total_bytes += len(piece)
                    limits.check(total_bytes, size)
                    file.write(piece)
            found.append(place)
    except TooLargeError as error:
        raise UnreadableTraceError(path, str(error)) from error
    except _DAMAGE as error:
        raise UnreadableTraceError(path, f"the archive is damaged ({error})") from error
    if not found:
        raise UnreadableTraceError(path, "the archive contains no .json or .json.gz file")
    return sorted(found)


def _is_trace(name: str) -> bool:
    parts = PurePosixPath(name).parts
    is_hidden = any(part.startswith(".") and part != ".." for part in parts)
    return (
        name.endswith(_TRACES)
        and not is_hidden
        and parts[0] != _MACOS_METADATA
        and parts[-1] != TRUTH_NAME
    )


def _place(folder: Path, name: str, number: int) -> Path:
    """Return where to write a file of an archive; a name that is taken gets a folder."""
    parts = [part for part in PurePosixPath(name).parts if part not in ("..", "/")]
    near = parts[-MAX_DEPTH:]  # traces are searched to this depth
    place = folder.joinpath(*(safe_name(part[-_MAX_NAME_CHARS:]) for part in near))
    return folder / f"again-{number}" / place.name if place.exists() else place


def _in_zip(path: Path) -> Iterator[_Packed]:
    with open_archive(path) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                open_member = partial(unpacked_member, archive, member, member.compress_size)
                yield member.filename, open_member


class _Header(tarfile.TarInfo):
    """A header that does not make ``tarfile`` read more than a name into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _LONG_NAMES and header.size > MAX_DIRECTORY_BYTES:
            raise TooLargeError("it contains a file name that is too long")
        return header


def _in_tar(path: Path) -> Iterator[_Packed]:
    size = path.stat().st_size
    with (
        path.open("rb") as packed,
        Unpacked(igzip.IGzipFile(fileobj=packed), size) as text,
        tarfile.open(fileobj=text, mode="r|", tarinfo=_Header) as archive,
    ):
        for number, member in enumerate(archive):
            if number >= MAX_FILES:
                raise TooLargeError(f"it contains more than {MAX_FILES:,} files")
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                yield member.name, partial(Unpacked, cast(Readable, file), size)
