"""Table of stored analyses: owners, visibility, pins, labels, versions, copies of the manifests.

Folders may appear, change or disappear at any time: created by a command, copied in, deleted by
hand. ``stored_rows`` updates the table with one directory listing and one ``stat`` per folder. With
a shared artifact root, only the table is authoritative.
"""

import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, and_, case, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from jarvis.core.errors import RunError
from jarvis.core.labels import LABEL_NAMES, NO_LABELS, RunLabels
from jarvis.core.workspace import RunPaths, analyses_dir, pins_dir
from jarvis.server.access.rights import LOCAL, Person, Role, may_change
from jarvis.server.database import (
    ANALYSES,
    JOB_ANALYSES,
    REPORT_COMMENTS,
    REPORT_FIELDS,
    REPORTS,
    Visibility,
    database,
    reading,
    writing,
)
from jarvis.server.errors import PrivateAnalysisError
from jarvis.server.settings import settings
from jarvis.server.storage.artifact_copies import local_version
from jarvis.server.storage.storage_keys import folder_bytes

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VERSION_BYTES = 8
_DIGEST_CHARS = 64
_MAX_MACHINE_CHARS = 64


@dataclass(frozen=True, slots=True)
class StorageContext:
    """Owner, visibility, origin and labels of analyses that are stored in the current context.

    ``made_on`` and ``loaded_by`` are as in ``AnalysisRow``.
    """

    owner: str | None = None
    visibility: Visibility = Visibility.TEAM
    made_on: str | None = None
    loaded_by: str | None = None
    role: Role = Role.EDITOR
    labels: RunLabels = NO_LABELS

    @property
    def columns(self) -> dict[str, Any]:
        """Return the values by column name."""
        return {
            "owner": self.owner,
            "visibility": self.visibility,
            "made_on": self.made_on,
            "loaded_by": self.loaded_by,
            **_label_columns(self.labels),
        }


def _label_columns(labels: RunLabels) -> dict[str, Any]:
    return {name: getattr(labels, name) for name in LABEL_NAMES}


_DEFAULT_CONTEXT = StorageContext()
_context: ContextVar[StorageContext] = ContextVar("context", default=_DEFAULT_CONTEXT)


@dataclass(frozen=True, slots=True)
class AnalysisRow:
    """A stored analysis, readable or not.

    Attributes:
        version: changes each time the analysis is run again.
        written_ns: modification time of its local manifest in ns since 1970; 0 without one.
        made_on: the other machine that ran the analysis, or from whose result it was derived.
        loaded_by: who imported it, or the analysis it was derived from, from an archive; empty if
            access control was off.
    """

    id: str
    owner: str | None
    visibility: Visibility
    size_bytes: int
    is_pinned: bool
    version: str
    written_ns: int
    made_on: str | None = None
    loaded_by: str | None = None
    labels: RunLabels = NO_LABELS

    @property
    def is_from_outside(self) -> bool:
        """Return whether it was imported, or derived from an imported analysis."""
        return self.made_on is not None or self.loaded_by is not None

    @property
    def source(self) -> str | None:
        """Return its origin for display; None if this server created it."""
        if self.loaded_by is not None:
            return f"file, loaded by {self.loaded_by}" if self.loaded_by else "file"
        return self.made_on


_OWN = [field.name for field in fields(AnalysisRow) if field.name != "labels"]
_COLUMNS = [ANALYSES.c[name] for name in (*_OWN, *LABEL_NAMES)]
_CONTENT_COLUMNS = ("trace_sha256", "manifest", "size_bytes", "version", "written_ns")
"""Columns that are updated if a folder has changed, unlike owner, visibility, pin and labels."""

_ORIGIN = ("made_on", "loaded_by")
"""Columns that are updated, too, if the analysis was run or imported again."""


def is_analysis_id(text: str) -> bool:
    """Return whether a text is a valid analysis id."""
    return _ID.fullmatch(text) is not None


