"""``jarvis prune``: a plan of what to delete, with reasons, and its execution.

Always deleted: uploads without an analysis or a job, cached traces whose file is gone, partial
results of crashes, and what expired by ``housekeeping``. Analyses are deleted only by an explicit
age or size limit, and never if they are pinned.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from jarvis.core.staging import is_only_copy
from jarvis.core.workspace import analyses_dir, exports_dir, trace_cache_dir, uploads_dir
from jarvis.server.database import database
from jarvis.server.retention.housekeeping import (
    Expired,
    drop_missing,
    expired,
    forget_expired,
    remove_files,
)
from jarvis.server.retention.removal import drop, named_by_jobs
from jarvis.server.settings import settings
from jarvis.server.storage.artifact_root import artifact_root
from jarvis.server.storage.artifacts import is_shared
from jarvis.server.storage.catalog import pinned, read_catalog
from jarvis.server.storage.storage_keys import address, folder_bytes, remove_folder
from jarvis.text.format import counted
from jarvis.trace.sidecar import is_outdated

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
GRACE_S = DAY_S
"""Minimum age of unused files to be deleted, because newer ones may be used soon."""


class Kind(StrEnum):
    """Kind of stored data."""

    ANALYSIS = "analysis"
    UPLOAD = "upload"
    COPY = "copy of a trace"
    EXPORT = "export"
    LEFTOVER = "leftover"


_SHARED = (Kind.UPLOAD, Kind.EXPORT)
"""Kinds that are also in the artifact root."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of prune: maximum age of analyses and exports, and maximum total size."""

    older_than_s: float | None = None
    keep_under_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored item.

    Attributes:
        age_s: time since it was created, uploaded or imported.
        trace: digest of an analysis's trace, or its prefix for an upload.
    """

    kind: Kind
    name: str
    path: Path
    size_bytes: int
    age_s: float
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class PruneItem:
    """An item and the reason why it is deleted, or protected."""

    stored: Stored
    reason: str


@dataclass(slots=True)
class Plan:
    """Plan of a prune.

    Attributes:
        total_bytes: size of all items before.
        to_delete: items to delete.
        protected: items beyond the limits that are protected.
    """

    total_bytes: int
    expired: Expired
    to_delete: list[PruneItem] = field(default_factory=list)
    protected: list[PruneItem] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to delete."""
        return not (self.to_delete or self.expired.jobs or self.expired.audit_lines)

    @property
    def freed_bytes(self) -> int:
        """Return the size of the items to delete."""
        return sum(item.stored.size_bytes for item in self.to_delete)

    @property
    def left_bytes(self) -> int:
        """Return the size of the remaining items."""
        return self.total_bytes - self.freed_bytes


def plan(limits: Limits) -> Plan:
    """Return what ``prune`` would delete, in this order; changes nothing."""
    now = time.time()
    stored = [*_stored(now)]
    old = expired(database())
    planner = _Planner(Plan(sum(item.size_bytes for item in stored), old), stored)
    planner.drop_unused()
    if limits.older_than_s is not None:
        planner.drop_older_than(limits.older_than_s)
    if limits.keep_under_bytes is not None:
        planner.drop_until_under(limits.keep_under_bytes)
    return planner.plan


def prune(planned: Plan) -> list[PruneItem]:
    """Delete the items of a plan, except those that were deleted, pinned or used meanwhile.

    Returns:
        The deleted items.
    """
    pins, used = pinned(), named_by_jobs()
    deleted = [
        item
        for item in planned.to_delete
        if _protection(item.stored, pins, used) is None
        and (item.stored.path.exists() or is_shared())
    ]
    remove_files([item.stored.path for item in deleted if item.stored.kind in _SHARED])
    for item in deleted:
        if item.stored.kind is Kind.ANALYSIS:
            drop(item.stored.path)
        elif item.stored.kind not in _SHARED:
            with suppress(FileNotFoundError):
                remove_folder(item.stored.path)
    forget_expired(database())
    drop_missing(database())
    return deleted


