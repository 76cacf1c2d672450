"""Authorized operations: each checks permissions, acts, and writes an audit entry.

Pages, the API and commands call these functions. Invisible resources are reported as not found.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from jarvis.core.labels import RunLabels
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.pipeline.distributed import MIN_RANKS, NO_RANK_OPTIONS, RankOptions
from jarvis.ranks.inputs import max_ranks
from jarvis.run import read_manifest
from jarvis.server import queue
from jarvis.server.access import audit, tokens
from jarvis.server.access.audit import Action, AuditEntry, AuditFilter, Channel
from jarvis.server.access.rights import LOCAL, Person, Role, may, may_change, may_see, require
from jarvis.server.access.tokens import NewToken, Token
from jarvis.server.database import JobKind, JobState, Visibility, database
from jarvis.server.errors import ForbiddenError, RankCountError, TokenError
from jarvis.server.jobs.kinds import (
    Analyze,
    FileRequest,
    JobOutput,
    Join,
    JoinMember,
    Request,
    earlier_job,
    request_of,
)
from jarvis.server.jobs.kinds.analyses import Load
from jarvis.server.jobs.kinds.fetches import Fetch, trace_names
from jarvis.server.jobs.kinds.ranks import RanksWhatIf, unique_names
from jarvis.server.jobs.processes.job_child import run_single_job
from jarvis.server.queue import Job, NewJob
from jarvis.server.retention import removal
from jarvis.server.retention.removal import Removed
from jarvis.server.storage import custom_hardware
from jarvis.server.storage.analysis_rows import AnalysisRow, set_labels, stored_rows
from jarvis.server.storage.archive import save_archive
from jarvis.server.storage.catalog import (
    analysis_root,
    named_rows,
    read_catalog,
    seen_row,
    set_pinned,
    set_visibility,
    strictest,
)

_AUDIT_ACTIONS: dict[JobKind, Action] = {
    JobKind.ANALYZE: Action.ANALYZE,
    JobKind.REMOTE: Action.ANALYZE,
    JobKind.FETCH: Action.UPLOAD,
    JobKind.REPROJECT: Action.REPROJECT,
    JobKind.COMPARE: Action.COMPARE,
    JobKind.EXPORT: Action.EXPORT,
    JobKind.REPLAY: Action.REPLAY,
    JobKind.LOAD: Action.ARCHIVE_LOAD,
    JobKind.JOIN: Action.ANALYZE,
    JobKind.RANKS_EXPORT: Action.EXPORT,
}
"""Audited action of each job kind; reading a trace and simulating ranks are not audited."""

_FILE_JOBS = (JobKind.COMPARE, JobKind.EXPORT, JobKind.REPLAY, JobKind.RANKS_EXPORT)
"""Jobs that create a file instead of an analysis, with the visibility of the analyses they read."""


@dataclass(frozen=True, slots=True)
class Actor:
    """A person and the channel through which they act."""

    person: Person
    via: Channel


OPERATOR = Actor(LOCAL, Channel.COMMAND)
"""The user of the server's command line."""


def get_visible_analysis(person: Person, analysis_id: str) -> AnalysisRow:
    """Return the row of an analysis; raise UnknownAnalysisError if the person sees none."""
    return seen_row(person, analysis_id)


def visible_run_dir(person: Person, analysis_id: str) -> Path:
    """Return the folder of an analysis; raises as ``get_visible_analysis``."""
    if not may(person, Role.ADMIN):  # admins see all, which saves a query
        get_visible_analysis(person, analysis_id)
    return analysis_root(analysis_id)


def get_visible_job(engine: Engine, person: Person, job_id: str) -> Job:
    """Return a job; raise UnknownJobError if the person sees none with this id."""
    return queue.find(engine, job_id, person)


def submit_job(
    engine: Engine, actor: Actor, request: Request, visibility: Visibility = Visibility.TEAM
) -> Job:
    """Queue a job, or return the queued or running job of an equal request.

    The visibility of a new analysis is the strictest of ``visibility`` and that of each analysis
    that the job reads.

    Raises:
        ForbiddenError: the person is not an editor.
        UnknownAnalysisError: the job reads an analysis that the person cannot see.
        JarvisError: as ``Request.new_job`` raises.
    """
    return _submit(engine, actor, *_authorized_job(actor, request, visibility))


