"""An analysis as one file, to be loaded on another server under the same id.

The file is a zip of the run directory with a list of its files and their checksums. A file that is
loaded is untrusted: it is checked against that list, and the run in it as every run from outside
(``received_runs``). It lands whole or not at all, and writes nothing outside its folder.
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

from jarvis.core.errors import JarvisError, RunError
from jarvis.core.staging import staged_folder
from jarvis.core.unpacking import (
    DAMAGE,
    TooLargeError,
    UnpackingLimits,
    open_archive,
)
from jarvis.core.workspace import analyses_dir
from jarvis.run import SCHEMA_VERSION, read_manifest
from jarvis.server.database import database
from jarvis.server.storage.analysis_rows import (
    check_joinable,
    is_analysis_id,
    loaded_from_file,
    reserved,
    stored_rows,
)
from jarvis.server.storage.artifacts import is_shared, store_analysis
from jarvis.server.storage.catalog import is_stored
from jarvis.server.storage.downloads import EPOCH
from jarvis.server.storage.pins import pinned
from jarvis.server.storage.received_runs import ReceivedRunError, check_received_run
from jarvis.server.storage.run_limits import RunLimitError, check_file_sizes

FORMAT_VERSION = 1
"""The layout of an archive; counted up when an older Jarvis can no longer load it."""

_LIST = "jarvis-archive.json"
_LIST_LIMIT_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20

_ENCRYPTED = 1
_PACKED = (".parquet", ".xlsx", ".zip", ".png")
"""What is compressed already is stored as it is."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""One part of a path inside a run directory; nothing hidden, and no way up."""


class ArchiveError(JarvisError):
    """A file is not taken in as an analysis."""

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path.name} is not loaded: {reason}. {remedy}")


class ArchivedFile(BaseModel):
    """One file of an archive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    size_bytes: int


class Contents(BaseModel):
    """What an archive says that it holds; paths are relative to the run directory.

    ``is_pinned`` is where it was saved; loading does not pin.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    archive_version: int = FORMAT_VERSION
    jarvis_version: str
    schema_version: int
    analysis_id: str
    is_pinned: bool
    files: dict[str, ArchivedFile]


@dataclass(frozen=True, slots=True)
class Loaded:
    """An analysis that was loaded; ``is_reused`` where the very same one was kept before.

    ``was_pinned`` where it was pinned on the server that saved it; here it is not.
    """

    id: str
    root: Path
    is_reused: bool
    was_pinned: bool


def save_archive(root: Path, out: Path) -> Contents:
    """Write the analysis in the run directory ``root`` into the file ``out``.

    Raises RunError where ``root`` is no analysis, or is made anew meanwhile.
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
            raise RunError(f"{manifest.analysis_id} was made anew meanwhile. Save it again.")
        contents = Contents(
            jarvis_version=manifest.jarvis_version,
            schema_version=manifest.schema_version,
            analysis_id=manifest.analysis_id,
            is_pinned=root.parent == analyses_dir() and root.name in pinned(),
            files=files,
        )
        archive.writestr(_member(_LIST), contents.model_dump_json(indent=1))
    return contents


def load_archive(path: Path) -> Loaded:
    """Store the analysis of an archive under its id, marked as loaded; it is not pinned.

    To be called in the process of a job. An analysis with the same content that is there already
    stays as it is. Raises ArchiveError where the file is no archive, damaged, of a newer Jarvis, or
    too large, reaches outside its folder, holds no valid analysis, or one whose id is taken by
    other content, and PrivateAnalysisError where it is taken by a private analysis of another
    person; nothing is changed then.
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
    return Loaded(contents.analysis_id, root, is_reused, contents.is_pinned)


def unpack_archive(path: Path, folder: Path) -> Contents:
    """Write the checked run directory of an archive into an empty folder; raises ArchiveError."""
    with _opened(path) as (archive, contents):
        _unpack(path, archive, contents, folder)
        _check_run(path, contents, folder)
    return contents


_FETCH_AGAIN = "Fetch the file again, or save the analysis again with `jarvis archive save`."
_ONLY_OURS = "Load files that `jarvis archive save` wrote."


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, Contents]]:
    """An archive with its list of files; whatever is wrong with it is an ArchiveError."""
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
        # It names a place before its own beginning.
        raise ArchiveError(path, "the file is damaged", _FETCH_AGAIN) from error


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, EPOCH)
    is_packed = name.endswith(_PACKED)
    member.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
    member.external_attr = (stat.S_IFREG | 0o644) << 16
    return member


