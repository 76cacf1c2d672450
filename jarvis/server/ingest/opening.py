"""Traces that were typed as paths are opened once, and read by that descriptor alone.

A path was checked when its job was submitted. Whoever may write to its folder can replace it by a
link before the job begins, or between two reads of it: so nothing is looked up by name again.
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
from jarvis.server.ingest.intake import IntakeError, check_in_roots
from jarvis.server.storage.storage_keys import key_of

_DESCRIPTORS = Path("/proc/self/fd")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECTORY


@contextmanager
def opened_input(path: Path) -> Iterator[Path]:
    """Yield a name of a trace or report that means the same file as long as the block runs.

    What the server keeps itself is not touched. Raises IntakeError where another path is outside
    the roots, has a link in it or is no file, and OSError where it cannot be opened.
    """
    if key_of(path) is not None or path.parent == uploads_dir():
        yield path
        return
    check_in_roots(path)
    with ExitStack() as block:
        file = _descriptor(path, block)
        if not _DESCRIPTORS.is_dir():  # a system without such names
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
        except JarvisError as error:  # the name means nothing to who reads the sentence
            error.args = tuple(str(text).replace(f"{scratch}{os.sep}", "") for text in error.args)
            raise


def _descriptor(path: Path, block: ExitStack) -> int:
    """Open a file or folder, every part of whose path is what it says and no link."""
    *folders, name = path.absolute().parts[1:]
    folder = _opened(path.absolute().anchor, None, _FOLDER, block)
    for part in folders:
        folder = _opened(part, folder, _FOLDER, block)
    return _opened(name, folder, _FILE, block)


def _opened(name: str, folder: int | None, flags: int, block: ExitStack) -> int:
    """Open a part of a path in the folder before it; it is closed with the block."""
    try:
        file = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            raise IntakeError(
                f"{name} is a link now, or no folder, so nothing is read there. {_REMEDY}"
            ) from error
        raise
    block.callback(os.close, file)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise IntakeError(f"{name} is no file, so it is not read. {_REMEDY}")
    return file


_REMEDY = "Name the trace by its own path again."


def _link(name: Path, file: int) -> None:
    name.symlink_to(_DESCRIPTORS / str(file))
