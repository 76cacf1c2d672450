"""Authorized operations: permissions, invisible resources, audit entries."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from jarvis.core.labels import RunLabels
from jarvis.core.workspace import exports_dir
from jarvis.hardware import load_hardware
from jarvis.server import actions, claims, queue, submission
from jarvis.server.access import audit, tokens
from jarvis.server.access.audit import Action, AuditFilter, Channel
from jarvis.server.access.rights import LOCAL, Role
from jarvis.server.actions import Actor
from jarvis.server.database import JobKind, JobState, Visibility, database
from jarvis.server.errors import (
    ForbiddenError,
    PrivateAnalysisError,
    SingleJobError,
    TokenError,
    UnknownAnalysisError,
    UnknownJobError,
)
from jarvis.server.jobs.kinds import Analyze, Compare, Export, Inspect, Replay, Reproject
from jarvis.server.queue import JobProgress, NewJob, Outcome
from jarvis.server.storage import artifacts
from jarvis.server.storage.analysis_rows import record, stored_for, stored_rows
from jarvis.server.storage.catalog import read_catalog
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.server.conftest import ADA, ANONYMOUS, BOB, ROOT, VIC, on_both_databases, set_owner


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a private and a shared analysis of Ada's; the shared one refers to it."""
    home = tmp_path_factory.mktemp("made")
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12.0)
    file = built.write(home / "trace.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        with stored_for(ADA.person.name, Visibility.PRIVATE):
            private = submit(Submission(file, model_name="private"))
        with stored_for(ADA.person.name):
            submit(Submission(file, model_name="shared", reference=private.id))
        database().dispose()  # else files beside the database disappear while it is copied
    return home


@pytest.fixture
def ids(made: Path, home: Path) -> dict[str, str]:
    shutil.copytree(made, home)
    return {str(e.manifest.model_name): e.id for e in read_catalog().entries}


Do = Callable[[Actor, str], Any]

LABELS = RunLabels.of("llm", tags=["nightly"])
TO_AN_ANALYSIS: dict[str, Do] = {
    "see": lambda actor, analysis: actions.get_visible_analysis(actor.person, analysis),
    "pin": lambda actor, analysis: actions.pin_analysis(actor, analysis, is_pinned=True),
    "unpin": lambda actor, analysis: actions.pin_analysis(actor, analysis, is_pinned=False),
    "label": lambda actor, analysis: actions.label_analysis(actor, analysis, LABELS),
    "share": lambda actor, analysis: actions.share_analysis(actor, analysis, Visibility.TEAM),
    "remove": lambda actor, analysis: actions.remove_analysis(actor, analysis),
    "save": lambda actor, analysis: actions.save_analysis(actor, analysis, Path("/dev/null")),
}
JOBS: dict[str, Callable[[str], Any]] = {
    "export": lambda analysis: Export(analysis, "json"),
    "replay": lambda analysis: Replay(analysis, uids=(1,)),
    "reproject": lambda analysis: Reproject(analysis, None, None),
    "compare": lambda analysis: Compare(analysis, analysis),
    "analyze": lambda analysis: Analyze(Submission(Path(__file__), reference=analysis)),
}


def _ask(name: str) -> Do:
    def ask(actor: Actor, analysis: str) -> Any:
        return actions.submit_job(database(), actor, JOBS[name](analysis))

    return ask


EVERYTHING = TO_AN_ANALYSIS | {name: _ask(name) for name in JOBS}


@pytest.mark.parametrize("action", EVERYTHING)
def test_a_private_analysis_is_for_others_the_same_as_none(
    ids: dict[str, str], action: str
) -> None:
    do = EVERYTHING[action]
    with pytest.raises(UnknownAnalysisError) as refusal:
        do(BOB, ids["private"])
    shutil.rmtree(stored_folder(ids["private"]))
    with pytest.raises(UnknownAnalysisError) as unknown:
        TO_AN_ANALYSIS["see"](BOB, ids["private"])
    assert str(refusal.value) == str(unknown.value)


def stored_folder(analysis: str) -> Path:
    return next(entry.root for entry in read_catalog().entries if entry.id == analysis)


@pytest.mark.parametrize("action", [name for name in EVERYTHING if name != "see"])
def test_a_viewer_only_looks(ids: dict[str, str], action: str) -> None:
    with pytest.raises(ForbiddenError):
        EVERYTHING[action](VIC, ids["shared"])


@pytest.mark.parametrize("action", EVERYTHING)
def test_an_anonymous_user_can_do_nothing(ids: dict[str, str], action: str) -> None:
    with pytest.raises((ForbiddenError, UnknownAnalysisError)):
        EVERYTHING[action](ANONYMOUS, ids["shared"])


@pytest.mark.parametrize("action", ["pin", "unpin", "label", "share", "remove"])
def test_an_editor_changes_only_their_own(ids: dict[str, str], action: str) -> None:
    with pytest.raises(ForbiddenError, match=r"belongs to ada"):
        EVERYTHING[action](BOB, ids["shared"])
    EVERYTHING[action](ADA, ids["shared"])


def test_an_admin_changes_what_is_anybodys(ids: dict[str, str], engine: Engine) -> None:
    assert actions.pin_analysis(ROOT, ids["private"], is_pinned=True)
    assert actions.pin_analysis(ROOT, ids["private"], is_pinned=False)
    actions.share_analysis(ROOT, ids["private"], Visibility.TEAM)
    assert stored_rows(engine)[ids["private"]].visibility is Visibility.TEAM
    assert actions.get_visible_analysis(BOB.person, ids["private"]).owner == ADA.person.name
    actions.remove_analysis(ROOT, ids["private"])
    assert [e.action for e in audit.recent(engine)] == [
        Action.REMOVE,
        Action.SET_VISIBILITY,
        Action.UNPIN,
        Action.PIN,
    ]


def test_changed_labels_are_in_the_audit_log_once(ids: dict[str, str], engine: Engine) -> None:
    assert actions.label_analysis(ADA, ids["shared"], LABELS)
    assert not actions.label_analysis(ADA, ids["shared"], LABELS)
    (entry,) = audit.recent(engine, audit.AuditFilter(action=audit.Action.LABEL))
    assert (entry.person, entry.subject) == (ADA.person.name, ids["shared"])
    assert entry.detail == {"project": "llm", "tags": ["nightly"]}


def test_what_refers_to_an_analysis_is_named_to_those_who_may_see_it(ids: dict[str, str]) -> None:
    actions.share_analysis(ADA, ids["private"], Visibility.TEAM)
    actions.share_analysis(ADA, ids["shared"], Visibility.PRIVATE)
    assert actions.referring_to(ADA.person, ids["private"]) == (ids["shared"],)
    assert actions.referring_to(BOB.person, ids["private"]) == ()


def test_a_job_about_a_private_analysis_is_private(ids: dict[str, str], engine: Engine) -> None:
    job = actions.submit_job(engine, ADA, Export(ids["private"], "json"))
    assert job.owner == ADA.person.name
    with pytest.raises(UnknownJobError):
        actions.get_visible_job(engine, BOB.person, job.id)
    for do in (actions.cancel_job, actions.retry_job):
        with pytest.raises(UnknownJobError):
            do(engine, BOB, job.id)
    assert actions.cancel_job(engine, ADA, job.id).state is JobState.CANCELLED
    assert actions.retry_job(engine, ROOT, job.id).state is JobState.QUEUED


@on_both_databases
def test_jobs_about_an_analysis_are_seen_by_who_sees_it(
    ids: dict[str, str], engine: Engine
) -> None:
    set_owner(ids["shared"], ADA.person.name)  # a new database does not know it
    job = actions.submit_job(engine, ADA, Export(ids["shared"], "json"))
    new = NewJob(JobKind.EXPORT, "Export another one", {"analysis": ids["shared"][:-1]})
    other = queue.submit(engine, new, BOB.person.name)
    actions.share_analysis(ADA, ids["shared"], Visibility.PRIVATE)
    with pytest.raises(UnknownJobError):
        actions.get_visible_job(engine, BOB.person, job.id)
    assert actions.get_visible_job(engine, VIC.person, other.id).id == other.id
    actions.share_analysis(ADA, ids["shared"], Visibility.TEAM)
    assert actions.get_visible_job(engine, BOB.person, job.id).id == job.id


def test_a_file_is_made_once_for_those_who_may_have_it(ids: dict[str, str], engine: Engine) -> None:
    request = Export(ids["private"], "json")
    job = actions.ask_for_file(engine, ADA, request)
    with pytest.raises(UnknownAnalysisError):
        actions.ask_for_file(engine, BOB, request)
    assert claims.claim(engine, "worker") is not None
    file = exports_dir() / job.id / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    made = Outcome(JobState.DONE, result={"file": f"{job.id}/run.json"}, analysis_id=ids["private"])
    claims.finish(engine, "worker", job.id, JobProgress(), made)
    assert actions.ask_for_file(engine, ADA, request).id == job.id
    actions.share_analysis(ADA, ids["private"], Visibility.TEAM)
    assert actions.get_visible_job(engine, BOB.person, job.id).result["file"]


def test_others_see_a_job_of_the_team_and_leave_it_alone(
    ids: dict[str, str], engine: Engine
) -> None:
    job = actions.submit_job(engine, ADA, Export(ids["shared"], "json"))
    assert actions.get_visible_job(engine, VIC.person, job.id).id == job.id
    for do in (actions.cancel_job, actions.retry_job):
        with pytest.raises(ForbiddenError, match="belongs to ada"):
            do(engine, BOB, job.id)
    assert queue.find(engine, job.id).state is JobState.QUEUED


def test_a_private_job_is_joined_by_its_owner_only(ids: dict[str, str], engine: Engine) -> None:
    request = Export(ids["shared"], "json")
    mine = actions.submit_job(engine, ADA, request, Visibility.PRIVATE)
    assert actions.submit_job(engine, ADA, request, Visibility.PRIVATE).id == mine.id
    assert actions.submit_job(engine, BOB, request).id != mine.id


def test_reading_a_trace_is_done_once_and_is_no_news(engine: Engine) -> None:
    inspect = Inspect(Path(__file__))
    first = actions.submit_job(engine, ADA, inspect)
    assert actions.submit_job(engine, BOB, inspect).id == first.id
    assert queue.recent(engine, person=BOB.person) == []
    assert audit.recent(engine) == []


def test_a_private_analysis_is_not_given_to_another_user(
    made: Path, ids: dict[str, str], engine: Engine
) -> None:
    asked = Submission(made / "trace.json", model_name="private")
    with (
        stored_for(BOB.person.name),
        pytest.raises(PrivateAnalysisError, match="private analysis of this trace"),
    ):
        submit(asked)
    with stored_for(ADA.person.name):
        assert submit(asked).is_reused
    row = stored_rows(engine)[ids["private"]]
    assert (row.owner, row.visibility) == (ADA.person.name, Visibility.PRIVATE)


@on_both_databases
def test_a_private_analysis_is_private_from_its_first_moment(
    made: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str | None, Visibility]] = []

    def look_and_record(*arguments: Any) -> None:
        seen.extend((row.owner, row.visibility) for row in stored_rows(engine).values())
        record(*arguments)

    monkeypatch.setattr(artifacts, "record", look_and_record)
    with stored_for(ADA.person.name, Visibility.PRIVATE):
        stored = submit(Submission(made / "trace.json", model_name="just made"))
    assert seen == [(ADA.person.name, Visibility.PRIVATE)]
    assert stored_rows(engine)[stored.id].visibility is Visibility.PRIVATE


