"""The table of kept analyses: what stands in no folder, and copies of the manifests.

A folder may appear, change or go by itself: made by a command, copied in, deleted by hand. The
table follows at the next look, which costs one listing and a ``stat`` for each folder. Where
analyses are shared in an artifact root, the table alone says what there is.
"""

import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, and_, case, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from jarvis.core.errors import JarvisError, RunError
from jarvis.core.workspace import RunPaths, analyses_dir, pins_dir
from jarvis.run import manifest_of
from jarvis.server.access.rights import LOCAL, Person, Role, may_change
from jarvis.server.database import (
    ANALYSES,
    JOB_ANALYSES,
    Visibility,
    database,
    reading,
    writing,
)
from jarvis.server.settings import settings
from jarvis.server.storage.artifact_copies import local_version
from jarvis.server.storage.folders import folder_bytes

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VERSION_BYTES = 8
_DIGEST_LETTERS = 64
_MACHINE_LETTERS = 64


@dataclass(frozen=True, slots=True)
class StorageContext:
    """Whom an analysis will belong to, who is to see it, and where it was made if not here.

    ``made_on`` and ``loaded_by`` are as in ``AnalysisRow``.
    """

    owner: str | None = None
    visibility: Visibility = Visibility.TEAM
    made_on: str | None = None
    loaded_by: str | None = None
    role: Role = Role.EDITOR

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the table that say the same."""
        return {
            "owner": self.owner,
            "visibility": self.visibility,
            "made_on": self.made_on,
            "loaded_by": self.loaded_by,
        }


_ANYBODY = StorageContext()
_keeper: ContextVar[StorageContext] = ContextVar("keeper", default=_ANYBODY)


class PrivateAnalysisError(JarvisError):
    """An analysis that somebody else has made and keeps for themselves."""

    def __init__(self) -> None:
        super().__init__(
            "Somebody else has analyzed this trace with these options and keeps it private. Give "
            "yours a model name of its own, or ask an admin of this server."
        )


class OthersAnalysisError(JarvisError):
    """An analysis that belongs to somebody else would have to be made again."""

    def __init__(self, analysis_id: str) -> None:
        super().__init__(
            f"The analysis {analysis_id} of this trace with these options belongs to somebody "
            "else, so it is not made again for you. Open it, give yours a model name of its own, "
            "or ask its owner or an admin of this server."
        )


@dataclass(frozen=True, slots=True)
class AnalysisRow:
    """A stored analysis, readable or not; ``version`` is another one each time it is made.

    ``written_ns`` is when its manifest was written here, in nanoseconds since 1970; 0 without one.
    ``made_on`` names the machine where that was another one; ``loaded_by`` who loaded it from a
    file, empty where that person has no name. Both are also set for what was made here from such an
    analysis.
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

    @property
    def is_from_outside(self) -> bool:
        """Whether this server did not make it from a trace itself."""
        return self.made_on is not None or self.loaded_by is not None


_COLUMNS = [ANALYSES.c[field.name] for field in fields(AnalysisRow)]
_MADE_ANEW = ("trace_sha256", "manifest", "size_bytes", "version", "written_ns")
"""What changes when a folder has changed; owner, visibility and pin stay."""

_ORIGIN = ("made_on", "loaded_by")
"""What changes also where the analysis was made, or loaded, again."""


def is_analysis_id(text: str) -> bool:
    """Whether an analysis could have this id."""
    return _ID.fullmatch(text) is not None


@contextmanager
def stored_for(
    owner: str | None, visibility: Visibility = Visibility.TEAM, role: Role = Role.EDITOR
) -> Iterator[None]:
    """Analyses that are kept in this block belong to ``owner``, where they are new.

    Those that are kept already change as far as ``role`` allows ``owner``.
    """
    token = _keeper.set(StorageContext(owner, visibility, role=role))
    try:
        yield
    finally:
        _keeper.reset(token)


def person_for(owner: str | None, role: Role) -> Person:
    """Return the person who has something done; everyone without a name is LOCAL."""
    return LOCAL if owner is None else Person(owner, role)


def may_replace(row: AnalysisRow) -> bool:
    """Whether the keeper of this block may replace a stored analysis by another one."""
    keeper = _keeper.get()
    return may_change(person_for(keeper.owner, keeper.role), row)


