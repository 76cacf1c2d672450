"""The jobs page: every state with its actions, links to a job, and empty states."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.testing.v1 import AppTest

from jarvis.server import claims
from jarvis.server import queue as job_queue
from jarvis.server.database import JobKind, JobState, database
from jarvis.server.jobs.kinds import Export
from jarvis.server.queue import FinishedStep, Job, JobProgress, NewJob, Outcome
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import outdated, work_off

Queue = Callable[[str], Job]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    return database()


@pytest.fixture
def queue(engine: Engine) -> Queue:
    def submit(name: str) -> Job:
        new = NewJob(JobKind.ANALYZE, f"Analyze {name}", {"submission": {"trace": name}})
        return job_queue.submit(engine, new, "ann@example.com")

    return submit


def run(engine: Engine, job: Job) -> JobProgress:
    """Let a worker be in the middle of a job."""
    taken = claims.claim(engine, "w")
    assert taken is not None
    assert taken.id == job.id
    far = JobProgress(
        "GPU timeline", 3, 8, 25.0, None, None, [FinishedStep("Read", 0.5)], "12:00 Read"
    )
    claims.record_heartbeat(engine, "w", 1, {job.id: far})
    return far


def test_without_jobs_the_page_says_how_to_get_one(filed: Draw, engine: Engine) -> None:
    page = filed("jobs")
    assert not page.exception
    assert "No jobs on this server" in page.info[0].value


def test_every_state_has_its_row_and_its_progress(
    filed: Draw, engine: Engine, queue: Queue
) -> None:
    failed, running, waiting = (queue(name) for name in ("bad.json", "now.json", "later.json"))
    far = run(engine, failed)
    claims.finish(engine, "w", failed.id, far, Outcome(JobState.FAILED, "The disk is full."))
    run(engine, running)
    page = filed("jobs")
    assert not page.exception
    rows = page.dataframe[0].value.set_index("id")
    assert list(rows.index) == [running.id, waiting.id, failed.id]
    assert [state.split()[1] for state in rows["state"]] == ["running", "waiting", "failed"]
    assert rows.loc[running.id, "percent"] == 25.0
    assert rows.loc[running.id, "step"] == "GPU timeline"
    assert rows.loc[waiting.id, "owner"] == "ann@example.com"
    assert "1 waiting · 1 running" in page.main.caption[0].value
    only = filed("jobs", jobs_state="failed").dataframe[0].value
    assert only["id"].to_list() == [failed.id]


def test_a_link_shows_a_failed_job_with_reason_and_log_and_retries_it(
    filed: Draw, engine: Engine, queue: Queue
) -> None:
    job = queue("bad.json")
    far = run(engine, job)
    claims.finish(engine, "w", job.id, far, Outcome(JobState.FAILED, "The disk is full."))
    page = filed("jobs", job=job.id)
    assert "The disk is full." in page.error[0].value
    assert "GPU timeline" in page.error[0].value
    assert page.main.code[0].value == "12:00 Read"
    assert page.dataframe[0].value["id"].to_list() == [job.id]
    next(b for b in page.button if b.label == "Retry").click().run()
    assert not page.exception
    assert job_queue.find(engine, job.id).state is JobState.QUEUED
    assert not page.error


def test_a_job_of_another_version_is_not_retried_and_says_why(
    filed: Draw, engine: Engine, queue: Queue
) -> None:
    job = outdated(engine, job_queue.cancel(engine, queue("old.json").id))
    page = filed("jobs", job=job.id)
    next(b for b in page.button if b.label == "Retry").click().run()
    assert not page.exception
    assert "another version of Jarvis" in page.toast[0].value
    assert job_queue.find(engine, job.id).state is JobState.CANCELLED


def test_a_running_job_shows_its_steps_and_can_be_cancelled(
    filed: Draw, engine: Engine, queue: Queue
) -> None:
    job = queue("now.json")
    run(engine, job)
    page = filed("jobs", job=job.id)
    assert [s.label for s in page.get("status")] == ["Read · 0.50 s", "GPU timeline (3 of 8)"]
    next(b for b in page.button if b.label == "Cancel").click().run()
    assert claims.cancel_requests(engine, "w") == {job.id: True}
    assert next(b for b in page.button if b.label == "Cancelling").disabled


def test_the_page_looks_again_by_itself_only_while_something_runs(
    filed: Draw, engine: Engine, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[float] = []
    enqueue = ScriptRunContext.enqueue

    def noted(context: ScriptRunContext, message: ForwardMsg) -> None:
        if message.HasField("auto_rerun"):
            timers.append(message.auto_rerun.interval)
        enqueue(context, message)

    monkeypatch.setattr(ScriptRunContext, "enqueue", noted)
    job = queue("now.json")
    far = run(engine, job)
    filed("jobs", job=job.id)
    assert timers
    claims.finish(engine, "w", job.id, far, Outcome(JobState.DONE))
    timers.clear()
    filed("jobs", job=job.id)
    assert timers == []


def test_a_waiting_job_without_a_worker_says_what_it_waits_for(
    filed: Draw, engine: Engine, queue: Queue
) -> None:
    job = queue("later.json")
    page = filed("jobs", job=job.id)
    assert "no worker is running" in page.warning[0].value
    claims.record_heartbeat(engine, "w", 0, {})
    assert "Dask cluster" in filed("jobs", job=job.id).warning[0].value
    claims.record_heartbeat(engine, "w", 1, {})
    seen = filed("jobs", job=job.id)
    assert not seen.warning
    assert "starting soon" in seen.main.caption[-1].value


def test_a_waiting_job_says_its_place_in_the_queue(
    filed: Draw, engine: Engine, queue: Queue
) -> None:
    running, *waiting = (queue(f"{n}.json") for n in range(4))
    run(engine, running)
    page = filed("jobs", job=waiting[2].id)
    steps = page.dataframe[0].value.set_index("id")["step"]
    assert [steps[job.id] for job in waiting] == [f"place {n} in the queue" for n in (1, 2, 3)]
    assert "place 3 of 3 in the queue" in page.main.caption[-1].value
    assert "next in the queue; 1 job running" in (
        filed("jobs", job=waiting[0].id).main.caption[-1].value
    )


def test_a_long_list_is_filtered_by_kind_and_owner(
    filed: Draw, engine: Engine, queue: Queue
) -> None:
    queue("only.json")
    assert not filed("jobs").selectbox
    for n in range(10):
        queue(f"{n}.json")
    bobs = job_queue.submit(engine, NewJob(JobKind.EXPORT, "Export", {"n": 1}), "bob@example.com")
    assert len(filed("jobs").dataframe[0].value) == 12
    for parameters in ({"jobs_kind": "export"}, {"jobs_owner": "bob@example.com"}):
        page = filed("jobs", **parameters)
        assert not page.exception
        assert page.dataframe[0].value["id"].to_list() == [bobs.id]
        assert not page.warning
    both = filed("jobs", jobs_kind="export", jobs_owner="ann@example.com")
    assert "No job matches the filters" in both.main.caption[1].value


def test_a_job_that_is_not_there_is_corrected_with_a_word(
    filed: Draw, engine: Engine, queue: Queue
) -> None:
    queue("a.json")
    page = filed("jobs", job="gone")
    assert not page.exception
    assert "'gone'" in page.warning[0].value
    assert "job" not in page.query_params


def test_an_export_is_taken_home_from_its_job(
    filed: Draw, sample_id: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(home))
    engine = database()
    job = job_queue.submit(engine, Export(sample_id, "json").new_job())
    work_off(engine)
    page = filed("jobs", job=job.id)
    assert not page.exception
    (link,) = page.get("link_button")
    assert ".json (" in link.proto.label
    assert link.proto.url.startswith(f"/api/jobs/{job.id}/file?ticket=")
    (file,) = (home / "exports" / job.id).iterdir()
    file.unlink()
    assert "was removed" in filed("jobs", job=job.id).warning[0].value


def test_the_sidebar_counts_what_runs(filed: Draw, engine: Engine, queue: Queue) -> None:
    def chips(page: AppTest) -> list[str]:
        labels = [link.proto.label for link in page.sidebar.get("page_link")]
        return [label for label in labels if "in progress" in label]

    assert chips(filed("jobs")) == []
    queue("a.json")
    queue("b.json")
    assert chips(filed("jobs")) == ["2 jobs in progress"]


@pytest.mark.parametrize("name", ["overview", "jobs"])
def test_a_database_that_is_gone_is_a_sentence_on_every_page(
    filed: Draw, sample_id: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("JARVIS_DATABASE_URL", "sqlite:////proc/nothing/jarvis.db")
    page = filed(name, analysis=sample_id)
    assert not page.exception
    assert "database of this server cannot be used" in page.error[0].value