@contextmanager
def _within(context: StorageContext) -> Iterator[None]:
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)


def stored_for(
    owner: str | None, visibility: Visibility = Visibility.TEAM, role: Role = Role.EDITOR
) -> AbstractContextManager[None]:
    """Assign analyses that are created in this block to ``owner``.

    Existing ones are replaced only if ``owner`` with ``role`` may change them.
    """
    return _within(StorageContext(owner, visibility, role=role))


def person_for(owner: str | None, role: Role) -> Person:
    """Return the person with a name and role; LOCAL without a name."""
    return LOCAL if owner is None else Person(owner, role)


def context_person() -> Person:
    """Return the owner of the current context with their role."""
    context = _context.get()
    return person_for(context.owner, context.role)


def context_owner() -> str | None:
    """Return the owner of analyses that are stored in the current context."""
    return _context.get().owner


def may_replace(row: AnalysisRow) -> bool:
    """Return whether the owner of the current context may replace a stored analysis."""
    return may_change(context_person(), row)


def narrowed(visibility: Visibility) -> AbstractContextManager[None]:
    """Make analyses stored in this block private if ``visibility`` is."""
    context = _context.get()
    is_private = visibility is Visibility.PRIVATE
    return _within(replace(context, visibility=visibility) if is_private else context)


def made_on(machine: str) -> AbstractContextManager[None]:
    """Set the machine that ran the analyses stored in this block."""
    return _within(replace(_context.get(), made_on=machine[:_MAX_MACHINE_CHARS]))


def loaded_from_file() -> AbstractContextManager[None]:
    """Mark analyses stored in this block as imported by their owner."""
    return _within(replace(_context.get(), loaded_by=_context.get().owner or ""))


def derived_from(ids: Iterable[str | None]) -> AbstractContextManager[None]:
    """Give analyses stored in this block the origin of the first imported one of ``ids``."""
    names = [name for name in ids if name]
    rows = stored_rows(database()) if names else {}
    imported = (rows[name] for name in names if name in rows and rows[name].is_from_outside)
    context = _context.get()
    if (source := next(imported, None)) is not None:
        context = replace(context, made_on=source.made_on, loaded_by=source.loaded_by)
    return _within(context)


def labeled(labels: RunLabels) -> AbstractContextManager[None]:
    """Give analyses stored in this block these labels."""
    return _within(replace(_context.get(), labels=labels))


def add_labels(engine: Engine, analysis_id: str) -> None:
    """Add the labels of the current context to a stored analysis that its owner may change.

    Labels that are not set in the context stay, and so do all those of other people's analyses.
    """
    given, row = _context.get().labels, all_rows(engine).get(analysis_id)
    if given and row is not None and may_replace(row):
        set_labels(engine, analysis_id, given.over(row.labels))


def set_labels(engine: Engine, analysis_id: str, labels: RunLabels) -> None:
    """Replace all labels of an analysis."""
    change(engine, analysis_id, **_label_columns(labels))


def may_answer(row: AnalysisRow) -> bool:
    """Return whether a stored analysis can be reused for the one to be stored in this block.

    An imported one is reused only for the same origin.
    """
    context = _context.get()
    is_same = (row.made_on, row.loaded_by) == (context.made_on, context.loaded_by)
    return is_same or not row.is_from_outside


def check_joinable(row: AnalysisRow | None) -> None:
    """Raise PrivateAnalysisError if a stored analysis is private to another person."""
    owner = _context.get().owner
    is_private = row is not None and row.visibility is Visibility.PRIVATE
    if row is not None and is_private and owner is not None and row.owner != owner:
        raise PrivateAnalysisError


