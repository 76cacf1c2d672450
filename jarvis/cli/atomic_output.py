"""Atomic writing of output files and folders, also if the command is stopped.

Only regular files and folders are replaced. Device nodes, FIFOs and open descriptors
(`/dev/stdout`) are written to; for a symlink, its target is replaced.
"""

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    import polars as pl

_DESCRIPTORS = Path("/dev/fd")
_STANDARD_OUTPUT = 1


@contextmanager
def atomic_output(place: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which is moved to ``place`` if the block succeeds.

    The files of a folder are added to an existing folder, and replace files with the same names.
    """
    if _is_stream(place):
        with TemporaryDirectory(prefix="jarvis-") as folder:
            written = Path(folder) / place.name
            yield written
            _publish(written, place)
        return
    target = place.resolve()
    staging = target.parent / f".{target.name}.new-{uuid4().hex[:8]}"
    staging.mkdir(parents=True)
    try:
        written = staging / place.name
        yield written
        _publish(written, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_sheets(
    sheets: "Mapping[str, pl.DataFrame]", workbook: Path | None, folder: Path | None
) -> Iterator[Path]:
    """Write the sheets of a report to a workbook and as CSV files; yield the paths."""
    from jarvis.reports.csv import write_csvs  # slow to import, as the next
    from jarvis.reports.xlsx import write_workbook

    if workbook is not None:
        with atomic_output(workbook) as place:
            write_workbook(sheets, place)
        yield workbook
    if folder is not None:
        with atomic_output(folder) as place:
            written = write_csvs(sheets, place)
        yield from (folder / path.name for path in written)


def is_standard_output(path: Path) -> bool:
    """Return whether ``path`` names this process's standard output, such as ``/dev/stdout``."""
    return _descriptor(path) == _STANDARD_OUTPUT


def _publish(written: Path, place: Path) -> None:
    """Move a finished file or folder to ``place``."""
    if written.is_dir():
        if place.exists() and not place.is_dir():
            raise _os_error(errno.ENOTDIR, place)
        place.mkdir(exist_ok=True)
        for path in written.iterdir():
            _publish(path, place / path.name)
    elif place.is_dir():
        raise _os_error(errno.EISDIR, place)
    elif _is_stream(place):
        _copy_into(written, place)
    elif place.is_symlink():
        with atomic_output(place) as beside:  # on the file system of the link's target
            shutil.move(written, beside)
    else:
        written.replace(place)


def _copy_into(written: Path, place: Path) -> None:
    """Write the bytes of a file to an open descriptor, device node or FIFO."""
    sys.stdout.flush()
    number = _descriptor(place)
    # Opening the descriptor of a file by name would truncate it and write from offset 0.
    sink = place.open("wb") if number is None else os.fdopen(os.dup(number), "wb")
    with written.open("rb") as source, sink:
        shutil.copyfileobj(source, sink)


def _is_stream(place: Path) -> bool:
    """Return whether ``place`` exists and must be written to, not replaced."""
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        return False
    return _descriptor(place) is not None or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _descriptor(place: Path) -> int | None:
    """Return the number of the open descriptor of this process that ``place`` leads to."""
    folder = _DESCRIPTORS.resolve()
    while place.parent.resolve() != folder:
        if not place.is_symlink():
            return None
        place = place.parent / place.readlink()
    return int(place.name) if place.name.isdecimal() else None


def _os_error(code: int, place: Path) -> OSError:
    return OSError(code, os.strerror(code), str(place))
