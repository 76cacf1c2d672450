"""The analyses kept on this server: their manifests, and who owns, sees and pins them."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Engine

from jarvis.core.errors import JarvisError, RunError
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.run import Manifest, manifest_of
from jarvis.server.access.rights import Person, Role, may, may_see
from jarvis.server.database import Visibility, database
from jarvis.server.storage.analysis_rows import (
    AnalysisRow,
    change,
    is_analysis_id,
    manifests,
    stored_rows,
    version_of,
)
from jarvis.server.storage.artifact_root import MissingArtifactError
from jarvis.server.storage.artifacts import is_shared, local_analysis


class UnknownAnalysisError(JarvisError):
    """No analysis on this server has this id."""

    def __init__(self, analysis_id: str) -> None:
        super().__init__(
            f"No analysis {analysis_id[:64]!r} is stored on this server: it was removed, or the "
            "link comes from another server. Choose another analysis, or analyze the trace again."
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored analysis: its manifest, and its row in the table.

    ``version`` is another one each time it is made; ``written_ns`` is when it was made or loaded
    here, in nanoseconds since 1970. ``made_on`` and ``loaded_by`` are as in ``AnalysisRow``.
    """

    id: str
    manifest: Manifest
    owner: str | None
    visibility: Visibility
    version: str
    is_pinned: bool
    size_bytes: int
    written_ns: int
    made_on: str | None = None
    loaded_by: str | None = None

    @property
    def source(self) -> str | None:
        """Where it comes from; None where this server made it."""
        if self.loaded_by is not None:
            return f"file, loaded by {self.loaded_by}" if self.loaded_by else "file"
        return self.made_on

    @property
    def root(self) -> Path:
        """Its folder in the home of this server."""
        return analyses_dir() / self.id

    @property
    def title(self) -> str:
        """What was analyzed, and the GPU."""
        return f"{name_of(self.manifest)} · {self.gpu}"

    @property
    def gpu(self) -> str:
        """The GPU that the trace was judged against, else what the trace calls its own."""
        hardware = self.manifest.hardware
        return hardware.title if hardware else self.manifest.trace.device_name or "GPU not known"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The readable analyses, newest first, and the ids of folders that cannot be read."""

    entries: tuple[Entry, ...]
    broken: tuple[str, ...]

    def visible_to(self, person: Person) -> "Catalog":
        """What a person may see; of folders that cannot be read only admins are told."""
        seen = tuple(entry for entry in self.entries if may_see(person, entry))
        return replace(self, entries=seen, broken=self.broken if may(person, Role.ADMIN) else ())

    def find(self, analysis_id: str) -> Entry:
        """The entry with this id; UnknownAnalysisError where there is none, or it is broken."""
        found = next((entry for entry in self.entries if entry.id == analysis_id), None)
        if found is None:
            raise UnknownAnalysisError(analysis_id)
        return found


def name_of(manifest: Manifest) -> str:
    """The model, or where it has no name the trace's file name without its ending."""
    file_name = manifest.trace.file_name
    return manifest.model_name or file_name.rpartition(".json")[0] or file_name


def read_catalog() -> Catalog:
    """List what is kept now; what cannot be read does not hide the others."""
    engine = database()
    rows = stored_rows(engine)
    parsed = _parsed(engine, rows.values())
    entries = [
        Entry(
            row.id,
            manifest,
            row.owner,
            row.visibility,
            row.version,
            row.is_pinned,
            row.size_bytes,
            row.written_ns,
            row.made_on,
            row.loaded_by,
        )
        for row in rows.values()
        if (manifest := parsed.get(row.id)) is not None
    ]
    entries.sort(key=lambda entry: (entry.manifest.created, entry.id), reverse=True)
    return Catalog(tuple(entries), tuple(sorted(rows.keys() - {entry.id for entry in entries})))


def stored_row(analysis_id: str) -> AnalysisRow:
    """The row of a stored analysis, readable or not; UnknownAnalysisError where there is none."""
    row = stored_rows(database()).get(analysis_id)
    if row is None:
        raise UnknownAnalysisError(analysis_id)
    return row


def seen_row(person: Person, analysis_id: str) -> AnalysisRow:
    """Return the row of an analysis; raise UnknownAnalysisError where the person sees none."""
    row = stored_row(analysis_id)
    if not may_see(person, row):
        raise UnknownAnalysisError(analysis_id)
    return row


def named_rows(person: Person, ids: Iterable[str]) -> list[AnalysisRow]:
    """Return the rows of the analyses that a job names; raise as ``seen_row``."""
    return [seen_row(person, analysis_id) for analysis_id in ids]


def strictest(asked: Visibility, named: Iterable[AnalysisRow]) -> Visibility:
    """Return the visibility of what is made from analyses: private where one of them is."""
    is_private = any(row.visibility is Visibility.PRIVATE for row in named)
    return Visibility.PRIVATE if is_private else asked


def set_visibility(analysis_id: str, visibility: Visibility) -> None:
    """Say who sees an analysis; UnknownAnalysisError where there is none."""
    change(database(), stored_row(analysis_id).id, visibility=visibility)


def set_owner(analysis_id: str, owner: str | None) -> None:
    """Give an analysis to somebody; UnknownAnalysisError where there is none."""
    change(database(), stored_row(analysis_id).id, owner=owner)


_PARSED: dict[tuple[str, str], Manifest | None] = {}
"""Manifests by id and version: every run of a page lists all of them."""


def _parsed(engine: Engine, rows: Iterable[AnalysisRow]) -> dict[str, Manifest | None]:
    """The manifest of each row by id, None where it cannot be read."""
    known = {row.id: (row.id, row.version) for row in rows}
    missing = [name for name, key in known.items() if key not in _PARSED]
    if missing:
        for name, (version, text) in manifests(engine, missing).items():
            known[name] = (name, version)
            _PARSED[name, version] = _manifest(name, text)
        for old in _PARSED.keys() - known.values():
            _PARSED.pop(old, None)
    return {name: _PARSED.get(key) for name, key in known.items()}


def _manifest(analysis_id: str, text: str) -> Manifest | None:
    try:
        return manifest_of(analyses_dir() / analysis_id, text)
    except RunError:
        return None


def is_stored(analysis_id: str) -> bool:
    """Whether an analysis is kept; then it is in the home now, wherever it was made."""
    with suppress(UnknownAnalysisError, MissingArtifactError):
        return analysis_root(analysis_id).is_dir()
    return False


def analysis_root(analysis_id: str) -> Path:
    """The folder of a stored analysis, fetched where another machine made it.

    Raises UnknownAnalysisError where there is none, ArtifactError or MissingArtifactError where it
    cannot be fetched.
    """
    root = analyses_dir() / analysis_id
    if not is_analysis_id(analysis_id):
        raise UnknownAnalysisError(analysis_id)
    if is_shared():
        return _fetched(analysis_id)
    if not RunPaths(root).manifest.is_file():
        raise UnknownAnalysisError(analysis_id)
    return root


def _fetched(analysis_id: str) -> Path:
    """The folder of a shared analysis; one that is replaced meanwhile is asked for anew."""
    tried = None
    while (version := version_of(database(), analysis_id)) is not None:
        try:
            return local_analysis(analysis_id, version)
        except MissingArtifactError:
            if version == tried:
                raise
            tried = version
    raise UnknownAnalysisError(analysis_id)
