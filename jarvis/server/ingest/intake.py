"""Intake of traces: uploads, paths on the server, and the simulated sample.

Jobs open a path once, without links, and read through its descriptor (``opened_input``): users who
can write to its folder could replace it by a link after it was checked, or between two reads.
"""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jarvis.core.errors import JarvisError
from jarvis.core.output import write_archive
from jarvis.core.staging import file_sha256, scratch_folder
from jarvis.core.workspace import analyses_dir, home, safe_name, uploads_dir
from jarvis.ranks.archives import TAR_SUFFIXES, unpack
from jarvis.reports.reading import SHEET, WORKBOOK, is_report
from jarvis.sample import write_sample
from jarvis.server.errors import IntakeError
from jarvis.server.settings import PREFIX, settings
from jarvis.server.storage.storage_keys import key_of
from jarvis.text.markdown import short_line
from jarvis.trace import SUFFIXES

ROOTS_VARIABLE = f"{PREFIX}TRACE_ROOTS"
JOINED_NAME = "captures.zip"
SAMPLE_NAME = "simulated-training-step.json.gz"
_DIGEST_CHARS = 16
_MAX_NAME_CHARS = 100
"""Maximum length of a stored name; its end is used because of the suffix."""


def trace_roots() -> tuple[Path, ...]:
    """Return the folders from which traces can be opened by path.

    These are ``JARVIS_TRACE_ROOTS`` (separated like PATH), by default the current folder and
    ``JARVIS_HOME``.
    """
    setting = settings().trace_roots
    roots = map(Path, filter(None, setting.split(os.pathsep))) if setting else (Path.cwd(), home())
    return tuple(root.expanduser().resolve() for root in roots)


def server_trace(text: str) -> Path:
    """Resolve the path of a trace or report; relative paths are searched in each root.

    Paths outside the roots are rejected without accessing them. If access control is on, so are
    paths in the home of the server, where private files are stored.

    Raises:
        IntakeError: the path is empty, leaves the roots (also through a link), or is neither a file
            with one of SUFFIXES nor the folder of a report.
    """
    if not text.strip():
        raise IntakeError("Type the path of a trace on the server.")
    candidates = [path for path in _within_roots(text) if not _is_in_private_home(path)]
    trace = next((path for path in candidates if _exists(path)), None)
    if trace is None:
        raise IntakeError(
            f"There is no file {short_line(text)} in {_listed_roots()}. Check the path."
        )
    if trace.is_file():
        _check_name(trace.name)
    else:
        for sheet in trace.iterdir():
            _within_roots(str(sheet))
    return trace


def check_in_roots(path: Path) -> None:
    """Raise IntakeError if a path that the web server accepted is not in this process's roots.

    Does nothing without ROOTS_VARIABLE, because a worker does not know the web server's default.
    """
    if not settings().trace_roots:
        return
    if _is_in_private_home(path) or not any(path.is_relative_to(root) for root in trace_roots()):
        raise IntakeError(
            f"{short_line(path.name)} is outside the folders that this worker can read "
            f"({_listed_roots()}). Use one of these, or start the worker with the same "
            f"{ROOTS_VARIABLE} as the server."
        )


def _is_in_private_home(path: Path) -> bool:
    """Return whether a path is in the home of a server with access control."""
    return settings().access != "off" and path.is_relative_to(home().resolve())


def output_folder(text: str) -> Path:
    """Resolve the path of an output folder; relative paths are in the first root.

    Raises:
        IntakeError: it leaves the roots, is one of them, or is in the home.
    """
    folder = _within_roots(text)[0]
    if folder in trace_roots() or folder.is_relative_to(home().resolve()):
        raise IntakeError(f"{short_line(text)} is already in use. Give a new folder.")
    return folder


def _within_roots(text: str) -> list[Path]:
    """Return the absolute paths inside the roots that a path can mean; IntakeError if none."""
    roots = trace_roots()
    try:
        paths = [(root / Path(text.strip()).expanduser()).resolve() for root in roots]
    except (OSError, ValueError, RuntimeError) as error:  # a link cycle, an unknown user
        raise IntakeError(f"{short_line(text)} is not a valid path. Check it.") from error
    allowed = [path for path in paths if any(path.is_relative_to(root) for root in roots)]
    if not allowed:
        raise IntakeError(
            f"{short_line(text)} is outside the folders that this server can read "
            f"({_listed_roots()}). Use one of these, or start the server with {ROOTS_VARIABLE} set."
        )
    return allowed


