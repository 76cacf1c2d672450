"""Write the output files of an analysis within a size limit.

A small trace can expand to a large output. The limit is checked at every write, so that the
analysis fails before it fills the disk.
"""

import io
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, cast

from jarvis.core.errors import JarvisError
from jarvis.core.unpacking import number_setting

ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of the members of every written zip file, so that equal content gives equal bytes."""

ZIP_LEVEL = 1
"""Compression level of text; the default takes more than twice as long for texts that
are a sixth smaller."""

OUTPUT_VARIABLE = "JARVIS_MAX_OUTPUT_MB"
DEFAULT_OUTPUT_MB = 512.0
MAX_OUTPUT_RATIO = 200
"""Maximum output size as a multiple of the trace's JSON; recorded traces above a few MB stay below
10."""

ALWAYS_ALLOWED_MB = 64.0
"""Minimum limit, for small traces."""


class OutputLimitError(JarvisError):
    """The output of an analysis exceeds its limit."""

    def __init__(self, limit_mb: float) -> None:
        super().__init__(
            f"The output of the analysis exceeds {limit_mb:.0f} MB, so nothing was stored. "
            "Recorded traces need far less: check for names or call stacks that are unusually long "
            f"or many, or record fewer steps. {OUTPUT_VARIABLE} raises the limit."
        )


class _Budget:
    """Bytes that may still be written."""

    def __init__(self, limit_mb: float) -> None:
        self.limit_mb = limit_mb
        self.left = int(limit_mb * 1e6)

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise OutputLimitError(self.limit_mb)


_BUDGET: ContextVar[_Budget | None] = ContextVar("output_budget", default=None)


class OutputFile(io.RawIOBase):
    """A new file whose bytes count against the limit of the current analysis."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._budget = _BUDGET.get()  # read here: Polars writes from its own threads
        self.error: OSError | None = None
        """Why a write failed; Polars does not say it for all parts of a file."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write bytes; raise OutputLimitError beyond the limit."""
        if self._budget is not None:
            self._budget.spend(memoryview(data).nbytes)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Flush the underlying file."""
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        try:
            super().close()  # flushes, which fails if the disk is full
        finally:
            self._file.close()


def open_output(path: Path) -> IO[bytes]:
    """Create a file for writing, and its folder.

    Written bytes count against the limit of ``limited_output``.
    """
    return cast(IO[bytes], OutputFile(path))


@contextmanager
def limited_output(json_bytes: int) -> Iterator[None]:
    """Limit the bytes that the block writes, by the JSON size of the trace.

    Raises:
        OutputLimitError: The block wrote more than ``max_output_mb(json_bytes)``.
    """
    budget = _Budget(max_output_mb(json_bytes))
    token = _BUDGET.set(budget)
    try:
        yield
    except Exception as error:
        if budget.left >= 0 or isinstance(error, OutputLimitError):
            raise
        raise OutputLimitError(budget.limit_mb) from error  # Polars replaced the error
    finally:
        _BUDGET.reset(token)


def max_output_mb(json_bytes: int) -> float:
    """Return the output limit for a trace with ``json_bytes`` of JSON, in MB (10^6 bytes)."""
    if os.environ.get(OUTPUT_VARIABLE):
        return number_setting(OUTPUT_VARIABLE, DEFAULT_OUTPUT_MB)
    return max(ALWAYS_ALLOWED_MB, min(DEFAULT_OUTPUT_MB, MAX_OUTPUT_RATIO * json_bytes / 1e6))


def write_output(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Write a file and create its folder; text is encoded as UTF-8."""
    if isinstance(content, str):
        content = content.encode()
    with open_output(path) as file:
        for chunk in (content,) if isinstance(content, bytes) else content:
            file.write(chunk)


def write_archive(files: Iterable[Path], target: Path) -> None:
    """Write files to a zip archive by their names; equal files make equal archives.

    Of files with the same name all but the first get a number in front of it.
    """
    used: set[str] = set()
    with zipfile.ZipFile(target, "w") as archive:
        for number, path in enumerate(files):
            name = f"{number}_{path.name}" if path.name in used else path.name
            used.add(name)
            entry = zipfile.ZipInfo(name, ZIP_EPOCH)
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as part:
                shutil.copyfileobj(source, part)


_BLOCK_BYTES = 1 << 20
_COMPRESSED = {".gz", ".parquet", ".xlsx", ".zip"}
"""Suffixes of files that are compressed; to compress them again takes most of the time of a zip."""


def zipped(root: Path, parts: Iterable[Path] | None = None) -> bytes:
    """Return a zip of files or folders in ``root``, by default all; missing parts are skipped."""
    buffer = io.BytesIO()
    write_zip(buffer, root, parts)
    return buffer.getvalue()


def write_zip(out: Path | IO[bytes], root: Path, parts: Iterable[Path] | None = None) -> None:
    """Like ``zipped``, but write to a file with constant memory."""
    chosen = [root] if parts is None else list(parts)
    files = {file for part in chosen for file in _files(part)}
    with zipfile.ZipFile(out, "w", compresslevel=ZIP_LEVEL) as archive:
        for file in sorted(files):
            is_compressed = file.suffix in _COMPRESSED
            archive.compression = zipfile.ZIP_STORED if is_compressed else zipfile.ZIP_DEFLATED
            name = str(file.relative_to(root))  # its member is dated ZIP_EPOCH
            with file.open("rb") as content, archive.open(name, "w", force_zip64=True) as target:
                shutil.copyfileobj(content, target, _BLOCK_BYTES)


def _files(part: Path) -> Iterable[Path]:
    return [part] if part.is_file() else (p for p in part.rglob("*") if p.is_file())
