"""Catalog of the stored analyses: manifests, owners, visibility, pins, labels."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import Engine

from jarvis.core.errors import RunError
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.ranks.manifest import DistributedManifest
from jarvis.ranks.run import is_distributed
from jarvis.run import Manifest, manifest_of
from jarvis.server.access.rights import Person, Role, may, may_see
from jarvis.server.database import Visibility, database
from jarvis.server.errors import MissingArtifactError, UnknownAnalysisError
from jarvis.server.storage.analysis_rows import (
    AnalysisRow,
    change,
    is_analysis_id,
    manifests,
    stored_rows,
    version_of,
)
from jarvis.server.storage.artifacts import is_shared, local_analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(AnalysisRow):
    """A stored analysis with its manifest."""

    manifest: Manifest

    @property
    def root(self) -> Path:
        """Return its local folder, which may not be downloaded yet."""
        return analyses_dir() / self.id

    @property
    def title(self) -> str:
        """Return the name of the analysis and the GPU."""
        return f"{name_of(self.manifest)} · {self.gpu}"

    @property
    def gpu(self) -> str:
        """Return the GPU that the trace was compared against, or the device name in the trace."""
        hardware = self.manifest.hardware
        return hardware.title if hardware else self.manifest.trace.device_name or "unknown GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedEntry(AnalysisRow):
    """A stored distributed run, whose ranks are analyses of their own."""

    manifest: DistributedManifest

    @property
    def title(self) -> str:
        """Return its name, its ranks and its id."""
        return " · ".join(filter(None, (self.manifest.name, self.manifest.title, self.id)))

    @property
    def root(self) -> Path:
        """Return its folder; downloads it if necessary, and raises as ``analysis_root``."""
        return analysis_root(self.id)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The readable analyses, newest first, the ids of unreadable ones, and distributed runs."""

    entries: tuple[Entry, ...]
    broken: tuple[str, ...]
    distributed: tuple[DistributedEntry, ...] = ()

    def visible_to(self, person: Person) -> "Catalog":
        """Return the part that a person can see; unreadable analyses only for admins."""
        visible = tuple(entry for entry in self.entries if may_see(person, entry))
        broken = self.broken if may(person, Role.ADMIN) else ()
        jobs = tuple(entry for entry in self.distributed if may_see(person, entry))
        return replace(self, entries=visible, broken=broken, distributed=jobs)

    def find(self, analysis_id: str) -> Entry:
        """Return the entry with this id; raise UnknownAnalysisError if missing or unreadable."""
        for entry in self.entries:
            if entry.id == analysis_id:
                return entry
        raise UnknownAnalysisError(analysis_id)

    def find_distributed(self, distributed_id: str) -> DistributedEntry:
        """Return the distributed run with this id; raise UnknownAnalysisError if missing."""
        for entry in self.distributed:
            if entry.id == distributed_id:
                return entry
        raise UnknownAnalysisError(distributed_id)

    def with_rank(self, analysis_id: str) -> tuple[DistributedEntry, ...]:
        """Return the distributed runs of which this analysis is a rank, newest first."""
        return tuple(
            entry
            for entry in self.distributed
            if any(rank.analysis_id == analysis_id for rank in entry.manifest.usable)
        )

    def superseded_by(self, entry: DistributedEntry) -> DistributedEntry | None:
        """Return the distributed run that joins most ranks, among them all of this one; None if
        none joins more."""
        larger = [
            other for other in self.distributed if other.manifest.traces > entry.manifest.traces
        ]
        return max(larger, key=lambda other: len(other.manifest.traces), default=None)


def name_of(manifest: Manifest) -> str:
    """Return the model name, or the trace's file name without its suffix."""
    file_name = manifest.trace.file_name
    return manifest.model_name or file_name.rpartition(".json")[0] or file_name


_ROW = [field.name for field in fields(AnalysisRow)]


def read_catalog() -> Catalog:
    """Return the catalog of the stored analyses."""
    engine = database()
    rows = stored_rows(engine)
    parsed = _parsed(engine, rows.values())
    entries, distributed = [], []
    for row in rows.values():
        columns = {name: getattr(row, name) for name in _ROW}
        manifest = parsed.get(row.id)
        if isinstance(manifest, Manifest):
            entries.append(Entry(**columns, manifest=manifest))
        elif manifest is not None:
            distributed.append(DistributedEntry(**columns, manifest=manifest))
    entries.sort(key=lambda entry: (entry.manifest.created, entry.id), reverse=True)
    distributed.sort(key=lambda entry: (entry.manifest.created, entry.id), reverse=True)
    known = {*(entry.id for entry in entries), *(entry.id for entry in distributed)}
    return Catalog(tuple(entries), tuple(sorted(rows.keys() - known)), tuple(distributed))