def _exists(path: Path) -> bool:
    """Return whether a path is a file or the folder of a report; False for invalid names."""
    try:
        return path.is_file() or is_report(path)
    except OSError:
        return False


def _listed_roots() -> str:
    return ", ".join(map(str, trace_roots()))


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A stored trace; ``is_reused`` if the same content was already stored."""

    path: Path
    is_reused: bool


def upload_name(name: str) -> str:
    """Return the sanitized name to store a file under; raise IntakeError for other file types."""
    _check_name(name)
    return safe_name(name[-_MAX_NAME_CHARS:])


def stored_upload_path(name: str, sha256: str) -> Path:
    """Return the path of an upload with this content and name, existing or not."""
    return uploads_dir() / sha256[:_DIGEST_CHARS] / name


def adopt_upload(written: Path, name: str, sha256: str) -> StoredTrace:
    """Move a complete file to the stored uploads; equal content is stored once, with hard links.

    Args:
        written: the file; must be on the same disk as the home.
        name: a result of ``upload_name``.
        sha256: digest of the file.
    """
    target = stored_upload_path(name, sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.utime(target.parent)  # protects it from pruning until it is used
    size = written.stat().st_size
    files = (path for path in target.parent.iterdir() if path.is_file())
    same = next((path for path in files if path.stat().st_size == size), None)
    if same is None:
        return StoredTrace(written.replace(target), is_reused=False)
    with suppress(FileExistsError):
        os.link(same, target)
    written.unlink()
    return StoredTrace(target, is_reused=True)


def store_upload(name: str, content: BinaryIO) -> Path:
    """Store an uploaded trace by its content hash; equal content is stored once.

    ``name`` comes from the browser and is sanitized.
    """
    stored_name = upload_name(name)
    root = uploads_dir()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".") as folder:
        written = Path(folder) / stored_name
        with written.open("wb") as file:
            shutil.copyfileobj(content, file)
        return adopt_upload(written, stored_name, file_sha256(written)).path


def unpacked_uploads(archive: Path) -> list[Path]:
    """Store the traces of an archive as uploads, in the order of their names in it.

    A name has the folders that differ in front, since they may tell the rank.

    Raises:
        UnreadableTraceError: the archive cannot be unpacked.
    """
    uploads_dir().mkdir(parents=True, exist_ok=True)
    with scratch_folder(uploads_dir(), "unpacked") as folder:
        written = unpack(archive, folder)
        common = os.path.commonpath([path.parent for path in written])
        found = []
        for path in written:
            name = upload_name("_".join(path.relative_to(common).parts))
            found.append(adopt_upload(path, name, file_sha256(path)).path)
        return found


def joined_uploads(traces: Sequence[Path]) -> Path:
    """Return an archive of stored uploads, which is an upload itself; it is written once."""
    digest = hashlib.sha256("\n".join(map(str, traces)).encode()).hexdigest()
    target = stored_upload_path(JOINED_NAME, digest)
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as folder:
            written = Path(folder) / JOINED_NAME
            write_archive(traces, written)
            written.replace(target)
    return target


def sample_trace() -> Path:
    """Return the simulated sample; replaces the file of another Jarvis version."""
    path = uploads_dir() / SAMPLE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        written = write_sample(Path(folder) / SAMPLE_NAME)
        if path.is_file() and path.read_bytes() == written.read_bytes():
            return path
        return written.replace(path)


def _check_name(name: str) -> None:
    if not name.lower().endswith((*SUFFIXES, *TAR_SUFFIXES, WORKBOOK)):
        raise IntakeError(
            f"{short_line(Path(name).name)} is not a supported trace file: give a "
            f"{', '.join(SUFFIXES)} file as the PyTorch profiler exports it, a .zip or .tar.gz of "
            f"those of several ranks, or a performance report as {WORKBOOK}, or as a zip or a "
            "folder of CSV files."
        )


_DESCRIPTORS = Path("/proc/self/fd")
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECTORY


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
                    _link(name / sheet, _opened(sheet, file, _FILE_FLAGS, block))
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
    folder = _opened(path.absolute().anchor, None, _FOLDER_FLAGS, block)
    for part in folders:
        folder = _opened(part, folder, _FOLDER_FLAGS, block)
    return _opened(name, folder, _FILE_FLAGS, block)


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