def _files(root: Path) -> Iterator[Path]:
    """The files of a run directory; what a stranger could not load again is left out."""
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
    """The list of files, once it is sure that it can be followed."""
    names = [member.filename for member in archive.infolist()]
    if _LIST not in names:
        raise ArchiveError(path, "it is no archive of an analysis, or a part of one", _ONLY_OURS)
    size = path.stat().st_size
    _check_members(path, archive)
    with archive.open(_LIST) as file:
        text = file.read(_LIST_LIMIT_BYTES)
    try:
        found = orjson.loads(text)
        version = found["archive_version"], found["schema_version"]
        if version > (FORMAT_VERSION, SCHEMA_VERSION) or version[1] > SCHEMA_VERSION:
            raise ArchiveError(
                path,
                f"a newer Jarvis wrote it (layout {version[0]}.{version[1]}, this one reads up to "
                f"{FORMAT_VERSION}.{SCHEMA_VERSION})",
                "Update Jarvis here, or analyze the trace again here.",
            )
        contents = Contents.model_validate(found)
    except (ValueError, TypeError, LookupError, ValidationError) as error:
        raise ArchiveError(path, "its list of files cannot be read", _FETCH_AGAIN) from error
    if contents.schema_version != SCHEMA_VERSION:
        raise ArchiveError(
            path,
            f"an older Jarvis wrote it (layout {contents.schema_version}, this one reads "
            f"{SCHEMA_VERSION})",
            "Analyze the trace again here: links to the analysis stay as they are.",
        )
    _check_names(path, contents, archive)
    try:
        check_file_sizes((name, file.size_bytes) for name, file in contents.files.items())
    except RunLimitError as error:
        raise ArchiveError(path, str(error), _ONLY_OURS) from error
    unpacked_bytes = sum(file.size_bytes for file in contents.files.values())
    UnpackingLimits.from_environment().check(unpacked_bytes, size)
    return contents


def _check_members(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse links, devices, folders, and what is packed in a way that we do not pack."""
    for member in archive.infolist():
        is_plain = stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
        is_ours = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if not is_plain or not is_ours or member.is_dir() or member.flag_bits & _ENCRYPTED:
            raise ArchiveError(path, f"{member.filename[:80]!r} in it is no plain file", _ONLY_OURS)


def _check_names(path: Path, contents: Contents, archive: zipfile.ZipFile) -> None:
    """Refuse whatever is listed or packed and is no file inside this one run directory."""
    if not is_analysis_id(contents.analysis_id):
        raise ArchiveError(path, "the id of its analysis cannot be one", _ONLY_OURS)
    for name in contents.files:
        if not all(map(_PART.fullmatch, name.split("/"))):
            raise ArchiveError(path, f"a file in it has the name {name[:80]!r}", _ONLY_OURS)
        if any(str(folder) in contents.files for folder in PurePosixPath(name).parents):
            raise ArchiveError(path, f"{name[:80]!r} in it lies in another file", _ONLY_OURS)
    expected = [_LIST, *(f"{contents.analysis_id}/{name}" for name in contents.files)]
    if sorted(member.filename for member in archive.infolist()) != sorted(expected):
        raise ArchiveError(path, "its files are not those that it lists", _FETCH_AGAIN)
    if any(file.size_bytes < 0 for file in contents.files.values()):
        raise ArchiveError(path, "its list of files cannot be read", _FETCH_AGAIN)


def _unpack(path: Path, archive: zipfile.ZipFile, contents: Contents, folder: Path) -> None:
    """Write the files; each must have the length and the checksum that the list gives it."""
    for name, expected in contents.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        member = archive.getinfo(f"{contents.analysis_id}/{name}")
        with archive.open(member) as content, target.open("xb") as file:
            if member.file_size != expected.size_bytes or _copy(content, file) != expected:
                raise ArchiveError(path, f"{name} in it is damaged", _FETCH_AGAIN)


def _check_run(path: Path, contents: Contents, folder: Path) -> None:
    """Raise ArchiveError for files that are as listed, but no valid analysis with this id."""
    try:
        manifest = check_received_run(folder)
    except ReceivedRunError as error:
        raise ArchiveError(path, str(error), _ONLY_OURS) from error
    if manifest.analysis_id != contents.analysis_id:
        raise ArchiveError(path, "its analysis has another id than it says", _ONLY_OURS)


def _check_free(path: Path, root: Path) -> None:
    if root.exists():
        raise ArchiveError(
            path, f"the analysis {root.name} was made here meanwhile", "Load it again to compare."
        )


def _check_same(path: Path, contents: Contents, root: Path) -> None:
    """Refuse an analysis that is kept with other content."""
    here = {file.relative_to(root).as_posix(): file for file in _files(root)}
    is_same = here.keys() == contents.files.keys() and all(
        here[name].stat().st_size == file.size_bytes and _sha256(here[name]) == file.sha256
        for name, file in contents.files.items()
    )
    if not is_same:
        raise ArchiveError(
            path,
            f"the analysis {root.name} is kept here with other content, made at another time or by "
            "another version",
            f"Keep that one, or remove it with `jarvis remove {root.name}` and load this one then.",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
