"""Archives: an analysis as one file, which another server can import under the same id.

An archive is a zip of the run directory with a list of its files and checksums, and the notes on
its report. Imported archives are untrusted: the files are checked against the list, and the run as
in ``received_runs``. They are imported atomically, and only into their own folder. Imported notes
are marked, because nothing proves who wrote them.
"""

import errno
import hashlib
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from jarvis.core.errors import RunError
from jarvis.core.notes import NoteError
from jarvis.core.output import ZIP_EPOCH
from jarvis.core.staging import file_sha256, staged_folder
from jarvis.core.unpacking import (
    DAMAGE,
    TooLargeError,
    UnpackingLimits,
    open_archive,
)
from jarvis.core.workspace import analyses_dir
from jarvis.run import SCHEMA_VERSION, read_manifest
from jarvis.server.database import database
from jarvis.server.errors import ArchiveError, ReceivedRunError, RunLimitError
from jarvis.server.storage.analysis_rows import (
    check_joinable,
    context_owner,
    is_analysis_id,
    loaded_from_file,
    reserved,
    stored_rows,
)
from jarvis.server.storage.archived_notes import (
    ArchivedNotes,
    archived_notes,
    check_notes,
    import_notes,
)
from jarvis.server.storage.artifacts import is_shared, store_analysis
from jarvis.server.storage.catalog import is_stored, pinned
from jarvis.server.storage.run_limits import check_file_sizes, check_received_run

FORMAT_VERSION = 2
"""Version of the archive layout; incremented if older Jarvis versions cannot import it."""

_WITHOUT_NOTES = 1
"""Version of an archive without notes, which older Jarvis versions can import."""

_LIST = "jarvis-archive.json"
_LIST_LIMIT_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20

_ENCRYPTED = 1
_PACKED = (".parquet", ".xlsx", ".zip", ".png")
"""Compressed file types, which are stored without further compression."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""One part of a path inside a run directory; excludes hidden names and ``..``."""


class ArchivedFile(BaseModel):
    """A file in an archive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    size_bytes: int


class Contents(BaseModel):
    """List of the files in an archive; paths are relative to the run directory.

    ``is_pinned`` is the state on the source server; importing does not pin. ``notes`` is None if
    there are none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    archive_version: int = FORMAT_VERSION
    jarvis_version: str
    schema_version: int
    analysis_id: str
    is_pinned: bool
    files: dict[str, ArchivedFile]
    notes: ArchivedNotes | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """An imported analysis.

    Attributes:
        is_reused: whether an identical one was already stored.
        was_pinned: whether it was pinned on the source server; importing does not pin.
    """

    id: str
    root: Path
    is_reused: bool
    was_pinned: bool


def save_archive(root: Path, out: Path) -> Contents:
    """Write the run directory ``root`` as the archive ``out``.

    Raises:
        RunError: ``root`` is not an analysis, or was replaced meanwhile.
    """
    manifest = read_manifest(root)
    files: dict[str, ArchivedFile] = {}
    with zipfile.ZipFile(out, "w") as archive:
        for file in _files(root):
            name = file.relative_to(root).as_posix()
            member = _member(f"{manifest.analysis_id}/{name}")
            with archive.open(member, "w", force_zip64=True) as target, file.open("rb") as content:
                files[name] = _copy(content, target)
        if read_manifest(root) != manifest:
            raise RunError(f"{manifest.analysis_id} was replaced meanwhile. Save it again.")
        is_stored_here = root.parent == analyses_dir()
        notes = archived_notes(database(), root.name) if is_stored_here else None
        contents = Contents(
            archive_version=FORMAT_VERSION if notes else _WITHOUT_NOTES,
            jarvis_version=manifest.jarvis_version,
            schema_version=manifest.schema_version,
            analysis_id=manifest.analysis_id,
            is_pinned=is_stored_here and root.name in pinned(),
            files=files,
            notes=notes,
        )
        listed = contents.model_dump_json(indent=1, exclude_none=True)
        archive.writestr(_member(_LIST), listed)
    return contents


