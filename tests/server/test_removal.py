"""Deletion and prune: what is deleted by which limit, and what is protected."""

import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from jarvis import read_trace
from jarvis.core.workspace import (
    analyses_dir,
    exports_dir,
    pushes_dir,
    trace_cache_dir,
    uploads_dir,
)
from jarvis.server import claims, queue
from jarvis.server.access import audit
from jarvis.server.access.rights import LOCAL
from jarvis.server.database import AUDIT, JOBS, JobKind, JobState
from jarvis.server.errors import RemovalRefusedError, UnknownAnalysisError
from jarvis.server.ingest.intake import store_upload
from jarvis.server.jobs.kinds import Analyze, Export
from jarvis.server.queue import JobProgress, NewJob, Outcome
from jarvis.server.retention import housekeeping
from jarvis.server.retention.plan import Kind, Limits, Plan, age_words, plan, prune
from jarvis.server.retention.removal import remove_analysis
from jarvis.server.storage.catalog import (
    analysis_root,
    pinned,
    read_catalog,
    set_pinned,
    stored_row,
)
from jarvis.server.submission import StoredAnalysis, Submission, submit
from jarvis.trace import sidecar
from tests.builders import trace
from tests.server.conftest import on_both_databases

DAY_S = 86_400


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the analyses of two uploads; the second has the first as reference."""
    home = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        reference = None
        for name, us in (("old", 12.0), ("new", 15.0)):
            built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=us)
            with built.write(home / f"{name}.json").open("rb") as content:
                upload = store_upload(f"{name}.json", content)
            reference = submit(Submission(upload, model_name=name, reference=reference)).id
    return home


@pytest.fixture
def by_name(made: Path, home: Path, engine: Engine) -> dict[str, str]:
    """The ids of the analyses, the old one kept for 40 days and the new one for 10."""
    shutil.copytree(made, home, ignore=shutil.ignore_patterns("jarvis.db*"), dirs_exist_ok=True)
    ids = {str(e.manifest.model_name): e.id for e in read_catalog().entries}
    for name, days in (("old", 40), ("new", 10)):
        grow_older(analysis_root(ids[name]) / "manifest.json", days)
    for upload in uploads_dir().iterdir():
        grow_older(upload, 50)
    return ids


def grow_older(path: Path, days: float) -> None:
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))


def to_delete(planned: Plan) -> set[tuple[Kind, str]]:
    return {(one.stored.kind, one.stored.name) for one in planned.to_delete}


def limits(days: float | None = None, most: float | None = None) -> Limits:
    return Limits(None if days is None else days * DAY_S, most)


def asked(engine: Engine, analysis_id: str) -> queue.Job:
    return queue.submit(engine, Export(analysis_id, "json").new_job())


@on_both_databases
def test_an_analysis_is_removed_with_all_its_files(by_name: dict[str, str]) -> None:
    removed = remove_analysis(by_name["new"])
    assert removed.size_bytes > 10_000
    assert [path.name for path in analyses_dir().iterdir()] == [by_name["old"]]
    with pytest.raises(UnknownAnalysisError):
        remove_analysis(by_name["new"])


def test_removing_a_reference_names_who_refers_to_it(by_name: dict[str, str]) -> None:
    assert remove_analysis(by_name["old"]).referred_to_by == (by_name["new"],)


def test_a_damaged_analysis_can_be_removed(by_name: dict[str, str]) -> None:
    (analysis_root(by_name["new"]) / "manifest.json").write_text("{")
    remove_analysis(by_name["new"])
    assert read_catalog().broken == ()


@pytest.mark.parametrize("name", ["", ".", "..", "../traces", "nothing", ".hidden"])
def test_nothing_but_an_analysis_is_removed(by_name: dict[str, str], name: str) -> None:
    with pytest.raises(UnknownAnalysisError):
        remove_analysis(name)
    assert uploads_dir().is_dir()


def test_a_pinned_analysis_stays_until_it_is_let_go(by_name: dict[str, str]) -> None:
    assert set_pinned(by_name["old"], is_pinned=True)
    assert not set_pinned(by_name["old"], is_pinned=True)
    with pytest.raises(RemovalRefusedError, match="it is pinned"):
        remove_analysis(by_name["old"])
    assert stored_row(by_name["old"]).is_pinned
    assert set_pinned(by_name["old"], is_pinned=False)
    remove_analysis(by_name["old"])
    assert pinned() == frozenset()


def test_the_pin_of_an_analysis_that_is_made_again_stays(by_name: dict[str, str]) -> None:
    set_pinned(by_name["old"], is_pinned=True)
    upload = next(uploads_dir().glob("*/old.json"))
    assert submit(Submission(upload, model_name="old"), again=True).id == by_name["old"]
    assert stored_row(by_name["old"]).is_pinned


def test_an_analysis_that_a_job_works_with_stays_until_the_job_has_ended(
    by_name: dict[str, str], engine: Engine
) -> None:
    job = asked(engine, by_name["old"])
    with pytest.raises(RemovalRefusedError, match=job.id):
        remove_analysis(by_name["old"])
    assert claims.claim(engine, "w") is not None
    with pytest.raises(RemovalRefusedError, match=job.id):
        remove_analysis(by_name["old"])
    claims.finish(engine, "w", job.id, JobProgress(), Outcome(JobState.DONE))
    remove_analysis(by_name["old"])


def test_without_limits_no_analysis_goes(by_name: dict[str, str]) -> None:
    assert to_delete(plan(limits())) == set()


@on_both_databases
def test_old_analyses_go_and_take_their_uploads_with_them(by_name: dict[str, str]) -> None:
    planned = plan(limits(days=30))
    assert to_delete(planned) == {(Kind.ANALYSIS, by_name["old"]), (Kind.UPLOAD, "old.json")}
    assert [one.reason for one in planned.to_delete] == [
        "older than 30 days",
        "no analysis and no job uses it",
    ]
    before = planned.total_bytes
    assert set(prune(planned)) == set(planned.to_delete)
    assert [entry.id for entry in read_catalog().entries] == [by_name["new"]]
    after = plan(limits(days=30))
    assert after.to_delete == []
    assert after.total_bytes == before - planned.freed_bytes == planned.left_bytes


def test_a_plan_changes_nothing(by_name: dict[str, str], home: Path) -> None:
    def files() -> list[Path]:
        return sorted(path for path in home.rglob("*") if "jarvis.db" not in path.name)

    before = files()
    assert plan(limits(days=1, most=0)).to_delete
    assert files() == before


@on_both_databases
def test_the_oldest_go_first_until_the_rest_is_small_enough(by_name: dict[str, str]) -> None:
    total = plan(limits()).total_bytes
    assert to_delete(plan(limits(most=total))) == set()
    planned = plan(limits(most=total - 1))
    assert to_delete(planned) == {(Kind.ANALYSIS, by_name["old"]), (Kind.UPLOAD, "old.json")}
    assert to_delete(plan(limits(most=0))) > to_delete(planned)
    assert plan(limits(most=0)).left_bytes == 0


def test_what_can_be_had_again_goes_before_any_analysis(by_name: dict[str, str]) -> None:
    made = exports_dir() / "job1" / "old.xlsx"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"x" * 1000)
    total = plan(limits()).total_bytes
    assert to_delete(plan(limits(most=total - 500))) == {(Kind.EXPORT, "old.xlsx")}


@on_both_databases
def test_pinned_analyses_and_their_uploads_stay_whatever_the_limits(
    by_name: dict[str, str],
) -> None:
    set_pinned(by_name["old"], is_pinned=True)
    planned = plan(limits(days=1, most=0))
    assert to_delete(planned) == {(Kind.ANALYSIS, by_name["new"]), (Kind.UPLOAD, "new.json")}
    assert [(one.stored.name, one.reason) for one in planned.protected] == [
        (by_name["old"], "pinned")
    ]


def test_what_a_job_works_with_stays(by_name: dict[str, str], engine: Engine) -> None:
    job = asked(engine, by_name["old"])
    planned = plan(limits(days=30))
    assert to_delete(planned) == set()
    assert [one.reason for one in planned.protected] == [f"job {job.id} is using it"]


def test_the_upload_of_a_job_that_waits_stays(by_name: dict[str, str], engine: Engine) -> None:
    upload = next(uploads_dir().glob("*/old.json"))
    queue.submit(engine, Analyze(Submission(upload)).new_job())
    remove_analysis(by_name["old"])
    assert to_delete(plan(limits())) == set()


def test_an_upload_without_analysis_goes_after_a_day(by_name: dict[str, str]) -> None:
    upload = next(uploads_dir().glob("*/old.json"))
    remove_analysis(by_name["old"])
    grow_older(upload.parent, 0.5)
    assert to_delete(plan(limits())) == set()
    grow_older(upload.parent, 1.5)
    assert to_delete(plan(limits())) == {(Kind.UPLOAD, "old.json")}


def test_what_was_pinned_after_the_plan_stays(by_name: dict[str, str]) -> None:
    planned = plan(limits(days=30))
    set_pinned(by_name["old"], is_pinned=True)
    assert Kind.ANALYSIS not in {one.stored.kind for one in prune(planned)}
    assert analysis_root(by_name["old"]).is_dir()


def test_copies_of_traces_go_when_their_file_is_gone(
    by_name: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "MIN_EVENTS", 0)
    upload = next(uploads_dir().glob("*/new.json"))
    read_trace(upload)
    (copy,) = trace_cache_dir().iterdir()
    assert to_delete(plan(limits())) == set()
    upload.unlink()
    assert (Kind.COPY, copy.name) in to_delete(plan(limits()))


def test_what_was_left_half_made_goes_after_a_day(by_name: dict[str, str]) -> None:
    for name in (f".{by_name['new']}.new-1234", f".{by_name['old']}.removed-1234", ".x.old-1"):
        (analyses_dir() / name).mkdir()
        grow_older(analyses_dir() / name, 2)
    (analyses_dir() / ".y.new-1234").mkdir()
    assert to_delete(plan(limits())) == {
        (Kind.LEFTOVER, f".{by_name['new']}.new-1234"),
        (Kind.LEFTOVER, f".{by_name['old']}.removed-1234"),
    }
    prune(plan(limits()))
    assert {path.name for path in analyses_dir().iterdir()} == {
        *by_name.values(),
        ".x.old-1",  # all that is left of an analysis that was being replaced
        ".y.new-1234",
    }


def test_a_loaded_analysis_is_as_young_as_its_loading(
    by_name: dict[str, str], tmp_path: Path
) -> None:
    from jarvis.server.storage.archive import load_archive, save_archive

    save_archive(analysis_root(by_name["old"]), tmp_path / "old.zip")
    remove_analysis(by_name["old"])
    load_archive(tmp_path / "old.zip")
    assert (Kind.ANALYSIS, by_name["old"]) not in to_delete(plan(limits(days=30)))


def ended(engine: Engine, name: str, days: float, state: JobState = JobState.DONE) -> str:
    """A job that ended so long ago, with a file that it made; its id."""
    job = queue.submit(engine, NewJob(JobKind.EXPORT, "Export", {"analysis": name}))
    then = datetime.now(UTC) - timedelta(days=days)
    with engine.begin() as connection:
        changed = update(JOBS).where(JOBS.c.id == job.id)
        connection.execute(changed.values(state=state, created=then, ended=then))
    export = exports_dir() / job.id / f"{name}.xlsx"
    export.parent.mkdir(parents=True)
    export.write_bytes(b"x" * 1000)
    return job.id


@on_both_databases
def test_ended_jobs_go_with_what_they_exported_and_old_audit_lines_too(engine: Engine) -> None:
    old, failed = ended(engine, "old", 91), ended(engine, "failed", 91, JobState.FAILED)
    young = ended(engine, "young", 89)
    running = queue.submit(engine, NewJob(JobKind.EXPORT, "Export", {})).id
    audit.record(engine, LOCAL, audit.Channel.COMMAND, audit.Action.PIN, "mine")
    with engine.begin() as connection:
        then = datetime.now(UTC) - timedelta(days=91)
        connection.execute(update(AUDIT).values(moment=then))
        connection.execute(update(JOBS).where(JOBS.c.id == running).values(created=then))
    audit.record(engine, LOCAL, audit.Channel.COMMAND, audit.Action.UNPIN, "mine")

    planned = plan(limits())
    assert to_delete(planned) == {(Kind.EXPORT, "old.xlsx"), (Kind.EXPORT, "failed.xlsx")}
    assert {one.reason for one in planned.to_delete} == {"its job ended more than 90 days ago"}
    assert (planned.expired.jobs, planned.expired.audit_lines) == ({old, failed}, 1)
    assert {job.id for job in queue.recent(engine)} == {old, failed, young, running}

    prune(planned)
    assert {job.id for job in queue.recent(engine)} == {young, running}
    assert [path.name for path in exports_dir().iterdir()] == [young]
    assert [entry.action for entry in audit.recent(engine)] == [audit.Action.UNPIN]
    assert plan(limits()).is_empty


@on_both_databases
def test_a_worker_tidies_up_a_part_each_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "JOBS_AT_ONCE", 2)
    ids = [ended(engine, f"job{days}", days) for days in (94, 93, 92)]
    pushes_dir().mkdir(parents=True)
    for name, days in (("of_today", 0), ("of_last_week", 8)):
        (pushes_dir() / name).touch()
        os.utime(pushes_dir() / name, (moment := time.time() - days * 86_400, moment))
    housekeeping.clean_up(engine)
    assert [path.name for path in pushes_dir().iterdir()] == ["of_today"]
    assert [job.id for job in queue.recent(engine)] == ids[2:]
    assert [path.name for path in exports_dir().iterdir()] == ids[2:]
    housekeeping.clean_up(engine)
    assert queue.recent(engine) == []


def test_an_export_that_no_job_is_known_of_goes_after_a_day(home: Path) -> None:
    export = exports_dir() / "lost"
    export.mkdir(parents=True)
    (export / "a.xlsx").write_bytes(b"x")
    assert to_delete(plan(limits())) == set()
    grow_older(export, 1.5)
    assert to_delete(plan(limits())) == {(Kind.EXPORT, "a.xlsx")}


@pytest.mark.parametrize(
    ("age_s", "words"),
    [
        (59, "0 minutes"),
        (3599, "59 minutes"),
        (3600, "1 hour"),
        (86_400, "1 day"),
        (1e7, "115 days"),
    ],
)
def test_an_age_is_shown_in_the_unit_that_fits(age_s: float, words: str) -> None:
    assert age_words(age_s) == words


def test_stored_again(by_name: dict[str, str]) -> None:
    """A removed analysis is made again under its id, as a link to it expects."""
    remove_analysis(by_name["old"])
    upload = next(uploads_dir().glob("*/old.json"))
    kept = submit(Submission(upload, model_name="old"))
    assert kept == StoredAnalysis(by_name["old"], analyses_dir() / by_name["old"], False)