def submit_ranks(
    engine: Engine,
    actor: Actor,
    traces: Sequence[Analyze | Fetch],
    analyses: Sequence[str] = (),
    options: RankOptions = NO_RANK_OPTIONS,
    visibility: Visibility = Visibility.TEAM,
) -> Job:
    """Queue a job for each trace, and one that joins them and stored analyses as ranks.

    Raises:
        RankCountError: there are fewer than two, or more than a distributed run may have.
        JarvisError: as ``submit_job`` raises; then nothing is queued.
    """
    if not MIN_RANKS <= len(traces) + len(analyses) <= max_ranks():
        raise RankCountError(MIN_RANKS, max_ranks())
    roots = (visible_run_dir(actor.person, each) for each in analyses)
    stored = [read_manifest(root).trace.file_name for root in roots]
    names = unique_names([*trace_names(traces), *stored])
    authorized = [_authorized_job(actor, each, visibility) for each in traces]
    jobs = [_submit(engine, actor, replace(new, is_member=True), seen) for new, seen in authorized]
    sources = [*({"job": job.id} for job in jobs), *({"analysis": each} for each in analyses)]
    members = (JoinMember(name, **source) for name, source in zip(names, sources, strict=True))
    return submit_job(engine, actor, Join(tuple(members), options), visibility)


def ask_for_file(engine: Engine, actor: Actor, request: FileRequest) -> Job:
    """Return the earlier job that created this file, if the file still exists, else a new job.

    Raises as ``submit_job`` does.
    """
    new, visibility = _authorized_job(actor, request, Visibility.TEAM)
    earlier = earlier_job(engine, new, actor.person)
    return _submit(engine, actor, new, visibility) if earlier is None else earlier


def ask_what_if(engine: Engine, actor: Actor, request: RanksWhatIf) -> Job:
    """Return the earlier job that answered this for the same distributed run, else a new one.

    Raises as ``submit_job`` does.
    """
    new, visibility = _authorized_job(actor, request, Visibility.PRIVATE)
    earlier = queue.latest(engine, new, actor.person)
    if earlier is not None and earlier.state is JobState.DONE:
        return earlier
    return _submit(engine, actor, new, visibility)


def cancel_job(engine: Engine, actor: Actor, job_id: str) -> Job:
    """Cancel a job; raise UnknownJobError, or ForbiddenError if the person may not change it."""
    job = queue.cancel(engine, _changeable_job(engine, actor, job_id, "cancel").id)
    record(engine, actor, Action.CANCEL, job.title, job=job.id)
    return job


def retry_job(engine: Engine, actor: Actor, job_id: str) -> Job:
    """Queue a failed or cancelled job again.

    Raises as ``cancel_job``, and OutdatedJobError, and UnknownAnalysisError if the job reads an
    analysis that the person can no longer see.
    """
    old = _changeable_job(engine, actor, job_id, "retry")
    request = request_of(old.kind, old.parameters)
    named_rows(actor.person, request.analyses)
    if isinstance(request, Join):
        for member in queue.retryable_members(engine, old):
            queue.retry(engine, member)
    job = queue.retry(engine, old.id)
    record(engine, actor, Action.RETRY, job.title, job=job.id)
    _join_again(engine, actor, old, job.id)
    return job


def _join_again(engine: Engine, actor: Actor, retried: Job, job_id: str) -> None:
    """Queue the join of the ranks that a retried job is one of, unless it still waits for it.

    Args:
        job_id: the job that is queued for it, which may be an equal one.
    """
    old = queue.latest_waiting_for(engine, retried.id)
    if old is None or old.state in (JobState.QUEUED, JobState.CANCELLED):
        return
    request = request_of(old.kind, old.parameters)
    if isinstance(request, Join) and may_change(actor.person, old):
        members = tuple(
            replace(each, job=job_id) if each.job == retried.id else each
            for each in request.members
        )
        again = replace(request, members=members, retried=f"{retried.id} {retried.attempts}")
        submit_job(engine, actor, again, old.visibility)


def remove_analysis(actor: Actor, analysis_id: str) -> Removed:
    """Delete an analysis; raises as ``pin_analysis``, and as ``check_removable``.

    ``referred_to_by`` of the result contains only analyses that the person can see.
    """
    changeable_analysis(actor, analysis_id, "remove")
    removed = removal.remove_analysis(analysis_id)
    record(database(), actor, Action.REMOVE, analysis_id, bytes=removed.size_bytes)
    return replace(removed, referred_to_by=_visible_ids(actor.person, removed.referred_to_by))


def referring_to(person: Person, analysis_id: str) -> tuple[str, ...]:
    """Return the visible analyses that use this one as their reference."""
    return _visible_ids(person, removal.referring_to(analysis_id))