def load_archive(path: Path) -> Loaded:
    """Import the analysis of an archive and the notes on its report under its id, not pinned.

    Call this only in a job's process, which has a memory limit. If an identical analysis is already
    stored, it is reused with its own notes. On errors, nothing is changed.

    Raises:
        ArchiveError: the file is not an archive, damaged, too large, of another Jarvis version or
            not valid, or its id is used by an analysis with other content.
        PrivateAnalysisError: its id is used by a private analysis of another person.
    """
    with _opened(path) as (archive, contents):
        root = analyses_dir() / contents.analysis_id
        check_joinable(stored_rows(database()).get(root.name))
        is_reused = is_stored(contents.analysis_id) if is_shared() else root.exists()

        def make(place: Path) -> None:
            with staged_folder(place, lambda: _check_free(path, place)) as folder:
                _unpack(path, archive, contents, folder)
                _check_run(path, contents, folder)

        if is_reused:
            _check_same(path, contents, root)
        else:
            with loaded_from_file(), reserved(database(), contents.analysis_id):
                store_analysis(contents.analysis_id, make)
            if contents.notes is not None:
                import_notes(database(), contents.analysis_id, contents.notes, context_owner())
    return Loaded(contents.analysis_id, root, is_reused, contents.is_pinned)


def unpack_archive(path: Path, folder: Path) -> Contents:
    """Validate an archive and unpack it into an empty folder; may raise ArchiveError."""
    with _opened(path) as (archive, contents):
        _unpack(path, archive, contents, folder)
        _check_run(path, contents, folder)
    return contents


_FETCH_AGAIN = "Copy the file again, or save the analysis again with `jarvis archive save`."
_ONLY_OURS = "Only files written by `jarvis archive save` can be imported."


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, Contents]]:
    """Open an archive and its list of files; convert all errors to ArchiveError."""
    try:
        with open_archive(path) as archive:
            yield archive, _contents(path, archive)
    except TooLargeError as error:
        raise ArchiveError(path, str(error), _FETCH_AGAIN) from error
    except DAMAGE as error:
        raise ArchiveError(path, f"the file is damaged ({error})", _FETCH_AGAIN) from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # An offset before the beginning of the file.
        raise ArchiveError(path, "the file is damaged", _FETCH_AGAIN) from error


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, ZIP_EPOCH)
    is_packed = name.endswith(_PACKED)
    member.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
    member.external_attr = (stat.S_IFREG | 0o644) << 16
    return member


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of a run directory whose names are allowed in archives."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and _is_inside(path.relative_to(root)):
            yield path


def _is_inside(name: Path) -> bool:
    return all(_PART.fullmatch(part) for part in name.parts)


def _copy(content: IO[bytes], target: IO[bytes]) -> ArchivedFile:
    digest, size = hashlib.sha256(), 0
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        target.write(chunk)
    return ArchivedFile(sha256=digest.hexdigest(), size_bytes=size)


def _contents(path: Path, archive: zipfile.ZipFile) -> Contents:
    """Read and validate the list of files."""
    names = [member.filename for member in archive.infolist()]
    if _LIST not in names:
        raise ArchiveError(path, "it is not a complete archive of an analysis", _ONLY_OURS)
    size = path.stat().st_size
    _check_members(path, archive)
    with archive.open(_LIST) as file:
        text = file.read(_LIST_LIMIT_BYTES)
    try:
        content = orjson.loads(text)
        version = content["archive_version"], content["schema_version"]
        if version > (FORMAT_VERSION, SCHEMA_VERSION) or version[1] > SCHEMA_VERSION:
            raise ArchiveError(
                path,
                f"it was written by a newer Jarvis (layout {version[0]}.{version[1]}, this one "
                f"reads up to {FORMAT_VERSION}.{SCHEMA_VERSION})",
                "Update Jarvis on this server, or analyze the trace here.",
            )
        contents = Contents.model_validate(content)
    except (ValueError, TypeError, LookupError, ValidationError) as error:
        raise ArchiveError(path, "its list of files cannot be read", _FETCH_AGAIN) from error
    _check_notes(path, contents)
    if contents.schema_version != SCHEMA_VERSION:
        raise ArchiveError(
            path,
            f"it was written by an older Jarvis (layout {contents.schema_version}, this one reads "
            f"{SCHEMA_VERSION})",
            "Analyze the trace again here; links to the analysis stay valid.",
        )
    _check_names(path, contents, archive)
    try:
        check_file_sizes((name, file.size_bytes) for name, file in contents.files.items())
    except RunLimitError as error:
        raise ArchiveError(path, str(error), _ONLY_OURS) from error
    unpacked_bytes = sum(file.size_bytes for file in contents.files.values())
    UnpackingLimits.from_environment().check(unpacked_bytes, size)
    return contents


