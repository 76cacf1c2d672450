"""The file of a trace -> its text, block by block, whatever it is packed in."""

import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import IO, Any, Self

import numpy as np
from isal import igzip, isal_zlib
from numpy.typing import NDArray

from jarvis.core.errors import UnreadableTraceError
from jarvis.core.unpacking import TooLargeError, Unpacked, open_archive, unpacked_member
from jarvis.trace.layout import PADDING

SUFFIXES = (".json", ".json.gz", ".zip")

BLOCK_BYTES = 4 << 20
HEAD_ROOM = 1 << 20
"""Bytes in front of each block, for what is left of the one before."""

BLOCKS_IN_FLIGHT = 3

_GZIP = b"\x1f\x8b"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")  # the second one is empty
_ENCRYPTED = 1
_TAR = slice(257, 262)
_COPIES_OF_MACOS = "__MACOSX/"
_OTHER_FILES = (
    (b"SQLite format 3\x00", "it is an SQLite database, as other profilers write"),
    (b"\x80\x02", "it is a Python pickle, perhaps a memory snapshot"),
    (b"\x80\x03", "it is a Python pickle, perhaps a memory snapshot"),
    (b"\x80\x04", "it is a Python pickle, perhaps a memory snapshot"),
    (b"\x80\x05", "it is a Python pickle, perhaps a memory snapshot"),
    (b"PAR1", "it is a Parquet file"),
    (b"\x28\xb5\x2f\xfd", "it is packed with zstd; unpack it, or pack it with gzip"),
    (b"BZh", "it is packed with bzip2; unpack it, or pack it with gzip"),
    (b"\xfd7zXZ", "it is packed with xz; unpack it, or pack it with gzip"),
    (_GZIP, "it is packed twice; unpack it once"),
    (b"\xff\xfe", "it is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "it is UTF-16 text; save it as UTF-8"),
    (b"<", "it is a web page (HTML or XML)"),
    (b"\x7fELF", "it is a program"),
    (b"%PDF", "it is a PDF"),
    (b"\x89PNG", "it is a picture"),
)
_DAMAGE: Any = (
    EOFError,
    OSError,
    lzma.LZMAError,
    zlib.error,
    isal_zlib.error,
    zipfile.BadZipFile,
)
_NOT_TO_BE_OPENED: Any = (*_DAMAGE, RuntimeError, NotImplementedError)  # encrypted, odd packing


def other_kind(text: bytes) -> str | None:
    """What a file is whose unpacked content begins so, where that is known; None for JSON too."""
    if text[_TAR] == b"ustar":
        return "it is a tar archive; give the trace that is in it"
    return next((what for start, what in _OTHER_FILES if text.startswith(start)), None)


@dataclass(slots=True)
class Block:
    """A piece of text in an array with room before and behind it: ``array[begin:end]``."""

    array: NDArray[np.uint8]
    begin: int
    end: int


class _Hashed(io.RawIOBase):
    """A file that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._hash.update(memoryview(buffer)[:count])
        self.position += count
        return count

    def sha256(self) -> str:
        while self.read(1 << 20):
            pass
        return self._hash.hexdigest()


class _Archive:
    """A file that is read out of order, so that it is hashed at the end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @property
    def position(self) -> int:
        return self._file.tell()

    def sha256(self) -> str:
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()  # type: ignore[arg-type]


class Source:
    """An open trace file; ``damage`` says why its text ends early; ``json_bytes`` were read."""

    def __init__(
        self, path: Path, stored: _Hashed | _Archive, text: IO[bytes], size_bytes: int
    ) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.json_bytes = 0
        self.damage: str | None = None
        self._stored = stored
        self._text = text

    @property
    def position(self) -> int:
        """How many bytes of the file have been read."""
        return self._stored.position

    def sha256(self) -> str:
        """Of the file as it is stored; reads what is left of it."""
        return self._stored.sha256()

    def readinto(self, buffer: NDArray[np.uint8]) -> int:
        """Fill ``buffer`` with text; fewer bytes than it holds only at the end.

        Raises UnreadableTraceError where the file unpacks to more than is allowed.
        """
        view = buffer.data
        filled = 0
        while filled < len(view) and self.damage is None:
            # Small pieces: what stands in front of a damaged place is not lost with it.
            try:
                count = self._text.readinto(view[filled : filled + (1 << 18)])  # type: ignore[attr-defined]
            except TooLargeError as error:
                raise UnreadableTraceError(self.path, str(error)) from error
            except _DAMAGE as error:
                self.damage = str(error)
                break
            if not count:
                break
            filled += count
        self.json_bytes += filled
        return filled


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open a trace: plain JSON, gzip, or a zip with one of these in it.

    Raises UnreadableTraceError where there is no such file, it is empty, or an archive that does
    not hold one trace.
    """
    try:
        file = path.open("rb", buffering=0)
    except OSError as error:
        raise UnreadableTraceError(path, error.strerror or str(error)) from error
    with file:
        raw = _Hashed(file)
        head = io.BufferedReader(raw, 1 << 20)
        try:
            magic = head.peek(16)
        except OSError as error:
            raise UnreadableTraceError(path, error.strerror or str(error)) from error
        if not magic:
            raise UnreadableTraceError(path, "the file is empty")
        size = path.stat().st_size
        if magic.startswith(_ZIPS):
            with _zip_member(path, size) as source:
                yield source
        else:
            is_packed = magic.startswith(_GZIP)
            text: Any = Unpacked(igzip.IGzipFile(fileobj=head), size) if is_packed else head
            yield Source(path, raw, text, size)


@contextmanager
def _zip_member(path: Path, size: int) -> Iterator[Source]:
    with ExitStack() as opened:
        try:
            archive = opened.enter_context(open_archive(path))
        except _DAMAGE as error:
            raise UnreadableTraceError(path, f"the zip archive is damaged ({error})") from error
        except TooLargeError as error:
            raise UnreadableTraceError(path, str(error)) from error
        names = [
            name
            for name in archive.namelist()
            if name.endswith((".json", ".json.gz")) and not name.startswith(_COPIES_OF_MACOS)
        ]
        if len(names) != 1:
            found = f"{len(names)} traces" if names else "no .json or .json.gz file"
            raise UnreadableTraceError(
                path, f"the zip archive holds {found}; give an archive with one trace"
            )
        member = archive.getinfo(names[0])
        if member.flag_bits & _ENCRYPTED:
            raise UnreadableTraceError(path, f"{names[0]} in the archive is encrypted; unpack it")
        try:
            text: Any = unpacked_member(archive, member, size)
        except _NOT_TO_BE_OPENED as error:
            raise UnreadableTraceError(path, f"{names[0]} in the archive: {error}") from error
        if names[0].endswith(".gz"):
            text = Unpacked(igzip.IGzipFile(fileobj=text), size)
        assert archive.fp is not None
        yield Source(path, _Archive(archive.fp), text, size)


class ReadAhead:
    """A thread that unpacks the next blocks while the caller works on one.

    Each block has HEAD_ROOM bytes in front of it and PADDING behind; one without text is the end.
    A block that is given back is filled again.
    """

    def __init__(self, source: Source, block_bytes: int = BLOCK_BYTES) -> None:
        self._source = source
        self._text = slice(HEAD_ROOM, HEAD_ROOM + block_bytes)
        self._size = HEAD_ROOM + block_bytes + PADDING
        self._free: Queue[NDArray[np.uint8]] = Queue()
        self._ready: Queue[Block | Exception] = Queue()
        self._stop = Event()
        self._thread = Thread(target=self._unpack, name="unpack-trace", daemon=True)
        for _ in range(BLOCKS_IN_FLIGHT):
            self._free.put(np.empty(self._size, np.uint8))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> Block:
        """The next block; raises what went wrong while it was filled."""
        block = self._ready.get()
        if isinstance(block, Exception):
            raise block
        return block

    def give_back(self, block: Block) -> None:
        """Let a block be filled again."""
        if len(block.array) == self._size:
            self._free.put(block.array)

    def _unpack(self) -> None:
        count = 1
        while count and not self._stop.is_set():
            try:
                array = self._free.get(timeout=0.1)
                count = self._source.readinto(array[self._text])
                self._ready.put(Block(array, self._text.start, self._text.start + count))
            except Empty:
                continue
            except Exception as error:
                self._ready.put(error)
                return
