"""How a trace comes in: as an upload, by its path on the server, or as the simulated sample."""

import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import home, safe_name, uploads_dir
from jarvis.reports.reading import WORKBOOK, is_report
from jarvis.sample import write_sample
from jarvis.server.settings import PREFIX, settings
from jarvis.text.markdown import one_line, shortened
from jarvis.trace import SUFFIXES

ROOTS_VARIABLE = f"{PREFIX}TRACE_ROOTS"
SAMPLE_NAME = "simulated-training-step.json.gz"
_CHUNK_BYTES = 1 << 20
_SHOWN_LETTERS = 200
_DIGEST_LETTERS = 16
_KEPT_LETTERS = 100
"""Of the end of a name, which says what kind of file it is."""


class IntakeError(JarvisError):
    """The file is not taken in."""


def trace_roots() -> tuple[Path, ...]:
    """The folders whose traces may be named by path: ``JARVIS_TRACE_ROOTS`` (separated like PATH),
    else the current folder and ``JARVIS_HOME``."""
    named = settings().trace_roots
    roots = map(Path, filter(None, named.split(os.pathsep))) if named else (Path.cwd(), home())
    return tuple(root.expanduser().resolve() for root in roots)


def server_trace(text: str) -> Path:
    """The trace, or report, that a path names; relative ones are looked up in each root in turn.

    Raises IntakeError where the path is empty, leaves the roots (also through a link), or names
    no file of SUFFIXES and no folder of a report. What lies outside the roots, or with people
    logged in among what is kept for them, is refused without looking.
    """
    if not text.strip():
        raise IntakeError("Type the path of a trace on the server.")
    candidates = [path for path in _within_roots(text) if not _is_others(path)]
    found = next((path for path in candidates if _is_given(path)), None)
    if found is None:
        raise IntakeError(f"There is no file {_shown(text)} in {_listed_roots()}. Check the path.")
    if found.is_file():
        _check_name(found.name)
    else:
        for sheet in found.iterdir():
            _within_roots(str(sheet))
    return found


def check_in_roots(path: Path) -> None:
    """Raise IntakeError where a path that was allowed before is not in the folders of now.

    Without ROOTS_VARIABLE, a worker does not know the folders of the web server.
    """
    if not settings().trace_roots:
        return
    if _is_others(path) or not any(path.is_relative_to(root) for root in trace_roots()):
        raise IntakeError(
            f"{_shown(path.name)} is outside the folders that this worker may read "
            f"({_listed_roots()}). Choose one of these, or start the worker with the same "
            f"{ROOTS_VARIABLE} as the server."
        )


def _is_others(path: Path) -> bool:
    """Whether it is among what this server keeps for people, who may keep it private."""
    return settings().access != "off" and path.is_relative_to(home().resolve())


def output_folder(text: str) -> Path:
    """The folder that a path names; a relative one stands in the first root.

    Raises IntakeError where it leaves the roots, or is one of them.
    """
    folder = _within_roots(text)[0]
    if folder in trace_roots() or folder.is_relative_to(home().resolve()):
        raise IntakeError(f"{_shown(text)} holds other things already. Name a folder of its own.")
    return folder


def _within_roots(text: str) -> list[Path]:
    """What a path can mean inside the roots; IntakeError where that is nothing."""
    roots = trace_roots()
    try:
        meant = [(root / Path(text.strip()).expanduser()).resolve() for root in roots]
    except (OSError, ValueError, RuntimeError) as error:  # an endless link, a user there is not
        raise IntakeError(f"{_shown(text)} cannot be a path. Check it.") from error
    allowed = [path for path in meant if any(path.is_relative_to(root) for root in roots)]
    if not allowed:
        raise IntakeError(
            f"{_shown(text)} is outside the folders that this server works in ({_listed_roots()}). "
            f"Choose one of these, or start the server with {ROOTS_VARIABLE} set."
        )
    return allowed


def _is_given(path: Path) -> bool:
    """Whether there is a trace or a report; not where the system takes no such name."""
    try:
        return path.is_file() or is_report(path)
    except OSError:
        return False


def _shown(text: str) -> str:
    """A path as a sentence can hold it."""
    return shortened(one_line(text), _SHOWN_LETTERS)


def _listed_roots() -> str:
    return ", ".join(map(str, trace_roots()))


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace that was taken in; ``is_reused`` where the same bytes were here before."""

    path: Path
    is_reused: bool


def upload_name(name: str) -> str:
    """The name under which a file of this name is kept: a cleaned last part of it.

    Raises IntakeError where nothing of that name can be read.
    """
    _check_name(name)
    return safe_name(name[-_KEPT_LETTERS:])


def stored_upload_path(name: str, sha256: str) -> Path:
    """Where an upload with this content is kept under this name, whether or not it is there."""
    return uploads_dir() / sha256[:_DIGEST_LETTERS] / name


def adopt_upload(written: Path, name: str, sha256: str) -> StoredTrace:
    """Move a file, whole and on the disk of the home, to where uploads are kept.

    ``sha256`` is that of its bytes, ``name`` one of ``upload_name``. The same bytes are stored
    once: under another name they get a second name only.
    """
    target = stored_upload_path(name, sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.utime(target.parent)  # young again, so that it is not pruned before it is used
    size = written.stat().st_size
    whole = (path for path in target.parent.iterdir() if path.is_file())
    same = next((path for path in whole if path.stat().st_size == size), None)
    if same is None:
        return StoredTrace(written.replace(target), is_reused=False)
    with suppress(FileExistsError):
        os.link(same, target)
    written.unlink()
    return StoredTrace(target, is_reused=True)


def store_upload(name: str, content: BinaryIO) -> Path:
    """Keep an uploaded trace under its content hash; the same content is stored once.

    ``name`` comes from the browser: only a cleaned last part of it is used.
    """
    kept_name = upload_name(name)
    root = uploads_dir()
    root.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=root, prefix=".") as folder:
        written = Path(folder) / kept_name
        with written.open("wb") as file:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
        return adopt_upload(written, kept_name, digest.hexdigest()).path


def sample_trace() -> Path:
    """The simulated sample of this version; its file is replaced where it is of another one."""
    path = uploads_dir() / SAMPLE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        written = write_sample(Path(folder) / SAMPLE_NAME)
        if path.is_file() and path.read_bytes() == written.read_bytes():
            return path
        return written.replace(path)


def _check_name(name: str) -> None:
    if not name.lower().endswith((*SUFFIXES, WORKBOOK)):
        raise IntakeError(
            f"{_shown(Path(name).name)} cannot be read as a trace: choose a "
            f"{', '.join(SUFFIXES)} file as the PyTorch profiler exports it, or a performance "
            f"report as {WORKBOOK}, or as a zip or a folder of CSV files."
        )
