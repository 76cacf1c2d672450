"""What people do here: each function looks whether they may, does it, and writes it down.

Pages, the API and commands come through here. What somebody may not see is, for them, not there:
the same sentence as for what does not exist.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.server.access import audit, tokens
from jarvis.server.access.audit import Action, AuditEntry, AuditFilter, Channel
from jarvis.server.access.rights import (
    LOCAL,
    ForbiddenError,
    Person,
    Role,
    may,
    may_change,
    may_see,
    require,
)
from jarvis.server.access.tokens import NewToken, Token, TokenError
from jarvis.server.database import JobKind, Visibility, database
from jarvis.server.jobs import queue
from jarvis.server.jobs.kinds import FileRequest, JobOutput, Request, earlier_job, request_of
from jarvis.server.jobs.kinds.loads import Load
from jarvis.server.jobs.queue import Job, NewJob
from jarvis.server.jobs.workers.single_job import run_single_job
from jarvis.server.retention import removal
from jarvis.server.retention.removal import Removed
from jarvis.server.storage import custom_hardware, pins
from jarvis.server.storage.analysis_rows import AnalysisRow, stored_rows
from jarvis.server.storage.archive import save_archive
from jarvis.server.storage.catalog import (
    analysis_root,
    named_rows,
    seen_row,
    set_visibility,
    strictest,
)

_ASKED: dict[JobKind, Action] = {
    JobKind.ANALYZE: Action.ANALYZE,
    JobKind.REMOTE: Action.ANALYZE,
    JobKind.FETCH: Action.UPLOAD,
    JobKind.REPROJECT: Action.REPROJECT,
    JobKind.COMPARE: Action.COMPARE,
    JobKind.EXPORT: Action.EXPORT,
    JobKind.REPLAY: Action.REPLAY,
    JobKind.LOAD: Action.ARCHIVE_LOAD,
}
"""What is written down for a job; that a trace is read to be described is not."""


_MAKE_FILES = (JobKind.COMPARE, JobKind.EXPORT, JobKind.REPLAY)
"""Jobs that make no analysis, whose visibility is that of the analyses that they read."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and by which way in."""

    person: Person
    via: Channel


OPERATOR = Actor(LOCAL, Channel.COMMAND)
"""Who works on the server's own command line."""


def get_visible_analysis(person: Person, analysis_id: str) -> AnalysisRow:
    """The row of an analysis; UnknownAnalysisError where there is none that the person may see."""
    return seen_row(person, analysis_id)


def visible_run_dir(person: Person, analysis_id: str) -> Path:
    """The folder of an analysis; raises as ``get_visible_analysis``."""
    if not may(person, Role.ADMIN):  # who sees all need not ask the table
        get_visible_analysis(person, analysis_id)
    return analysis_root(analysis_id)


def get_visible_job(engine: Engine, person: Person, job_id: str) -> Job:
    """A job; UnknownJobError where there is none that the person may see."""
    return queue.find(engine, job_id, person)


def submit_job(
    engine: Engine, actor: Actor, request: Request, visibility: Visibility = Visibility.TEAM
) -> Job:
    """Queue a job; while one that asks for the same waits or runs, that one.

    An analysis that it makes is as private as any analysis that it is about. Raises ForbiddenError
    without the role editor, UnknownAnalysisError where it is about an analysis that the person may
    not see, and what ``new_job`` raises.
    """
    return _submit(engine, actor, *_prepared(actor, request, visibility))


def ask_for_file(engine: Engine, actor: Actor, request: FileRequest) -> Job:
    """The job that made this file before, where it is still there, else a new one.

    Raises as ``submit_job`` does.
    """
    new, visibility = _prepared(actor, request, Visibility.TEAM)
    before = earlier_job(engine, new, actor.person)
    return _submit(engine, actor, new, visibility) if before is None else before


def cancel_job(engine: Engine, actor: Actor, job_id: str) -> Job:
    """End a job; raises as ``_changeable`` does."""
    job = queue.cancel(engine, _changeable_job(engine, actor, job_id, "cancel").id)
    _record(engine, actor, Action.CANCEL, job.title, job=job.id)
    return job


def retry_job(engine: Engine, actor: Actor, job_id: str) -> Job:
    """Queue a failed or cancelled job again.

    Raises as ``cancel_job``, OutdatedJobError, and UnknownAnalysisError where it is about an
    analysis that the person may not see now.
    """
    old = _changeable_job(engine, actor, job_id, "retry")
    named_rows(actor.person, request_of(old.kind, old.parameters).analyses)
    job = queue.retry(engine, old.id)
    _record(engine, actor, Action.RETRY, job.title, job=job.id)
    return job


