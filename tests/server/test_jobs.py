"""Job queue: state changes, and exclusive claims."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, update

from jarvis.server import claims, queue
from jarvis.server.database import JOBS, WORKERS, JobKind, JobState
from jarvis.server.errors import UnknownJobError
from jarvis.server.queue import FinishedStep, Job, JobProgress, NewJob, Outcome
from tests.server.conftest import on_both_databases

pytestmark = on_both_databases

CLAIM_ALL = """
import sys
from jarvis.server import claims
from jarvis.server.database import database
engine = database()
print("ready", flush=True)
sys.stdin.readline()
while job := claims.claim(engine, sys.argv[1]):
    print(job.id)
"""


def new_job(name: str = "a.json") -> NewJob:
    return NewJob(JobKind.ANALYZE, f"Analyze {name}", {"trace": name})


def grown_old(engine: Engine, seconds: float) -> None:
    """Let the workers have been silent for so long."""
    then = datetime.now(UTC) - timedelta(seconds=seconds)
    with engine.begin() as connection:
        connection.execute(update(JOBS).values(heartbeat=then))
        connection.execute(update(WORKERS).values(heartbeat=then))


def test_a_job_waits_runs_and_is_done(engine: Engine) -> None:
    job = queue.submit(engine, new_job(), owner="ann@example.com")
    assert (job.state, job.attempts, job.started) == (JobState.QUEUED, 0, None)
    assert job.elapsed_s is None
    taken = claims.claim(engine, "w")
    assert taken is not None
    assert (taken.id, taken.state, taken.attempts) == (job.id, JobState.RUNNING, 1)
    assert claims.claim(engine, "v") is None
    far = JobProgress("Analyses", 2, 4, 37.5, 10, 40, [FinishedStep("Read", 0.5)], "a line")
    claims.record_heartbeat(engine, "w", 1, {job.id: far})
    seen = queue.find(engine, job.id)
    assert (seen.step, seen.percent, seen.bytes_total, seen.log) == ("Analyses", 37.5, 40, "a line")
    assert seen.steps == (FinishedStep("Read", 0.5),)
    outcome = Outcome(JobState.DONE, result={"is_reused": False}, analysis_id="abc")
    claims.finish(engine, "w", job.id, far, outcome)
    done = queue.find(engine, job.id)
    assert (done.state, done.analysis_id, done.result) == (
        JobState.DONE,
        "abc",
        {"is_reused": False},
    )
    assert done.owner == "ann@example.com"
    assert done.ended is not None
    assert done.ended.tzinfo is not None
    assert queue.counts(engine) == {JobState.DONE: 1}


def test_jobs_are_taken_in_the_order_they_came(engine: Engine) -> None:
    ids = [queue.submit(engine, new_job(f"{n}.json")).id for n in range(4)]
    assert [job.id for job in iter(lambda: claims.claim(engine, "w"), None) if job] == ids


def names(taken: list[Job]) -> list[str]:
    return [job.parameters["trace"] for job in taken]


def test_people_take_turns_and_a_place_in_the_queue_says_when(engine: Engine) -> None:
    """Many jobs of one person do not delay the job of another."""
    for n in range(1, 5):
        queue.submit(engine, new_job(f"ann-{n}"), owner="ann")
    for name in ("bob-1", "bob-2"):
        queue.submit(engine, new_job(name), owner="bob")
    queue.submit(engine, new_job("nobody"))
    expected = ["ann-1", "bob-1", "nobody", "ann-2", "bob-2", "ann-3", "ann-4"]
    assert names([queue.find(engine, i) for i in claims.waiting(engine)]) == expected
    first = claims.claim(engine, "w")
    assert first is not None
    queue.submit(engine, new_job("cleo"), owner="cleo")
    output = names([queue.find(engine, i) for i in claims.waiting(engine)])
    assert output == ["bob-1", "nobody", "cleo", "ann-2", "bob-2", "ann-3", "ann-4"]
    taken = [job for job in iter(lambda: claims.claim(engine, "w"), None) if job]
    assert names(taken) == output
    assert claims.waiting(engine) == []


def test_reading_a_trace_takes_no_turn_of_other_users(engine: Engine) -> None:
    queue.submit(engine, NewJob(JobKind.INSPECT, "Read t", {"trace": "t"}), owner="bob")
    assert claims.claim(engine, "w", claims.QUICK) is not None
    queue.submit(engine, new_job("ann-1"), owner="ann")
    assert claims.claim(engine, "w") is not None
    queue.submit(engine, new_job("ann-2"), owner="ann")
    queue.submit(engine, new_job("bob-1"), owner="bob")
    taken = [job for job in iter(lambda: claims.claim(engine, "w"), None) if job]
    assert names(taken) == ["bob-1", "ann-2"]


def test_the_same_request_is_one_job_while_it_waits_or_runs(engine: Engine) -> None:
    first = queue.submit(engine, new_job())
    assert queue.submit(engine, new_job()).id == first.id
    claims.claim(engine, "w")
    assert queue.submit(engine, new_job()).id == first.id
    changed = NewJob(JobKind.ANALYZE, "Analyze a.json", {"trace": "a.json"}, stamp="later")
    assert queue.submit(engine, changed).id != first.id
    claims.finish(engine, "w", first.id, JobProgress(), Outcome(JobState.DONE))
    assert queue.submit(engine, new_job()).id != first.id


def test_a_waiting_job_is_cancelled_at_once_a_running_one_by_its_worker(engine: Engine) -> None:
    waiting = queue.cancel(engine, queue.submit(engine, new_job()).id)
    assert waiting.state is JobState.CANCELLED
    assert claims.claim(engine, "w") is None
    running = queue.submit(engine, new_job("b.json"))
    claims.claim(engine, "w")
    assert claims.cancel_requests(engine, "w") == {running.id: False}
    assert queue.cancel(engine, running.id).state is JobState.RUNNING
    assert claims.cancel_requests(engine, "w") == {running.id: True}
    claims.finish(engine, "w", running.id, JobProgress(), Outcome(JobState.CANCELLED))
    assert queue.cancel(engine, running.id).state is JobState.CANCELLED
    assert claims.cancel_requests(engine, "w") == {}


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_what_failed_or_was_cancelled_can_be_tried_again(engine: Engine, state: JobState) -> None:
    job = queue.submit(engine, new_job())
    claims.claim(engine, "w")
    claims.finish(
        engine, "w", job.id, JobProgress("Read", 1, 8, 5.0), Outcome(state, error="no disk")
    )
    again = queue.retry(engine, job.id)
    assert (again.state, again.error, again.percent, again.attempts) == (
        JobState.QUEUED,
        None,
        0.0,
        1,
    )
    taken = claims.claim(engine, "w")
    assert taken is not None
    assert (taken.id, taken.attempts) == (job.id, 2)
    assert queue.retry(engine, job.id).state is JobState.RUNNING


def test_a_second_try_joins_the_one_that_is_under_way(engine: Engine) -> None:
    first = queue.submit(engine, new_job())
    queue.cancel(engine, first.id)
    second = queue.submit(engine, new_job())
    assert queue.retry(engine, first.id).id == second.id
    assert queue.find(engine, first.id).state is JobState.CANCELLED


def test_a_job_whose_worker_is_silent_is_given_up_and_can_be_tried_again(engine: Engine) -> None:
    lost, stopped = (queue.submit(engine, new_job(name)) for name in ("a", "b"))
    for _ in range(2):
        claims.claim(engine, "dead")
    claims.record_heartbeat(engine, "dead", 1, {})
    queue.cancel(engine, stopped.id)
    assert claims.fail_stale_jobs(engine) == []
    assert claims.has_worker(engine)
    grown_old(engine, claims.HEARTBEAT_TIMEOUT_S + 1)
    given_up = {job.id: job for job in claims.fail_stale_jobs(engine)}
    assert given_up[lost.id].state is JobState.FAILED
    assert "worker" in (given_up[lost.id].error or "")
    assert (given_up[stopped.id].state, given_up[stopped.id].error) == (JobState.CANCELLED, None)
    assert not claims.has_worker(engine)
    claims.finish(engine, "dead", lost.id, JobProgress(), Outcome(JobState.DONE))
    assert queue.find(engine, lost.id).state is JobState.FAILED, "a worker given up has no say"
    assert queue.retry(engine, lost.id).state is JobState.QUEUED


def test_a_worker_that_leaves_puts_its_jobs_back(engine: Engine) -> None:
    job = queue.submit(engine, new_job())
    claims.claim(engine, "w")
    claims.record_heartbeat(engine, "w", 1, {job.id: JobProgress("Read", 1, 8, 5.0)})
    claims.deregister(engine, "w", [job.id])
    assert not claims.has_worker(engine)
    taken = claims.claim(engine, "next")
    assert taken is not None
    assert (taken.id, taken.step, taken.attempts) == (job.id, None, 2)


def test_what_runs_is_listed_first_then_what_waits_then_the_newest(engine: Engine) -> None:
    ids = [queue.submit(engine, new_job(f"{n}.json")).id for n in range(5)]
    running, first, second, *ended = ids
    claims.claim(engine, "w")
    for job_id in ended:
        queue.cancel(engine, job_id)
    newest = ended[::-1]
    assert [job.id for job in queue.recent(engine)] == [running, first, second, *newest]
    assert [job.id for job in queue.recent(engine, limit=2, offset=2)] == [second, newest[0]]
    cancelled = queue.recent(engine, states=[JobState.CANCELLED])
    assert [job.id for job in cancelled] == newest


def test_an_unknown_job_is_a_sentence(engine: Engine) -> None:
    for ask in (queue.find, queue.cancel, queue.retry):
        with pytest.raises(UnknownJobError, match="no job 'gone'"):
            ask(engine, "gone")


@contextmanager
def claimers(count: int) -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that are about to take every job."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM_ALL, f"w{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ.copy(),
        )
        for n in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_workers_that_race_never_get_the_same_job(engine: Engine) -> None:
    submitted = [queue.submit(engine, new_job(f"{n}.json")).id for n in range(60)]
    with claimers(2) as processes:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        taken = [process.communicate(timeout=60)[0].split() for process in processes]
    assert sorted(taken[0] + taken[1]) == sorted(submitted)
    rows: list[Job] = queue.recent(engine, states=[JobState.RUNNING])
    assert {job.id for job in rows if job.worker == "w0"} == set(taken[0])
    assert {job.attempts for job in rows} == {1}


@pytest.mark.parametrize("skew_s", [-3600, 25, 3600])
def test_a_worker_whose_clock_is_wrong_fails_no_other_worker_and_is_not_given_up(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, skew_s: float
) -> None:
    queue.submit(engine, new_job())
    with monkeypatch.context() as patch:
        patch.setattr(claims, "utc_now", lambda: datetime.now(UTC) + timedelta(seconds=skew_s))
        skewed = claims.claim(engine, "skewed")
        assert skewed is not None
        claims.record_heartbeat(engine, "skewed", 1, {skewed.id: JobProgress()})
    assert claims.fail_stale_jobs(engine) == []
    assert claims.has_worker(engine)
    queue.submit(engine, new_job("b.json"))
    right = claims.claim(engine, "right")
    assert right is not None
    with monkeypatch.context() as patch:
        patch.setattr(claims, "utc_now", lambda: datetime.now(UTC) + timedelta(seconds=skew_s))
        assert claims.fail_stale_jobs(engine) == []
        assert claims.slots(engine) == 1
    grown_old(engine, claims.HEARTBEAT_TIMEOUT_S + 1)
    assert {job.id for job in claims.fail_stale_jobs(engine)} == {skewed.id, right.id}


def joined(engine: Engine, *members: Job, name: str = "join") -> Job:
    """Queue a job that waits for others."""
    new = NewJob(JobKind.JOIN, name, {"name": name}, waits_for=tuple(job.id for job in members))
    return queue.submit(engine, new)


def member(engine: Engine, name: str) -> Job:
    """Queue a job that is needed only by one that waits for it."""
    return queue.submit(engine, replace(new_job(name), is_member=True))


def test_a_job_that_waits_is_claimed_when_all_others_have_ended(engine: Engine) -> None:
    first, second = member(engine, "a"), member(engine, "b")
    join = joined(engine, first, second)
    assert queue.members(engine, [join.id, first.id]) == {join.id: {JobState.QUEUED: 2}}
    assert claims.waiting(engine) == [first.id, second.id]
    for state in (JobState.DONE, JobState.FAILED):
        job = claims.claim(engine, "w")
        assert job is not None
        assert job.id != join.id
        assert claims.claim(engine, "w", claims.QUICK) is None
        claims.finish(engine, "w", job.id, JobProgress(), Outcome(state))
    assert queue.members(engine, [join.id])[join.id] == {JobState.DONE: 1, JobState.FAILED: 1}
    assert queue.members_text(queue.members(engine, [join.id])[join.id]) == "1 of 2 ranks, 1 failed"
    claimed = claims.claim(engine, "w", claims.QUICK)
    assert claimed is not None
    assert claimed.id == join.id


def test_cancelling_takes_along_what_is_needed_only_for_the_job(engine: Engine) -> None:
    own, shared, wanted = (member(engine, name) for name in "abc")
    assert queue.submit(engine, new_job("c")).id == wanted.id  # also asked for by itself
    join = joined(engine, own, shared, wanted)
    other = joined(engine, shared, name="other")

    def states() -> list[JobState]:
        return [queue.find(engine, job.id).state for job in (own, shared, wanted, other)]

    queue.cancel(engine, join.id)
    queued, cancelled = JobState.QUEUED, JobState.CANCELLED
    assert states() == [cancelled, queued, queued, queued]
    queue.cancel(engine, other.id)
    assert states() == [cancelled, cancelled, queued, cancelled]
    retried = queue.retry(engine, shared.id)
    queue.cancel(engine, other.id)  # ended, so nothing happens
    assert queue.find(engine, retried.id).state is queued
    found = queue.latest_waiting_for(engine, shared.id)
    assert found is not None
    assert found.id == other.id