@contextmanager
def reserved(engine: Engine, analysis_id: str) -> Iterator[None]:
    """Insert the row of an analysis that is created in this block, with visibility and origin.

    Its folder exists before ``record`` is called; without the row, a concurrent ``stored_rows``
    would list it with the defaults.
    """
    context = _context.get()
    is_default = replace(context, owner=None, role=_DEFAULT_CONTEXT.role) == _DEFAULT_CONTEXT
    if is_default or settings().artifact_root is not None:
        yield
        return
    root = analyses_dir() / analysis_id
    if not root.exists():  # a row without a folder is from a killed process
        forget(engine, [analysis_id])
        with writing(engine) as connection:
            connection.execute(_upsert(engine), _row_of(root, 0) | context.columns)
    try:
        yield
    finally:
        if not root.exists():
            forget(engine, [analysis_id])


def new_version() -> str:
    """Return a random, unique version."""
    return secrets.token_hex(_VERSION_BYTES)


def record(engine: Engine, root: Path, version: str | None = None) -> str | None:
    """Insert or update the row of the new analysis in ``root``; its id is the folder's name.

    Returns:
        The replaced version, or None.
    """
    row = _row_of(root, _written_ns(str(root))) | _context.get().columns
    with writing(engine) as connection:
        replaced: str | None = connection.execute(
            select(ANALYSES.c.version).where(ANALYSES.c.id == root.name).with_for_update()
        ).scalar()
        values = row | ({"version": version} if version else {})
        connection.execute(_upsert(engine, (*_CONTENT_COLUMNS, *_ORIGIN)), values)
        return replaced


def stored_rows(engine: Engine) -> dict[str, AnalysisRow]:
    """Return the stored analyses by id, after updating the rows of new and changed folders.

    Rows without a folder are left out but not deleted, because an analysis that is being replaced
    has no folder for a moment. With a shared artifact root they are included.
    """
    is_shared = settings().artifact_root is not None
    folders = folders_here()
    rows = all_rows(engine)

    def is_changed(name: str, written_ns: int) -> bool:
        if is_shared:  # the folder may be an old copy, or one of a deleted analysis
            return name not in rows and not is_copy(name)
        return name not in rows or rows[name].written_ns != written_ns

    changed = {name: written for name, written in folders.items() if is_changed(name, written)}
    if changed:
        _insert_folders(engine, changed)
    if pins_dir().is_dir():
        changed |= dict.fromkeys(_migrate_pins(engine, folders), 0)
    if changed:
        rows = all_rows(engine)
    return rows if is_shared else {name: rows[name] for name in folders if name in rows}


def is_copy(analysis_id: str) -> bool:
    """Return whether the local folder was downloaded from, or uploaded to, the artifact root."""
    return local_version(f"{analyses_dir().name}/{analysis_id}") is not None


def version_of(engine: Engine, analysis_id: str) -> str | None:
    """Return the version of a stored analysis; None if it does not exist."""
    query = select(ANALYSES.c.version).where(ANALYSES.c.id == analysis_id)
    with reading(engine) as connection:
        version: str | None = connection.execute(query).scalar()
        return version