@contextmanager
def made_on(machine: str) -> Iterator[None]:
    """Analyses that are kept in this block were made on another machine."""
    token = _keeper.set(replace(_keeper.get(), made_on=machine[:_MACHINE_LETTERS]))
    try:
        yield
    finally:
        _keeper.reset(token)


@contextmanager
def loaded_from_file() -> Iterator[None]:
    """Analyses that are kept in this block were loaded by their owner from a file."""
    token = _keeper.set(replace(_keeper.get(), loaded_by=_keeper.get().owner or ""))
    try:
        yield
    finally:
        _keeper.reset(token)


@contextmanager
def derived_from(ids: Iterable[str | None]) -> Iterator[None]:
    """Analyses that are kept in this block have the origin of the first of ``ids`` from outside."""
    rows = stored_rows(database()) if (named := [name for name in ids if name]) else {}
    found = (rows[name] for name in named if name in rows and rows[name].is_from_outside)
    source = next(found, None)
    keeper = _keeper.get()
    if source is not None:
        keeper = replace(keeper, made_on=source.made_on, loaded_by=source.loaded_by)
    token = _keeper.set(keeper)
    try:
        yield
    finally:
        _keeper.reset(token)


def may_answer(row: AnalysisRow) -> bool:
    """Whether a stored analysis may answer a request for what is to be kept in this block.

    One from outside answers only for what would come from the same place.
    """
    keeper = _keeper.get()
    is_same = (row.made_on, row.loaded_by) == (keeper.made_on, keeper.loaded_by)
    return is_same or not row.is_from_outside


def check_joinable(row: AnalysisRow | None) -> None:
    """PrivateAnalysisError where a stored analysis must not be given to the keeper of this "
    "block."""
    owner = _keeper.get().owner
    is_private = row is not None and row.visibility is Visibility.PRIVATE
    if row is not None and is_private and owner is not None and row.owner != owner:
        raise PrivateAnalysisError


@contextmanager
def reserved(engine: Engine, analysis_id: str) -> Iterator[None]:
    """An analysis made in this block is private, or from outside, from its first moment.

    Its folder is there before it is written down, and a look in between takes up what it finds.
    """
    keeper = _keeper.get()
    is_default = replace(keeper, owner=None, role=_ANYBODY.role) == _ANYBODY
    if is_default or settings().artifact_root is not None:
        yield
        return
    root = analyses_dir() / analysis_id
    if not root.exists():  # a row without a folder is what a killed process has left
        forget(engine, [analysis_id])
        with writing(engine) as connection:
            connection.execute(_upsert(engine), _row_of(root, 0) | keeper.columns)
    try:
        yield
    finally:
        if not root.exists():
            forget(engine, [analysis_id])


def new_version() -> str:
    """What no analysis was called by before."""
    return secrets.token_hex(_VERSION_BYTES)


def record(engine: Engine, root: Path, version: str | None = None) -> str | None:
    """Write down the analysis in ``root``, which has just been made, under its folder's name.

    Gives the version that it replaces.
    """
    row = _row_of(root, _written_ns(str(root))) | _keeper.get().columns
    with writing(engine) as connection:
        replaced: str | None = connection.execute(
            select(ANALYSES.c.version).where(ANALYSES.c.id == root.name).with_for_update()
        ).scalar()
        made = row | ({"version": version} if version else {})
        connection.execute(_upsert(engine, (*_MADE_ANEW, *_ORIGIN)), made)
        return replaced


def stored_rows(engine: Engine) -> dict[str, AnalysisRow]:
    """What is kept now, by id; folders that have no row, or have changed, have theirs afterwards.

    Rows without a folder are left out and stay: an analysis that is being replaced has none for a
    moment. Where analyses are shared they have theirs elsewhere.
    """
    is_shared = settings().artifact_root is not None
    folders = folders_here()
    rows = all_rows(engine)

    def is_news(name: str, written_ns: int) -> bool:
        if is_shared:  # what is here may be an old copy, or one of what was removed elsewhere
            return name not in rows and not is_copy(name)
        return name not in rows or rows[name].written_ns != written_ns

    changed = {name: written for name, written in folders.items() if is_news(name, written)}
    if changed:
        _take_up(engine, changed)
    if pins_dir().is_dir():
        changed |= dict.fromkeys(_take_over_pins(engine, folders), 0)
    if changed:
        rows = all_rows(engine)
    return rows if is_shared else {name: rows[name] for name in folders if name in rows}