def pin_analysis(actor: Actor, analysis_id: str, *, is_pinned: bool) -> bool:
    """Pin or unpin an analysis, and the ranks of a distributed run (``_with_ranks``).

    Returns whether that changed anything.

    Raises:
        UnknownAnalysisError: the person cannot see such an analysis.
        ForbiddenError: the person may not change it.
    """
    changeable_analysis(actor, analysis_id, "pin" if is_pinned else "unpin")
    found = _with_ranks(actor, analysis_id)
    changed = [each for each in found if set_pinned(each, is_pinned=is_pinned)]
    for each in changed:
        record(database(), actor, Action.PIN if is_pinned else Action.UNPIN, each)
    return bool(changed)


def share_analysis(actor: Actor, analysis_id: str, visibility: Visibility) -> None:
    """Set the visibility of an analysis, and of the ranks of a distributed run (``_with_ranks``);
    raises as ``pin_analysis``."""
    changeable_analysis(actor, analysis_id, "share")
    rows = stored_rows(database())
    for each in _with_ranks(actor, analysis_id):
        if rows[each].visibility is not visibility:
            set_visibility(each, visibility)
            record(database(), actor, Action.SET_VISIBILITY, each, visibility=visibility)


def _with_ranks(actor: Actor, analysis_id: str) -> list[str]:
    """Return an analysis, and the ranks of a distributed run that the person may change."""
    rows = stored_rows(database())
    runs = (each for each in read_catalog().distributed if each.id == analysis_id)
    ranks = (str(rank.analysis_id) for run in runs for rank in run.manifest.usable)
    own = (each for each in ranks if each in rows and may_change(actor.person, rows[each]))
    return [analysis_id, *own]


def label_analysis(actor: Actor, analysis_id: str, labels: RunLabels) -> bool:
    """Replace the labels of an analysis; return whether that changed any. Raises as
    ``pin_analysis``."""
    row = changeable_analysis(actor, analysis_id, "label")
    has_changed = row.labels != labels
    if has_changed:
        set_labels(database(), analysis_id, labels)
        record(database(), actor, Action.LABEL, analysis_id, **labels.chosen())
    return has_changed


def save_analysis(actor: Actor, analysis_id: str, out: Path) -> None:
    """Write an analysis as an archive file.

    Raises as ``save_archive``, and ForbiddenError if the person is not an editor.
    """
    require(actor.person, Role.EDITOR, "save analyses as files")
    save_archive(visible_run_dir(actor.person, analysis_id), out)
    record(database(), actor, Action.ARCHIVE_SAVE, analysis_id)


def load_analysis(actor: Actor, path: Path) -> JobOutput:
    """Import the analysis of an archive and wait for it; pages queue a ``Load`` job instead.

    Raises as ``run_single_job``, and ForbiddenError if the person is not an editor.
    """
    require(actor.person, Role.EDITOR, "load analyses")
    made = run_single_job(Load(path.absolute()), actor.person.name)
    is_reused = made.result["is_reused"]
    record(database(), actor, Action.ARCHIVE_LOAD, made.analysis_id or "", is_reused=is_reused)
    return made


def store_hardware(actor: Actor, spec: HardwareSpec) -> Path:
    """Store a GPU description for all users.

    Raises as ``custom_hardware.store_hardware``, and ForbiddenError if the person is not an editor.
    """
    require(actor.person, Role.EDITOR, "describe GPUs")
    path = custom_hardware.store_hardware(spec, actor.person.name)
    record(database(), actor, Action.HARDWARE_KEEP, spec.title)
    return path


def not_yours(person: Person, spec: HardwareSpec, owners: Mapping[str, str]) -> str | None:
    """Return why a person may not delete a GPU description; None if they may.

    Args:
        owners: owner of each file, as ``custom_hardware.hardware_owners`` returns.
    """
    file = load_hardware().custom_file(spec)
    if file is None:  # a built-in description: deleting it fails elsewhere
        return None
    owner = owners.get(file.name)
    if may(person, Role.ADMIN) or (owner is not None and owner == person.name):
        return None
    return f"Only the owner of {spec.title} or an admin may delete it. {belongs_to(owner)}"


def remove_hardware(actor: Actor, spec: HardwareSpec) -> None:
    """Delete a GPU description.

    Raises as ``store_hardware``, and ForbiddenError if it belongs to another person.
    """
    require(actor.person, Role.EDITOR, "delete descriptions of GPUs")
    if (reason := not_yours(actor.person, spec, custom_hardware.hardware_owners())) is not None:
        raise ForbiddenError(reason)
    custom_hardware.remove_hardware(spec)
    record(database(), actor, Action.HARDWARE_REMOVE, spec.title)