def manifests(engine: Engine, ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return version and manifest (JSON) of the given analyses by id."""
    query = select(ANALYSES.c.id, ANALYSES.c.version, ANALYSES.c.manifest)
    with reading(engine) as connection:
        rows = connection.execute(query.where(ANALYSES.c.id.in_(ids)))
        return {name: (version, text) for name, version, text in rows}


def change(engine: Engine, analysis_id: str, **values: Any) -> None:
    """Set columns of a row."""
    with writing(engine) as connection:
        connection.execute(update(ANALYSES).where(ANALYSES.c.id == analysis_id).values(values))


def forget(engine: Engine, ids: Collection[str]) -> None:
    """Delete the rows of analyses whose folders are deleted, and the notes on their reports.

    Jobs that used one keep its last owner and visibility, since the id may be reused.
    """
    row = select(ANALYSES).where(ANALYSES.c.id == JOB_ANALYSES.c.analysis_id)
    links = update(JOB_ANALYSES).where(
        JOB_ANALYSES.c.analysis_id.in_(ids), JOB_ANALYSES.c.visibility.is_(None)
    )
    last = {
        name: row.with_only_columns(ANALYSES.c[name]).scalar_subquery()
        for name in ("owner", "visibility")
    }
    with writing(engine) as connection:
        connection.execute(links.values(last))
        for notes in (REPORT_COMMENTS, REPORT_FIELDS, REPORTS):
            connection.execute(delete(notes).where(notes.c.analysis_id.in_(ids)))
        connection.execute(delete(ANALYSES).where(ANALYSES.c.id.in_(ids)))


def all_rows(engine: Engine) -> dict[str, AnalysisRow]:
    """Return all rows by id, without looking at folders."""
    with reading(engine) as connection:
        return {row[0]: _analysis_row(*row) for row in connection.execute(select(*_COLUMNS))}


def _analysis_row(*values: Any) -> AnalysisRow:
    own = len(_OWN)
    named = dict(zip(_OWN, values[:own], strict=True))
    return AnalysisRow(**named, labels=RunLabels(*values[own:]))


def folders_here() -> dict[str, int]:
    """Return the modification time of each local manifest in ns, 0 without one, by id."""
    try:
        with os.scandir(analyses_dir()) as entries:
            return {
                entry.name: _written_ns(entry.path)
                for entry in entries
                if is_analysis_id(entry.name) and entry.is_dir()
            }
    except FileNotFoundError:
        return {}


_MANIFEST = RunPaths(Path()).manifest.name


def _written_ns(folder: str) -> int:
    try:
        return os.stat(f"{folder}/{_MANIFEST}").st_mtime_ns
    except OSError:
        return 0


def _insert_folders(engine: Engine, folders: Mapping[str, int]) -> None:
    """Insert or update the rows of folders, sorted by id to avoid deadlocks."""
    rows = [_row_of(analyses_dir() / name, folders[name]) for name in sorted(folders)]
    with writing(engine) as connection:
        for row in rows:
            connection.execute(_upsert(engine), row)


def _row_of(root: Path, written_ns: int) -> dict[str, Any]:
    """Return the row of a folder; the manifest is empty if it cannot be read."""
    from jarvis.ranks.run import is_distributed
    from jarvis.run import manifest_of

    text, sha256 = "", ""
    with suppress(OSError, RunError, UnicodeError):
        content = RunPaths(root).manifest.read_bytes()
        if not is_distributed(content):
            sha256 = manifest_of(root, content).trace.sha256[:_DIGEST_CHARS]
        text = content.decode()
    return {
        "id": root.name,
        "trace_sha256": sha256,
        "manifest": text,
        "owner": None,
        "visibility": Visibility.TEAM,
        "size_bytes": folder_bytes(root),
        "is_pinned": False,
        "version": new_version(),
        "written_ns": written_ns,
        "made_on": None,
        "loaded_by": None,
    }


def _upsert(engine: Engine, changed: Iterable[str] = _CONTENT_COLUMNS) -> Any:
    insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert(ANALYSES)
    values: dict[str, Any] = {name: insert.excluded[name] for name in changed}
    owner = func.coalesce(ANALYSES.c.owner, insert.excluded.owner)
    is_claimed = and_(ANALYSES.c.owner.is_(None), insert.excluded.owner.is_not(None))
    visibility = case((is_claimed, insert.excluded.visibility), else_=ANALYSES.c.visibility)
    return insert.on_conflict_do_update(
        index_elements=[ANALYSES.c.id],
        set_=values | {"owner": owner, "visibility": visibility},
    )


def _migrate_pins(engine: Engine, folders: Collection[str]) -> list[str]:
    """Import the pins of earlier versions, which are empty files named by the id."""
    files = [file for file in pins_dir().iterdir() if file.name in folders]
    for file in files:
        change(engine, file.name, is_pinned=True)
        file.unlink(missing_ok=True)
    with suppress(OSError):  # it still has pins of missing analyses
        pins_dir().rmdir()
    return [file.name for file in files]