def _check_notes(path: Path, contents: Contents) -> None:
    if contents.notes is not None:
        try:
            check_notes(contents.notes)
        except NoteError as error:
            raise ArchiveError(path, f"a note is not valid ({error})", _ONLY_OURS) from error


def _check_members(path: Path, archive: zipfile.ZipFile) -> None:
    """Reject links, devices, folders, encryption, and other compression methods."""
    for member in archive.infolist():
        is_plain = stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
        is_ours = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if not is_plain or not is_ours or member.is_dir() or member.flag_bits & _ENCRYPTED:
            raise ArchiveError(path, f"{member.filename[:80]!r} is not a regular file", _ONLY_OURS)


def _check_names(path: Path, contents: Contents, archive: zipfile.ZipFile) -> None:
    """Reject names outside the run directory, and files that are not both listed and packed."""
    if not is_analysis_id(contents.analysis_id):
        raise ArchiveError(path, "the id of its analysis is not valid", _ONLY_OURS)
    for name in contents.files:
        if not all(map(_PART.fullmatch, name.split("/"))):
            raise ArchiveError(path, f"the file name {name[:80]!r} is not valid", _ONLY_OURS)
        if any(str(folder) in contents.files for folder in PurePosixPath(name).parents):
            raise ArchiveError(path, f"{name[:80]!r} is inside another file", _ONLY_OURS)
    expected = [_LIST, *(f"{contents.analysis_id}/{name}" for name in contents.files)]
    if sorted(member.filename for member in archive.infolist()) != sorted(expected):
        raise ArchiveError(path, "its files do not match its list", _FETCH_AGAIN)
    if any(file.size_bytes < 0 for file in contents.files.values()):
        raise ArchiveError(path, "its list of files cannot be read", _FETCH_AGAIN)


def _unpack(path: Path, archive: zipfile.ZipFile, contents: Contents, folder: Path) -> None:
    """Write the files; each must have the listed size and checksum."""
    for name, expected in contents.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        member = archive.getinfo(f"{contents.analysis_id}/{name}")
        with archive.open(member) as content, target.open("xb") as file:
            if member.file_size != expected.size_bytes or _copy(content, file) != expected:
                raise ArchiveError(path, f"{name} in it is damaged", _FETCH_AGAIN)


def _check_run(path: Path, contents: Contents, folder: Path) -> None:
    """Raise ArchiveError if the files are not a valid analysis with the listed id."""
    try:
        manifest = check_received_run(folder)
    except ReceivedRunError as error:
        raise ArchiveError(path, str(error), _ONLY_OURS) from error
    if manifest.analysis_id != contents.analysis_id:
        raise ArchiveError(path, "its analysis does not have the listed id", _ONLY_OURS)


def _check_free(path: Path, root: Path) -> None:
    if root.exists():
        raise ArchiveError(
            path, f"analysis {root.name} was created here meanwhile", "Import it again to compare."
        )


def _check_same(path: Path, contents: Contents, root: Path) -> None:
    """Raise ArchiveError if the stored analysis with this id has other content."""
    local = {file.relative_to(root).as_posix(): file for file in _files(root)}
    is_same = local.keys() == contents.files.keys() and all(
        local[name].stat().st_size == file.size_bytes and file_sha256(local[name]) == file.sha256
        for name, file in contents.files.items()
    )
    if not is_same:
        raise ArchiveError(
            path,
            f"analysis {root.name} is already stored with other content, created at another time "
            "or by another version",
            f"To replace it, delete it with `jarvis remove {root.name}`, then import this one.",
        )
