"""What may go to make room: a plan that says why, and its execution.

What nothing needs goes whenever it is asked: uploads of no stored analysis and no job, copies of
traces whose file is gone, what was left half made, and what ``housekeeping`` says is old. Analyses
go by age or size only where a limit is given, and pinned ones never. None goes by itself.
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
from jarvis.server.storage.catalog import read_catalog
from jarvis.server.storage.folders import folder_bytes, remove_folder
from jarvis.server.storage.pins import pinned
from jarvis.server.storage.storage_keys import address
from jarvis.text.format import counted
from jarvis.trace.sidecar import is_outdated

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
GRACE_S = DAY_S
"""What was put here less than a day ago may be about to be used."""


class Kind(StrEnum):
    """What takes room."""

    ANALYSIS = "analysis"
    UPLOAD = "upload"
    COPY = "copy of a trace"
    EXPORT = "export"
    LEFTOVER = "leftover"


_SHARED = (Kind.UPLOAD, Kind.EXPORT)
"""Files that an artifact root may have too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What analyses and exports must keep to: an age in seconds, and the bytes of all together."""

    older_than_s: float | None = None
    keep_under_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """Something that takes room; ``age_s`` since it was made, uploaded or loaded here.

    ``trace`` is the digest of the trace of an analysis, and the beginning of it for an upload.
    """

    kind: Kind
    name: str
    path: Path
    size_bytes: int
    age_s: float
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """Something that goes, and why."""

    stored: Stored
    reason: str


@dataclass(slots=True)
class Plan:
    """What goes, what would go and stays (with the reason), and how much there is before."""

    total_bytes: int
    expired: Expired
    leaving: list[Leaving] = field(default_factory=list)
    staying: list[Leaving] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.leaving or self.expired.jobs or self.expired.audit_lines)

    @property
    def freed_bytes(self) -> int:
        """How much room it makes."""
        return sum(one.stored.size_bytes for one in self.leaving)

    @property
    def left_bytes(self) -> int:
        """How much there is afterwards."""
        return self.total_bytes - self.freed_bytes


def plan(limits: Limits) -> Plan:
    """What ``prune`` would remove, in that order; nothing is changed."""
    now = time.time()
    stored = [*_stored(now)]
    old = expired(database())
    made = _Planning(Plan(sum(one.size_bytes for one in stored), old), stored)
    made.drop_what_nothing_needs()
    if limits.older_than_s is not None:
        made.drop_older_than(limits.older_than_s)
    if limits.keep_under_bytes is not None:
        made.drop_until_under(limits.keep_under_bytes)
    return made.plan


def prune(planned: Plan) -> list[Leaving]:
    """Remove what a plan names; what was removed meanwhile, pinned or taken up by a job stays.

    Gives what went.
    """
    pins, named = pinned(), named_by_jobs()
    gone = [
        one
        for one in planned.leaving
        if _protection(one.stored, pins, named) is None
        and (one.stored.path.exists() or is_shared())
    ]
    remove_files([one.stored.path for one in gone if one.stored.kind in _SHARED])
    for one in gone:
        if one.stored.kind is Kind.ANALYSIS:
            drop(one.stored.path)
        elif one.stored.kind not in _SHARED:
            with suppress(FileNotFoundError):
                remove_folder(one.stored.path)
    forget_expired(database())
    drop_missing(database())
    return gone


@dataclass(slots=True)
class _Planning:
    plan: Plan
    stored: list[Stored]
    pins: frozenset[str] = field(default_factory=pinned)
    named: dict[str, str] = field(default_factory=named_by_jobs)
    gone: set[Path] = field(default_factory=set)
    users: dict[Path, set[Path]] = field(init=False)
    """The analyses that were made of each upload."""

    def __post_init__(self) -> None:
        self.users = {
            upload.path: {
                one.path
                for one in self.stored
                if one.kind is Kind.ANALYSIS and (one.trace or "").startswith(upload.trace or " ")
            }
            for upload in self._by_age(Kind.UPLOAD)
        }

    def drop_what_nothing_needs(self) -> None:
        for one in self.stored:
            if one.kind is Kind.LEFTOVER:
                self._drop(one, "left half made or half removed")
            elif one.kind is Kind.COPY and is_outdated(one.path):
                self._drop(one, "its trace is gone or has changed")
            elif one.kind is Kind.EXPORT and one.path.name in self.plan.expired.jobs:
                self._drop(one, f"its job ended more than {retention_text()} ago")
            elif one.kind is Kind.EXPORT and self._is_orphan(one):
                self._drop(one, "no job is known that made it")
        self._drop_unneeded_uploads()

    def drop_older_than(self, age_s: float) -> None:
        for one in self._by_age(Kind.EXPORT, Kind.COPY, Kind.ANALYSIS):
            if one.age_s > age_s:
                self._drop(one, f"older than {age_words(age_s)}")
        self._drop_unneeded_uploads()

    def drop_until_under(self, most_bytes: float) -> None:
        """What can be had again goes first; an analysis takes its upload with it."""
        for kinds in ((Kind.EXPORT, Kind.COPY), (Kind.ANALYSIS,)):
            for one in self._by_age(*kinds):
                if self.plan.left_bytes <= most_bytes:
                    return
                self._drop(one, "the oldest while there is too much")
                self._drop_unneeded_uploads()

    def _is_orphan(self, export: Stored) -> bool:
        return export.age_s > GRACE_S and export.path.name not in self.plan.expired.other_jobs

    def _by_age(self, *kinds: Kind) -> list[Stored]:
        wanted = [one for one in self.stored if one.kind in kinds and one.path not in self.gone]
        return sorted(wanted, key=lambda one: one.age_s, reverse=True)

    def _drop_unneeded_uploads(self) -> None:
        for one in self._by_age(Kind.UPLOAD):
            if one.age_s > GRACE_S and self.users[one.path] <= self.gone:
                self._drop(one, "no stored analysis was made of it, and no job works with it")

    def _drop(self, one: Stored, reason: str) -> None:
        protection = _protection(one, self.pins, self.named)
        if protection is None:
            self.gone.add(one.path)
            self.plan.leaving.append(Leaving(one, reason))
        elif all(other.stored is not one for other in self.plan.staying):
            self.plan.staying.append(Leaving(one, protection))


def age_words(age_s: float) -> str:
    """An age in the unit that fits."""
    if age_s >= DAY_S:
        return counted(int(age_s // DAY_S), "day")
    if age_s >= HOUR_S:
        return counted(int(age_s // HOUR_S), "hour")
    return counted(int(age_s // MINUTE_S), "minute")


def _protection(one: Stored, pins: frozenset[str], named: dict[str, str]) -> str | None:
    """Why something stays whatever the limits are."""
    if one.kind is Kind.ANALYSIS and one.name in pins:
        return "pinned"
    names = {one.name} if one.kind is Kind.ANALYSIS else _addresses(one)
    job = next((job for text, job in named.items() if text in names), None)
    return None if job is None else f"the job {job} works with it"


def _addresses(one: Stored) -> set[str]:
    """What a job may call a file, or one in a folder, which may be on another machine."""
    path = one.path
    files = {path, path / one.name, *(path.iterdir() if path.is_dir() else ())}
    return {name for file in files for name in (str(file), str(file.resolve()), address(file))}


def retention_text() -> str:
    """How long ended jobs stay."""
    return age_words(settings().keep_jobs_days * DAY_S)


def _stored(now: float) -> Iterator[Stored]:
    """Everything in the home of the server that retention is about."""
    yield from _analyses(now)
    for folder in _visible(uploads_dir()):
        if folder.is_dir():
            yield from _one(Kind.UPLOAD, _names_in(folder), folder, folder, now, folder.name)
    for kind, parent in ((Kind.UPLOAD, uploads_dir()), (Kind.EXPORT, exports_dir())):
        yield from _elsewhere(kind, parent, now)
    for folder in _visible(trace_cache_dir()):
        yield from _one(Kind.COPY, folder.name, folder, folder, now)
    for folder in _visible(exports_dir()):
        yield from _one(Kind.EXPORT, _names_in(folder), folder, folder, now)
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
        yield from _one(Kind.ANALYSIS, broken, root, root, now)


def _elsewhere(kind: Kind, parent: Path, now: float) -> Iterator[Stored]:
    """What the artifact root has, and this home has not."""
    root = artifact_root()
    for artifact in () if root is None else root.below(parent.name):
        folder, _, name = artifact.key.partition("/")[2].partition("/")
        path = parent / folder
        if not path.exists() and not name.startswith("."):
            age_s = max(0.0, now - (artifact.written or now))
            yield Stored(kind, name, path, artifact.size_bytes, age_s, folder)


def _leftovers(parent: Path, now: float) -> Iterator[Stored]:
    for path in parent.glob(".*"):
        for left in _one(Kind.LEFTOVER, path.name, path, path, now):
            if left.age_s > GRACE_S and not is_only_copy(path):
                yield left


def _one(
    kind: Kind, name: str, path: Path, written: Path, now: float, trace: str | None = None
) -> Iterator[Stored]:
    """What is at ``path``, or nothing where it has just been removed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        age_s = max(0.0, now - written.stat().st_mtime)
        yield Stored(kind, name, path, folder_bytes(path), age_s, trace)


def _visible(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _names_in(folder: Path) -> str:
    """What a folder holds; its own name where it is empty."""
    return ", ".join(path.name for path in _visible(folder)) or folder.name
