"""Analyses, traces and exports in a shared artifact root, for which ``JARVIS_HOME`` is a cache.

No-ops unless a shared artifact root is configured. An analysis is one zip in the root,
``analyses/<id>/<version>.zip``, which is uploaded before its row in the table has this version and
never changes. Traces and exports have the same relative paths as in the home.
"""

import json
import shutil
import time
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from jarvis.core.output import write_zip
from jarvis.core.staging import file_sha256, scratch_folder, staged_folder
from jarvis.core.unpacking import DAMAGE
from jarvis.core.workspace import RunPaths, analyses_dir, custom_hardware_dir, home, uploads_dir
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.errors import ArtifactError, DamagedArtifactError, MissingArtifactError
from jarvis.server.settings import settings
from jarvis.server.storage import artifact_copies as copies
from jarvis.server.storage import custom_hardware
from jarvis.server.storage.analysis_rows import new_version, record, version_of
from jarvis.server.storage.artifact_copies import Copy
from jarvis.server.storage.artifact_root import Artifact, ArtifactRoot, OnBytes, raise_if_full
from jarvis.server.storage.artifact_root import artifact_root as shared_root
from jarvis.server.storage.storage_keys import key_of, place_of

UNLISTED_S = 86_400
"""Newer files are not cleaned up, because their row may not be written yet."""

_GB = 1e9
_SCRATCH = "shared"


def is_shared() -> bool:
    """Return whether a shared artifact root is configured."""
    return shared_root() is not None


def check() -> None:
    """Write, read and delete a file in the root; raise ArtifactError if that fails."""
    if (root := shared_root()) is not None:
        root.check()


def store_analysis(analysis_id: str, make: Callable[[Path], object]) -> Path:
    """Store the analysis that ``make`` writes into a folder; return its local folder.

    The row is written after the upload. If the upload fails, an earlier analysis with this id is
    unchanged.
    """
    target = analyses_dir() / analysis_id
    root = shared_root()
    if root is None:
        make(target)
        record(database(), target)
        return target
    version = new_version()
    with scratch_folder(analyses_dir(), _SCRATCH) as scratch:
        made, packed = scratch / analysis_id, scratch / "packed"
        make(made)
        write_zip(packed, made)
        root.put(packed, _analysis(analysis_id, version))
        replaced = record(database(), made, version)
        with copies.locked(_analysis(analysis_id)):
            with staged_folder(target) as folder:
                shutil.copytree(made, folder, copy_function=shutil.move, dirs_exist_ok=True)
            copies.record(_analysis(analysis_id), version)
    if replaced is not None:
        with suppress(ArtifactError):  # ``clean_up`` deletes it later
            root.remove(_analysis(analysis_id, replaced))
    _evict_copies()
    return target


def local_analysis(analysis_id: str, version: str) -> Path:
    """Return the folder of an analysis; download it unless this version is cached.

    An analysis that was stored before the root was configured is uploaded.
    """
    key, root = _analysis(analysis_id), shared_root()
    place = place_of(key)
    if root is None:
        return place
    if copies.local_version(key) == version:
        copies.touch(key)
        return place
    with copies.locked(key):
        if copies.local_version(key) != version:
            _fetch_analysis(root, analysis_id, version)
            copies.record(key, version)
    _evict_copies()
    return place


def is_local(analysis_id: str) -> bool:
    """Return whether this machine has any version of an analysis."""
    return not is_shared() or copies.local_version(_analysis(analysis_id)) is not None


def remove_analysis(analysis_id: str) -> None:
    """Delete the current version of an analysis from the root, and the local copy."""
    if (root := shared_root()) is not None:
        version = version_of(database(), analysis_id)
        if version is not None:
            root.remove(_analysis(analysis_id, version))
        copies.delete(_analysis(analysis_id))


def publish_file(path: Path) -> bool:
    """Upload an upload or an export to the root unless it is there already.

    Returns:
        Whether it is in the root; False without a root, for other files, and for files that
        neither the root nor this machine has.
    """
    key, root = key_of(path), shared_root()
    if root is None or key is None:
        return False
    if copies.local_version(key) is not None:
        copies.touch(key)
        return True
    with copies.locked(key):
        if not root.holds(key):
            if not path.is_file():
                return False
            root.put(path, key)
        if path.is_file():
            copies.record(key)
    _evict_copies()
    return True