def remove_analysis(actor: Actor, analysis_id: str) -> Removed:
    """Remove an analysis for good; raises as ``pin_analysis``, and as ``check_removable``.

    Of the analyses that refer to it those are named that the person may see.
    """
    _changeable(actor, analysis_id, "remove")
    removed = removal.remove_analysis(analysis_id)
    _record(database(), actor, Action.REMOVE, analysis_id, bytes=removed.size_bytes)
    return replace(removed, referred_to_by=_seen(actor.person, removed.referred_to_by))


def referring_to(person: Person, analysis_id: str) -> tuple[str, ...]:
    """The kept analyses whose reference it is, of those that the person may see."""
    return _seen(person, removal.referring_to(analysis_id))


def pin_analysis(actor: Actor, analysis_id: str, *, is_pinned: bool) -> bool:
    """Pin an analysis or let go of it; whether that changed anything.

    Raises UnknownAnalysisError where the person sees none, ForbiddenError where it is not theirs.
    """
    _changeable(actor, analysis_id, "pin" if is_pinned else "unpin")
    has_changed = (pins.pin if is_pinned else pins.unpin)(analysis_id)
    if has_changed:
        _record(database(), actor, Action.PIN if is_pinned else Action.UNPIN, analysis_id)
    return has_changed


def share_analysis(actor: Actor, analysis_id: str, visibility: Visibility) -> None:
    """Say who sees an analysis; raises as ``pin_analysis``."""
    row = _changeable(actor, analysis_id, "say who sees")
    if row.visibility is not visibility:
        set_visibility(analysis_id, visibility)
        _record(database(), actor, Action.SET_VISIBILITY, analysis_id, visibility=visibility)


def save_analysis(actor: Actor, analysis_id: str, out: Path) -> None:
    """Write an analysis as one file; raises as ``save_archive``, and ForbiddenError without the
    role editor."""
    require(actor.person, Role.EDITOR, "save analyses as files")
    save_archive(visible_run_dir(actor.person, analysis_id), out)
    _record(database(), actor, Action.ARCHIVE_SAVE, analysis_id)


def load_analysis(actor: Actor, path: Path) -> JobOutput:
    """Store the analysis of an archive for the person, and wait for it; pages queue a ``Load``.

    Raises as ``run_single_job``, and ForbiddenError without the role editor.
    """
    require(actor.person, Role.EDITOR, "load analyses")
    made = run_single_job(Load(path.absolute()), actor.person.name)
    is_reused = made.result["is_reused"]
    _record(database(), actor, Action.ARCHIVE_LOAD, made.analysis_id or "", is_reused=is_reused)
    return made


def store_hardware(actor: Actor, spec: HardwareSpec) -> Path:
    """Keep a description of a GPU for everyone; raises as in ``custom_hardware``, and
    ForbiddenError without the role editor."""
    require(actor.person, Role.EDITOR, "describe GPUs")
    path = custom_hardware.store_hardware(spec, actor.person.name)
    _record(database(), actor, Action.HARDWARE_KEEP, spec.title)
    return path


def not_yours(person: Person, spec: HardwareSpec, owners: Mapping[str, str]) -> str | None:
    """Return why a person may not delete a description of ``hardware_owners``; None if they may."""
    file = load_hardware().custom_file(spec)
    owner = None if file is None else owners.get(file.name)
    is_jarvis_own = file is None  # which nobody can delete
    if is_jarvis_own or may(person, Role.ADMIN) or (owner is not None and owner == person.name):
        return None
    return f"Only who described {spec.title}, or an admin, may delete it. {_belongs_to(owner)}"


def remove_hardware(actor: Actor, spec: HardwareSpec) -> None:
    """Delete such a description; raises as ``store_hardware``, and ForbiddenError where it is not
    the person's own."""
    require(actor.person, Role.EDITOR, "delete descriptions of GPUs")
    if (reason := not_yours(actor.person, spec, custom_hardware.hardware_owners())) is not None:
        raise ForbiddenError(reason)
    custom_hardware.remove_hardware(spec)
    _record(database(), actor, Action.HARDWARE_REMOVE, spec.title)


