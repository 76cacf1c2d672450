"""Who sees a job: computed from the analyses that it names, at each request."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select
from starlette.testclient import TestClient

from jarvis.core.request import AnalysisOptions
from jarvis.core.workspace import exports_dir
from jarvis.server import actions, claims, migrations, queue
from jarvis.server.access.rights import Role
from jarvis.server.actions import Actor
from jarvis.server.database import (
    JOB_ANALYSES,
    JOBS,
    JobKind,
    JobState,
    Visibility,
    database,
    reading,
    utc_now,
    writing,
)
from jarvis.server.errors import UnknownAnalysisError, UnknownJobError
from jarvis.server.jobs.kinds import Analyze, Compare, Export, Replay, Reproject, Request
from jarvis.server.jobs.kinds.fetches import Fetch
from jarvis.server.jobs.processes.job_child import assignment_of
from jarvis.server.jobs.processes.job_messages import FailedMessage, OutputMessage
from jarvis.server.jobs.processes.job_process import outcome_of
from jarvis.server.queue import Job, JobProgress, NewJob, Outcome
from jarvis.server.storage.analysis_rows import stored_rows
from jarvis.server.storage.catalog import analysis_root, read_catalog, set_visibility
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.server.api.conftest import bearer
from tests.server.conftest import ADA, BOB, ROOT, VIC, on_both_databases, set_owner

OWNERS = {"secret": "ada", "shared": "ada", "bobs": "bob"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with three analyses of one trace."""
    home = tmp_path_factory.mktemp("made")
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12.0)
    file = built.write(home / "trace.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        for name in OWNERS:
            submit(Submission(file, model_name=name))
        database().dispose()
    (home / "jarvis.db").unlink()
    return home


@pytest.fixture
def ids(made: Path, engine: Engine, home: Path) -> dict[str, str]:
    """Ada's analyses, of which ``secret`` is private, and one of Bob."""
    shutil.copytree(made / "analyses", home / "analyses")
    found = {str(e.manifest.model_name): e.id for e in read_catalog().entries}
    for name, owner in OWNERS.items():
        set_owner(found[name], owner)
    set_visibility(found["secret"], Visibility.PRIVATE)
    return found


def sees(engine: Engine, actor: Actor, job: Job) -> bool:
    """Whether a user sees a job; by its id, in the list, in the counts and among the owners."""
    person = actor.person
    listed = [found.id for found in queue.recent(engine, person=person, owner=job.owner)]
    counted = sum(queue.counts(engine, person, owner=job.owner).values())
    assert counted == len(listed)
    assert (job.owner in queue.owners(engine, person)) == bool(listed)
    try:
        actions.get_visible_job(engine, person, job.id)
    except UnknownJobError:
        assert job.id not in listed
        return False
    assert job.id in listed
    return True


def done(engine: Engine, job: Job, analysis_id: str) -> Job:
    """Have a job make a file, or an analysis."""
    while (taken := claims.claim(engine, "w")) is not None and taken.id != job.id:
        pass
    file = exports_dir() / job.id / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    made = Outcome(JobState.DONE, result={"file": f"{job.id}/run.json"}, analysis_id=analysis_id)
    claims.finish(engine, "w", job.id, JobProgress(), made)
    return queue.find(engine, job.id)


NAMING: dict[str, Callable[[str], Request]] = {
    "export": lambda analysis: Export(analysis, "json"),
    "replay": lambda analysis: Replay(analysis, uids=(1,)),
    "reproject": lambda analysis: Reproject(analysis, None, None),
    "compare": lambda analysis: Compare(analysis, analysis),
    "analyze": lambda analysis: Analyze(Submission(Path(__file__), reference=analysis)),
    "fetch": lambda analysis: Fetch("https://host/t.json", AnalysisOptions(reference=analysis)),
}


@on_both_databases
def test_sharing_one_analysis_does_not_publish_a_job_that_names_a_private_one_too(
    ids: dict[str, str], engine: Engine
) -> None:
    job = actions.submit_job(engine, ADA, Compare(ids["bobs"], ids["secret"]))
    job = done(engine, job, ids["bobs"])
    for visibility in (Visibility.PRIVATE, Visibility.TEAM):
        actions.share_analysis(BOB, ids["bobs"], visibility)
        assert not sees(engine, BOB, job)
        assert not sees(engine, VIC, job)
    assert sees(engine, ADA, job)
    assert sees(engine, ROOT, job)
    actions.share_analysis(ADA, ids["secret"], Visibility.TEAM)
    assert sees(engine, VIC, job)


@pytest.mark.parametrize("kind", NAMING)
def test_a_job_of_each_kind_is_as_private_as_what_it_names(
    ids: dict[str, str], engine: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_INGEST_HOSTS", "host")
    job = actions.submit_job(engine, BOB, NAMING[kind](ids["shared"]))
    assert sees(engine, VIC, job)
    actions.share_analysis(ADA, ids["shared"], Visibility.PRIVATE)
    assert not sees(engine, VIC, job)
    assert not sees(engine, BOB, job), "its own owner may not see the analysis either"
    actions.share_analysis(ADA, ids["shared"], Visibility.TEAM)
    assert sees(engine, BOB, job)


@on_both_databases
@pytest.mark.parametrize("kind", [JobKind.ANALYZE, JobKind.REMOTE, JobKind.FETCH])
def test_a_job_is_as_private_as_the_analysis_that_it_makes(
    ids: dict[str, str], engine: Engine, kind: JobKind
) -> None:
    """What was requested as private is so before there is an analysis, too."""
    job = queue.submit(engine, NewJob(kind, "Analyze secret.json", {}), "ada", Visibility.PRIVATE)
    assert not sees(engine, VIC, job)
    assert sees(engine, ADA, job)
    job = done(engine, job, ids["secret"])
    assert not sees(engine, VIC, job)
    actions.share_analysis(ADA, ids["secret"], Visibility.TEAM)
    assert sees(engine, VIC, job)


@on_both_databases
@pytest.mark.parametrize("is_made_again", [False, True])
def test_deleting_a_private_analysis_publishes_no_job(
    ids: dict[str, str], engine: Engine, is_made_again: bool
) -> None:
    before = actions.submit_job(engine, BOB, Export(ids["shared"], "json"))
    job = actions.submit_job(engine, ADA, Export(ids["secret"], "json"))
    job, before = done(engine, job, ids["secret"]), done(engine, before, ids["shared"])
    actions.share_analysis(ADA, ids["shared"], Visibility.PRIVATE)
    secret = analysis_root(ids["secret"])
    copy = shutil.copytree(secret, secret.parent / ".copy")
    for name in ("secret", "shared"):
        actions.remove_analysis(ADA, ids[name])
    if is_made_again:
        copy.rename(secret)
        assert stored_rows(engine)[ids["secret"]].visibility is Visibility.TEAM
    for other in (BOB, VIC):
        assert not sees(engine, other, job)
        assert not sees(engine, other, before)
    assert sees(engine, ADA, job)
    assert sees(engine, ROOT, before)


def test_only_admins_see_jobs_about_an_unknown_analysis(engine: Engine) -> None:
    new = NewJob(JobKind.EXPORT, "Export", {}, analyses=("never",))
    job = queue.submit(engine, new, "ada")
    assert not sees(engine, ADA, job)
    assert sees(engine, ROOT, job)


@on_both_databases
def test_pages_of_the_list_match_the_count(ids: dict[str, str], engine: Engine) -> None:
    for number in range(12):
        named = ids["secret" if number % 3 == 0 else "bobs"]
        new = NewJob(JobKind.EXPORT, f"Export {number}", {"n": number}, analyses=(named,))
        queue.submit(engine, new, "ada")
    pages = [queue.recent(engine, person=VIC.person, limit=3, offset=n) for n in range(0, 12, 3)]
    listed = [job.id for page in pages for job in page]
    assert len(listed) == len(set(listed)) == 8
    assert queue.counts(engine, VIC.person) == {JobState.QUEUED: 8}
    assert queue.counts(engine, ADA.person) == {JobState.QUEUED: 12}


def test_a_download_checks_the_current_visibility(
    ids: dict[str, str], engine: Engine, client: TestClient, asked_who: None
) -> None:
    asked = actions.submit_job(engine, BOB, Export(ids["shared"], "json"))
    job = done(engine, asked, ids["shared"])
    viewer, editor = bearer("vic", Role.VIEWER), bearer("bob", Role.EDITOR)
    file = f"/api/jobs/{job.id}/file"
    assert client.get(file, headers=viewer).status_code == 200
    actions.share_analysis(ADA, ids["shared"], Visibility.PRIVATE)
    for headers in (viewer, editor):
        assert client.get(file, headers=headers).status_code == 404
        assert client.get(f"/api/jobs/{job.id}", headers=headers).status_code == 404
        assert client.post(f"/api/jobs/{job.id}/retry", headers=headers).status_code in (403, 404)
    assert client.get(file, headers=bearer("ada", Role.EDITOR)).status_code == 200


def test_an_existing_file_is_not_reused_for_users_who_may_not_see_it(
    ids: dict[str, str], engine: Engine
) -> None:
    asked = actions.submit_job(engine, ADA, Export(ids["secret"], "json"))
    job = done(engine, asked, ids["secret"])
    root = analysis_root(ids["secret"])
    copy = shutil.copytree(root, root.parent / ".copy")
    actions.remove_analysis(ADA, ids["secret"])
    copy.rename(root)  # the same analysis, loaded by another user for the team
    assert actions.ask_for_file(engine, ADA, Export(ids["secret"], "json")).id == job.id
    assert actions.ask_for_file(engine, BOB, Export(ids["secret"], "json")).id != job.id


def test_a_job_cannot_be_retried_about_an_analysis_that_has_become_private(
    ids: dict[str, str], engine: Engine
) -> None:
    job = actions.submit_job(engine, BOB, Export(ids["shared"], "json"))
    actions.cancel_job(engine, BOB, job.id)
    actions.share_analysis(ADA, ids["shared"], Visibility.PRIVATE)
    with pytest.raises(UnknownJobError):
        actions.retry_job(engine, BOB, job.id)
    actions.share_analysis(ADA, ids["shared"], Visibility.TEAM)
    assert actions.retry_job(engine, BOB, job.id).state is JobState.QUEUED


def test_a_job_cannot_be_retried_about_an_analysis_that_was_removed(
    ids: dict[str, str], engine: Engine
) -> None:
    job = actions.submit_job(engine, BOB, Export(ids["shared"], "json"))
    actions.cancel_job(engine, BOB, job.id)
    actions.remove_analysis(ADA, ids["shared"])
    with pytest.raises(UnknownAnalysisError):
        actions.retry_job(engine, BOB, job.id)


@pytest.mark.parametrize("kind", ["export", "replay", "reproject", "compare"])
def test_rights_are_checked_again_when_a_job_starts(
    ids: dict[str, str], engine: Engine, kind: str
) -> None:
    """Also where an admin has it retried: it is done with the rights of its owner."""
    job = actions.submit_job(engine, BOB, NAMING[kind](ids["shared"]))
    actions.share_analysis(ADA, ids["shared"], Visibility.PRIVATE)
    outcome = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(outcome, FailedMessage)
    assert "There is no analysis" in outcome.error
    assert not exports_dir().exists()


@pytest.mark.parametrize("actor", [ADA, ROOT], ids=["owner", "admin"])
def test_users_who_may_see_a_private_analysis_see_its_jobs(
    ids: dict[str, str], engine: Engine, actor: Actor
) -> None:
    job = actions.submit_job(engine, actor, Export(ids["secret"], "json"))
    outcome = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(outcome, OutputMessage), outcome


def test_with_access_off_every_job_is_visible(ids: dict[str, str], engine: Engine) -> None:
    job = actions.submit_job(engine, actions.OPERATOR, Export(ids["secret"], "json"))
    assert isinstance(outcome_of(assignment_of(job), lambda _: None), OutputMessage)


def test_a_result_with_a_reference_that_became_private_is_private(
    made: Path, ids: dict[str, str], engine: Engine
) -> None:
    asked = Submission(made / "trace.json", model_name="new", reference=ids["shared"])
    job = actions.submit_job(engine, ADA, Analyze(asked))
    actions.share_analysis(ADA, ids["shared"], Visibility.PRIVATE)
    outcome = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(outcome, OutputMessage), outcome
    row = stored_rows(engine)[str(outcome.analysis_id)]
    assert (row.owner, row.visibility) == ("ada", Visibility.PRIVATE)


@on_both_databases
def test_jobs_of_the_previous_release_name_their_analyses(
    home: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(engine) as connection:
        of_reports = ("reports", "report_fields", "report_comments")
        for table in ("job_analyses", "hardware_owners", *of_reports, "job_waits"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
        for column in ("role", "is_member"):
            connection.exec_driver_sql(f"ALTER TABLE jobs DROP COLUMN {column}")
        for column in ("loaded_by", "project", "branch", "commit_id", "tags"):
            connection.exec_driver_sql(f"ALTER TABLE analyses DROP COLUMN {column}")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0002'")
        kept = "('kept', '', 'ada', 'private', 0, {false}, 'v', 1, NULL, '')"
        false = "0" if connection.dialect.name == "sqlite" else "FALSE"
        connection.exec_driver_sql(f"INSERT INTO analyses VALUES {kept.format(false=false)}")
        before = {
            "export": (JobKind.EXPORT, {"analysis": "kept"}, None),
            "compare": (JobKind.COMPARE, {"target": "gone", "reference": "kept"}, "gone"),
            "analyze": (JobKind.ANALYZE, {"submission": {"reference": "gone"}}, "kept"),
            "fetch": (JobKind.FETCH, {"url": "u", "wishes": None}, None),
            "remote": (JobKind.REMOTE, {"run_asked": {"target": "machine"}}, "kept"),
        }
        columns = [column for column in JOBS.c if column.name not in ("role", "is_member")]
        rest: dict[str, Any] = {
            "fingerprint": "",
            "folders": [],
            "steps": [],
            "log": "",
            "title": "t",
        }
        rest |= {"step_number": 0, "step_count": 0, "percent": 0.0, "attempts": 1}
        rest |= {"is_cancel_requested": False, "created": utc_now(), "owner": "ada"}
        for name, (kind, parameters, analysis_id) in before.items():
            values = {**rest, "id": name, "kind": kind, "parameters": parameters}
            values |= {"analysis_id": analysis_id, "state": JobState.DONE}
            values |= {"visibility": Visibility.PRIVATE}
            old = JOBS.insert().values({c: values[c.name] for c in columns if c.name in values})
            connection.execute(old.inline())
    migrations.upgrade(engine)
    wanted = select(*JOB_ANALYSES.c).order_by(JOB_ANALYSES.c.job_id, JOB_ANALYSES.c.analysis_id)
    with reading(engine) as connection:
        rows = [tuple(row) for row in connection.execute(wanted)]
    assert rows == [
        ("analyze", "gone", "ada", Visibility.PRIVATE),
        ("analyze", "kept", None, None),
        ("compare", "gone", "ada", Visibility.PRIVATE),
        ("compare", "kept", None, None),
        ("export", "kept", None, None),
        ("remote", "kept", None, None),
    ]
    assert queue.counts(engine, VIC.person) == {}
    assert queue.counts(engine, ADA.person) == {JobState.DONE: 5}