def stored_row(analysis_id: str) -> AnalysisRow:
    """Return the row of an analysis, readable or not; raise UnknownAnalysisError if missing."""
    row = stored_rows(database()).get(analysis_id)
    if row is None:
        raise UnknownAnalysisError(analysis_id)
    return row


def seen_row(person: Person, analysis_id: str) -> AnalysisRow:
    """Return the row of an analysis; raise UnknownAnalysisError if the person sees none."""
    row = stored_row(analysis_id)
    if not may_see(person, row):
        raise UnknownAnalysisError(analysis_id)
    return row


def named_rows(person: Person, ids: Iterable[str]) -> list[AnalysisRow]:
    """Return the rows of the analyses that a job uses; raises as ``seen_row``."""
    return [seen_row(person, analysis_id) for analysis_id in ids]


def strictest(requested: Visibility, rows: Iterable[AnalysisRow]) -> Visibility:
    """Return the visibility of a result derived from analyses: private if any of them is."""
    is_private = any(row.visibility is Visibility.PRIVATE for row in rows)
    return Visibility.PRIVATE if is_private else requested


def set_visibility(analysis_id: str, visibility: Visibility) -> None:
    """Set the visibility of an analysis; raise UnknownAnalysisError if it does not exist."""
    change(database(), stored_row(analysis_id).id, visibility=visibility)


AnyManifest = Manifest | DistributedManifest
_PARSED: dict[tuple[str, str], AnyManifest | None] = {}
"""Cache of manifests by id and version, because each rerun of a page lists all of them."""


def _parsed(engine: Engine, rows: Iterable[AnalysisRow]) -> dict[str, AnyManifest | None]:
    """Return the manifest of each row by id; None if it cannot be read."""
    known = {row.id: (row.id, row.version) for row in rows}
    missing = [name for name, key in known.items() if key not in _PARSED]
    if missing:
        for name, (version, text) in manifests(engine, missing).items():
            known[name] = (name, version)
            _PARSED[name, version] = _manifest(name, text)
        for old in _PARSED.keys() - known.values():
            _PARSED.pop(old, None)
    return {name: _PARSED.get(key) for name, key in known.items()}


def _manifest(analysis_id: str, text: str) -> AnyManifest | None:
    try:
        if is_distributed(text.encode()):
            return DistributedManifest.model_validate_json(text)
        return manifest_of(analyses_dir() / analysis_id, text)
    except (RunError, ValidationError):
        return None


def is_stored(analysis_id: str) -> bool:
    """Return whether an analysis is stored; downloads it if necessary."""
    with suppress(UnknownAnalysisError, MissingArtifactError):
        return analysis_root(analysis_id).is_dir()
    return False


def analysis_root(analysis_id: str) -> Path:
    """Return the folder of a stored analysis; downloads it if necessary.

    Raises:
        UnknownAnalysisError: there is no such analysis.
        ArtifactError, MissingArtifactError: it cannot be downloaded.
    """
    root = analyses_dir() / analysis_id
    if not is_analysis_id(analysis_id):
        raise UnknownAnalysisError(analysis_id)
    if is_shared():
        return _download(analysis_id)
    if not RunPaths(root).manifest.is_file():
        raise UnknownAnalysisError(analysis_id)
    return root


def _download(analysis_id: str) -> Path:
    """Return the folder of a shared analysis; retry if it is replaced meanwhile."""
    tried = None
    while (version := version_of(database(), analysis_id)) is not None:
        try:
            return local_analysis(analysis_id, version)
        except MissingArtifactError:
            if version == tried:
                raise
            tried = version
    raise UnknownAnalysisError(analysis_id)


def pinned() -> frozenset[str]:
    """Return the ids of pinned analyses, which retention does not delete."""
    return frozenset(row.id for row in stored_rows(database()).values() if row.is_pinned)


def set_pinned(analysis_id: str, *, is_pinned: bool) -> bool:
    """Pin or unpin an analysis, also for when it is run again; return whether that changed any.

    Raises:
        UnknownAnalysisError: there is no such analysis.
    """
    has_changed = stored_row(analysis_id).is_pinned != is_pinned
    if has_changed:
        change(database(), analysis_id, is_pinned=is_pinned)
    return has_changed