def local_file(path: Path, on_bytes: OnBytes | None = None) -> Path:
    """Return the path of an upload or export; download it if this machine does not have it.

    Paths of other files are returned unchanged.

    Raises:
        MissingArtifactError: the root does not have it either.
    """
    key, root = key_of(path), shared_root()
    if root is None or key is None:
        return path
    if not path.is_file():
        with copies.locked(key):
            if not path.is_file():
                _fetch_file(root, key, path, on_bytes)
                copies.record(key)
        _evict_copies()
    copies.touch(key)
    return path


def find_file(path: Path) -> Path:
    """Like ``local_file``, but return the path of a missing file instead of raising."""
    with suppress(MissingArtifactError):
        local_file(path)
    return path


def remove_files(folders: Collection[Path]) -> None:
    """Delete folders of uploads or exports from the root, and the local copies."""
    if (root := shared_root()) is None:
        return
    names = {folder.relative_to(home()).as_posix() for folder in folders}
    kinds = {name.partition("/")[0] for name in names}
    keys = [artifact.key for kind in kinds for artifact in root.below(kind)]
    deleted = [key for key in keys if key.rpartition("/")[0] in names]
    root.remove(*deleted)
    for key in deleted:
        copies.delete(key)


def clean_up(versions: Mapping[str, str]) -> None:
    """Delete files without a row.

    Local copies of deleted analyses are deleted immediately; in the root, temporary files and
    versions without a row after a day.

    Args:
        versions: version of each stored analysis by id.
    """
    if (root := shared_root()) is None:
        return
    custom_hardware.synchronize()
    kind = analyses_dir().name
    for copy in copies.copies():
        if copy.key.startswith(f"{kind}/") and copy.key.removeprefix(f"{kind}/") not in versions:
            copies.delete(copy.key)
    listed = {_analysis(name, version) for name, version in versions.items()}
    root.remove(
        *(
            artifact.key
            for artifact in (*root.below(kind), *root.below(uploads_dir().name))
            if _is_old(artifact) and (artifact.is_half or _is_unlisted(artifact, listed))
        )
    )


def _analysis(analysis_id: str, version: str | None = None) -> str:
    """Return the key of an analysis, or of one of its versions."""
    folder = f"{analyses_dir().name}/{analysis_id}"
    return folder if version is None else f"{folder}/{version}.zip"


def _fetch_analysis(root: ArtifactRoot, analysis_id: str, version: str) -> None:
    key = _analysis(analysis_id, version)
    place = analyses_dir() / analysis_id
    with scratch_folder(analyses_dir(), _SCRATCH) as scratch:
        try:
            root.get(key, scratch / "packed")
        except MissingArtifactError:
            if not RunPaths(place).manifest.is_file() or _was_shared(analysis_id):
                raise
            write_zip(scratch / "packed", place)
            root.put(scratch / "packed", key)
            return
        with staged_folder(place) as folder:
            try:
                with zipfile.ZipFile(scratch / "packed") as packed:
                    packed.extractall(folder)
            except DAMAGE as error:
                raise DamagedArtifactError(root.label, key) from error
            except OSError as error:
                raise_if_full(error, key)
                raise


def _is_old(artifact: Artifact) -> bool:
    return artifact.written is not None and time.time() - artifact.written > UNLISTED_S


def _is_unlisted(artifact: Artifact, listed: Collection[str]) -> bool:
    return artifact.key.startswith(f"{analyses_dir().name}/") and artifact.key not in listed


def _was_shared(analysis_id: str) -> bool:
    return copies.local_version(_analysis(analysis_id)) is not None


def _fetch_file(root: ArtifactRoot, key: str, path: Path, on_bytes: OnBytes | None) -> None:
    """Download a file; verify a trace by its folder, whose name is the prefix of its digest."""
    with scratch_folder(home() / key.split("/", 1)[0], _SCRATCH) as scratch:
        fetched = scratch / path.name
        root.get(key, fetched, on_bytes)
        is_trace = path.is_relative_to(uploads_dir())
        if is_trace and not file_sha256(fetched).startswith(path.parent.name):
            raise DamagedArtifactError(root.label, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        fetched.replace(path)


def _evict_copies() -> None:
    """Evict local copies above ``artifact_cache_gb``, except those that active jobs use."""
    limit_bytes = settings().artifact_cache_gb * _GB
    if sum(copy.size_bytes for copy in copies.copies()) <= limit_bytes:
        return
    active = queue.active(database())
    texts = [json.dumps([job.parameters, job.id]) for job in active]

    def is_needed(copy: Copy) -> bool:
        kind, name = copy.key.split("/")[:2]
        return kind == custom_hardware_dir().name or any(name in text for text in texts)

    copies.evict(limit_bytes, is_needed)
