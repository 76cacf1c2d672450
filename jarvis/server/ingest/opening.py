"""Race-free opening of traces by path: once, without links, then read through the descriptor.

A path was checked when its job was submitted. Users who can write to its folder could replace it by
a link before the job starts or between two reads, so the name is not resolved again.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jarvis.core.errors import JarvisError
from jarvis.core.staging import scratch_folder
from jarvis.core.workspace import analyses_dir, uploads_dir
from jarvis.reports.reading import SHEET
from jarvis.server.errors import IntakeError
from jarvis.server.ingest.intake import check_in_roots
from jarvis.server.storage.storage_keys import key_of

_DESCRIPTORS = Path("/proc/self/fd")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECTORY


@contextmanager
def opened_input(path: Path) -> Iterator[Path]:
    """Yield a path to a trace or report that refers to the same file for the whole block.

    Stored uploads are yielded unchanged.

    Raises:
        IntakeError: the path is outside the roots, contains a link, or is not a file.
        OSError: it cannot be opened.
    """
    if key_of(path) is not None or path.parent == uploads_dir():
        yield path
        return
    check_in_roots(path)
    with ExitStack() as block:
        file = _descriptor(path, block)
        if not _DESCRIPTORS.is_dir():  # not Linux
            yield path
            return
        scratch = block.enter_context(scratch_folder(analyses_dir(), "opened"))
        name = scratch / path.name
        if stat.S_ISDIR(os.fstat(file).st_mode):
            name.mkdir()
            for sheet in os.listdir(file):
                if sheet.endswith(SHEET):
                    _link(name / sheet, _opened(sheet, file, _FILE, block))
        else:
            _link(name, file)
        try:
            yield name
        except JarvisError as error:  # hide the temporary folder from the user
            error.args = tuple(str(text).replace(f"{scratch}{os.sep}", "") for text in error.args)
            raise


def _descriptor(path: Path, block: ExitStack) -> int:
    """Open a file or folder whose path contains no links."""
    *folders, name = path.absolute().parts[1:]
    folder = _opened(path.absolute().anchor, None, _FOLDER, block)
    for part in folders:
        folder = _opened(part, folder, _FOLDER, block)
    return _opened(name, folder, _FILE, block)


def _opened(name: str, folder: int | None, flags: int, block: ExitStack) -> int:
    """Open one part of a path relative to its parent; it is closed with ``block``."""
    try:
        file = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            raise IntakeError(
                f"{name} was replaced by a link or is not a folder, so it is not read. {_REMEDY}"
            ) from error
        raise
    block.callback(os.close, file)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise IntakeError(f"{name} is not a file, so it is not read. {_REMEDY}")
    return file


_REMEDY = "Give the path of the trace without links."


def _link(name: Path, file: int) -> None:
    name.symlink_to(_DESCRIPTORS / str(file))