def is_copy(analysis_id: str) -> bool:
    """Whether the folder here was fetched from, or put into, the artifact root."""
    return local_version(f"{analyses_dir().name}/{analysis_id}") is not None


def version_of(engine: Engine, analysis_id: str) -> str | None:
    """The version of a stored analysis; None where there is none."""
    wanted = select(ANALYSES.c.version).where(ANALYSES.c.id == analysis_id)
    with reading(engine) as connection:
        version: str | None = connection.execute(wanted).scalar()
        return version


def manifests(engine: Engine, ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """The version and the manifest, as JSON, of some analyses."""
    wanted = select(ANALYSES.c.id, ANALYSES.c.version, ANALYSES.c.manifest)
    with reading(engine) as connection:
        found = connection.execute(wanted.where(ANALYSES.c.id.in_(ids)))
        return {name: (version, text) for name, version, text in found}


def change(engine: Engine, analysis_id: str, **values: Any) -> None:
    """Set columns of a row."""
    with writing(engine) as connection:
        connection.execute(update(ANALYSES).where(ANALYSES.c.id == analysis_id).values(values))


def forget(engine: Engine, ids: Collection[str]) -> None:
    """Take analyses off the list, once their folders are gone.

    The jobs that name one keep who could see it, since the same id may come to mean another one.
    """
    row = select(ANALYSES).where(ANALYSES.c.id == JOB_ANALYSES.c.analysis_id)
    named = update(JOB_ANALYSES).where(
        JOB_ANALYSES.c.analysis_id.in_(ids), JOB_ANALYSES.c.visibility.is_(None)
    )
    last = {
        name: row.with_only_columns(ANALYSES.c[name]).scalar_subquery()
        for name in ("owner", "visibility")
    }
    with writing(engine) as connection:
        connection.execute(named.values(last))
        connection.execute(delete(ANALYSES).where(ANALYSES.c.id.in_(ids)))


def all_rows(engine: Engine) -> dict[str, AnalysisRow]:
    """The table as it is, by id."""
    with reading(engine) as connection:
        return {row[0]: AnalysisRow(*row) for row in connection.execute(select(*_COLUMNS))}


def folders_here() -> dict[str, int]:
    """When the manifest of each folder of this home was written, 0 without one; by id."""
    try:
        with os.scandir(analyses_dir()) as found:
            return {
                entry.name: _written_ns(entry.path)
                for entry in found
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


def _take_up(engine: Engine, folders: Mapping[str, int]) -> None:
    """Write rows for folders; two that do so at once write the same, in the same order."""
    rows = [_row_of(analyses_dir() / name, folders[name]) for name in sorted(folders)]
    with writing(engine) as connection:
        for row in rows:
            connection.execute(_upsert(engine), row)


def _row_of(root: Path, written_ns: int) -> dict[str, Any]:
    """The row of a folder; one that cannot be read has an empty manifest."""
    text, sha256 = "", ""
    with suppress(OSError, RunError, UnicodeError):
        content = RunPaths(root).manifest.read_bytes()
        sha256 = manifest_of(root, content).trace.sha256[:_DIGEST_LETTERS]
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


def _upsert(engine: Engine, changed: Iterable[str] = _MADE_ANEW) -> Any:
    insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert(ANALYSES)
    anew: dict[str, Any] = {name: insert.excluded[name] for name in changed}
    owner = func.coalesce(ANALYSES.c.owner, insert.excluded.owner)
    is_claimed = and_(ANALYSES.c.owner.is_(None), insert.excluded.owner.is_not(None))
    visibility = case((is_claimed, insert.excluded.visibility), else_=ANALYSES.c.visibility)
    return insert.on_conflict_do_update(
        index_elements=[ANALYSES.c.id],
        set_=anew | {"owner": owner, "visibility": visibility},
    )


def _take_over_pins(engine: Engine, folders: Collection[str]) -> list[str]:
    """Earlier versions kept a pin as an empty file named by the id."""
    files = [file for file in pins_dir().iterdir() if file.name in folders]
    for file in files:
        change(engine, file.name, is_pinned=True)
        file.unlink(missing_ok=True)
    with suppress(OSError):  # pins of analyses that may come back stay
        pins_dir().rmdir()
    return [file.name for file in files]