@dataclass(slots=True)
class _Planner:
    plan: Plan
    stored: list[Stored]
    pins: frozenset[str] = field(default_factory=pinned)
    used: dict[str, str] = field(default_factory=named_by_jobs)
    dropped: set[Path] = field(default_factory=set)
    users: dict[Path, set[Path]] = field(init=False)
    """The analyses of each upload."""

    def __post_init__(self) -> None:
        self.users = {
            upload.path: {
                item.path
                for item in self.stored
                if item.kind is Kind.ANALYSIS and (item.trace or "").startswith(upload.trace or " ")
            }
            for upload in self._by_age(Kind.UPLOAD)
        }

    def drop_unused(self) -> None:
        for item in self.stored:
            if item.kind is Kind.LEFTOVER:
                self._drop(item, "partial result of a crash")
            elif item.kind is Kind.COPY and is_outdated(item.path):
                self._drop(item, "its trace was deleted or has changed")
            elif item.kind is Kind.EXPORT and item.path.name in self.plan.expired.jobs:
                self._drop(item, f"its job ended more than {retention_text()} ago")
            elif item.kind is Kind.EXPORT and self._is_orphan(item):
                self._drop(item, "its job is unknown")
        self._drop_unneeded_uploads()

    def drop_older_than(self, age_s: float) -> None:
        for item in self._by_age(Kind.EXPORT, Kind.COPY, Kind.ANALYSIS):
            if item.age_s > age_s:
                self._drop(item, f"older than {age_words(age_s)}")
        self._drop_unneeded_uploads()

    def drop_until_under(self, max_bytes: float) -> None:
        """Drop the oldest, first what can be created again, then analyses with their uploads."""
        for kinds in ((Kind.EXPORT, Kind.COPY), (Kind.ANALYSIS,)):
            for item in self._by_age(*kinds):
                if self.plan.left_bytes <= max_bytes:
                    return
                self._drop(item, "oldest above the size limit")
                self._drop_unneeded_uploads()

    def _is_orphan(self, export: Stored) -> bool:
        return export.age_s > GRACE_S and export.path.name not in self.plan.expired.other_jobs

    def _by_age(self, *kinds: Kind) -> list[Stored]:
        items = [i for i in self.stored if i.kind in kinds and i.path not in self.dropped]
        return sorted(items, key=lambda item: item.age_s, reverse=True)

    def _drop_unneeded_uploads(self) -> None:
        for item in self._by_age(Kind.UPLOAD):
            if item.age_s > GRACE_S and self.users[item.path] <= self.dropped:
                self._drop(item, "no analysis and no job uses it")

    def _drop(self, item: Stored, reason: str) -> None:
        protection = _protection(item, self.pins, self.used)
        if protection is None:
            self.dropped.add(item.path)
            self.plan.to_delete.append(PruneItem(item, reason))
        elif all(other.stored is not item for other in self.plan.protected):
            self.plan.protected.append(PruneItem(item, protection))


def age_words(age_s: float) -> str:
    """Return an age in days, hours or minutes."""
    if age_s >= DAY_S:
        return counted(int(age_s // DAY_S), "day")
    if age_s >= HOUR_S:
        return counted(int(age_s // HOUR_S), "hour")
    return counted(int(age_s // MINUTE_S), "minute")


def _protection(item: Stored, pins: frozenset[str], used: dict[str, str]) -> str | None:
    """Return why an item must not be deleted; None if it can be."""
    if item.kind is Kind.ANALYSIS and item.name in pins:
        return "pinned"
    names = {item.name} if item.kind is Kind.ANALYSIS else _addresses(item)
    job = next((job for text, job in used.items() if text in names), None)
    return None if job is None else f"job {job} is using it"


def _addresses(item: Stored) -> set[str]:
    """Return all names by which a job's parameters may refer to an item or its files."""
    path = item.path
    files = {path, path / item.name, *(path.iterdir() if path.is_dir() else ())}
    return {name for file in files for name in (str(file), str(file.resolve()), address(file))}


def retention_text() -> str:
    """Return the retention of ended jobs for messages."""
    return age_words(settings().keep_jobs_days * DAY_S)


def _stored(now: float) -> Iterator[Stored]:
    """Yield all items of this server."""
    yield from _analyses(now)
    for folder in _visible(uploads_dir()):
        if folder.is_dir():
            yield from _item(Kind.UPLOAD, _names_in(folder), folder, folder, now, folder.name)
    for kind, parent in ((Kind.UPLOAD, uploads_dir()), (Kind.EXPORT, exports_dir())):
        yield from _remote_items(kind, parent, now)
    for folder in _visible(trace_cache_dir()):
        yield from _item(Kind.COPY, folder.name, folder, folder, now)
    for folder in _visible(exports_dir()):
        yield from _item(Kind.EXPORT, _names_in(folder), folder, folder, now)
    for parent in (analyses_dir(), uploads_dir(), trace_cache_dir()):
        yield from _leftovers(parent, now)


def _analyses(now: float) -> Iterator[Stored]:
    catalog = read_catalog()
    for entry in catalog.entries:
        age_s = max(0.0, now - entry.written_ns / 1e9)
        sha256 = entry.manifest.trace.sha256
        yield Stored(Kind.ANALYSIS, entry.id, entry.root, entry.size_bytes, age_s, sha256)
    for broken in catalog.broken:
        root = analyses_dir() / broken
        yield from _item(Kind.ANALYSIS, broken, root, root, now)


def _remote_items(kind: Kind, parent: Path, now: float) -> Iterator[Stored]:
    """Yield items that are only in the artifact root."""
    root = artifact_root()
    for artifact in () if root is None else root.below(parent.name):
        folder, _, name = artifact.key.partition("/")[2].partition("/")
        path = parent / folder
        if not path.exists() and not name.startswith("."):
            age_s = max(0.0, now - (artifact.written or now))
            yield Stored(kind, name, path, artifact.size_bytes, age_s, folder)


def _leftovers(parent: Path, now: float) -> Iterator[Stored]:
    for path in parent.glob(".*"):
        for item in _item(Kind.LEFTOVER, path.name, path, path, now):
            if item.age_s > GRACE_S and not is_only_copy(path):
                yield item


def _item(
    kind: Kind, name: str, path: Path, written: Path, now: float, trace: str | None = None
) -> Iterator[Stored]:
    """Yield the item at ``path``, or nothing if it was deleted meanwhile."""
    with suppress(FileNotFoundError, NotADirectoryError):
        age_s = max(0.0, now - written.stat().st_mtime)
        yield Stored(kind, name, path, folder_bytes(path), age_s, trace)


def _visible(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _names_in(folder: Path) -> str:
    """Return the names of the files in a folder, or its own name if it is empty."""
    return ", ".join(path.name for path in _visible(folder)) or folder.name
