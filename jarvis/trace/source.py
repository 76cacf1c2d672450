"""Read the text of a trace file in blocks: plain JSON, gzip or zip."""

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
"""Bytes before each block, for the rest of the previous one."""

BLOCKS_IN_FLIGHT = 3

_GZIP = b"\x1f\x8b"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")  # the second one is empty
_ENCRYPTED = 1
_TAR = slice(257, 262)
_MACOS_METADATA = "__MACOSX/"
_OTHER_FILES = (
    (b"SQLite format 3\x00", "it is an SQLite database, as other profilers write"),
    (b"\x80\x02", "it is a Python pickle, perhaps a memory snapshot"),
    (b"\x80\x03", "it is a Python pickle, perhaps a memory snapshot"),
    (b"\x80\x04", "it is a Python pickle, perhaps a memory snapshot"),
    (b"\x80\x05", "it is a Python pickle, perhaps a memory snapshot"),
    (b"PAR1", "it is a Parquet file"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; decompress it, or use gzip"),
    (b"BZh", "it is compressed with bzip2; decompress it, or use gzip"),
    (b"\xfd7zXZ", "it is compressed with xz; decompress it, or use gzip"),
    (_GZIP, "it is compressed twice; decompress it once"),
    (b"\xff\xfe", "it is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "it is UTF-16 text; save it as UTF-8"),
    (b"<", "it is a web page (HTML or XML)"),
    (b"\x7fELF", "it is an executable"),
    (b"%PDF", "it is a PDF"),
    (b"\x89PNG", "it is a PNG image"),
)
_DAMAGE: Any = (
    EOFError,
    OSError,
    lzma.LZMAError,
    zlib.error,
    isal_zlib.error,
    zipfile.BadZipFile,
)
_OPEN_ERRORS: Any = (*_DAMAGE, RuntimeError, NotImplementedError)  # encrypted, unknown compression


def other_kind(text: bytes) -> str | None:
    """Return what a file is by the start of its unpacked content; None if unknown or JSON."""
    if text[_TAR] == b"ustar":
        return "it is a tar archive; extract the trace"
    return next((what for start, what in _OTHER_FILES if text.startswith(start)), None)


@dataclass(slots=True)
class Block:
    """A block of text, ``array[begin:end]``, in an array with space before and after it."""

    array: NDArray[np.uint8]
    begin: int
    end: int


class _Hashed(io.RawIOBase):
    """Hash a file while it is read."""

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
    """Hash a file at the end, because it is read out of order."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @property
    def position(self) -> int:
        return self._file.tell()

    def sha256(self) -> str:
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()  # type: ignore[arg-type]


class Source:
    """An open trace file.

    ``damage`` is the reason why its text ends early; ``json_bytes`` counts the text read so far.
    """

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
        """Bytes of the file read so far."""
        return self._stored.position

    def sha256(self) -> str:
        """Return the hash of the (compressed) file; reads the rest of it."""
        return self._stored.sha256()

    def readinto(self, buffer: NDArray[np.uint8]) -> int:
        """Fill ``buffer`` with text and return the number of bytes, fewer only at the end.

        Raises:
            UnreadableTraceError: The file unpacks to more than the limit.
        """
        view = buffer.data
        filled = 0
        while filled < len(view) and self.damage is None:
            # Read in small chunks, so that text before a damaged place is not lost.
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

    Raises:
        UnreadableTraceError: The file does not exist, is empty, or is an archive without exactly
            one trace.
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
            if name.endswith((".json", ".json.gz")) and not name.startswith(_MACOS_METADATA)
        ]
        if len(names) != 1:
            content = f"{len(names)} traces" if names else "no .json or .json.gz file"
            raise UnreadableTraceError(
                path, f"the zip archive contains {content}; pass an archive with one trace"
            )
        member = archive.getinfo(names[0])
        if member.flag_bits & _ENCRYPTED:
            raise UnreadableTraceError(path, f"{names[0]} in the archive is encrypted; unpack it")
        try:
            text: Any = unpacked_member(archive, member, size)
        except _OPEN_ERRORS as error:
            raise UnreadableTraceError(path, f"{names[0]} in the archive: {error}") from error
        if names[0].endswith(".gz"):
            text = Unpacked(igzip.IGzipFile(fileobj=text), size)
        assert archive.fp is not None
        yield Source(path, _Archive(archive.fp), text, size)


class ReadAhead:
    """Decompress the next blocks in a thread while the caller processes one.

    Each block has HEAD_ROOM bytes before it and PADDING after it; an empty block is the end.
    Recycled blocks are filled again.
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
        """Return the next block, or raise the error of reading it."""
        block = self._ready.get()
        if isinstance(block, Exception):
            raise block
        return block

    def recycle(self, block: Block) -> None:
        """Allow a block to be filled again."""
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