def test_a_failed_analysis_belongs_to_no_user(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = trace().op("aten::mm", [[8, 8], [8, 8]]).launches("k", us=1.0).write(tmp_path / "t.json")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(submission, "analyze", fail)
        with stored_for(ADA.person.name, Visibility.PRIVATE), pytest.raises(OSError, match="space"):
            submit(Submission(file))
    with stored_for(BOB.person.name):
        stored = submit(Submission(file))
    row = stored_rows(engine)[stored.id]
    assert (row.owner, row.visibility) == (BOB.person.name, Visibility.TEAM)


def test_an_archive_is_loaded_for_who_loads_it(
    ids: dict[str, str], engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "saved.jarvis.zip"
    actions.save_analysis(ADA, ids["shared"], file)
    actions.remove_analysis(ADA, ids["shared"])
    with pytest.raises(ForbiddenError, match="editor"):
        actions.load_analysis(VIC, file)
    loaded = actions.load_analysis(BOB, file)
    assert loaded.analysis_id is not None
    row = stored_rows(engine)[loaded.analysis_id]
    assert (row.owner, row.loaded_by) == (BOB.person.name, BOB.person.name)
    assert actions.load_analysis(ADA, file).result["is_reused"]
    assert stored_rows(engine)[loaded.analysis_id].loaded_by == BOB.person.name
    actions.share_analysis(BOB, loaded.analysis_id, Visibility.PRIVATE)
    with pytest.raises(SingleJobError, match="private analysis of this trace"):
        actions.load_analysis(ADA, file)
    lines = [(e.person, e.via, e.action) for e in audit.recent(engine)]
    assert (BOB.person.name, Channel.API, Action.ARCHIVE_LOAD) in lines
    assert lines[-1] == (ADA.person.name, Channel.PAGE, Action.ARCHIVE_SAVE)


def test_only_editors_describe_gpus(engine: Engine) -> None:
    spec = load_hardware().get("MI300X", None).model_copy(update={"preset": "ours"})
    with pytest.raises(ForbiddenError):
        actions.store_hardware(VIC, spec)
    assert actions.store_hardware(ADA, spec).is_file()
    with pytest.raises(ForbiddenError):
        actions.remove_hardware(VIC, spec)
    actions.remove_hardware(ADA, spec)
    assert [e.action for e in audit.recent(engine)] == [
        Action.HARDWARE_REMOVE,
        Action.HARDWARE_KEEP,
    ]


def test_a_token_gives_no_more_than_its_maker_has(engine: Engine) -> None:
    with pytest.raises(ForbiddenError):
        actions.create_token(engine, VIC, Role.EDITOR, "x", None)
    with pytest.raises(ForbiddenError):
        actions.create_token(engine, ANONYMOUS, Role.VIEWER, "x", None)
    with pytest.raises(TokenError, match="needs a role"):
        actions.create_token(engine, VIC, Role.NONE, "x", None)
    made = actions.create_token(engine, VIC, Role.VIEWER, "x", None)
    assert tokens.person_of(engine, made.text) == VIC.person
    assert made.text not in str(audit.recent(engine))


def test_tokens_are_ended_by_their_owner_or_an_admin(engine: Engine) -> None:
    made = [actions.create_token(engine, ADA, Role.VIEWER, name, None).token for name in "ab"]
    assert actions.list_visible_tokens(engine, BOB.person) == []
    with pytest.raises(TokenError, match="no token"):
        actions.revoke_token(engine, BOB, made[0].id)
    assert actions.revoke_token(engine, ADA, made[0].id).revoked is not None
    assert actions.revoke_token(engine, ROOT, made[1].id).revoked is not None
    lines = audit.recent(engine, AuditFilter(action=Action.TOKEN_REVOKE))
    assert [line.person for line in lines] == [ROOT.person.name, ADA.person.name]


def test_the_audit_log_is_for_admins(engine: Engine) -> None:
    actions.create_token(engine, ADA, Role.VIEWER, "x", None)
    for actor in (ADA, VIC, ANONYMOUS):
        with pytest.raises(ForbiddenError, match="audit log"):
            actions.read_audit(engine, actor.person, AuditFilter(), limit=10)
        with pytest.raises(ForbiddenError, match="audit log"):
            actions.count_audit(engine, actor.person, AuditFilter())
    for person in (ROOT.person, LOCAL):
        lines = actions.read_audit(engine, person, AuditFilter(), limit=10)
        assert len(lines) == actions.count_audit(engine, person, AuditFilter()) == 1