def create_token(
    engine: Engine, actor: Actor, role: Role, label: str, expires: datetime | None
) -> NewToken:
    """Make a token for the person themselves.

    Raises ForbiddenError for a role beyond their own, and TokenError as ``tokens.create``.
    """
    require(actor.person, max(role, Role.VIEWER, key=list(Role).index), f"give the role {role}")
    made = tokens.create(engine, actor.person.name, role, label, expires)
    _record(engine, actor, Action.TOKEN_CREATE, made.token.id, label=made.token.label, role=role)
    return made


def list_visible_tokens(engine: Engine, person: Person) -> list[Token]:
    """A person's own tokens, an admin everybody's, the newest first."""
    require(person, Role.VIEWER, "see tokens")
    return tokens.listed(engine) if may(person, Role.ADMIN) else tokens.listed(engine, person.name)


def revoke_token(engine: Engine, actor: Actor, token_id: str) -> Token:
    """End a token; TokenError where the person has none with this id."""
    if token_id not in {token.id for token in list_visible_tokens(engine, actor.person)}:
        raise TokenError(f"There is no token {token_id[:40]!r} of yours.")
    token = tokens.revoke(engine, token_id)
    _record(engine, actor, Action.TOKEN_REVOKE, token_id, label=token.label, owner=token.owner)
    return token


def read_audit(
    engine: Engine, person: Person, wanted: AuditFilter, *, limit: int, offset: int = 0
) -> list[AuditEntry]:
    """Lines of the audit log, the newest first; ForbiddenError without the role admin."""
    require(person, Role.ADMIN, "read the audit log")
    return audit.recent(engine, wanted, limit=limit, offset=offset)


def count_audit(engine: Engine, person: Person, wanted: AuditFilter) -> int:
    """How many lines ``read_audit`` has to give; raises as it does."""
    require(person, Role.ADMIN, "read the audit log")
    return audit.count(engine, wanted)


def _prepared(actor: Actor, request: Request, visibility: Visibility) -> tuple[NewJob, Visibility]:
    """A job that the person may ask for, and the visibility of the analysis that it makes."""
    require(actor.person, Role.EDITOR, "start jobs")
    new, owner = request.new_job(), actor.person.name
    named = named_rows(actor.person, new.analyses)
    if new.kind not in _MAKE_FILES:
        visibility = strictest(visibility, named)
    if owner is not None and new.kind not in _ASKED:
        return new, Visibility.PRIVATE  # done once for all, and news for nobody else
    if (visibility is Visibility.PRIVATE or request.is_personal) and owner is not None:
        new = replace(new, stamp=f"{new.stamp} {owner}")  # another one must not join in
    return new, visibility


def _submit(engine: Engine, actor: Actor, new: NewJob, visibility: Visibility) -> Job:
    job = queue.submit(engine, new, actor.person.name, visibility, actor.person.role)
    if (action := _ASKED.get(new.kind)) is not None:
        made = {} if new.kind in _MAKE_FILES else {"visibility": visibility}
        _record(engine, actor, action, job.title, job=job.id, **made)
    return job


def _seen(person: Person, ids: Iterable[str]) -> tuple[str, ...]:
    rows = stored_rows(database())
    return tuple(name for name in ids if name in rows and may_see(person, rows[name]))


def _changeable(actor: Actor, analysis_id: str, action: str) -> AnalysisRow:
    """The row of an analysis that the person may change."""
    row = get_visible_analysis(actor.person, analysis_id)
    if not may_change(actor.person, row):
        raise ForbiddenError(
            f"Only who owns the analysis {analysis_id}, or an admin, may {action} it. "
            f"{_belongs_to(row.owner)}"
        )
    return row


def _changeable_job(engine: Engine, actor: Actor, job_id: str, action: str) -> Job:
    """A job that the person may change; else UnknownJobError or ForbiddenError."""
    job = get_visible_job(engine, actor.person, job_id)
    if not may_change(actor.person, job):
        raise ForbiddenError(
            f"Only who asked for the job {job_id}, or an admin, may {action} it. "
            f"{_belongs_to(job.owner)}"
        )
    return job


def _belongs_to(owner: str | None) -> str:
    return f"It belongs to {owner}." if owner else "It belongs to nobody: ask an admin."


def _record(engine: Engine, actor: Actor, action: Action, subject: str, **detail: object) -> None:
    audit.record(engine, actor.person, actor.via, action, subject, **detail)