def create_token(
    engine: Engine, actor: Actor, role: Role, label: str, expires: datetime | None
) -> NewToken:
    """Create a token for the acting person.

    Raises:
        ForbiddenError: ``role`` exceeds the person's own.
        TokenError: as ``tokens.create`` raises.
    """
    require(actor.person, max(role, Role.VIEWER, key=list(Role).index), f"give the role {role}")
    new = tokens.create(engine, actor.person.name, role, label, expires)
    record(engine, actor, Action.TOKEN_CREATE, new.token.id, label=new.token.label, role=role)
    return new


def list_visible_tokens(engine: Engine, person: Person) -> list[Token]:
    """Return a person's own tokens, or all tokens for an admin, newest first."""
    require(person, Role.VIEWER, "see tokens")
    return tokens.listed(engine) if may(person, Role.ADMIN) else tokens.listed(engine, person.name)


def revoke_token(engine: Engine, actor: Actor, token_id: str) -> Token:
    """Revoke a token; raise TokenError if the person has none with this id."""
    if token_id not in {token.id for token in list_visible_tokens(engine, actor.person)}:
        raise TokenError(f"You have no token {token_id[:40]!r}.")
    token = tokens.revoke(engine, token_id)
    record(engine, actor, Action.TOKEN_REVOKE, token_id, label=token.label, owner=token.owner)
    return token


def read_audit(
    engine: Engine, person: Person, wanted: AuditFilter, *, limit: int, offset: int = 0
) -> list[AuditEntry]:
    """Return entries of the audit log, newest first; raise ForbiddenError except for admins."""
    require(person, Role.ADMIN, "read the audit log")
    return audit.recent(engine, wanted, limit=limit, offset=offset)


def count_audit(engine: Engine, person: Person, wanted: AuditFilter) -> int:
    """Return the number of entries that match a filter; raises as ``read_audit``."""
    require(person, Role.ADMIN, "read the audit log")
    return audit.count(engine, wanted)


def _authorized_job(
    actor: Actor, request: Request, visibility: Visibility
) -> tuple[NewJob, Visibility]:
    """Return the job of a request that the person may make, and the visibility of its result."""
    require(actor.person, Role.EDITOR, "start jobs")
    new, owner = request.new_job(), actor.person.name
    rows = named_rows(actor.person, new.analyses)
    if new.kind not in _FILE_JOBS:
        visibility = strictest(visibility, rows)
    if owner is not None and new.kind not in _AUDIT_ACTIONS and not request.is_personal:
        return new, Visibility.PRIVATE  # shared by all requesters, listed for none of the others
    if (visibility is Visibility.PRIVATE or request.is_personal) and owner is not None:
        new = replace(new, stamp=f"{new.stamp} {owner}")  # do not share it with other persons
    return new, visibility


def _submit(engine: Engine, actor: Actor, new: NewJob, visibility: Visibility) -> Job:
    job = queue.submit(engine, new, actor.person.name, visibility, actor.person.role)
    if (action := _AUDIT_ACTIONS.get(new.kind)) is not None:
        detail: dict[str, object] = {}
        if new.kind not in _FILE_JOBS:
            labels = new.parameters.get("labels") or {}
            detail = {"visibility": visibility} | {k: v for k, v in labels.items() if v}
        record(engine, actor, action, job.title, job=job.id, **detail)
    return job


def _visible_ids(person: Person, ids: Iterable[str]) -> tuple[str, ...]:
    rows = stored_rows(database())
    return tuple(name for name in ids if name in rows and may_see(person, rows[name]))


def changeable_analysis(actor: Actor, analysis_id: str, action: str) -> AnalysisRow:
    """Return the row of an analysis that the person may change."""
    row = get_visible_analysis(actor.person, analysis_id)
    if not may_change(actor.person, row):
        raise ForbiddenError(
            f"Only the owner of analysis {analysis_id} or an admin may {action} it. "
            f"{belongs_to(row.owner)}"
        )
    return row


def _changeable_job(engine: Engine, actor: Actor, job_id: str, action: str) -> Job:
    """Return a job that the person may change; raise UnknownJobError or ForbiddenError."""
    job = get_visible_job(engine, actor.person, job_id)
    if not may_change(actor.person, job):
        raise ForbiddenError(
            f"Only the owner of job {job_id} or an admin may {action} it. {belongs_to(job.owner)}"
        )
    return job


def belongs_to(owner: str | None) -> str:
    """Return a sentence that says whose something is."""
    return f"It belongs to {owner}." if owner else "It has no owner: ask an admin."


def record(engine: Engine, actor: Actor, action: Action, subject: str, **detail: object) -> None:
    """Write an audit entry of what a person did."""
    audit.record(engine, actor.person, actor.via, action, subject, **detail)
